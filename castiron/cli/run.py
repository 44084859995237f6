"""`castiron run MODEL INPUT…`: the source framework's own answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from castiron.artifact.files import whole
from castiron.cli.arguments import parse_shapes
from castiron.errors import InputError
from castiron.frontend.onnx_file import interpreter
from castiron.frontend.source import Source, load
from castiron.lab.arrays import ArrayFile, in_files, of_type, read, write_npz
from castiron.lab.reference import reference_inputs, run_source


def run_command(
    model: str, inputs: Sequence[str], output: Path | None, shapes: Sequence[str], reference: bool = False
) -> None:
    """Runs the model in its framework, or under onnx.reference; without inputs, on the example ones."""
    source = load(model)
    if reference:
        file = source.origin if source.framework == "onnx" else None
        source = replace(source, run=interpreter(source.model, file))
    pinned = parse_shapes(shapes)
    given = _given(source, inputs) if inputs else reference_inputs(source, pinned)
    answer = run_source(source, given)
    if output is not None:
        _write(output, answer)
    else:
        print(json.dumps({name: _nested(array) for name, array in answer.items()}))


def _nested(array: np.ndarray) -> Any:
    """Nested lists; floats with the fewest digits that read back to the same bits of their own type."""
    if array.dtype.kind not in "fV":
        return array.tolist()
    shortest = [float(str(value)) for value in array.ravel()]
    return np.array(shortest).reshape(array.shape).tolist()


def _write(output: Path, answer: Mapping[str, np.ndarray]) -> None:
    """As executables write: .npy for one output, else .npz; bfloat16, which NumPy has not, as float32."""
    single = output.suffix == ".npy"
    if single and len(answer) != 1:
        raise InputError(
            f"{output} holds one array, the model has {len(answer)} outputs; give a name that ends in .npz"
        )
    with whole(output) as temporary:
        if single:
            np.save(temporary, in_files(next(iter(answer.values()))))
        else:
            write_npz(temporary, answer)


def _given(source: Source, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Arrays by input name, from `FILE` in the model's order or `NAME=FILE`."""
    ports = {str(v.name): v for v in source.model.graph.inputs if v.name not in source.model.graph.initializers}
    out: dict[str, np.ndarray] = {}
    for text in texts:
        name, path = _parted(text, ports)
        file = read(path)
        free = [n for n in ports if n not in out]
        for key, array in _named(text, file, name, free).items():
            if key not in ports:
                raise InputError(f"{text}: the model has no input {key!r}; its inputs are {', '.join(ports)}")
            if key in out:
                raise InputError(f"{text}: input {key!r} is given twice")
            dtype = ports[key].dtype
            out[key] = of_type(array, dtype.numpy()) if dtype is not None and not file.typed else array
    missing = [n for n in ports if n not in out]
    if missing:
        raise InputError(f"input {missing[0]!r} is missing; the inputs are {', '.join(ports)}")
    return out


def _parted(text: str, names: Mapping[str, object]) -> tuple[str, Path]:
    """`NAME=FILE` as the two; "" for a file without a name (which may have `=` in its own)."""
    name, _, file = text.partition("=")
    return (name, Path(file)) if file and (name in names or not Path(text).exists()) else ("", Path(text))


def _named(text: str, file: ArrayFile, name: str, free: Sequence[str]) -> Mapping[str, np.ndarray]:
    """The arrays of a file by input; those without names are the next inputs."""
    if not name and file.named:
        return file.arrays
    if len(file.arrays) > (1 if name else len(free)):
        wanted = "one is wanted" if name else f"{len(free)} inputs are free"
        raise InputError(f"{text} holds {len(file.arrays)} arrays, {wanted}")
    return dict(zip([name] if name else free, file.arrays.values()))
