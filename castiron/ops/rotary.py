"""Rotary embeddings: pairs of elements of a head turned by an angle that the position gives.

A pair is an element of the first half of the turned part and its like of the second, or two neighbours (`interleaved`).

Specification: https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from castiron.ops.common import checked_index, fail, lifted, static
from castiron.ops.registry import Call, Case, Operator
from castiron.program.builder import Tensor
from castiron.program.expr import Expr, cast, constant

Angle = Callable[[Expr, Expr, Expr], Expr]
"""(batch, position in the sequence, pair) -> cosine or sine."""


def _angles(call: Call, table: Tensor) -> Angle:
    """`table` is [positions, pairs] where positions are given, else [B, S, pairs]."""
    positions = call.optional(3)
    if positions is None:
        return lambda b, s, pair: lifted(table.load(b, s, pair))
    at = checked_index(call, positions, table.shape[0])
    return lambda b, s, pair: lifted(table.load(at(b, s), pair))


def _lower(call: Call) -> None:
    """Three steps: the first elements of the pairs, the second ones, and what is not turned."""
    x, build = call.input(0), call.build
    pairs = static(call.input(1).shape[-1])
    heads = int(call.attribute("num_heads", 0)) if x.rank == 3 else static(x.shape[1])
    hidden = static(x.shape[-1])
    if pairs is None or hidden is None or (x.rank == 3 and not heads):
        fail(call, "the size of a head must be known at build")
    head = hidden // (heads or 1) if x.rank == 3 else hidden
    interleaved = bool(call.attribute("interleaved", 0))
    cosine, sine = _angles(call, call.input(1)), _angles(call, call.input(2))
    sequence = x.shape[1] if x.rank == 3 else x.shape[2]
    count = constant(heads) if x.rank == 3 and heads else x.shape[1]

    def place(b: Expr, n: Expr, s: Expr, h: Expr) -> tuple[Expr, ...]:
        return (b, s, n * head + h) if x.rank == 3 else (b, n, s, h)

    for second in (False, True):
        axes = build.axes((x.shape[0], count, sequence, pairs))
        b, n, s, pair = (a.var for a in axes)
        ends = (pair * 2, pair * 2 + 1) if interleaved else (pair, pair + pairs)
        own, other = (place(b, n, s, e) for e in (ends[::-1] if second else ends))
        straight = lifted(x.load(*own)) * cosine(b, s, pair)
        across = lifted(x.load(*other)) * sine(b, s, pair)
        build.store(call.out, axes, own, cast(straight + across if second else straight - across, x.type))
    if head > 2 * pairs:
        axes = build.axes((x.shape[0], count, sequence, head - 2 * pairs))
        b, n, s, rest = (a.var for a in axes)
        build.store(call.out, axes, place(b, n, s, rest + 2 * pairs), x.load(*place(b, n, s, rest + 2 * pairs)))


_X = np.random.default_rng(5).standard_normal((2, 3, 1, 6), np.float32)
_TABLE = np.random.default_rng(6).standard_normal((4, 2), np.float32)

OPERATORS = (
    Operator(
        "RotaryEmbedding",
        _lower,
        cases=(Case("part", (_X, _TABLE, _TABLE[::-1].copy(), np.array([[3], [-4]])), {"rotary_embedding_dim": 4}),),
    ),
)
