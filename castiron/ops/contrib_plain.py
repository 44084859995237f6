"""`com.microsoft`: standard operators under another name, mostly from before the standard had them.

Specification: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from castiron.ops.body import Body, rank
from castiron.ops.contrib_fused import MICROSOFT
from castiron.ops.registry import Expand, Operator

Values = Sequence[ir.Value | None]

# Those with the standard's inputs and attributes (of some opset: `axis` of DequantizeLinear may be missing).
SAME = ("DequantizeLinear", "GatherND", "GridSample", "LayerNormalization", "QuantizeLinear", "Trilu")


def _same(body: Body) -> Values:
    attributes = {name: a.value for name, a in body.node.attributes.items()}
    return body.ops(body.node.op_type, len(body.node.outputs), *body.node.inputs, **attributes)


def _expand_dims(body: Body) -> Values:
    """A dimension of 1 at `axis`, a scalar or a vector of one."""
    axis = body.op("Cast", body.op("Reshape", body.input(1), [1]), to=int(ir.DataType.INT64))
    return [body.op("Unsqueeze", body.input(0), axis)]


def _pad(body: Body) -> Values:
    """Pad with pads of one dimension or of [1, 2 * rank], and a value of any shape."""
    x, value = body.input(0), body.optional(2)
    pads = body.op("Reshape", body.input(1), [-1])
    fill = None if value is None else body.op("Reshape", value, body.constant([], ir.DataType.INT64))
    return [body.op("Pad", x, pads, fill, mode=body.attribute("mode", "constant"))]


def _range(body: Body) -> Values:
    """Range whose step may be left out, from tensors of one element."""
    none = body.constant([], ir.DataType.INT64)
    step = body.optional(2) or body.constant(1)
    return [body.op("Range", *(body.op("Reshape", v, none) for v in (body.input(0), body.input(1), step)))]


def _simplified_layer(body: Body) -> Values:
    """RMS normalization under the name that onnxruntime's optimizer writes into the standard domain."""
    x, axis, epsilon = body.input(0), int(body.attribute("axis", -1)), float(body.attribute("epsilon", 1e-5))
    y = body.op("RMSNormalization", x, body.input(1), axis=axis, epsilon=epsilon)
    return [y, inverse_root(body, x, axis, epsilon) if body.wants(1) else None]


def inverse_root(body: Body, x: ir.Value, axis: int, epsilon: float) -> ir.Value:
    """1 / sqrt(mean(x^2) + epsilon) over the dimensions from `axis` on, as FLOAT."""
    wide = body.cast(x, ir.DataType.FLOAT)
    axes = list(range(axis % rank(x), rank(x)))
    mean = body.op("ReduceMean", body.op("Mul", wide, wide), axes, keepdims=1)
    return body.op("Reciprocal", body.op("Sqrt", body.op("Add", mean, body.constant(epsilon, ir.DataType.FLOAT))))


def _conv_transpose(body: Body) -> Values:
    """ConvTranspose whose pads are an input, known at build."""
    names = ("auto_pad", "dilations", "group", "kernel_shape", "output_padding", "strides")
    attributes = {n: body.attribute(n) for n in names}
    pads = body.known(2)
    if pads is None and body.optional(2) is not None:
        body.fail("pads that are not known at build")
    given = None if pads is None else [int(p) for p in pads]
    return [body.op("ConvTranspose", body.input(0), body.input(1), body.optional(3), pads=given, **attributes)]


EXPANSIONS: dict[str, Expand] = {
    **dict.fromkeys(SAME, _same),
    "ConvTransposeWithDynamicPads": _conv_transpose,
    "ExpandDims": _expand_dims,
    "Pad": _pad,
    "Range": _range,
    "SimplifiedLayerNormalization": _simplified_layer,
}

OPERATORS = (
    *(Operator(name, domain=MICROSOFT, expand=expand) for name, expand in EXPANSIONS.items()),
    Operator("SimplifiedLayerNormalization", expand=_simplified_layer),
)
