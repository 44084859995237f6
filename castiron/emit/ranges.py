"""What is known of integers from the extents of loops: conditions that always hold, quotients that are always zero."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from castiron.program.expr import (
    BOOL,
    INT64,
    Apply,
    Axis,
    Const,
    Expr,
    Reduce,
    Var,
    constant,
    nodes,
    polynomial,
    rewrite,
)

Bounds = tuple[int | None, int | None]
"""Least and largest value; None where it is not known."""

_UNKNOWN: Bounds = (None, None)


def settled(e: Expr, axes: Iterable[Axis]) -> Expr:
    """`e` without what the extents of `axes` and of its own reductions decide."""
    own = [axis for node in nodes(e) if isinstance(node, Reduce) for axis in node.axes]
    limits = {axis.name: _limits(axis) for axis in (*axes, *own)}
    return rewrite(e, lambda node: _settled(node, limits))


def _limits(axis: Axis) -> Bounds:
    return 0, int(axis.extent.value) - 1 if isinstance(axis.extent, Const) else None


def _settled(node: Expr, limits: Mapping[str, Bounds]) -> Expr | None:
    if not isinstance(node, Apply) or len(node.args) != 2 or node.args[0].type != INT64:
        return None
    a, b = node.args
    if node.op in ("lt", "le", "gt", "ge"):
        low, high = bounds(a - b if node.op in ("lt", "le") else b - a, limits)
        edge = 0 if node.op in ("lt", "gt") else 1
        if high is not None and high < edge:
            return constant(True, BOOL)
        return constant(False, BOOL) if low is not None and low >= edge else None
    if node.op in ("min", "max"):
        low, high = bounds(a - b, limits)
        if low is not None and low >= 0:
            return a if node.op == "max" else b
        return (b if node.op == "max" else a) if high is not None and high <= 0 else None
    if node.op in ("floordiv", "mod") and isinstance(b, Const) and _is_within(bounds(a, limits), int(b.value)):
        return constant(0) if node.op == "floordiv" else a
    return None


def _is_within(found: Bounds, size: int) -> bool:
    return found[0] is not None and found[0] >= 0 and found[1] is not None and found[1] < size


def bounds(e: Expr, limits: Mapping[str, Bounds]) -> Bounds:
    """Least and largest value of an integer expression, term by term."""
    low: int | None = 0
    high: int | None = 0
    for monomial, number in polynomial(e).items():
        least, most = _atom(monomial[0], limits) if len(monomial) == 1 else _UNKNOWN
        if not monomial:
            least = most = 1
        if number < 0:
            least, most = most, least
        low = None if low is None or least is None else low + number * least
        high = None if high is None or most is None else high + number * most
    return low, high


def _atom(e: Expr, limits: Mapping[str, Bounds]) -> Bounds:
    if isinstance(e, Var):
        return limits.get(e.name, _UNKNOWN)
    if isinstance(e, Apply) and e.op in ("floordiv", "mod") and isinstance(e.args[1], Const):
        divisor = int(e.args[1].value)
        if divisor > 0 and e.op == "mod":
            return 0, divisor - 1
        if divisor > 0:
            low, high = bounds(e.args[0], limits)
            return None if low is None else low // divisor, None if high is None else high // divisor
    return _UNKNOWN
