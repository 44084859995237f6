"""What the passes share: who reads and writes what, sizes, and steps with their expressions replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from castiron.program import scalar
from castiron.program.expr import (
    INT64,
    Apply,
    Axis,
    Const,
    Expr,
    Load,
    Reduce,
    Var,
    constant,
    linear,
    nodes,
    polynomial,
    rewrite,
)
from castiron.program.types import (
    Assign,
    Compute,
    Control,
    Group,
    Kernel,
    Program,
    Require,
    Shape,
    Step,
    View,
    expressions,
    read,
    written,
)

Leaf = Compute | Kernel | View


def leaves(step: Step) -> tuple[Leaf, ...]:
    """The step itself, or the parts of a Group; nothing of steps that are no work on elements (Assign, Require, Control)."""
    if isinstance(step, Group):
        return step.parts
    return (step,) if isinstance(step, Compute | Kernel | View) else ()


def map_expressions(step: Step, change: Callable[[Expr], Expr]) -> Step:
    """The step with `change` applied to each of its `expressions`."""
    if isinstance(step, View):
        return step
    if isinstance(step, Group):
        return replace(step, parts=tuple(map_part(p, change) for p in step.parts))
    if isinstance(step, Assign):
        return replace(step, sizes=tuple((name, change(value)) for name, value in step.sizes))
    if isinstance(step, Require):
        equal = replace(step.equal, left=change(step.equal.left), right=change(step.equal.right))
        return replace(step, equal=equal)
    if isinstance(step, Control):
        return step if step.condition is None else replace(step, condition=change(step.condition))
    if isinstance(step, Compute):
        return map_part(step, change)
    index = tuple(change(i) for i in step.index)
    value = None if step.value is None else change(step.value)
    operands = tuple((n, change(o) if isinstance(o, Expr) else o) for n, o in step.operands)
    return replace(step, index=index, value=value, operands=operands)


def map_part(step: Compute, change: Callable[[Expr], Expr]) -> Compute:
    """The same for a Compute, alone or in a Group."""
    return replace(step, index=tuple(change(i) for i in step.index), value=change(step.value))


def map_loads(step: Step, change: Callable[[Load], Expr | None]) -> Step:
    """The step with each load replaced by what `change` gives, where that is not None."""
    return map_expressions(step, lambda e: rewrite(e, lambda n: change(n) if isinstance(n, Load) else None))


def renamed(step: Step, names: Mapping[str, str]) -> Step:
    """The step reading other buffers: `names` maps old to new ones of the same shape. What it stores stays."""
    if isinstance(step, View):
        return replace(step, of=names.get(step.of, step.of))
    if isinstance(step, Kernel):
        operands = tuple((n, names.get(o, o) if isinstance(o, str) else o) for n, o in step.operands)
        step = replace(step, operands=operands)
    if isinstance(step, Assign):
        moves, appends = (tuple((to, names.get(of, of)) for to, of in pairs) for pairs in (step.moves, step.appends))
        step = replace(step, moves=moves, appends=appends)
    return map_loads(step, lambda n: Load(names[n.buffer], n.index, n.type) if n.buffer in names else None)


def writers(steps: Iterable[Step]) -> dict[str, list[int]]:
    """Buffer -> numbers of the steps that store into it."""
    found: dict[str, list[int]] = {}
    for number, step in enumerate(steps):
        for name in written(step):
            found.setdefault(name, []).append(number)
    return found


def readers(steps: Iterable[Step]) -> dict[str, list[int]]:
    """Buffer -> numbers of the steps that load from it."""
    found: dict[str, list[int]] = {}
    for number, step in enumerate(steps):
        for name in read(step):
            found.setdefault(name, []).append(number)
    return found


# Sizes --------------------------------------------------------------------------------------------


def elements(sizes: Iterable[Expr]) -> Expr:
    """The product."""
    total = constant(1)
    for size in sizes:
        total = total * size
    return total


def static(size: Expr) -> int | None:
    """The number, where it is known at build."""
    return int(size.value) if isinstance(size, Const) else None


def is_one(size: Expr) -> bool:
    """Whether a size is known to be 1."""
    return isinstance(size, Const) and size.value == 1


def is_zero(index: Expr) -> bool:
    """Whether an index is known to be 0."""
    return isinstance(index, Const) and index.value == 0


def at_most(a: Expr, b: Expr) -> bool:
    """Whether a <= b for certain, all sizes being at least 1: each term of b - a but the constant one is positive."""
    difference = polynomial(b - a)
    return all(c > 0 for m, c in difference.items() if m) and sum(difference.values()) >= 0


def is_linear(indices: Iterable[Expr], axes: Iterable[Axis]) -> bool:
    """Whether each index is linear in the axes, so that one stride an axis says where an element is."""
    names = frozenset(a.name for a in axes)
    return all(linear(i, names) is not None for i in indices)


# Properties of values -----------------------------------------------------------------------------


def has_reduce(e: Expr) -> bool:
    """Whether a reduction is anywhere in it."""
    return any(isinstance(n, Reduce) for n in nodes(e))


def cost(e: Expr) -> int:
    """Rough cycles to evaluate `e` once, reductions counted as one evaluation; index sums and products are free."""
    free = ("add", "sub", "mul", "neg")
    return sum(
        scalar.TABLE[n.op].cost for n in nodes(e) if isinstance(n, Apply) and not (n.type == INT64 and n.op in free)
    )


def whole(index: Sequence[Expr], shape: Shape, axes: Sequence[Axis]) -> dict[str, int | None] | None:
    """Axis -> dimension, where `index` over all `axes` meets each element of `shape` exactly once, a dimension an axis.

    None where it does not, or is not seen to; an axis of extent 1 that no dimension needs maps to None.
    """
    extents = {a.name: a.extent for a in axes}
    found: dict[str, int | None] = {}
    for dim, (i, size) in enumerate(zip(index, shape, strict=True)):
        if is_zero(i) and is_one(size):
            continue
        if not isinstance(i, Var) or i.name in found or extents.get(i.name) is not size:
            return None
        found[i.name] = dim
    for name, extent in extents.items():
        if name not in found:
            if not is_one(extent):
                return None
            found[name] = None
    return found


# New names ----------------------------------------------------------------------------------------


class Names:
    """Gives axes, steps and buffers that the program does not have yet."""

    def __init__(self, program: Program) -> None:
        self._steps = {s.name for s in program.steps}
        self._buffers = set(program.buffers)
        self._axes = {s.name for s in program.sizes} | {a.name for s in program.steps for a in bound(s)}
        self._next = 0

    def axes(self, shape: Sequence[Expr]) -> tuple[Axis, ...]:
        """Loop axes over `shape`."""
        return tuple(Axis(self._axis(), extent) for extent in shape)

    def buffer(self, hint: str) -> str:
        """A buffer's name that starts with `hint`."""
        return _unique(hint, self._buffers)

    def step(self, hint: str) -> str:
        """A step's name that starts with `hint`."""
        return _unique(hint, self._steps)

    def _axis(self) -> str:
        while f"j{self._next}" in self._axes:
            self._next += 1
        name = f"j{self._next}"
        self._axes.add(name)
        return name


def _unique(hint: str, taken: set[str]) -> str:
    name, number = hint, 2
    while name in taken:
        name, number = f"{hint}.{number}", number + 1
    taken.add(name)
    return name


def bound(step: Step) -> Iterator[Axis]:
    """Every axis that a step loops over, those of its reductions included."""
    if isinstance(step, Group):
        yield from step.axes
    for leaf in leaves(step):
        if not isinstance(leaf, View):
            yield from leaf.axes
        if isinstance(leaf, Kernel):
            yield from leaf.inner
    for e in expressions(step):
        for node in nodes(e):
            if isinstance(node, Reduce):
                yield from node.axes
