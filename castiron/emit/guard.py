"""Loads under a condition that an inner loop does not change, made safe: the loop then loads always and selects after.

`c ? x[o + i] : 0` loads from `x[(c ? o : 0) + i]`: the offset is chosen outside the loop, and the loop is whole vectors
on every instruction set, also those that cannot mask loads.
"""

from __future__ import annotations

from collections.abc import Mapping

from castiron.emit.access import ZERO, coefficient, is_const, product
from castiron.program.expr import (
    Apply,
    Axis,
    Const,
    Expr,
    Load,
    Reduce,
    free_variables,
    loads,
    nodes,
    rewrite,
    select,
    substitute,
)
from castiron.program.types import Buffer


def guarded(value: Expr, axis: Axis, buffers: Mapping[str, Buffer]) -> tuple[Expr, frozenset[Expr]]:
    """`value` with such loads along `axis` moved to safe offsets, and these loads."""
    safe: set[Expr] = set()

    def visit(node: Expr) -> Expr | None:
        if not _is_guard(node, axis, buffers):
            return None
        assert isinstance(node, Apply)
        condition, then, other = node.args

        def moved(load: Expr) -> Expr | None:
            if not isinstance(load, Load):
                return None
            place = _safe(load, condition, axis)
            safe.add(place)
            return place

        return select(condition, rewrite(then, moved), other)

    return rewrite(value, visit), frozenset(safe)


def _safe(load: Load, condition: Expr, axis: Axis) -> Load:
    start = substitute(load.index[0], {axis.name: ZERO})
    step = load.index[0] - start
    return Load(load.buffer, (select(condition, start, ZERO) + step,), load.type)


def _is_guard(node: Expr, axis: Axis, buffers: Mapping[str, Buffer]) -> bool:
    """Whether all loads of the first branch stay inside their buffers at offset 0 plus the axis."""
    if not (isinstance(node, Apply) and node.op == "select" and isinstance(node.args[2], Const)):
        return False
    condition, then, _ = node.args
    if axis.name in free_variables(condition) or any(_is_involved(n) for n in nodes(then)):
        return False
    return all(_fits(load, axis, buffers) for load in loads(then))


def _is_involved(node: Expr) -> bool:
    if isinstance(node, Load):
        return bool(loads(node.index[0]))
    return isinstance(node, Reduce) or (isinstance(node, Apply) and node.op in ("select", "checked_index"))


def _fits(load: Load, axis: Axis, buffers: Mapping[str, Buffer]) -> bool:
    step = coefficient(load.index[0], axis.name)
    size = product(buffers[load.buffer].shape)
    if step is None or not isinstance(size, Const) or not isinstance(axis.extent, Const):
        return False
    return int(size.value) > 0 and (step is ZERO or (is_const(step, 1) and int(size.value) >= int(axis.extent.value)))
