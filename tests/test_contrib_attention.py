"""Attention and its normalizations of `com.microsoft`, natively, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

from contrib.check import case, check, of_model

_RANDOM = np.random.default_rng(13)
INT32, FLOAT = 6, 1


def f(*shape: int) -> np.ndarray:
    return _RANDOM.standard_normal(shape, np.float32)


def ones(*rows: list[int]) -> np.ndarray:
    return np.array(rows, np.int32)


def test_skip_layer() -> None:
    sets = [[f(n, 3, 8), f(n, 3, 8), f(8), f(8), f(8)] for n in (1, 4)]
    rms = [[*s[:3], s[4]] for s in sets]
    outputs = ("y", "", "", "sum")
    check(
        [
            case("skip", "SkipLayerNormalization", sets, outputs=outputs, epsilon=1e-3),
            case("skip_plain", "SkipLayerNormalization", [s[:3] for s in sets]),
            case("skip_shared", "SkipLayerNormalization", [[s[0], f(3, 8), *s[2:4]] for s in sets]),
            case("skip_rms", "SkipSimplifiedLayerNormalization", rms, outputs=outputs, epsilon=1e-5),
            case("skip_rms_plain", "SkipSimplifiedLayerNormalization", [s[:3] for s in rms]),
        ]
    )


def test_embed_layer() -> None:
    def inputs(batch: int, length: int, full: bool) -> list:
        ids, segments = (_RANDOM.integers(0, n, (batch, length)).astype(np.int32) for n in (9, 2))
        mask = (np.arange(length) < length - 1).astype(np.int32) * np.ones((batch, 1), np.int32)
        place = _RANDOM.integers(0, 6, (batch, length)).astype(np.int32)
        tables = [f(9, 8), f(6, 8), f(2, 8) if full else None, f(8), f(8)]
        return [ids, segments if full else None, *tables, mask if full else None, place if full else None]

    outputs, types = ("y", "mask", "sum"), [FLOAT, INT32, FLOAT]
    sizes = [(1, 4), (3, 6)]
    check(
        [
            case("embed", "EmbedLayerNormalization", [inputs(*s, True) for s in sizes], outputs=outputs, types=types),
            case("embed_plain", "EmbedLayerNormalization", [inputs(*s, False)[:7] for s in sizes],
                 outputs=("y", "mask"), types=types[:2], epsilon=1e-3),
        ]
    )  # fmt: skip


def test_attention() -> None:
    def inputs(batch: int, length: int, *rest: np.ndarray | None) -> list:
        return [f(batch, length, 8), f(8, 24), f(24), *rest]

    sizes = [(2, 3), (1, 5)]
    past = [[*inputs(b, s), None, f(2, b, 2, p, 4)] for b, s, p in ((2, 3, 4), (1, 1, 6))]
    at = {"num_heads": 2}
    uneven = {"qkv_hidden_sizes": [8, 8, 12]}
    check(
        [
            case("attention", "Attention", [inputs(*s) for s in sizes], **at),
            case("attention_scale", "Attention", [inputs(*s) for s in sizes], scale=0.3, unidirectional=1, **at),
            case("attention_uneven", "Attention", [[f(b, s, 8), f(8, 28), f(28)] for b, s in sizes], **at, **uneven),
            case("attention_lengths", "Attention", [inputs(2, 3, ones([3, 1])[0]), inputs(2, 6, ones([2, 5])[0])], **at),
            case("attention_ends", "Attention", [inputs(2, 4, ones([3, 4, 1, 0])[0])], **at),
            case("attention_mask", "Attention", [inputs(2, 3, ones([1, 1, 0], [0, 1, 1])), inputs(1, 2, ones([1, 0]))],
                 **at),
            case("attention_mask3", "Attention", [inputs(1, 2, ones([1, 1], [0, 1])[None])], mask_filter_value=-50.0, **at),
            case("attention_bias", "Attention", [[*inputs(b, s), None, None, f(1, 2, s, s)] for b, s in sizes], **at),
            case("attention_past", "Attention", past, outputs=("y", "present"), unidirectional=1, **at),
            case("attention_past_mask", "Attention",
                 [[*inputs(2, 1), ones([1, 1, 0, 1], [0, 1, 1, 1]), f(2, 2, 2, 3, 4)]], outputs=("y", "present"), **at),
        ]
    )  # fmt: skip


def test_quantized_attention() -> None:
    def inputs(batch: int, length: int) -> list:
        x = _RANDOM.integers(0, 256, (batch, length, 8)).astype(np.uint8)
        w = _RANDOM.integers(-128, 128, (8, 24)).astype(np.int8)
        scales = [np.array(v, np.float32) for v in (0.02, 0.01)]
        return [x, w, f(24), *scales, None, np.array(120, np.uint8), np.array(3, np.int8)]

    sets = [inputs(2, 3), inputs(1, 4)]
    masked = [[*s[:5], np.array([2] * s[0].shape[0], np.int32), *s[6:]] for s in sets]
    check(
        [
            case("qattention", "QAttention", sets, num_heads=2, types=[FLOAT]),
            case("qattention_mask", "QAttention", masked, num_heads=2, types=[FLOAT], unidirectional=1),
        ]
    )


def test_multi_head() -> None:
    def inputs(batch: int, length: int, other: int, *rest: np.ndarray | None) -> list:
        return [f(batch, length, 8), f(batch, other, 8), f(batch, other, 12), *rest]

    sizes = [(2, 3, 4), (1, 5, 2)]
    past = [[*(f(b, s, 8) for _ in range(3)), None, None, None, f(b, 2, p, 4), f(b, 2, p, 4)] for b, s, p in sizes]
    outputs = ("y", "present_key", "present_value")
    at = {"num_heads": 2}
    even = [[f(b, s, 8), f(b, t, 8), f(b, t, 8)] for b, s, t in sizes]
    apart = case("mha_apart", "MultiHeadAttention", even, **at)
    packed = [[q, np.stack([x.reshape(*x.shape[:2], 2, 4) for x in (k, v)], 3)] for q, k, v in even]
    alone = [[q, q, q] for q, _, _ in even]
    itself = case("mha_itself", "MultiHeadAttention", alone, **at)
    whole = [[np.stack([x.reshape(*x.shape[:2], 2, 4) for x in s], 3)] for s in alone]
    check(
        [
            apart,
            case("mha_packed_kv", "MultiHeadAttention", packed, like=apart, **at),
            case("mha_packed", "MultiHeadAttention", whole, like=itself, **at),
            case("mha", "MultiHeadAttention", [inputs(*s) for s in sizes], **at),
            case("mha_bias", "MultiHeadAttention", [inputs(*s, f(28)) for s in sizes], scale=0.4, **at),
            case("mha_mask", "MultiHeadAttention", [inputs(2, 3, 3, None, ones([1, 1, 0], [0, 1, 1]))], **at),
            case("mha_added", "MultiHeadAttention", [inputs(b, s, t, None, None, f(b, 2, s, t)) for b, s, t in sizes], **at),
            case("mha_cross", "MultiHeadAttention", [[f(b, s, 8), f(b, 2, t, 4), f(b, 2, t, 4)] for b, s, t in sizes], **at),
            case("mha_past", "MultiHeadAttention", past, outputs=outputs, unidirectional=1, **at),
        ]
    )  # fmt: skip


def test_rotary() -> None:
    caches = [f(16, 4), f(16, 4)]
    sizes = [(2, 3), (1, 5)]
    at = [[f(b, s, 16), np.array([4]), *caches] for b, s in sizes]
    each = [[f(b, s, 16), _RANDOM.integers(0, 16, (b, s)), *caches] for b, s in sizes]
    split = [[f(b, 2, s, 8), e[1], *caches] for (b, s), e in zip(sizes, each)]
    part = [[f(b, s, 24), e[1], f(16, 4), f(16, 4)] for (b, s), e in zip(sizes, each)]
    check(
        [
            case("rotary", "RotaryEmbedding", at),
            case("rotary_interleaved", "RotaryEmbedding", each, interleaved=1),
            case("rotary_split", "RotaryEmbedding", split),
            case("rotary_part", "RotaryEmbedding", part, rotary_embedding_dim=8, num_heads=2),
        ]
    )


def _gqa(batch: int, length: int, past: int, ends: list[int], *rest: np.ndarray | None, buffer: int = 0) -> list:
    caches = [f(batch, 2, buffer or past, 16) for _ in range(2)]
    queries = [f(batch, length, 64), f(batch, length, 32), f(batch, length, 32)]
    return [*queries, *caches, np.array(ends, np.int32), None, *rest]


def _total(count: int) -> dict:
    """The total length is known in most models: they take it from the shape of the mask."""
    return {"known": {6: np.array([count], np.int32)}, "outputs": ("y", "present_key", "present_value")}


def test_group_query() -> None:
    at = {"num_heads": 4, "kv_num_heads": 2}
    turn = {"do_rotary": 1}
    tables = [f(16, 8), f(16, 8)]
    packed = [[f(1, 3, 128), None, None, f(1, 2, 4, 16), f(1, 2, 4, 16), np.array([6], np.int32), None, *tables]]
    check(
        [
            case("gqa_first", "GroupQueryAttention", [_gqa(2, 5, 0, [4, 4])], **_total(5), **at),
            case("gqa_next", "GroupQueryAttention", [_gqa(2, 1, 4, [4, 4], *tables)], **_total(5), **at, **turn),
            case("gqa_buffer", "GroupQueryAttention", [_gqa(2, 1, 4, [3, 5], *tables, buffer=9)], **_total(6), **at, **turn),
            case("gqa_turned", "GroupQueryAttention", [_gqa(1, 3, 0, [2], *tables)], rotary_interleaved=1, **_total(3),
                 **at, **turn),
            case("gqa_window", "GroupQueryAttention", [_gqa(1, 6, 0, [5])], local_window_size=3, **_total(6), **at),
            case("gqa_window_next", "GroupQueryAttention", [_gqa(1, 1, 6, [6])], local_window_size=3, **_total(7), **at),
            case("gqa_softcap", "GroupQueryAttention", [_gqa(1, 3, 2, [4])], softcap=0.5, scale=0.7, **_total(5), **at),
            case("gqa_packed", "GroupQueryAttention", packed, **_total(7), **at, **turn),
            case("gqa_bias", "GroupQueryAttention", [_gqa(1, 2, 3, [4], None, None, None, f(1, 4, 2, 5))], **_total(5), **at),
        ]
    )  # fmt: skip


def test_group_query_of_a_decoder() -> None:
    """Lengths from the mask, as exporters write them; all sizes are told at run time, the cache may be empty."""
    make, node, info = onnx.helper, onnx.helper.make_node, onnx.helper.make_tensor_value_info
    names = ["q", "k", "v", "pk", "pv", "ends", "total", "cos", "sin"]
    nodes = [
        node("ReduceSum", ["mask", "one"], ["count"], keepdims=0),
        node("Sub", ["count", "one"], ["last"]),
        node("Cast", ["last"], ["ends"], to=INT32),
        node("Shape", ["mask"], ["shape"]),
        node("Gather", ["shape", "one0"], ["length"]),
        node("Cast", ["length"], ["total"], to=INT32),
        node("GroupQueryAttention", names, ["y", "k2", "v2"], domain="com.microsoft", num_heads=4, kv_num_heads=2,
             do_rotary=1),
    ]  # fmt: skip
    sizes = {
        "q": ("B", "S", 64),
        "k": ("B", "S", 32),
        "v": ("B", "S", 32),
        "pk": ("B", 2, "P", 16),
        "pv": ("B", 2, "P", 16),
    }
    ports = [*(info(n, 1, s) for n, s in sizes.items()), info("mask", 7, ("B", "T"))]
    known = {"one": np.array([1]), "one0": np.array(1), "cos": f(16, 8), "sin": f(16, 8)}
    held = [onnx.numpy_helper.from_array(a, n) for n, a in known.items()]
    graph = make.make_graph(nodes, "decoder", ports, [info(n, 1, None) for n in ("y", "k2", "v2")], held)
    versions = [make.make_opsetid("", 21), make.make_opsetid("com.microsoft", 1)]
    model = make.make_model(graph, opset_imports=versions, ir_version=10)

    def inputs(batch: int, length: int, past: int) -> list:
        new, old = [f(batch, length, n) for n in (64, 32, 32)], [f(batch, 2, past, 16) for _ in range(2)]
        return [*new, *old, np.ones((batch, length + past), np.int64)]

    check([of_model("decoder", model, [inputs(2, 3, 0), inputs(1, 4, 5), inputs(3, 1, 7)], 1e-4, 1e-5)])
