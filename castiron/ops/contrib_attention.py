"""`com.microsoft`: attention, written as the standard's Attention with a mask.

Keys that a mask excludes get `mask_filter_value` (-10,000) added to their scores, as onnxruntime does.

Specification: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
from onnx_ir import DataType

from castiron.ops.body import Body, rank, size
from castiron.ops.contrib_fused import MICROSOFT
from castiron.ops.contrib_quantized import scalar
from castiron.ops.registry import Operator

Values = Sequence[ir.Value | None]
INT64 = DataType.INT64


# Pieces ---------------------------------------------------------------------------------------------------------------


def heads(body: Body, x: ir.Value, count: int) -> ir.Value:
    """[B, S, count * H] -> [B, count, S, H]."""
    return body.op("Transpose", body.op("Reshape", x, [0, 0, count, -1]), perm=[0, 2, 1, 3])


def joined(body: Body, x: ir.Value) -> ir.Value:
    """[B, N, S, H] -> [B, S, N * H]."""
    return body.op("Reshape", body.op("Transpose", x, perm=[0, 2, 1, 3]), [0, 0, -1])


def extent(body: Body, x: ir.Value, axis: int) -> ir.Value:
    """The size of a dimension, a vector of one."""
    return body.op("Shape", x, start=axis, end=axis + 1)


def upto(body: Body, count: ir.Value) -> ir.Value:
    """0, 1, 2 … below `count`, a vector of one."""
    return body.op("Range", 0, body.op("Reshape", count, body.constant([], INT64)), 1)


def _mask(body: Body, mask: ir.Value, total: ir.Value) -> ir.Value:
    """Whether each key counts, [B, 1, 1 or S, T]: from lengths [B], ends and starts [2B], or zeros and ones."""
    if rank(mask) == 2:
        return body.op("Unsqueeze", body.cast(mask, DataType.BOOL), [1, 2])
    if rank(mask) == 3:
        return body.op("Unsqueeze", body.cast(mask, DataType.BOOL), [1])
    if rank(mask) != 1:
        body.fail(f"a mask of {rank(mask)} dimensions")
    count, batch = size(mask, 0), size(body.input(0), 0)
    twice = count is not None and count == 2 * (batch or 0)
    if not twice and count != batch and None not in (count, batch):
        body.fail(f"a mask of {count} numbers for a batch of {batch}")
    place = body.op("Reshape", upto(body, total), [1, 1, 1, -1])
    wide = body.cast(mask, INT64)
    ends, *starts = body.ops("Split", 2, wide, axis=0, num_outputs=2) if twice else [wide]
    inside = body.op("Less", place, body.op("Reshape", ends, [-1, 1, 1, 1]))
    if starts:
        after = body.op("GreaterOrEqual", place, body.op("Reshape", starts[0], [-1, 1, 1, 1]))
        inside = body.op("And", inside, after)
    return inside


def _bias(body: Body, mask: ir.Value | None, added: ir.Value | None, total: ir.Value) -> ir.Value | None:
    """What is added to the scores: `mask_filter_value` where a key is masked, and the node's own bias."""
    if mask is None:
        return added
    least = float(body.attribute("mask_filter_value", -10000.0))
    bias = body.op("Where", _mask(body, mask, total), 0.0, least)
    return bias if added is None else body.op("Add", bias, added)


def _attend(
    body: Body,
    parts: Sequence[ir.Value],
    mask: ir.Value | None,
    added: ir.Value | None,
    past: Sequence[ir.Value] = (),
) -> list[ir.Value]:
    """Output [B, S, N * H], present keys and values [B, N, P + S, H]; `parts` are q, k and v, [B, N, S, H] each."""
    total = extent(body, parts[1], 2)
    if past:
        total = body.op("Add", total, extent(body, past[0], 2))
    y, keys, values = body.ops(
        "Attention",
        3,
        *parts,
        _bias(body, mask, added, total),
        *past,
        scale=body.attribute("scale") or None,
        is_causal=int(body.attribute("unidirectional", 0)),
    )
    return [joined(body, y), keys, values]


# Operators ------------------------------------------------------------------------------------------------------------


def _stacked(
    body: Body, projected: ir.Value, past: ir.Value | None, mask: ir.Value | None, added: ir.Value | None
) -> Values:
    """Attention of [B, S, q | k | v]; past and present are [2, B, N, P, H]."""
    count = int(body.attribute("num_heads"))
    sizes = body.attribute("qkv_hidden_sizes")
    if sizes:
        thirds = body.ops("Split", 3, projected, list(sizes), axis=-1)
    else:
        thirds = body.ops("Split", 3, projected, axis=-1, num_outputs=3)
    before = [] if past is None else [body.op("Gather", past, n, axis=0) for n in (0, 1)]
    y, keys, values = _attend(body, [heads(body, t, count) for t in thirds], mask, added, before)
    if not body.wants(1):
        return [y]
    return [y, body.op("Concat", *(body.op("Unsqueeze", v, [0]) for v in (keys, values)), axis=0)]


def refuse(body: Body, *names: str) -> None:
    """Unsupported where one of these attributes is set."""
    for name in names:
        if body.attribute(name, 0):
            body.fail(f"attribute {name}")


def _attention(body: Body) -> Values:
    refuse(body, "do_rotary", "past_present_share_buffer")
    bias = body.optional(2)
    projected = body.op("MatMul", body.input(0), body.input(1))
    projected = projected if bias is None else body.op("Add", projected, bias)
    return _stacked(body, projected, body.optional(4), body.optional(3), body.optional(5))


def _quantized_attention(body: Body) -> Values:
    """Inputs and weights are integers; the products are scaled once."""
    refuse(body, "do_rotary", "past_present_share_buffer")
    operands = body.input(0), body.input(1), scalar(body, 6), scalar(body, 7)
    total = body.cast(body.op("MatMulInteger", *operands), DataType.FLOAT)
    factor = body.op("Mul", scalar(body, 3), scalar(body, 4))
    projected = body.op("Add", body.op("Mul", total, factor), body.input(2))
    body.type = DataType.FLOAT
    return _stacked(body, projected, body.optional(8), body.optional(5), None)


def _multi_head(body: Body) -> Values:
    count, mask, added = int(body.attribute("num_heads")), body.optional(4), body.optional(5)
    if body.optional(8) is not None or body.optional(9) is not None:
        body.fail("a cache that past and present share")
    if body.wants(3):
        body.fail("the output qk")
    past = [v for v in (body.optional(6), body.optional(7)) if v is not None]
    return _attend(body, _projections(body, count), mask, added, past)


def _projections(body: Body, count: int) -> list[ir.Value]:
    """Query, key and value as [B, N, S, H] with their biases: apart, or packed as [B, S, N, 2 or 3, H]."""
    query, key, value, bias = body.input(0), body.optional(1), body.optional(2), body.optional(3)
    biases = [None] * 3 if bias is None else _biases(body, query, bias)
    parts = [query, key, value]
    if key is None:
        parts = [_entry(body, query, n) for n in range(3)]
    elif value is None:
        parts = [query, *(_entry(body, key, n) for n in range(2))]
    found = []
    for part, shift in zip(parts, biases, strict=True):
        assert part is not None
        if part.shape is not None and rank(part) == 4:  # already [B, N, S, H], without a bias
            found.append(part)
        else:
            found.append(heads(body, part if shift is None else body.op("Add", part, shift), count))
    return found


def _entry(body: Body, packed: ir.Value, number: int) -> ir.Value:
    """[B, S, N, parts, H] -> [B, S, N * H]."""
    return body.op("Reshape", body.op("Gather", packed, number, axis=3), [0, 0, -1])


def _biases(body: Body, query: ir.Value, bias: ir.Value) -> list[ir.Value]:
    """The parts of the bias for query, key (of one size) and value (the rest)."""
    hidden, whole = size(query, 2), size(bias, 0)
    if rank(query) == 5:
        hidden = None if whole is None else whole // 3
    if hidden is None or whole is None:
        body.fail("a bias of a size that is not known")
    return body.ops("Split", 3, bias, [hidden, hidden, whole - 2 * hidden], axis=0)


def _rotary(body: Body) -> Values:
    """The standard's RotaryEmbedding; position_ids may be one number, where the sequence starts."""
    x, positions = body.input(0), body.input(1)
    refuse(body, "is_packed_batching")
    axis = 1 if rank(x) == 3 else 2
    if rank(positions) == 1:
        places = body.op("Add", upto(body, extent(body, x, axis)), positions)
        shape = body.op("Concat", extent(body, x, 0), extent(body, x, axis), axis=0)
        positions = body.op("Expand", places, shape)
    partial, count = int(body.attribute("rotary_embedding_dim", 0)), int(body.attribute("num_heads", 0))
    if rank(x) == 3 and not partial:
        hidden, half = size(x, 2), size(body.input(2), 1)
        if hidden is None or half is None:
            body.fail("the number of heads does not follow from the sizes known at build")
        count = hidden // (2 * half)
    attributes: dict[str, Any] = {"interleaved": body.attribute("interleaved"), "rotary_embedding_dim": partial}
    heads_of = count if rank(x) == 3 else None
    return [body.op("RotaryEmbedding", x, body.input(2), body.input(3), positions, num_heads=heads_of, **attributes)]


OPERATORS = (
    Operator("Attention", domain=MICROSOFT, expand=_attention),
    Operator("MultiHeadAttention", domain=MICROSOFT, expand=_multi_head),
    Operator("QAttention", domain=MICROSOFT, expand=_quantized_attention),
    Operator("RotaryEmbedding", domain=MICROSOFT, expand=_rotary),
)
