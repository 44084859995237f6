"""Where elements are: flat offsets, strides, and loops that can become one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from castiron.errors import InternalError
from castiron.program.expr import (
    Axis,
    Const,
    Expr,
    Load,
    Reduce,
    Var,
    constant,
    free_variables,
    linear,
    nodes,
    polynomial,
    rewrite,
    substitute,
    text,
)
from castiron.program.types import Buffer, Shape

ZERO, ONE = constant(0), constant(1)
STORE = ""
"""The buffer name of a pseudo-load that stands for a store's offset."""


def offset(index: Sequence[Expr], shape: Shape) -> Expr:
    """The row-major element number of `index` in `shape`."""
    total, stride = ZERO, ONE
    for i, extent in zip(reversed(index), reversed(shape), strict=True):
        total = total + i * stride
        stride = stride * extent
    return total


def flat(e: Expr, buffers: Mapping[str, Buffer]) -> Expr:
    """`e` with each load at one flat offset."""

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Load):
            return Load(node.buffer, (offset(node.index, buffers[node.buffer].shape),), node.type)
        return None

    return rewrite(e, visit)


def is_const(e: Expr, value: int) -> bool:
    return isinstance(e, Const) and e.value == value


def coefficient(e: Expr, axis: str) -> Expr | None:
    """What `e` grows by when `axis` grows by one; None where that is not one number."""
    form = linear(e, frozenset({axis}))
    return None if form is None else form[0].get(axis, ZERO)


def strides(load: Load, axes: Iterable[Axis]) -> tuple[dict[str, Expr], Expr]:
    """Strides by axis name and the start, of a flat load that must be linear in `axes`."""
    form = linear(load.index[0], frozenset(a.name for a in axes))
    if form is None:
        raise InternalError(f"the operand {text(load)} is not linear in the axes of its kernel")
    return form


def without_units(axes: Sequence[Axis]) -> tuple[tuple[Axis, ...], dict[str, Expr]]:
    """The axes that loop, and zeros for those of extent 1."""
    return tuple(a for a in axes if not is_const(a.extent, 1)), {a.name: ZERO for a in axes if is_const(a.extent, 1)}


def tidy_reductions(e: Expr) -> Expr:
    """`e` with reductions over merged axes, axes of extent 1 gone."""

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, Reduce):
            return None
        axes, zeros = without_units(node.axes)
        axes, (value,) = merged(axes, (substitute(node.value, zeros),))
        return Reduce(node.op, axes, value) if axes else value

    return rewrite(e, visit)


def ordered(axes: Sequence[Axis], index: Sequence[Expr]) -> tuple[Axis, ...]:
    """The axes in the order of the stored array's dimensions, so that the last one is next to next in memory."""

    def position(axis: Axis) -> tuple[int, int]:
        dim = max((d for d, i in enumerate(index) if axis.name in free_variables(i)), default=-1)
        step = coefficient(index[dim], axis.name) if dim >= 0 else None
        return dim, -abs(int(step.value)) if isinstance(step, Const) else 0

    return tuple(sorted(axes, key=position))


def merged(axes: Sequence[Axis], expressions: Sequence[Expr]) -> tuple[tuple[Axis, ...], tuple[Expr, ...]]:
    """Neighbouring axes made one (under the inner one's name) where every load and store walks them in step."""
    loops, values = list(axes), tuple(expressions)
    for i in range(len(loops) - 2, -1, -1):
        outer, inner = loops[i], loops[i + 1]
        if mergeable(outer, inner, values):
            loops[i : i + 2] = [Axis(inner.name, outer.extent * inner.extent)]
            values = tuple(substitute(v, {outer.name: ZERO}) for v in values)
    return tuple(loops), values


def mergeable(outer: Axis, inner: Axis, expressions: Sequence[Expr]) -> bool:
    """Whether both variables occur in flat offsets only, there as one counter."""
    both = frozenset({outer.name, inner.name})
    stack, seen = list(expressions), set(expressions)
    while stack:
        node = stack.pop()
        if isinstance(node, Var) and node.name in both:
            return False
        if isinstance(node, Reduce) and any(both & free_variables(a.extent) for a in node.axes):
            return False
        if isinstance(node, Load) and both & free_variables(node.index[0]):
            form = linear(node.index[0], both)
            if form is None or form[0].get(outer.name, ZERO) is not form[0].get(inner.name, ZERO) * inner.extent:
                return False
            continue
        fresh = [o for o in node.operands if o not in seen]
        seen.update(fresh)
        stack += fresh
    return True


def contiguous(e: Expr, axis: str, some: bool = True) -> bool:
    """Whether all loads in `e` walk along `axis` by steps of one element or stand still (`some`: one walks)."""
    walks = False
    for node in nodes(e):
        if isinstance(node, Load) and axis in free_variables(node.index[0]):
            step = coefficient(node.index[0], axis)
            if step is None or not is_const(step, 1):
                return False
            walks = True
    return walks or not some


def product(extents: Iterable[Expr]) -> Expr:
    """The number of elements."""
    total = ONE
    for extent in extents:
        total = total * extent
    return total


def is_cheap_index(e: Expr) -> bool:
    """An integer polynomial over variables: not worth a name, compilers share it."""
    return all(isinstance(a, Var) for monomial in polynomial(e) for a in monomial)
