"""`com.microsoft`: GroupQueryAttention, attention over a cache of keys and values in which each sequence has its own length.

`seqlens_k` is one less than the number of keys of each sequence, those of this call included; where the whole sequence is
in this call (its length is `total_sequence_length`), nothing of the cache counts. Behind the last key are zeros.

Specification: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
from onnx_ir import DataType

from castiron.ops.body import Body, size
from castiron.ops.contrib_attention import extent, heads, joined, refuse, upto
from castiron.ops.contrib_fused import MICROSOFT
from castiron.ops.registry import Operator

Values = Sequence[ir.Value | None]
INT64, BOOL = DataType.INT64, DataType.BOOL


def _group_query(body: Body) -> Values:
    _check(body)
    query, key, value = _parts(body)
    total = body.op("Reshape", body.cast(body.input(6), INT64), [1])
    length = extent(body, body.input(0), 1)
    before = _before(body, length, total)
    query, key = _turned(body, query, key, length, before)
    past = body.optional(3), body.optional(4)
    whole = total if past[0] is None else body.op("Max", total, extent(body, past[0], 2))
    source, held = _source(body, length, before, whole, past[0])
    keys, values = (_cache(body, old, new, source, held) for old, new in zip(past, (key, value), strict=True))
    mask = _mask(body, length, before, whole)
    added = body.optional(10)
    if added is not None:
        mask = body.op("Where", mask, added, body.constant(body.type.min))
    options: dict[str, Any] = {"scale": body.attribute("scale") or None, "softcap": body.attribute("softcap") or None}
    y = body.op("Attention", query, keys, values, mask, **options)
    return [joined(body, y), keys, values]


def _check(body: Body) -> None:
    refuse(body, "kv_cache_bit_width", "qk_output", "sliding_window_cache")
    if int(body.attribute("smooth_softmax", 0)) > 0:
        body.fail("attribute smooth_softmax")
    for number in range(11, 17):
        if body.optional(number) is not None:
            body.fail(f"input {number}")
    if body.wants(3):
        body.fail("the output output_qk")


def _parts(body: Body) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Query [B, N, S, H], key and value [B, G, S, H]; without key and value the first input holds all three."""
    many, few = int(body.attribute("num_heads")), int(body.attribute("kv_num_heads"))
    query, key, value = body.input(0), body.optional(1), body.optional(2)
    if key is None or value is None:
        hidden = size(query, 2)
        if hidden is None:
            body.fail("the size of a head must be known at build")
        head = hidden // (many + 2 * few)
        query, key, value = body.ops("Split", 3, query, [many * head, few * head, few * head], axis=2)
    return heads(body, query, many), heads(body, key, few), heads(body, value, few)


def _before(body: Body, length: ir.Value, total: ir.Value) -> ir.Value:
    """How many keys of the cache each sequence has, [B, 1]."""
    ends = body.op("Reshape", body.cast(body.input(5), INT64), [-1, 1])
    count = body.op("Sub", body.op("Add", ends, 1), length)
    return body.op("Where", body.op("Equal", total, length), 0, count)


def _turned(
    body: Body, query: ir.Value, key: ir.Value, length: ir.Value, before: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Query and key with rotary embeddings of their places in the sequence, where the node wants them."""
    if not int(body.attribute("do_rotary", 0)):
        return query, key
    places = body.optional(9) or body.op("Add", upto(body, length), before)
    interleaved = int(body.attribute("rotary_interleaved", 0))
    half = size(body.input(7), 1)
    if half is None:
        body.fail("the number of turned elements must be known at build")
    attributes: dict[str, Any] = {"interleaved": interleaved, "rotary_embedding_dim": 2 * half}
    tables = body.input(7), body.input(8)
    return (
        body.op("RotaryEmbedding", query, *tables, places, **attributes),
        body.op("RotaryEmbedding", key, *tables, places, **attributes),
    )


def _source(
    body: Body, length: ir.Value, before: ir.Value, whole: ir.Value, past: ir.Value | None
) -> tuple[ir.Value, ir.Value]:
    """Where each entry of the new cache comes from among the old cache and behind it the new keys, [B, 1, T, 1].

    And whether it comes from anywhere."""
    place = body.op("Reshape", upto(body, whole), [1, -1])
    behind = body.op("Sub", place, before)
    old = body.constant([0], INT64) if past is None else extent(body, past, 2)
    fresh, held = body.op("GreaterOrEqual", behind, 0), body.op("Less", behind, length)
    source = body.op("Where", fresh, body.op("Add", behind, old), place)
    source = body.op("Where", held, source, 0)
    return body.op("Unsqueeze", source, [1, 3]), body.op("Unsqueeze", held, [1, 3])


def _cache(body: Body, past: ir.Value | None, new: ir.Value, source: ir.Value, held: ir.Value) -> ir.Value:
    """The cache [B, G, T, H] after this call."""
    both = new if past is None else body.op("Concat", past, new, axis=2)
    shape = body.op(
        "Concat", extent(body, both, 0), extent(body, both, 1), extent(body, source, 2), extent(body, both, 3), axis=0
    )
    found = body.op("GatherElements", both, body.op("Expand", source, shape), axis=2)
    return body.op("Where", held, found, 0.0)


def _mask(body: Body, length: ir.Value, before: ir.Value, whole: ir.Value) -> ir.Value:
    """Which keys each query sees, [B, 1, S, T]: those up to its own place, and of a window only the nearest."""
    key = body.op("Reshape", upto(body, whole), [1, 1, 1, -1])
    query = body.op("Add", body.op("Reshape", upto(body, length), [1, 1, -1, 1]), body.op("Unsqueeze", before, [1, 3]))
    if not int(body.attribute("causal", 1)):
        query = body.op("Sub", body.op("Add", body.op("Unsqueeze", before, [1, 3]), length), 1)
    seen = body.op("LessOrEqual", key, query)
    window = int(body.attribute("local_window_size", -1))
    if window <= 0:
        return seen
    return body.op("And", seen, body.op("Greater", key, body.op("Sub", query, window)))


OPERATORS = (Operator("GroupQueryAttention", domain=MICROSOFT, expand=_group_query),)
