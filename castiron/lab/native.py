"""Runs an artifact as its user would: an executable as a process of its own, a library through `load`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from castiron.artifact.load import load
from castiron.artifact.process import call


def run_executable(
    path: Path, inputs: Mapping[str, np.ndarray], options: Sequence[str] = (), emulator: str = ""
) -> dict[str, np.ndarray]:
    """The outputs of `path` on `inputs`; what the process says on failure becomes the error of its status."""
    with tempfile.TemporaryDirectory(prefix="castiron-run-") as folder:
        given, answer = Path(folder) / "inputs.npz", Path(folder) / "outputs.npz"
        np.savez(given, **{name: np.asarray(a) for name, a in inputs.items()})  # type: ignore[arg-type]
        where = [str(given)] if inputs else []
        call([*([emulator] if emulator else []), str(path.resolve()), *where, *options, "-o", str(answer)])
        with np.load(answer) as archive:
            return {name: archive[name] for name in archive.files}


def run_shared(path: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a shared library on `inputs`."""
    return load(path)(**inputs)
