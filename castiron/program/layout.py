"""Temporary arrays around convolutions in NCHW order -> the same arrays stored channels last.

The order of storage of a TEMP is nobody's business but its loads' and stores': the shape and each index are permuted,
no transposing step comes in. Arrays of one rank that elementwise steps, pads or pools connect change together. Those
that are seen under another shape (View), hold panels or are whole operands of a kernel keep their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from castiron.program.edit import is_one, leaves, map_loads
from castiron.program.expr import Expr, Load, free_variables, loads
from castiron.program.types import Assign, Buffer, Compute, Group, Kernel, Kind, Program, Step, View, read_whole

PANELS = ("b", "filter", "rows", "panels")
Item = TypeVar("Item")


def layout(program: Program) -> Program:
    """Stores every TEMP that is connected to a convolution channels last."""
    movable = _movable(program)
    classes = _Classes(movable)
    seeds: set[str] = set()
    for step in program.steps:
        for leaf in leaves(step):
            if isinstance(leaf, Kernel) and leaf.kernel == "conv":
                seeds.update(n for n in (leaf.out, _loaded(leaf, "x")) if n in movable)
            if not isinstance(leaf, View) and leaf.value is not None:
                _connect(leaf, program, classes)
    last = {classes.find(n) for n in seeds}
    moved = {n for n in sorted(movable) if classes.find(n) in last}
    buffers = {n: replace(b, shape=_permuted(b.shape)) if n in moved else b for n, b in program.buffers.items()}
    return replace(program, buffers=buffers, steps=tuple(_stored(s, moved) for s in program.steps))


class _Classes:
    """Union-find over buffer names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._parent = {n: n for n in names}

    def __contains__(self, name: str) -> bool:
        return name in self._parent

    def find(self, name: str) -> str:
        while self._parent[name] != name:
            self._parent[name] = self._parent[self._parent[name]]
            name = self._parent[name]
        return name

    def join(self, a: str, b: str) -> None:
        self._parent[self.find(b)] = self.find(a)


def _permuted(items: Sequence[Item]) -> tuple[Item, ...]:
    """N, C, rest -> N, rest, C."""
    return (items[0], *items[2:], items[1])


def _is_harmless(buffer: Buffer) -> bool:
    """Whether the permutation moves dimensions of size 1 only, so that the elements keep their order."""
    return is_one(buffer.shape[1]) or all(is_one(d) for d in buffer.shape[2:])


def _movable(program: Program) -> frozenset[str]:
    fixed: set[str] = set()
    for step in program.steps:
        if isinstance(step, Assign):
            fixed.update(read_whole(step))
        for leaf in leaves(step):
            if isinstance(leaf, View):
                fixed.update(n for n in (leaf.out, leaf.of) if not _may_be_viewed(program.buffers[n]))
            elif isinstance(leaf, Kernel):
                fixed.update(o for _, o in leaf.operands if isinstance(o, str))
                fixed.update(_loaded(leaf, n) for n in PANELS)
                if leaf.value is None:
                    fixed.update(leaf.outputs)
    return frozenset(
        n for n, b in program.buffers.items() if b.kind == Kind.TEMP and len(b.shape) > 2 and n not in fixed
    )


def _may_be_viewed(buffer: Buffer) -> bool:
    return len(buffer.shape) > 2 and _is_harmless(buffer)


def _loaded(kernel: Kernel, operand: str) -> str:
    found = dict(kernel.operands).get(operand)
    return found.buffer if isinstance(found, Load) else ""


def _connect(step: Compute | Kernel, program: Program, classes: _Classes) -> None:
    """Joins a step's output with what it loads at the same places, each index depending on its dimension alone."""
    if step.out not in classes:
        return
    assert step.value is not None
    own = frozenset(a.name for a in step.axes)
    dims = [free_variables(i) & own for i in step.index]
    for load in loads(step.value):
        if load.buffer not in classes or len(load.index) != len(dims):
            continue
        if all(free_variables(i) & own <= dim for i, dim in zip(load.index, dims, strict=True)):
            classes.join(step.out, load.buffer)


def _stored(step: Step, moved: set[str]) -> Step:
    def visit(load: Load) -> Expr | None:
        return Load(load.buffer, _permuted(load.index), load.type) if load.buffer in moved else None

    step = map_loads(step, visit)
    if isinstance(step, Group):
        raise TypeError("layout comes before grouping")
    if not isinstance(step, Compute | Kernel) or step.out not in moved or step.value is None:
        return step
    step = replace(step, index=_permuted(step.index))
    return _reordered(step) if isinstance(step, Compute) else step


def _reordered(step: Compute) -> Compute:
    """Axes in the order of the dimensions that they walk through."""
    place = {name: dim for dim, i in reversed(list(enumerate(step.index))) for name in free_variables(i)}
    return replace(step, axes=tuple(sorted(step.axes, key=lambda a: place.get(a.name, -1))))
