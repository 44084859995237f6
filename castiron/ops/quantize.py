"""Between real numbers and integers or floats of few bits: x = (q - zero point) * scale.

Specification: https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html, onnx__DequantizeLinear.html,
onnx__DynamicQuantizeLinear.html, onnx__QLinearMatMul.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx_ir import DataType

from castiron.ops.common import ZERO, fail, lifted, normal_axis, reduced, saturated, scalar_of, static, wide
from castiron.ops.integer import entry, multiply_integers
from castiron.ops.registry import Call, Case, Operator
from castiron.program.builder import Tensor
from castiron.program.expr import Expr, apply, cast, constant
from castiron.program.scalar import SMALL_FLOATS, SMALL_INTEGERS

SMALL = SMALL_FLOATS | SMALL_INTEGERS | {DataType.INT8, DataType.UINT8, DataType.INT16, DataType.UINT16}


def _along(call: Call, x: Tensor, tensor: Tensor) -> Callable[[Sequence[Expr]], Expr]:
    """The scale or zero point that belongs to the element of `x` at an index: one, one an entry of the axis, or one a
    block of it."""
    if tensor.rank == 0 or (tensor.rank == 1 and static(tensor.shape[0]) == 1):
        return lambda index: scalar_of(tensor)
    axis, block = normal_axis(call, call.attribute("axis", 1), x.rank), call.attribute("block_size", 0)
    if tensor.rank == 1:
        return lambda index: tensor.load(index[axis])
    if not block:
        fail(call, f"a scale of {tensor.rank} dimensions without block_size")
    return lambda index: tensor.load(*(i // block if d == axis else i for d, i in enumerate(index)))


def _rounded(value: Expr, zero: Expr, type: DataType, saturate: bool = True) -> Expr:
    """round(value) + zero point, cut off at the ends of the type; to a float without rounding in between."""
    if type in SMALL_FLOATS:
        return (saturated if saturate else cast)(value + cast(zero, value.type), type)
    whole = apply("round", value) + cast(zero, value.type)
    return cast(apply("max", apply("min", whole, int(type.max)), int(type.min)), type)


def _lower_quantize(call: Call) -> None:
    x, out = call.input(0), call.out
    if out.type not in SMALL:
        fail(call, f"type {out.type.name}")
    scale, offset = _along(call, x, call.input(1)), call.optional(2)
    zero = None if offset is None else _along(call, x, offset)

    def value(*index: Expr) -> Expr:
        element = cast(x.load(*index), DataType.FLOAT) / cast(scale(index), DataType.FLOAT)
        saturate = bool(call.attribute("saturate", 1))
        return _rounded(element, constant(0) if zero is None else zero(index), out.type, saturate)

    call.build.compute(out, value)


def _lower_dequantize(call: Call) -> None:
    x, out = call.input(0), call.out
    if x.type not in SMALL | {DataType.INT32}:
        fail(call, f"type {x.type.name}")
    between = DataType.FLOAT if x.type in SMALL_FLOATS else DataType.INT32
    scale, offset = _along(call, x, call.input(1)), call.optional(2)
    zero = None if offset is None else _along(call, x, offset)

    def value(*index: Expr) -> Expr:
        element = cast(x.load(*index), between)
        away = element if zero is None else element - cast(zero(index), between)
        return cast(cast(away, wide(out.type)) * lifted(scale(index)), out.type)

    call.build.compute(out, value)


def _lower_dynamic(call: Call) -> None:
    """Scale and zero point of UINT8 from the least and the greatest element, 0 counted in."""
    x, build = call.input(0), call.build
    q, scale, zero = call.outputs
    ends = []
    for op in ("min", "max"):
        inner = build.axes(x.shape)
        end = build.temp(x.type, (), f"{x.name}.{op}")
        extreme = reduced(op, inner, x.load(*(a.var for a in inner)))
        ends.append(build.store(end, (), (), apply(op, extreme, 0)))
    low, high = ends
    scale = scale or build.temp(x.type, (), f"{x.name}.scale")
    zero = zero or build.temp(DataType.UINT8, (), f"{x.name}.zero")
    step = build.compute(scale, lambda: (high.load() - low.load()) / 255)
    build.compute(zero, lambda: _rounded(-low.load() / step.load(), ZERO, DataType.UINT8))
    if q is not None:
        build.compute(q, lambda *index: _rounded(x.load(*index) / step.load(), zero.load(), DataType.UINT8))


def _lower_matmul(call: Call) -> None:
    """Sums of INT32 products, scaled once."""
    build, out = call.build, call.out
    total = build.temp(DataType.INT32, out.shape, f"{out.name}.sum")
    multiply_integers(build, total, call.input(0), call.input(2), call.input(3), call.input(5))
    scales = entry(call.input(1), -2), entry(call.input(4), -1)
    out_scale, out_zero = (entry(call.input(n), -1) for n in (6, 7))

    def value(*index: Expr) -> Expr:
        factor = lifted(scales[0](index)) * lifted(scales[1](index)) / lifted(out_scale(index))
        return _rounded(cast(total.load(*index), factor.type) * factor, out_zero(index), out.type)

    build.compute(out, value)


_X = np.array([[-1.5, 0.0, 2.25, 1000]], np.float32)

OPERATORS = (
    Operator("DequantizeLinear", _lower_dequantize),
    Operator("DynamicQuantizeLinear", _lower_dynamic),
    Operator("QLinearMatMul", _lower_matmul),
    Operator(
        "QuantizeLinear",
        _lower_quantize,
        cases=(Case("ends", (_X, np.array(0.5, np.float32), np.array(3, np.int8))),),
    ),
)
