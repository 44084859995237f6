"""Quantized operators: `com.microsoft` (QLinear*, MatMulIntegerToFloat …), and QLinearConv of the standard.

Sums of products are of integers, scaled once; what is element-wise is computed in FLOAT between dequantizing and
quantizing, each result rounded once (onnxruntime rounds some of them twice, so that they may differ by one step).

Specification: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md,
https://onnx.ai/onnx/operators/onnx__QLinearConv.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir
from onnx_ir import DataType

from castiron.ops.body import Body, rank
from castiron.ops.contrib_fused import MICROSOFT
from castiron.ops.registry import Expand, Operator

Values = Sequence[ir.Value | None]
FLOAT = DataType.FLOAT


# Pieces ---------------------------------------------------------------------------------------------------------------


def scalar(body: Body, number: int) -> ir.Value | None:
    """Input `number`, a scale or a zero point, as a scalar where it is a vector of one; None where it is absent."""
    value = body.optional(number)
    if value is None or rank(value) == 0 or value.shape != (1,):
        return value
    return body.op("Reshape", value, body.constant([], DataType.INT64))


def real(body: Body, number: int, scale: int, axis: int = 1) -> ir.Value:
    """Input `number` as FLOAT; its scale is input `scale`, its zero point the one behind."""
    return body.op("DequantizeLinear", body.input(number), scalar(body, scale), scalar(body, scale + 1), axis=axis)


def quantized(body: Body, x: ir.Value, scale: int, type: DataType) -> ir.Value:
    """x in the quantization whose scale is input `scale`; the zero point behind may be left out."""
    zero = scalar(body, scale + 1)
    return body.op("QuantizeLinear", x, scalar(body, scale), body.constant(0, type) if zero is None else zero)


def channels_first(body: Body, x: ir.Value) -> ir.Value:
    """NHWC -> NCHW."""
    return body.op("Transpose", x, perm=[0, rank(x) - 1, *range(1, rank(x) - 1)])


def channels_last(body: Body, x: ir.Value, dimensions: int) -> ir.Value:
    """NCHW -> NHWC."""
    return body.op("Transpose", x, perm=[0, *range(2, dimensions), 1])


def _across(body: Body, formula: Callable[[ir.Value], ir.Value], x: ir.Value) -> ir.Value:
    """`formula`, which takes channels first, of x, whose channels are where the node says."""
    if not body.attribute("channels_last", 0):
        return formula(x)
    return channels_last(body, formula(channels_first(body, x)), rank(x))


# Element by element ---------------------------------------------------------------------------------------------------


def _binary(op: str) -> Expand:
    def expand(body: Body) -> Values:
        return [quantized(body, body.op(op, real(body, 0, 1), real(body, 3, 4)), 6, body.type)]

    return expand


def _unary(op: str, *names: str) -> Expand:
    def expand(body: Body) -> Values:
        attributes = {n: body.attribute(n) for n in names}
        return [quantized(body, body.op(op, real(body, 0, 1), **attributes), 3, body.type)]

    return expand


def _softmax(body: Body) -> Values:
    """`opset`: of the Softmax meant; before 13 the dimensions from `axis` on are one row."""
    x, axis, opset = real(body, 0, 1), int(body.attribute("axis", -1)), int(body.attribute("opset", 13))
    if opset >= 13 or axis % rank(body.input(0)) == rank(body.input(0)) - 1:
        soft = body.op("Softmax", x, axis=axis)
    else:
        flat = body.op("Softmax", body.op("Flatten", x, axis=axis), axis=-1)
        soft = body.op("Reshape", flat, body.op("Shape", x))
    return [quantized(body, soft, 3, body.type)]


def _where(body: Body) -> Values:
    chosen = body.op("Where", body.input(0), real(body, 1, 2), real(body, 4, 5))
    return [quantized(body, chosen, 7, body.input(1).dtype or DataType.UINT8)]


def _concat(body: Body) -> Values:
    """Inputs 2, 5, 8 … with a scale and a zero point each; inputs 0 and 1 are the output's."""
    parts = [real(body, n, n + 1) for n in range(2, len(body.node.inputs), 3)]
    type = body.input(2).dtype or DataType.UINT8
    return [quantized(body, body.op("Concat", *parts, axis=int(body.attribute("axis", 0))), 0, type)]


# Pools ----------------------------------------------------------------------------------------------------------------


def _average_pool(body: Body) -> Values:
    names = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    attributes = {n: body.attribute(n) for n in names}
    pooled = _across(body, lambda x: body.op("AveragePool", x, **attributes), _shaped(body, real(body, 0, 1)))
    return [quantized(body, pooled, 3, body.type)]


def _global_average_pool(body: Body) -> Values:
    pooled = _across(body, lambda x: body.op("GlobalAveragePool", x), _shaped(body, real(body, 0, 1)))
    return [quantized(body, pooled, 3, body.type)]


def _shaped(body: Body, x: ir.Value) -> ir.Value:
    """x, a value of the first input's shape, which is told."""
    x.shape = body.input(0).shape
    return x


def _reduce_mean(body: Body) -> Values:
    mean = body.op(
        "ReduceMean", real(body, 0, 1), list(body.attribute("axes")), keepdims=int(body.attribute("keepdims", 1))
    )
    return [quantized(body, mean, 3, body.type)]


def _nhwc_max_pool(body: Body) -> Values:
    names = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
    x = channels_first(body, body.input(0))
    pooled = body.op("MaxPool", x, **{n: body.attribute(n) for n in names})
    return [channels_last(body, pooled, rank(body.input(0)))]


# Sums of products -----------------------------------------------------------------------------------------------------


def _product_of(body: Body, *inputs: ir.Value | None) -> ir.Value:
    return body.cast(body.op("MatMulInteger", *inputs), FLOAT)


def _matmul_to_float(body: Body) -> Values:
    """(A - a0) * (B - b0) * a_scale * b_scale + bias; scales and zero points of A a number, of B one or a column's."""
    a_zero, b_zero, bias = scalar(body, 4), scalar(body, 5), body.optional(6)
    total = _product_of(body, body.input(0), body.input(1), a_zero, b_zero)
    y = body.op("Mul", total, body.op("Mul", scalar(body, 2), scalar(body, 3)))
    return [y if bias is None else body.op("Add", y, bias)]


def _dynamic_matmul(body: Body) -> Values:
    """A is quantized to UINT8 by its own range."""
    a, scale, zero = body.ops("DynamicQuantizeLinear", 3, body.input(0))
    b_scale, b_zero, bias = scalar(body, 2), scalar(body, 3), body.optional(4)
    total = _product_of(body, a, body.input(1), zero, b_zero)
    y = body.op("Mul", total, body.op("Mul", scale, b_scale))
    return [y if bias is None else body.op("Add", y, bias)]


def _gemm(body: Body) -> Values:
    """alpha * (A - a0) * (B - b0) * a_scale * b_scale + C in that scale, quantized where an output scale is given."""
    a, b = body.input(0), body.input(3)
    a, b = (
        body.op("Transpose", v, perm=[1, 0]) if body.attribute(f"trans{side}", 0) else v
        for v, side in ((a, "A"), (b, "B"))
    )
    total = body.op("MatMulInteger", a, b, scalar(body, 2), scalar(body, 5))
    c = body.optional(6)
    total = body.cast(total if c is None else body.op("Add", total, c), FLOAT)
    factor = body.op("Mul", scalar(body, 1), scalar(body, 4))
    alpha = float(body.attribute("alpha", 1.0))
    factor = factor if alpha == 1.0 else body.op("Mul", factor, body.constant(alpha, FLOAT))
    y = body.op("Mul", total, factor)
    return [y if body.optional(7) is None else quantized(body, y, 7, body.type)]


def _conv(body: Body) -> Values:
    """Sums of INT32 with the bias, times x_scale * w_scale / y_scale (one, or one an output channel)."""
    x = channels_first(body, body.input(0)) if body.attribute("channels_last", 0) else body.input(0)
    dimensions, w_zero, bias = rank(body.input(0)), scalar(body, 5), body.optional(8)
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    total = body.op("ConvInteger", x, body.input(3), scalar(body, 2), w_zero, **{n: body.attribute(n) for n in names})
    if bias is not None:
        total = body.op("Add", total, _of_channels(body, bias, dimensions))
    factor = body.op("Div", body.op("Mul", scalar(body, 1), scalar(body, 4)), scalar(body, 6))
    scaled = body.op("Mul", body.cast(total, FLOAT), _of_channels(body, factor, dimensions))
    y = body.op("QuantizeLinear", scaled, body.constant(1.0, FLOAT), scalar(body, 7))
    return [channels_last(body, y, dimensions) if body.attribute("channels_last", 0) else y]


def _of_channels(body: Body, x: ir.Value, dimensions: int) -> ir.Value:
    """A number, or a vector of one an output channel, in a shape that broadcasts along the channels."""
    return body.op("Reshape", x, [-1, *[1] * (dimensions - 2)])


def _lstm(body: Body) -> Values:
    """LSTM with weights [directions, input, 4 * hidden] of integers, scaled by direction or by column.

    onnxruntime also quantizes the input and, at each step, the state, to 8 bits; here they stay as they are."""

    def weights(number: int, scale: int) -> ir.Value:
        codes, zero = body.cast(body.input(number), FLOAT), body.cast(body.input(scale + 1), FLOAT)
        factors = body.input(scale)
        if rank(factors) == 1:
            zero, factors = body.op("Unsqueeze", zero, [1]), body.op("Unsqueeze", factors, [1])
        away = body.op("Sub", codes, body.op("Unsqueeze", zero, [1]))
        return body.op("Transpose", body.op("Mul", away, body.op("Unsqueeze", factors, [1])), perm=[0, 2, 1])

    given = [body.optional(n) for n in range(3, 8)]
    attributes = {n: a.value for n, a in body.node.attributes.items()}
    outputs = len(body.node.outputs)
    return body.ops("LSTM", outputs, body.input(0), weights(1, 8), weights(2, 10), *given, **attributes)


EXPANSIONS: dict[str, Expand] = {
    "DynamicQuantizeLSTM": _lstm,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "MatMulIntegerToFloat": _matmul_to_float,
    "NhwcMaxPool": _nhwc_max_pool,
    "QGemm": _gemm,
    "QLinearAdd": _binary("Add"),
    "QLinearAveragePool": _average_pool,
    "QLinearConcat": _concat,
    "QLinearConv": _conv,
    "QLinearGlobalAveragePool": _global_average_pool,
    "QLinearLeakyRelu": _unary("LeakyRelu", "alpha"),
    "QLinearMul": _binary("Mul"),
    "QLinearReduceMean": _reduce_mean,
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearSoftmax": _softmax,
    "QLinearWhere": _where,
}

OPERATORS = (
    *(Operator(name, domain=MICROSOFT, expand=expand) for name, expand in EXPANSIONS.items()),
    Operator("QLinearConv", expand=_conv),
)
