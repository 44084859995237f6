"""One artifact of castiron's, tried as every form is: alone, elsewhere, with nothing around it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from castiron.errors import CastironError
from castiron.lab.forms import elf
from castiron.lab.forms.castiron_forms import LOADER, with_loader
from castiron.lab.forms.process import Desk, Inputs, answer
from castiron.lab.forms.python_forms import in_python
from castiron.lab.forms.ship import absolute_paths, places_of_this_machine
from castiron.lab.forms.types import Failed, Produced
from castiron.lab.native import alone
from castiron.lab.spawn import Spawner
from castiron.options import Form


@dataclass(frozen=True)
class Alone:
    """What a copy of an artifact did and asked for. outputs: of its run; bfloat16 as float32. paths: absolute paths of
    this machine in its bytes. libraries: of the system that it loads. undefined: symbols left to a runtime, by prefix."""

    outputs: Mapping[str, np.ndarray]
    paths: tuple[str, ...]
    libraries: tuple[str, ...]
    undefined: Mapping[str, int]


def tried_alone(artifact: Path, form: Form, emulator: str, inputs: Mapping[str, np.ndarray]) -> Alone:
    """Runs an executable or shared library, copied with its weights file to an empty folder, from another current folder

    and with an empty environment. CastironError with what it says where it does not run there."""
    with tempfile.TemporaryDirectory(prefix="castiron-elsewhere-") as scratch, alone(artifact) as copy:
        here, elsewhere, desk_folder = copy.parent, Path(scratch) / "elsewhere", Path(scratch) / "desk"
        elsewhere.mkdir()
        desk_folder.mkdir()
        files = list(here.iterdir())
        needles = places_of_this_machine(artifact.resolve().parent)
        paths = absolute_paths(files, needles)
        make = _library if form == Form.SHARED else _executable
        made = make(here, artifact.name, inputs, emulator)
        desk = Desk(Spawner(desk_folder), Inputs.written(desk_folder, inputs), 0)
        try:
            found = answer(desk, made, here, elsewhere, {})
        except Failed as error:
            raise CastironError(f"{artifact}, copied alone to an empty folder, does not run: {error}") from None
    return Alone(
        found.arrays,
        paths,
        tuple(elf.libraries(artifact)),
        elf.by_prefix(elf.left_to_a_runtime(artifact.read_bytes())),
    )


def _executable(here: Path, name: str, inputs: Mapping[str, np.ndarray], emulator: str) -> Produced:
    given = ("{inputs}",) if inputs else ()
    started = (emulator,) if emulator else ()
    return Produced(here, (*started, f"{{here}}/{name}", *given, "-o", "{outputs}"), (name,))


def _library(here: Path, name: str, inputs: Mapping[str, np.ndarray], emulator: str) -> Produced:
    with_loader(here)
    types = ",".join(array.dtype.name for array in inputs.values())
    return in_python("castiron", here, name, f"types={types}", program=LOADER)
