"""`castiron run MODEL INPUT…`: the source framework's own answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from castiron.artifact.files import whole
from castiron.cli.build import parse_shapes
from castiron.errors import InputError
from castiron.frontend.source import Source, load
from castiron.lab.compare import read
from castiron.lab.reference import reference_inputs


def run_command(model: str, inputs: Sequence[str], output: Path | None, shapes: Sequence[str]) -> None:
    """Runs the model in its framework; without inputs, on the example ones."""
    source = load(model)
    given = _given(source, inputs) if inputs else reference_inputs(source, parse_shapes(shapes))
    if source.run is None:
        raise InputError(f"{model} cannot be run here: install onnxruntime (pip install onnxruntime)")
    answer = source.run(given)
    if output is None:
        print(json.dumps({name: array.tolist() for name, array in answer.items()}))
        return
    with whole(output) as temporary, temporary.open("wb") as file:
        np.savez(file, **answer)  # type: ignore[arg-type]


def _given(source: Source, texts: Sequence[str]) -> dict[str, np.ndarray]:
    names = [v.name or "" for v in source.model.graph.inputs if v.name not in source.model.graph.initializers]
    out: dict[str, np.ndarray] = {}
    free = iter(names)
    for text in texts:
        name, _, file = text.rpartition("=")
        arrays = read(Path(file))
        if name:
            out[name] = next(iter(arrays.values()))
        elif len(arrays) > 1 or set(arrays) <= set(names):
            out.update(arrays)
        else:
            position = next((n for n in free if n not in out), None)
            if position is None:
                raise InputError(f"{text}: the model takes {len(names)} inputs ({', '.join(names)})")
            out[position] = next(iter(arrays.values()))
    return out
