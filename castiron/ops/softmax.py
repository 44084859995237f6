"""Softmax and its kin along one axis.

Specification: https://onnx.ai/onnx/operators/onnx__Softmax.html, onnx__LogSoftmax.html, onnx__Hardmax.html
Opset history: before 13 the dimensions from `axis` (default 1) on were one row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType

from castiron.ops.common import ZERO, integer, kept, lifted, normal_axis, renewed, rows_of, temp_like
from castiron.ops.reduce import extreme_index
from castiron.ops.registry import Call, Case, Operator
from castiron.program.builder import Tensor
from castiron.program.expr import Expr, apply, cast


def _top(call: Call) -> tuple[Tensor, int, Tensor, Callable[[Sequence[Expr]], list[Expr]]]:
    """The input, its axis, the maximum of each row, and where a row's statistics are."""
    x = call.input(0)
    axis = normal_axis(call, call.attribute("axis", -1), x.rank)
    top = temp_like(call.build, x, "max", kept(x.shape, [axis]))
    rows_of(call.build, top, [axis], "max", x.shape, lambda *i: lifted(x.load(*i)))
    return x, axis, top, lambda index: [ZERO if d == axis else i for d, i in enumerate(index)]


def _lower_softmax(call: Call) -> None:
    x, axis, top, row = _top(call)
    powers, total = temp_like(call.build, x, "exp"), temp_like(call.build, x, "sum", top.shape)
    call.build.compute(powers, lambda *i: apply("exp", lifted(x.load(*i)) - top.load(*row(i))))
    rows_of(call.build, total, [axis], "sum", x.shape, powers.load)
    call.build.compute(call.out, lambda *i: cast(powers.load(*i) / total.load(*row(i)), call.out.type))


def _lower_log_softmax(call: Call) -> None:
    x, axis, top, row = _top(call)
    total = temp_like(call.build, x, "sum", top.shape)

    def away(*index: Expr) -> Expr:
        return lifted(x.load(*index)) - top.load(*row(index))

    rows_of(call.build, total, [axis], "sum", x.shape, lambda *i: apply("exp", away(*i)))
    logarithm = temp_like(call.build, x, "log", top.shape)
    call.build.compute(logarithm, lambda *i: apply("log", total.load(*i)))
    call.build.compute(call.out, lambda *i: cast(away(*i) - logarithm.load(*row(i)), call.out.type))


def _lower_hardmax(call: Call) -> None:
    x, axis, top, row = _top(call)
    place = call.build.temp(DataType.INT64, top.shape, f"{call.out.name}.index")
    call.build.compute(place, lambda *i: extreme_index(call.build, x, top, axis, False, i))
    call.build.compute(call.out, lambda *i: cast(apply("eq", place.load(*row(i)), i[axis]), call.out.type))


def _upgrade(node: ir.Node, opset: int) -> list[ir.Node] | None:
    if opset >= 13:
        return None
    x, axis = node.inputs[0], integer(node, "axis", 1)
    rank = len(x.shape) if x is not None and x.shape is not None else None
    if axis == -1 or (rank is not None and axis % rank == rank - 1):
        return [renewed(node, axis=-1)]
    shape = ir.node("Shape", [x])
    flat = ir.node("Flatten", [x], {"axis": axis})
    soft = renewed(node, [flat.outputs[0]], axis=-1)
    back = ir.node("Reshape", [soft.outputs[0], shape.outputs[0]])
    return [shape, flat, soft, back]


_X = np.array([[0, 1, 1, -20], [1000, 999, -np.inf, 998]], np.float32)

OPERATORS = tuple(
    Operator(
        name, lower, upgrade=_upgrade, cases=(Case("far", (_X,)), Case("columns", (_X[:, :2] / 100,), {"axis": 0}))
    )
    for name, lower in (
        ("Hardmax", _lower_hardmax),
        ("LogSoftmax", _lower_log_softmax),
        ("Softmax", _lower_softmax),
    )
)
