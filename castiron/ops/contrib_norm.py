"""`com.microsoft`: normalizations with what stands before them (a residual sum, the sum of embeddings).

Specification: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from castiron.ops.body import Body
from castiron.ops.contrib_fused import MICROSOFT
from castiron.ops.contrib_plain import inverse_root
from castiron.ops.registry import Operator

Values = Sequence[ir.Value | None]


def _skip_layer(body: Body) -> Values:
    """Layer normalization of input + skip + bias, and that sum."""
    total = _sum(body, body.input(0), body.input(1), body.optional(4))
    epsilon = float(body.attribute("epsilon", 1e-12))
    normal = body.ops("LayerNormalization", 3, total, body.input(2), body.optional(3), axis=-1, epsilon=epsilon)
    return [*normal, total]


def _skip_simplified_layer(body: Body) -> Values:
    """RMS normalization of input + skip + bias, and that sum."""
    total = _sum(body, body.input(0), body.input(1), body.optional(3))
    total.shape = body.input(0).shape
    epsilon = float(body.attribute("epsilon", 1e-12))
    y = body.op("RMSNormalization", total, body.input(2), axis=-1, epsilon=epsilon)
    inverse = inverse_root(body, total, -1, epsilon) if body.wants(2) else None
    return [y, None, inverse, total]


def _sum(body: Body, first: ir.Value, *others: ir.Value | None) -> ir.Value:
    for other in others:
        first = first if other is None else body.op("Add", first, other)
    return first


def _embed_layer(body: Body) -> Values:
    """Layer normalization of the sum of word, position and segment embeddings; the number of tokens not masked."""
    ids, segments, mask = body.input(0), body.optional(1), body.optional(7)
    positions = body.optional(8) or places(body, ids)
    words, table = body.op("Gather", body.input(2), ids), body.op("Gather", body.input(3), positions)
    labels = None if segments is None else body.op("Gather", body.input(4), segments)
    total = _sum(body, words, labels, table)
    epsilon = float(body.attribute("epsilon", 1e-12))
    y = body.op("LayerNormalization", total, body.input(5), body.input(6), axis=-1, epsilon=epsilon)
    zeros = body.constant(0, ids.dtype)
    counted = body.op("Mul", ids, zeros) if mask is None else mask
    lengths = body.op("ReduceSum", body.cast(counted, ir.DataType.INT32), [1], keepdims=0)
    return [y, lengths, total]


def places(body: Body, x: ir.Value) -> ir.Value:
    """0, 1, 2 … for each entry of dimension 1 of x."""
    none = body.constant([], ir.DataType.INT64)
    count = body.op("Reshape", body.op("Shape", x, start=1, end=2), none)
    return body.op("Range", 0, count, 1)


OPERATORS = (
    Operator("EmbedLayerNormalization", domain=MICROSOFT, expand=_embed_layer),
    Operator("SkipLayerNormalization", domain=MICROSOFT, expand=_skip_layer),
    Operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT, expand=_skip_simplified_layer),
)
