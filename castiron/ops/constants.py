"""Tensors made of sizes, constants or numbers alone.

Specification: https://onnx.ai/onnx/operators/onnx__Shape.html, onnx__Constant.html, onnx__ConstantOfShape.html,
onnx__Range.html, onnx__EyeLike.html, onnx__OneHot.html
"""

from __future__ import annotations

import numpy as np
from onnx_ir import DataType

from castiron.ops.common import fail, normal_axis, product, scalar_of, store_list
from castiron.ops.registry import Call, Operator
from castiron.program.expr import INT64, Expr, apply, cast, constant, select
from castiron.program.scalar import FLOATS


def _lower_shape(call: Call) -> None:
    shape = call.input(0).shape
    first, last, _ = slice(call.attribute("start", 0), call.attribute("end")).indices(len(shape))
    store_list(call.build, call.out, shape[first:last])


def _lower_size(call: Call) -> None:
    store_list(call.build, call.out, [product(call.input(0).shape)])


def _lower_constant(call: Call) -> None:
    given = [call.attribute(n) for n in ("value", "value_float", "value_int", "value_floats", "value_ints")]
    value = next((v for v in given if v is not None), None)
    if value is None:
        fail(call, "only dense numbers are compiled")
    array = np.asarray(value, call.out.type.numpy())
    held = call.build.known(array, call.out.type, f"{call.out.name}.value")
    call.build.compute(call.out, lambda *index: held.load(*index))


def _lower_constant_of_shape(call: Call) -> None:
    value = call.attribute("value")
    number = 0 if value is None else np.asarray(value).reshape(()).item()
    if call.build.pending:
        call.sizes(*call.integers(0, "shape"))
    call.build.compute(call.out, lambda *index: constant(number, call.out.type))


def _lower_range(call: Call) -> None:
    start, limit, delta = (scalar_of(call.input(n)) for n in range(3))
    if call.build.pending:
        call.sizes(_count(start, limit, delta))
    call.build.compute(call.out, lambda i: start + cast(i, call.out.type) * delta)


def _count(start: Expr, limit: Expr, delta: Expr) -> Expr:
    """How many steps from the start stay before the limit."""
    if start.type in FLOATS:
        ends = [cast(e, DataType.DOUBLE) for e in (start, limit, delta)]
        count = cast(apply("ceil", (ends[1] - ends[0]) / ends[2]), INT64)
    else:
        first, last, step = (cast(e, INT64) for e in (start, limit, delta))
        count = -apply("floordiv", first - last, step)
    return apply("max", count, 0)


def _lower_eye_like(call: Call) -> None:
    k = call.attribute("k", 0)
    call.build.compute(call.out, lambda row, column: cast(apply("eq", row + k, column), call.out.type))


def _lower_one_hot(call: Call) -> None:
    indices, values, out = call.input(0), call.input(2), call.out
    axis = normal_axis(call, call.attribute("axis", -1), out.rank)
    if call.build.pending:
        sizes = list(indices.shape)
        sizes.insert(axis, cast(scalar_of(call.input(1)), INT64))
        call.sizes(*sizes)
    depth = out.shape[axis]

    def value(*index: Expr) -> Expr:
        hot = cast(indices.load(*index[:axis], *index[axis + 1 :]), DataType.INT64)
        hot = select(hot < 0, hot + depth, hot)
        return select(apply("eq", hot, index[axis]), values.load(constant(1)), values.load(constant(0)))

    call.build.compute(out, value)


OPERATORS = (
    Operator("Constant", _lower_constant),
    Operator("ConstantOfShape", _lower_constant_of_shape),
    Operator("EyeLike", _lower_eye_like),
    Operator("OneHot", _lower_one_hot),
    Operator("Range", _lower_range),
    Operator("Shape", _lower_shape),
    Operator("Size", _lower_size),
)
