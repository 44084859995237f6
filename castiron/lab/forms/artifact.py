"""One artifact of castiron's, tried as every form is: alone, elsewhere, with nothing around it."""

from __future__ import annotations

import shutil
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
    beside = artifact.with_name(f"{artifact.name.removesuffix('.so')}.weights")
    files = [artifact, *([beside] if beside.exists() else [])]
    with tempfile.TemporaryDirectory(prefix="castiron-alone-") as scratch:
        here, elsewhere, desk_folder = (Path(scratch) / name for name in ("alone", "elsewhere", "desk"))
        for folder in (here, elsewhere, desk_folder):
            folder.mkdir()
        for file in files:
            shutil.copy(file, here)
        made = _library(here, artifact.name, inputs) if form == Form.SHARED else _executable(here, artifact, emulator)
        desk = Desk(Spawner(desk_folder), Inputs.written(desk_folder, inputs), 0)
        try:
            found = answer(desk, made, here, elsewhere, {})
        except Failed as error:
            raise CastironError(f"{artifact}, copied alone to an empty folder, does not run: {error}") from None
    outputs = {name: found.arrays[name] for name in found.arrays}
    needles = places_of_this_machine(artifact.resolve().parent)
    return Alone(
        outputs,
        absolute_paths(files, needles),
        tuple(elf.libraries(artifact)),
        elf.by_prefix(elf.left_to_a_runtime(artifact.read_bytes())),
    )


def _executable(here: Path, artifact: Path, emulator: str) -> Produced:
    started = (emulator,) if emulator else ()
    return Produced(here, (*started, f"{{here}}/{artifact.name}", "{inputs}", "-o", "{outputs}"), (artifact.name,))


def _library(here: Path, name: str, inputs: Mapping[str, np.ndarray]) -> Produced:
    with_loader(here)
    types = ",".join(array.dtype.name for array in inputs.values())
    return in_python("castiron", here, name, f"types={types}", program=LOADER)
