"""Pools: a reduction over each window, or over all of the spatial dimensions.

Specification: https://onnx.ai/onnx/operators/onnx__MaxPool.html, onnx__AveragePool.html, onnx__LpPool.html,
onnx__GlobalAveragePool.html, onnx__GlobalMaxPool.html, onnx__GlobalLpPool.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from castiron.ops.common import lifted, product, wide, with_output
from castiron.ops.elementwise import power
from castiron.ops.registry import Call, Case, Operator
from castiron.ops.windows import Window, windows
from castiron.program import scalar
from castiron.program.builder import Tensor
from castiron.program.expr import Axis, Expr, Reduce, all_of, apply, cast, constant, select
from castiron.program.scalar import FLOATS


def _windows(call: Call) -> list[Window]:
    kernel = [constant(int(k)) for k in call.attribute("kernel_shape")]
    return windows(call, call.input(0), kernel, call.out.shape[2:])


def _element(
    call: Call, spans: Sequence[Window], index: Sequence[Expr], taps: Sequence[Axis]
) -> tuple[Expr, Expr, list[Expr]]:
    """An element of the window at `index`, whether it is inside of the input, and its spatial index."""
    overhang = bool(call.attribute("ceil_mode", 0))
    place = [s.at(o, t.var) for s, o, t in zip(spans, index[2:], taps, strict=True)]
    inside = all_of([c for s, i in zip(spans, place, strict=True) for c in s.inside(i, overhang)])
    return call.input(0).load(*index[:2], *place), inside, place


def _lower_max_pool(call: Call) -> None:
    call = with_output(call, next(t.shape for t in call.outputs if t is not None))
    spans, x = _windows(call), call.input(0)
    taps = call.build.axes([s.taps for s in spans])
    border = constant(scalar.neutral("max", x.type), x.type)

    def value(*index: Expr) -> Expr:
        element, inside, _ = _element(call, spans, index, taps)
        return Reduce("max", taps, select(inside, element, border))

    call.build.compute(call.out, value)
    if len(call.outputs) > 1 and call.outputs[1] is not None:
        _positions(call, spans, call.outputs[1])


def _positions(call: Call, spans: Sequence[Window], indices: Tensor) -> None:
    """Where in the flattened input the maximum is: the first place in the window."""
    x, out = call.input(0), call.out
    taps = call.build.axes([s.taps for s in spans])
    column_major = call.attribute("storage_order", 0)
    beyond = product(x.shape)

    def value(*index: Expr) -> Expr:
        element, inside, place = _element(call, spans, index, taps)
        hit = apply("eq", element, out.load(*index))
        hit = hit | apply("isnan", element) if x.type in FLOATS else hit
        order = list(zip(place, x.shape[2:], strict=True))
        flat = index[0] * x.shape[1] + index[1]
        for _, size in order:
            flat = flat * size
        within: Expr = constant(0)
        for i, size in reversed(order) if column_major else order:
            within = within * size + i
        return Reduce("min", taps, select(inside, select(hit, flat + within, beyond), beyond))

    call.build.compute(indices, value)


def _lower_average_pool(call: Call) -> None:
    spans, x = _windows(call), call.input(0)
    taps = call.build.axes([s.taps for s in spans])
    type, with_pad, overhang = wide(x.type), call.attribute("count_include_pad", 0), call.attribute("ceil_mode", 0)

    def count(span: Window, o: Expr) -> Expr:
        if with_pad:
            return span.count(o, span.before, span.size + span.after) if overhang else constant(span.taps)
        return span.count(o, constant(0), span.size) if overhang or span.inside(o) else constant(span.taps)

    def value(*index: Expr) -> Expr:
        element, inside, _ = _element(call, spans, index, taps)
        total = Reduce("sum", taps, select(inside, lifted(element), constant(0, type)))
        counted = product([count(s, o) for s, o in zip(spans, index[2:], strict=True)])
        return cast(total / cast(counted, type), x.type)

    call.build.compute(call.out, value)


def _norm(p: int) -> tuple[Callable[[Expr], Expr], Callable[[Expr], Expr]]:
    """What is summed up, and what becomes of the sum."""
    if p == 1:
        return (lambda x: apply("abs", x)), (lambda s: s)
    if p == 2:
        return (lambda x: x * x), (lambda s: apply("sqrt", s))
    return (lambda x: power(apply("abs", x), constant(p, x.type))), (lambda s: power(s, constant(1 / p, s.type)))


def _lower_lp_pool(call: Call) -> None:
    spans, x = _windows(call), call.input(0)
    taps = call.build.axes([s.taps for s in spans])
    before, after = _norm(int(call.attribute("p", 2)))

    def value(*index: Expr) -> Expr:
        element, inside, _ = _element(call, spans, index, taps)
        terms = select(inside, before(lifted(element)), 0)
        return cast(after(Reduce("sum", taps, terms)), x.type)

    call.build.compute(call.out, value)


def _lower_global(call: Call) -> None:
    x, kind = call.input(0), call.node.op_type
    taps = call.build.axes(x.shape[2:])
    before, after = _norm(int(call.attribute("p", 2)))

    def value(*index: Expr) -> Expr:
        element = lifted(x.load(*index[:2], *(t.var for t in taps)))
        if kind == "GlobalMaxPool":
            return cast(Reduce("max", taps, element), x.type)
        if kind == "GlobalLpPool":
            return cast(after(Reduce("sum", taps, before(element))), x.type)
        return cast(Reduce("sum", taps, element) / cast(product(x.shape[2:]), wide(x.type)), x.type)

    call.build.compute(call.out, value)


_X = np.random.default_rng(2).standard_normal((1, 2, 7, 6), np.float32)

OPERATORS = (
    Operator(
        "AveragePool",
        _lower_average_pool,
        cases=(Case("ceil", (_X,), {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 0, 1, 0]}),),
    ),
    Operator("GlobalAveragePool", _lower_global),
    Operator("GlobalLpPool", _lower_global),
    Operator("GlobalMaxPool", _lower_global),
    Operator("LpPool", _lower_lp_pool),
    Operator("MaxPool", _lower_max_pool, cases=(Case("strides", (_X,), {"kernel_shape": [2, 2], "strides": [2, 1]}),)),
)
