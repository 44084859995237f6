"""What a form of delivery is, and what is known of it once it has been produced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from castiron.frontend.source import Source
from castiron.lab.reference import Vectors

Progress = Callable[[str], None]


class Missing(Exception):
    """A tool that a form needs is not here; the message names it and says how to get it."""


class LeftOut(Exception):
    """The form does not exist for this model; the message says why."""


class Failed(Exception):
    """A form cannot be produced or run; the message is what its tool said."""


@dataclass(frozen=True)
class Setting:
    """What all forms are made from.

    model: as on the command line. source: the same, loaded. vectors: inputs and what the source makes of them.
    folder: each form gets a folder of its own in it. build: `castiron.pipeline.build`, which the lab may not import.
    say: progress. exports: what PyTorch has exported in this run, by kind: forms that run the same file share it."""

    model: str
    source: Source
    vectors: Vectors
    folder: Path
    build: Callable[..., Any]
    say: Progress = lambda text: None
    exports: dict[str, Exported] = field(default_factory=dict)


@dataclass(frozen=True)
class Exported:
    """A file that PyTorch exported. types and, where `forward` is called by keywords, keywords: of its arguments; code:

    the user's own Python files behind the module, relative to the folder of the model (or the current one)."""

    file: Path
    types: str
    keywords: str
    remark: str
    code: tuple[str, ...]

    @property
    def options(self) -> tuple[str, ...]:
        """Of runner.py."""
        return (f"types={self.types}", *((f"keywords={self.keywords}",) if self.keywords else ()))


@dataclass(frozen=True)
class Produced:
    """A form as files.

    command, resident: how to run it once, and many times in one process (empty: it cannot). Words may hold
    `{here}` (the folder that the files are in), `{inputs}` (an .npz), `{outputs}` (a file to write: .npz, .npy or JSON;
    without it, standard output is JSON), `{threads}` and `{calls}`; the word `{files}` stands for one .npy an input.
    model, program: paths in `here` of what ships. libraries: folder beside them with shared libraries of the runtime
    (they ship too, but count as runtime). python: runner.py runs it. remark: what its tools had to say."""

    here: Path
    command: tuple[str, ...]
    model: tuple[str, ...]
    program: tuple[str, ...] = ()
    resident: tuple[str, ...] = ()
    libraries: str = ""
    python: bool = False
    remark: str = ""

    @property
    def shipped(self) -> tuple[str, ...]:
        """Everything that goes along."""
        return (*self.model, *self.program, *((self.libraries,) if self.libraries else ()))


@dataclass(frozen=True)
class Form:
    """A way to ship a model.

    name: on the command line. title, runs: for readers; what it is, and what runs it. produce: makes it in a folder;
    raises Missing, LeftOut or Failed (or any CastironError)."""

    name: str
    title: str
    runs: str
    produce: Callable[[Setting, Path], Produced]


@dataclass(frozen=True)
class Agreement:
    """One output against the source's. max_diff, allowed: absolute; ulp: of the output's largest value."""

    name: str
    max_diff: float
    ulp: float | None
    allowed: float
    reason: str = ""

    @property
    def ok(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class Ships:
    """Bytes to ship. runtime: what must be installed beside it, by name. system: shared libraries of the system that it
    loads at start. undefined: symbols left to a runtime, by their prefix."""

    model: int
    program: int
    runtime: Mapping[str, int] = field(default_factory=dict)
    system: tuple[str, ...] = ()
    undefined: Mapping[str, int] = field(default_factory=dict)

    @property
    def runtime_bytes(self) -> int:
        return sum(self.runtime.values())

    @property
    def total(self) -> int:
        return self.model + self.program + self.runtime_bytes


@dataclass(frozen=True)
class Start:
    """Milliseconds from starting a process to its exit, a run a round. split: medians of what the form itself reports
    (import, load, first), in milliseconds. modules: of Python, loaded before and after."""

    walls: tuple[float, ...]
    split: Mapping[str, float] = field(default_factory=dict)
    modules: tuple[int, int] | None = None

    @property
    def least(self) -> float:
        return min(self.walls)

    @property
    def median(self) -> float:
        return float(np.median(self.walls))

    @property
    def spread(self) -> float:
        """The distance between the quartiles, in milliseconds."""
        low, high = np.percentile(self.walls, (25, 75))
        return float(high - low)


@dataclass(frozen=True)
class Memory:
    """Bytes. peak: the highest resident memory of any run by the system's account (rusage). At the exit of one run:
    resident, of that private to the process and shared with others (files); None where the system does not tell."""

    peak: int
    resident: int | None = None
    private: int | None = None
    shared: int | None = None


@dataclass(frozen=True)
class Steady:
    """A resident process: milliseconds a call (least, median), and calls a second by number of threads."""

    least: float
    median: float
    calls: int
    throughput: Mapping[int, float]


@dataclass(frozen=True)
class Moved:
    """The form alone in another folder, with nothing of the build machine within reach.

    reason: why it does not work there, or empty. paths: absolute paths of the build machine that its files hold.
    native: flags found in it that tie it to the build machine's processor."""

    reason: str = ""
    paths: tuple[str, ...] = ()
    native: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class Row:
    """All that is known of one form. state: `ok`, `mismatch`, `missing`, `left out` or `failed`; note: why."""

    name: str
    title: str
    runs: str
    state: str
    note: str = ""
    remark: str = ""
    agreement: tuple[Agreement, ...] = ()
    ships: Ships | None = None
    start: Start | None = None
    memory: Memory | None = None
    steady: Steady | None = None
    moved: Moved | None = None
