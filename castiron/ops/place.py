"""Elements put where arithmetic on indices says: Col2Im adds up overlapping blocks, TensorScatter writes into a cache.

Specification: https://onnx.ai/onnx/operators/onnx__Col2Im.html, onnx__TensorScatter.html
"""

from __future__ import annotations

from castiron.ops.common import ZERO, fail, lifted, normal_axis, product, static
from castiron.ops.registry import Call, Operator
from castiron.program.expr import INT64, Expr, Reduce, all_of, apply, cast, select


def _lower_col2im(call: Call) -> None:
    """Each pixel adds up the taps of all blocks that cover it; column (channel, tap), row the number of the block."""
    x, out, build = call.input(0), call.out, call.build
    taps = call.integers(2, "block_shape")
    rank = len(taps)
    ones = [1] * rank
    strides, dilations = (call.attribute(name) or ones for name in ("strides", "dilations"))
    pads = call.attribute("pads") or [0] * (2 * rank)
    if any(static(t) is None for t in taps):
        fail(call, "block_shape must be known at build")
    blocks = [
        (out.shape[2 + d] + (pads[d] + pads[rank + d]) - (taps[d] - 1) * dilations[d] - 1) // strides[d] + 1
        for d in range(rank)
    ]
    inner = build.axes(taps)

    def value(n: Expr, c: Expr, *index: Expr) -> Expr:
        conditions, tap, block = [], ZERO, ZERO
        for d, (i, axis) in enumerate(zip(index, inner, strict=True)):
            start = i + pads[d] - axis.var * dilations[d]
            at = start // strides[d]
            conditions += [start >= 0, at < blocks[d]]
            conditions += [apply("eq", start % strides[d], 0)] if strides[d] > 1 else []
            tap, block = tap * taps[d] + axis.var, block * blocks[d] + at
        element = lifted(x.load(n, c * product(taps) + tap, block))
        return cast(Reduce("sum", inner, select(all_of(conditions), element, 0)), out.type)

    build.compute(out, value)


def _lower_tensor_scatter(call: Call) -> None:
    """Along the axis the update stands from its batch entry's index on, around the end where the cache is a ring."""
    cache, update, first = call.input(0), call.input(1), call.optional(2)
    axis = normal_axis(call, call.attribute("axis", -2), cache.rank)
    size, ring = cache.shape[axis], call.attribute("mode", "linear") == "circular"

    def value(*index: Expr) -> Expr:
        start = ZERO if first is None else cast(first.load(index[0]), INT64)
        away = (index[axis] - start) % size if ring else index[axis] - start
        inside = all_of([*([] if ring else [away >= 0]), away < update.shape[axis]])
        return select(inside, update.load(*index[:axis], away, *index[axis + 1 :]), cache.load(*index))

    call.build.compute(call.out, value)


OPERATORS = (
    Operator("Col2Im", _lower_col2im),
    Operator("TensorScatter", _lower_tensor_scatter),
)
