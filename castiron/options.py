"""What a build can be told, and the environment: read here, once, and nowhere else."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from castiron.errors import InputError

_C_WORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long main "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while"
)


class Form(StrEnum):
    """What `--as` can ask for."""

    EXE = "exe"  # a static executable
    SHARED = "shared"  # a shared library and its header
    STATIC = "static"  # an archive to link, and its header
    SOURCE = "source"  # a folder of C


class Weights(StrEnum):
    """Where an artifact finds its weights when nobody says otherwise."""

    EMBED = "embed"  # inside the file
    FILE = "file"  # OUT.weights beside the file OUT


class Adapter(StrEnum):
    """From whose way of storing layers to whose."""

    PYTORCH_TO_BURN = "pytorch-to-burn"
    BURN_TO_PYTORCH = "burn-to-pytorch"


@dataclass(frozen=True)
class BuildOptions:
    """How to build.

    form: what to make. weights: where its default weights are. shapes: input name -> sizes to pin (-1: as it is).
    target: a triple such as `aarch64-linux` (None: this machine's). cpu: instruction sets to include (None: all of the
    target's). error_budget: largest error against float64, as a multiple of the source framework's own. name: prefix of
    the C symbols (None: from the model's file). verify: run the artifact against its source and refuse a mismatch.
    dump: folder for every stage.
    """

    form: Form = Form.EXE
    weights: Weights = Weights.EMBED
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    target: str | None = None
    cpu: tuple[str, ...] | None = None
    error_budget: float = 2.0
    name: str | None = None
    verify: bool = True
    dump: Path | None = None

    @staticmethod
    def of(options: Mapping[str, Any]) -> BuildOptions:
        """From the names and plain values that callers give; InputError names a wrong one."""
        names = {f.name for f in fields(BuildOptions)}
        for name in options:
            if name not in names:
                raise InputError(f"build() has no option {name!r}; it has {', '.join(sorted(names))}")
        values = dict(options)
        for name, kind in (("form", Form), ("weights", Weights)):
            if name in values and values[name] not in list(kind):
                raise InputError(f"{name} {values[name]!r} is not one of {', '.join(kind)}")
            if name in values:
                values[name] = kind(values[name])
        if values.get("dump") is not None:
            values["dump"] = Path(values["dump"])
        if isinstance(values.get("cpu"), str):
            values["cpu"] = values["cpu"].split(",")
        if values.get("cpu") is not None:
            values["cpu"] = tuple(values["cpu"])
        if values.get("name") is not None and not _is_prefix(values["name"]):
            raise InputError(
                f"name {values['name']!r} cannot begin the names of C functions: use letters, digits and _, a letter "
                f"first, no word of C, not ci_…; {identifier(values['name'])} would do"
            )
        if not values.get("error_budget", 1) >= 1:
            raise InputError(f"error_budget {values['error_budget']} is less than 1, the source's own error")
        values["shapes"] = {name: tuple(map(int, sizes)) for name, sizes in (values.get("shapes") or {}).items()}
        return BuildOptions(**values)


def identifier(text: str) -> str:
    """`text` as a C identifier: the prefix of a model's symbols and the stem of its files."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "model"
    return name if _is_prefix(name) else f"model_{name}"


def _is_prefix(name: str) -> bool:
    return bool(re.fullmatch(r"(?!ci_)[A-Za-z]\w*", name, re.ASCII)) and name not in _C_WORDS.split()


@dataclass(frozen=True)
class Environment:
    """cache: where compiled runtime objects are kept (CASTIRON_CACHE). jobs: compilers run at once (CASTIRON_JOBS)."""

    cache: Path
    jobs: int


def environment() -> Environment:
    """The settings of this process."""
    base = os.environ.get("CASTIRON_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "castiron"
    )
    jobs = os.environ.get("CASTIRON_JOBS") or str(len(os.sched_getaffinity(0)))
    if not jobs.isdecimal():
        raise InputError(f"CASTIRON_JOBS is {jobs!r}, not a number of compilers to run at once")
    return Environment(Path(base), max(1, int(jobs)))
