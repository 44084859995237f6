"""Reductions over axes, running sums, and the positions of extremes.

Specification: https://onnx.ai/onnx/operators/onnx__ReduceSum.html (and its siblings), onnx__ArgMax.html,
onnx__CumSum.html, onnx__TopK.html
Opset history: `axes` became an input in 13 (ReduceSum) and 18 (the others); TopK's `k` in 10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType

from castiron.ops.common import (
    attribute_to_input,
    constant_node,
    fail,
    integer,
    kept,
    lifted,
    normal_axes,
    normal_axis,
    product,
    real,
    reduced,
    renewed,
    rows_of,
    static,
    wide,
)
from castiron.ops.registry import Call, Case, Operator
from castiron.program.builder import Builder, Tensor
from castiron.program.expr import BOOL, INT64, Axis, Expr, Reduce, apply, cast, constant, select
from castiron.program.scalar import FLOATS
from castiron.program.types import Equal


@dataclass(frozen=True)
class Rule:
    """post(op over axes of pre(x), count). `leaves`: the formula leaves the integers."""

    op: str
    pre: Callable[[Expr], Expr] = lambda x: x
    post: Callable[[Expr, Expr], Expr] = lambda total, count: total
    leaves: bool = False


RULES: dict[str, Rule] = {
    "ReduceL1": Rule("sum", pre=lambda x: apply("abs", x)),
    "ReduceL2": Rule("sum", pre=lambda x: x * x, post=lambda s, n: apply("sqrt", s), leaves=True),
    "ReduceLogSum": Rule("sum", post=lambda s, n: apply("log", s), leaves=True),
    "ReduceMax": Rule("max"),
    "ReduceMean": Rule("sum", post=lambda s, n: s / cast(n, s.type)),
    "ReduceMin": Rule("min"),
    "ReduceProd": Rule("prod"),
    "ReduceSum": Rule("sum"),
    "ReduceSumSquare": Rule("sum", pre=lambda x: x * x),
}


def _axes(call: Call) -> tuple[int, ...] | None:
    """The axes to reduce over; None where the node does nothing."""
    x = call.input(0)
    given = call.attribute("axes")
    if given is None and call.optional(1) is not None:
        given = [static(a) for a in call.integers(1, "axes")]
        if None in given:
            fail(call, "axes must be known at build")
    if not given:
        return None if call.attribute("noop_with_empty_axes", 0) else tuple(range(x.rank))
    return tuple(sorted(normal_axes(call, given, x.rank)))


class _Reduction:
    """One node's axes, and how an index of the output and one of the reduced axes meet in an index of the input."""

    def __init__(self, call: Call, axes: Sequence[int]) -> None:
        self.x, self.axes, self.keep = call.input(0), tuple(axes), bool(call.attribute("keepdims", 1))

    def index(self, out: Sequence[Expr], inner: Sequence[Axis]) -> list[Expr]:
        """The index of the input, given the output's."""
        within = dict(zip(self.axes, (a.var for a in inner), strict=True))
        rest = iter([i for d, i in enumerate(out) if d not in self.axes] if self.keep else out)
        return [within[d] if d in within else next(rest) for d in range(self.x.rank)]

    def extents(self) -> list[Expr]:
        """The sizes reduced over."""
        return [self.x.shape[a] for a in self.axes]


def _lower_reduce(call: Call) -> None:
    rule, axes = RULES[call.node.op_type], _axes(call)
    x = call.input(0)
    type = real(x.type) if rule.leaves else DataType.UINT8 if x.type == BOOL else wide(x.type)
    shape = _Reduction(call, axes or ())
    inner = call.build.axes(shape.extents())

    def value(*index: Expr) -> Expr:
        terms = rule.pre(cast(x.load(*shape.index(index, inner)), type))
        return cast(rule.post(reduced(rule.op, inner, terms), product(shape.extents())), x.type)

    call.build.compute(call.out, value)


def _lower_log_sum_exp(call: Call) -> None:
    """log(sum(exp(x - m))) + m with m the maximum, so that nothing overflows; an infinite m is left at 0."""
    axes = _axes(call) or ()
    x, build = call.input(0), call.build
    shape, type = _Reduction(call, axes), real(x.type)
    top = build.temp(type, kept(x.shape, axes), f"{call.out.name}.max")
    rows_of(build, top, axes, "max", x.shape, lambda *i: cast(x.load(*i), type))
    inner = build.axes(shape.extents())

    def value(*index: Expr) -> Expr:
        place = shape.index(index, inner)
        largest = top.load(*(constant(0) if d in axes else i for d, i in enumerate(place)))
        largest = select(apply("isinf", largest), 0, largest)
        total = reduced("sum", inner, apply("exp", cast(x.load(*place), type) - largest))
        return cast(apply("log", total) + largest, x.type)

    build.compute(call.out, value)


def extreme_index(build: Builder, x: Tensor, top: Tensor, axis: int, last: bool, index: Sequence[Expr]) -> Expr:
    """Where along `axis` the row at `index` (that entry is ignored) of `x` holds `top`, which has size 1 there.

    The first place, or the last; NaN is the extreme where there is one, as NumPy and PyTorch have it."""
    (along,) = build.axes([x.shape[axis]])
    element = x.load(*index[:axis], along.var, *index[axis + 1 :])
    hit = apply("eq", lifted(element), top.load(*index[:axis], constant(0), *index[axis + 1 :]))
    if x.type in FLOATS:
        hit = hit | apply("isnan", element)
    if last:
        return Reduce("max", (along,), select(hit, along.var, constant(-1)))
    return Reduce("min", (along,), select(hit, along.var, x.shape[axis]))


def _lower_arg(call: Call) -> None:
    x = call.input(0)
    axis = normal_axis(call, call.attribute("axis", 0), x.rank)
    op = "max" if call.node.op_type == "ArgMax" else "min"
    top = call.build.temp(wide(x.type), kept(x.shape, [axis]), f"{call.out.name}.{op}")
    rows_of(call.build, top, [axis], op, x.shape, lambda *i: lifted(x.load(*i)))
    last, keep = bool(call.attribute("select_last_index", 0)), call.attribute("keepdims", 1)

    def value(*index: Expr) -> Expr:
        full = index if keep else (*index[:axis], constant(0), *index[axis:])
        return extreme_index(call.build, x, top, axis, last, full)

    call.build.compute(call.out, value)


def _lower_cumulative(call: Call) -> None:
    """Each element is a sum (or product) of its own: quadratic in the axis."""
    x, op = call.input(0), "sum" if call.node.op_type == "CumSum" else "prod"
    (given,) = call.integers(1, "axis")
    if static(given) is None:
        fail(call, "the axis must be known at build")
    axis = normal_axis(call, static(given) or 0, x.rank)
    reverse, exclusive = call.attribute("reverse", 0), call.attribute("exclusive", 0)
    (along,) = call.build.axes([x.shape[axis]])

    def value(*index: Expr) -> Expr:
        first, second = (index[axis], along.var) if reverse else (along.var, index[axis])
        counted = first < second if exclusive else first <= second
        element = lifted(x.load(*index[:axis], along.var, *index[axis + 1 :]))
        return cast(Reduce(op, (along,), select(counted, element, int(op == "prod"))), x.type)

    call.build.compute(call.out, value)


def _lower_top_k(call: Call) -> None:
    """The rank of each element is how many come before it; the element of rank k is output k. Quadratic in the axis.

    Equal elements keep their order; NaN counts as largest, as PyTorch has it."""
    x, build = call.input(0), call.build
    axis = normal_axis(call, call.attribute("axis", -1), x.rank)
    largest, (values, indices) = call.attribute("largest", 1), (*call.outputs, None)[:2]
    (k,) = call.integers(1, "k")
    for number, out in enumerate(call.outputs):
        call.sizes(*(k if d == axis else size for d, size in enumerate(x.shape)), output=number)
        if out is not None and static(out.shape[axis]) is None:
            beyond = apply("max", out.shape[axis] - x.shape[axis], 0)
            build.require(Equal(beyond, constant(0), f"TopK {call.node.name!r} takes more than there are"))
    rank = build.temp(INT64, x.shape, f"{x.name}.rank")
    (other,) = build.axes([x.shape[axis]])

    def greater(a: Expr, b: Expr) -> Expr:
        return a > b if a.type not in FLOATS else (a > b) | (apply("isnan", a) & apply("not", apply("isnan", b)))

    def place(*index: Expr) -> Expr:
        mine, theirs = x.load(*index), x.load(*index[:axis], other.var, *index[axis + 1 :])
        ahead, behind = greater(theirs, mine), greater(mine, theirs)
        ahead, behind = (ahead, behind) if largest else (behind, ahead)
        tie = apply("not", behind) & (other.var < index[axis])
        return Reduce("sum", (other,), cast(ahead | tie, INT64))

    build.compute(rank, place)
    index_of = indices or build.temp(INT64, call.out.shape, f"{call.out.name}.indices")

    def chosen(*index: Expr) -> Expr:
        (along,) = build.axes([x.shape[axis]])
        hit = apply("eq", rank.load(*index[:axis], along.var, *index[axis + 1 :]), index[axis])
        return Reduce("max", (along,), select(hit, along.var, constant(0)))

    build.compute(index_of, chosen)
    if values is not None:
        build.compute(values, lambda *i: x.load(*i[:axis], index_of.load(*i), *i[axis + 1 :]))


def _upgrade_top_k(node: ir.Node, opset: int) -> list[ir.Node] | None:
    if opset >= 10 or "k" not in node.attributes:
        return None
    k = constant_node([integer(node, "k")])
    return [k, renewed(node, [node.inputs[0], k.outputs[0]], drop=["k"])]


_upgrade = attribute_to_input("axes", 1, before=18)
_X = np.array([[1, 3, 3, -2], [-np.inf, 0, 5, 5], [7, 1, 2, 3]], np.float32)
_LOG_CASES = (Case("large", (np.array([[-np.inf, 0], [1000, 1001]], np.float32), np.array([1]))),)
_K = np.array([2])

OPERATORS = (
    *(Operator(name, _lower_reduce, upgrade=_upgrade) for name in RULES),
    Operator("ReduceLogSumExp", _lower_log_sum_exp, upgrade=_upgrade, cases=_LOG_CASES),
    Operator("ArgMax", _lower_arg, cases=(Case("ties", (_X,), {"axis": 1, "select_last_index": 1}),)),
    Operator("ArgMin", _lower_arg),
    Operator("CumProd", _lower_cumulative),
    Operator("CumSum", _lower_cumulative),
    Operator("TopK", _lower_top_k, upgrade=_upgrade_top_k, cases=(Case("ties", (_X, _K), {"largest": 0}, outputs=2),)),
)
