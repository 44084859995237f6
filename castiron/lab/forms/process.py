"""Runs a form once, in a fresh process, and reads what it wrote."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from castiron.errors import CastironError
from castiron.lab.arrays import ArrayFile, in_files, read, write_npz
from castiron.lab.forms.python_forms import last_words
from castiron.lab.forms.types import Failed, Produced
from castiron.lab.spawn import Runs, Spawner


@dataclass(frozen=True)
class Inputs:
    """The same arrays twice: in one .npz, and one .npy each in the model's order."""

    npz: Path
    files: tuple[Path, ...]

    @staticmethod
    def written(folder: Path, arrays: Mapping[str, np.ndarray]) -> Inputs:
        """Into `folder`, as files hold them."""
        folder.mkdir(parents=True, exist_ok=True)
        plain = {name: in_files(array) for name, array in arrays.items()}
        write_npz(folder / "inputs.npz", plain)
        files = tuple(folder / f"{number}.npy" for number in range(len(plain)))
        for file, array in zip(files, plain.values()):
            np.save(file, array)
        return Inputs(folder / "inputs.npz", files)


@dataclass(frozen=True)
class Desk:
    """Where forms are run: what starts them, their inputs, how many threads they get."""

    spawner: Spawner
    inputs: Inputs
    threads: int


def words(command: Sequence[str], here: Path, inputs: Inputs, outputs: Path, threads: int, calls: int = 0) -> list[str]:
    """A command with its places filled."""
    places = {
        "{here}": str(here),
        "{inputs}": str(inputs.npz),
        "{outputs}": str(outputs),
        "{threads}": str(threads),
        "{calls}": str(calls),
    }
    out: list[str] = []
    for word in command:
        if word == "{files}":
            out += map(str, inputs.files)
            continue
        for mark, value in places.items():
            word = word.replace(mark, value)
        out.append(word)
    return out


def answer(
    desk: Desk,
    made: Produced,
    here: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    more: Sequence[str] = (),
) -> ArrayFile:
    """The outputs of one run. here: where the files are, if elsewhere than where they were made. Raises Failed."""
    with tempfile.TemporaryDirectory(prefix="castiron-forms-") as folder:
        outputs = Path(folder) / "outputs"
        outputs_npz = outputs.with_suffix(".npz")  # numpy.savez adds it to a name without
        line = words([*made.command, *more], here or made.here, desk.inputs, outputs_npz, desk.threads)
        checked(desk.spawner.measure(line, cwd=cwd, env=env))
        writes = any("{outputs}" in word for word in made.command)
        try:
            return read_outputs(outputs_npz if writes else desk.spawner.output)
        except CastironError as error:
            raise Failed(f"its output cannot be read: {error}") from None


def checked(runs: Runs) -> Runs:
    """The runs; Failed with the last words of one that failed."""
    if runs.failure:
        said = last_words(runs.said, 0) if runs.said.strip() else ""
        raise Failed(f"{runs.failure}: {said}" if said and said != runs.failure else runs.failure)
    return runs


def read_outputs(file: Path) -> ArrayFile:
    """What a form wrote; of a .npy file all arrays that stand in it one after the other."""
    data = file.read_bytes() if file.exists() else b""
    if not data.startswith(b"\x93NUMPY"):
        return read(file)
    stream = BytesIO(data)
    arrays: dict[str, np.ndarray] = {}
    while stream.tell() < len(data):
        try:
            arrays[f"arr_{len(arrays)}"] = np.lib.format.read_array(stream, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise Failed(f"its output is cut off: {error}") from None
    return ArrayFile.of(arrays, typed=True, named=True)


def told(output: Path) -> dict[str, Any]:
    """The line of JSON about itself that a form printed last; empty where it printed none."""
    lines = output.read_text(errors="replace").splitlines() if output.exists() else []
    try:
        found = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
