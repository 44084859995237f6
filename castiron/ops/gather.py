"""Elements picked or placed by indices that data gives. An index outside its dimension ends the run with an error.

Specification: https://onnx.ai/onnx/operators/onnx__Gather.html, onnx__GatherElements.html, onnx__GatherND.html,
onnx__ScatterElements.html, onnx__ScatterND.html
Opset history: Scatter (9) is ScatterElements (11).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from castiron.ops.common import checked_index, fail, normal_axis, renewed, static
from castiron.ops.registry import Call, Case, Operator
from castiron.program.expr import Axis, Expr, Reduce, all_of, apply, constant, select

# Operator of a reduction of scattered updates, and the scalar operator that joins it with the data.
_JOIN = {"add": ("sum", "add"), "mul": ("prod", "mul"), "max": ("max", "max"), "min": ("min", "min")}


def _lower_gather(call: Call) -> None:
    x, indices = call.input(0), call.input(1)
    axis = normal_axis(call, call.attribute("axis", 0), x.rank)
    at = checked_index(call, indices, x.shape[axis])

    def value(*index: Expr) -> Expr:
        picked = at(*index[axis : axis + indices.rank])
        return x.load(*index[:axis], picked, *index[axis + indices.rank :])

    call.build.compute(call.out, value)


def _lower_gather_elements(call: Call) -> None:
    x, indices = call.input(0), call.input(1)
    axis = normal_axis(call, call.attribute("axis", 0), x.rank)
    at = checked_index(call, indices, x.shape[axis])
    call.build.compute(call.out, lambda *i: x.load(*i[:axis], at(*i), *i[axis + 1 :]))


def _lower_gather_nd(call: Call) -> None:
    x, indices, batch = call.input(0), call.input(1), int(call.attribute("batch_dims", 0))
    depth = static(indices.shape[-1])
    if depth is None:
        fail(call, "the last dimension of the indices must be known at build")

    def value(*index: Expr) -> Expr:
        outer = index[: indices.rank - 1]
        picked = [apply("checked_index", indices.load(*outer, constant(d)), x.shape[batch + d]) for d in range(depth)]
        return x.load(*index[:batch], *picked, *index[indices.rank - 1 :])

    call.build.compute(call.out, value)


def _scattered(call: Call, hits: Expr, axes: tuple[Axis, ...], update: Expr, old: Expr) -> Expr:
    """The old element joined with every update that `hits` it."""
    op, join = _JOIN[call.attribute("reduction", "none")]
    neutral = old if join in ("max", "min") else constant(int(join == "mul"), old.type)
    return apply(join, old, Reduce(op, axes, select(hits, update, neutral)))


def _lower_scatter_elements(call: Call) -> None:
    """Each element looks for its updates along the axis: quadratic in it, and the last update wins, as in a loop."""
    x, indices, updates = call.input(0), call.input(1), call.input(2)
    axis = normal_axis(call, call.attribute("axis", 0), x.rank)
    at = checked_index(call, indices, x.shape[axis])
    (along,) = call.build.axes([indices.shape[axis]])

    def inside(index: tuple[Expr, ...]) -> Expr:
        sizes = zip(index, indices.shape, x.shape, strict=True)
        return all_of([i < small for d, (i, small, big) in enumerate(sizes) if d != axis and small is not big])

    def value(*index: Expr) -> Expr:
        place = (*index[:axis], along.var, *index[axis + 1 :])
        hits, old = apply("eq", at(*place), index[axis]), x.load(*index)
        if call.attribute("reduction", "none") != "none":
            return select(inside(index), _scattered(call, hits, (along,), updates.load(*place), old), old)
        last = Reduce("max", (along,), select(hits, along.var, constant(-1)))
        found = apply("max", last, 0)
        return select(
            inside(index), select(last >= 0, updates.load(*index[:axis], found, *index[axis + 1 :]), old), old
        )

    call.build.compute(call.out, value)


def _lower_scatter_nd(call: Call) -> None:
    """Each slice of the data looks for its updates: as many comparisons as data slices times updates."""
    x, indices, updates = call.input(0), call.input(1), call.input(2)
    depth = static(indices.shape[-1])
    if depth is None:
        fail(call, "the last dimension of the indices must be known at build")
    many = call.build.axes(indices.shape[:-1])
    row: Expr = constant(0)
    for axis in many:
        row = row * axis.extent + axis.var

    def value(*index: Expr) -> Expr:
        picked = [
            apply("checked_index", indices.load(*(a.var for a in many), constant(d)), x.shape[d]) for d in range(depth)
        ]
        hits = all_of([apply("eq", p, i) for p, i in zip(picked, index, strict=False)])
        old, rest = x.load(*index), index[depth:]
        if call.attribute("reduction", "none") != "none":
            return _scattered(call, hits, many, updates.load(*(a.var for a in many), *rest), old)
        last = Reduce("max", many, select(hits, row, constant(-1)))
        return select(last >= 0, updates.load(*_unravelled(apply("max", last, 0), indices.shape[:-1]), *rest), old)

    call.build.compute(call.out, value)


def _unravelled(number: Expr, shape: tuple[Expr, ...]) -> list[Expr]:
    index: list[Expr] = []
    for position, extent in enumerate(reversed(shape)):
        index.append(number if position == len(shape) - 1 else number % extent)
        number = number // extent
    return index[::-1]


def _upgrade_scatter(node: ir.Node, opset: int) -> list[ir.Node] | None:
    return [renewed(node, op_type="ScatterElements")]


_X = np.arange(12, dtype=np.float32).reshape(3, 4)

OPERATORS = (
    Operator("Gather", _lower_gather, cases=(Case("negative", (_X, np.array([[-1, 0]])), {"axis": 1}),)),
    Operator("GatherElements", _lower_gather_elements),
    Operator("GatherND", _lower_gather_nd),
    Operator("Scatter", _lower_scatter_elements, upgrade=_upgrade_scatter),
    Operator("ScatterElements", _lower_scatter_elements),
    Operator(
        "ScatterND",
        _lower_scatter_nd,
        cases=(
            Case(
                "last wins",
                (
                    _X,
                    np.array([[[0], [1]], [[0], [2]]]),
                    np.array([[[1] * 4, [2] * 4], [[3] * 4, [4] * 4]], np.float32),
                ),
            ),
        ),
    ),
)
