"""Inputs for a model that came without: deterministic arrays that fit its inputs' types and sizes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from castiron.errors import Unsupported
from castiron.graph.names import clean_names
from castiron.graph.nodes import constant_of, is_standard

_BATCH, _SPATIAL, _OTHER = (2, 3), (64, 96, 128), (5, 7, 11, 13)  # distinct, so that a mixed-up dimension shows
_MOVES = (
    "Cast",
    "Identity",
    "Reshape",
    "Unsqueeze",
    "Squeeze",
    "Transpose",
    "Slice",
    "Flatten",
    "Expand",
    "Gather",
    "Split",
)


def example_inputs(
    model: ir.Model, shapes: Mapping[str, Sequence[int]] | None = None, seed: int = 0
) -> dict[str, np.ndarray]:
    """One array an input of `model`; `shapes` fixes sizes by input name (-1: choose).

    Integers are small, and indices stay inside the tables they select from; masks select everything.
    """
    model = clean_names(model)
    sizes = example_sizes(model, shapes)
    return {
        str(v.name): _array(v, sizes[str(v.name)], np.random.default_rng([seed, zlib.crc32(str(v.name).encode())]))
        for v in model.graph.inputs
    }


def example_sizes(model: ir.Model, shapes: Mapping[str, Sequence[int]] | None = None) -> dict[str, list[int]]:
    """The sizes of each input of `model` whose names are clean; equal symbols are equal, others differ."""
    sizes: dict[str, int] = {}
    fixed = shapes or {}
    for value in model.graph.inputs:
        for dim, size in zip(value.shape or (), fixed.get(str(value.name), ())):
            if not isinstance(dim, int) and size >= 0:
                sizes[str(dim.value)] = size
    made = {}
    for value in model.graph.inputs:
        if value.shape is None and str(value.name) not in fixed:
            raise Unsupported(f"input {value.name!r} has no number of dimensions; give --shape {value.name}=…")
        shape = fixed[str(value.name)] if value.shape is None else value.shape
        made[str(value.name)] = [_size(d, i, value, sizes) for i, d in enumerate(shape)]
    return made


def _size(dim: int | ir.SymbolicDim, position: int, value: ir.Value, sizes: dict[str, int]) -> int:
    if isinstance(dim, int):
        return dim if dim >= 0 else _OTHER[0]
    if str(dim.value) not in sizes:
        spatial = len(value.shape or ()) == 4 and position >= 2
        choices = _BATCH if position == 0 and len(value.shape or ()) > 1 else _SPATIAL if spatial else _OTHER
        known = dim.evaluate(sizes)
        free = [c for c in choices if c not in sizes.values()] or choices
        sizes[str(dim.value)] = known if isinstance(known, int) else free[0]
    return sizes[str(dim.value)]


def _array(value: ir.Value, dims: Sequence[int], random: np.random.Generator) -> np.ndarray:
    dtype = value.dtype or ir.DataType.FLOAT
    if dtype == ir.DataType.STRING:
        raise Unsupported(f"input {value.name!r} holds strings")
    kind = dtype.numpy()
    is_mask = "mask" in str(value.name).lower()
    if dtype == ir.DataType.BOOL:
        return np.ones(dims, kind) if is_mask else np.asarray(random.integers(0, 2, dims)).astype(kind)
    if dtype.is_integer():
        return np.ones(dims, kind) if is_mask else np.asarray(random.integers(0, _extent(value), dims)).astype(kind)
    return np.asarray(random.standard_normal(dims), np.float32).astype(kind)  # of no dimensions it draws a number


def _extent(value: ir.Value) -> int:
    """How far integers of an input may go: the smallest table that they select from, else 0 and 1."""
    found, seen, todo = [], {value}, [value]
    while todo:
        current = todo.pop()
        for node, position in ((u.node, u.idx) for u in current.uses()):
            extent = _table(node, position)
            if extent is not None:
                found.append(extent)
            elif is_standard(node, *_MOVES) and position == 0:
                new = [v for v in node.outputs if v not in seen]
                seen.update(new)
                todo.extend(new)
    return max(1, min(found, default=2))


def _table(node: ir.Node, position: int) -> int | None:
    """The number of entries that input `position` selects from: rows to gather, classes of a one-hot code."""
    if is_standard(node, "Gather") and position == 1:
        rows = constant_of(node.inputs[0])
        return None if rows is None else rows.shape[node.attributes.get_int("axis", 0)]
    if is_standard(node, "OneHot") and position == 0:
        depth = constant_of(node.inputs[1])
        return None if depth is None else int(depth.item())
    if is_standard(node, "Equal"):  # with 0, 1, 2, …: a one-hot code as TensorFlow's exporter writes it
        codes = constant_of(node.inputs[1 - position])
        return int(codes.max()) + 1 if codes is not None and codes.size > 1 else None
    return None
