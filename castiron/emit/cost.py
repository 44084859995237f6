"""Rough cycles, from the costs of scalar.TABLE: what decides about threads and unrolling."""

from __future__ import annotations

from castiron.emit.access import ONE, product
from castiron.program.expr import INT64, Apply, Expr, Load, Reduce, constant, nodes
from castiron.program.scalar import TABLE


def cost(e: Expr) -> Expr:
    """Cycles to compute `e` once, as an expression over sizes; index arithmetic is free."""
    total = ONE
    inside: set[Expr] = set()
    for node in reversed(list(nodes(e))):
        if node in inside:
            continue
        if isinstance(node, Reduce):
            inside.update(nodes(node.value))
            total = total + cost(node.value) * product(a.extent for a in node.axes)
        elif isinstance(node, Load):
            total = total + 1
        elif isinstance(node, Apply) and node.type != INT64:
            total = total + TABLE[node.op].cost
    return total


def per_vector(work: Expr) -> Expr:
    """Cycles where several elements are computed at once: a fourth, at least one."""
    return (work + 3) // constant(4)
