"""Runs an artifact as its user would: an executable as a process of its own, a library through `load`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from castiron.artifact.identify import Artifact
from castiron.artifact.load import load
from castiron.artifact.process import call
from castiron.errors import CastironError, InputError
from castiron.lab.arrays import write_npz
from castiron.options import Form
from castiron.toolchain import targets


def run_executable(
    path: Path, inputs: Mapping[str, np.ndarray], options: Sequence[str] = (), emulator: str = ""
) -> dict[str, np.ndarray]:
    """The outputs of `path` on `inputs`; what the process says on failure becomes the error of its status."""
    with tempfile.TemporaryDirectory(prefix="castiron-run-") as folder:
        given, answer = "inputs.npz", "outputs.npz"  # short, for they are in messages
        write_npz(Path(folder) / given, inputs)
        where = [given] if inputs else []
        line = [*([emulator] if emulator else []), str(path.resolve()), *where, *options, "-o", answer]
        call(line, Path(folder))
        with np.load(Path(folder) / answer) as archive:
            return {name: archive[name] for name in archive.files}


def run_shared(path: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a shared library on `inputs`."""
    with load(path) as model:
        return model(**inputs)


def run_artifact(path: Path, form: Form, inputs: Mapping[str, np.ndarray], emulator: str) -> dict[str, np.ndarray]:
    """The outputs of an artifact of this form. Of an archive or a source folder, `path` is the program made of it."""
    if form == Form.SHARED:
        return run_shared(path, inputs)
    return run_executable(path, inputs, emulator=emulator)


def runnable(artifact: Path) -> tuple[Form, str]:
    """The form of an executable or shared library, and the emulator that runs it here ("": none is needed).

    InputError where it is neither, or cannot run on this machine."""
    found = Artifact.of(artifact)
    if found.form not in (Form.EXE, Form.SHARED):
        raise InputError(
            f"{artifact} is a static library; link it into a program, or build an executable of the same model"
        )
    emulator = targets.find(found.target).emulator
    if emulator is None or (emulator and found.form == Form.SHARED):
        raise InputError(f"{artifact} is for {found.target}: it cannot be run on this machine")
    return found.form, emulator


@contextmanager
def alone(artifact: Path) -> Iterator[Path]:
    """A copy of an artifact (and of the weights file it looks for beside it) in an otherwise empty folder."""
    with tempfile.TemporaryDirectory(prefix="castiron-alone-") as folder:
        for file in (artifact, *artifact.parent.glob("*.weights")):
            shutil.copy(file, folder)
        try:
            yield Path(folder) / artifact.name
        except CastironError as error:  # what it says of its folder is true of the artifact's own
            raise type(error)(str(error).replace(folder, str(artifact.parent))) from None
