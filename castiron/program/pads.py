"""x; padded = x inside a border -> x is stored inside the border of `padded` in the first place.

A convolution needs its border in memory. Whoever computes x stores it there, whoever else loads x loads it from there,
and the border is filled by steps of its own: nothing is copied. Runs after fusion, when producers are final.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from castiron.program.dead import dead
from castiron.program.edit import Names, leaves, map_loads, readers, static, whole, writers
from castiron.program.expr import INT64, Apply, Axis, Const, Expr, Load, constant
from castiron.program.notes import Note, silent
from castiron.program.types import Assign, Compute, Group, Kernel, Kind, Program, Step, View, read_whole

PANELS = ("b", "filter", "rows", "panels")


def pads(program: Program, note: Note = silent) -> Program:
    """Takes the copies away that only add a border to a TEMP; `note` is told why others stay."""
    work = _Work(program, note)
    for number in range(len(work.steps)):
        work.try_at(number)
    return dead(replace(program, steps=tuple(s for group in zip(work.before, work.steps) for s in _flat(*group))))


def _flat(before: list[Step], step: Step | None) -> list[Step]:
    return [*before, *([] if step is None else [step])]


class _Work:
    """Steps on the way; `before` holds the fills that come before each."""

    def __init__(self, program: Program, note: Note) -> None:
        self.note = note
        self.buffers = program.buffers
        self.steps: list[Step | None] = list(program.steps)
        self.before: list[list[Step]] = [[] for _ in program.steps]
        self.stores, self.loads = writers(program.steps), readers(program.steps)
        self.names = Names(program)
        self.fixed = _fixed(program)

    def try_at(self, number: int) -> None:
        """Moves what the step at `number` puts a border around."""
        step = self.steps[number]
        found = self._pad(step) if isinstance(step, Compute) else None
        if found is None or not isinstance(step, Compute):
            return
        source, low, fill = found
        out = step.out
        first, *more = self.stores[source]
        users = {first, *more, *self.loads[source]} - {number}
        self.steps[number] = None
        # a border of an earlier pad is part of what this one pads
        self.before[first] = [_moved(border, source, out, low) for border in self.before[first]]
        self.before[first] += _border(step, self.buffers[source].shape, low, fill, self.names, self.buffers[out].shape)
        for user in users:
            used = self.steps[user]
            self.steps[user] = None if used is None else _moved(used, source, out, low)
        self.stores[out] = [first, *more]
        self.loads[out] = sorted({*self.loads[out], *self.loads[source]} - {number})

    def _pad(self, step: Compute) -> tuple[str, list[int], Expr] | None:
        """What is padded, by how much before the start of each dimension, with what; None where the step is no pad."""
        value = step.value
        if not (isinstance(value, Apply) and value.op == "select"):
            return None
        condition, load, fill = value.args
        if not (isinstance(load, Load) and isinstance(fill, Const)):
            return None
        objection = self._objection(load.buffer, step.out)
        if objection:
            self.note(step.out, f"a padded copy: {objection}")
            return None
        inner, outer = self.buffers[load.buffer].shape, self.buffers[step.out].shape
        if len(inner) != len(outer) or whole(step.index, outer, step.axes) is None:
            return None
        low: list[int] = []
        for at, i, size, total in zip(step.index, load.index, inner, outer, strict=True):
            start, rest = static(at - i), static(total - size)
            if start is None or rest is None or not 0 <= start <= rest:
                return None
            low.append(start)
        bounds = {natural for i, size in zip(load.index, inner, strict=True) for natural in (i, size - 1 - i)}
        return (load.buffer, low, fill) if all(_natural(c) in bounds for c in _conjuncts(condition)) else None

    def _objection(self, source: str, out: str) -> str:
        """Why `source` cannot be stored inside `out`: both must be TEMPs of loop nests, `out` stored once."""
        kinds = {self.buffers[n].kind for n in (source, out)}
        if kinds != {Kind.TEMP}:
            return "its source belongs to the caller"
        if out in self.fixed:
            return "a kernel reads it in panels"
        if source in self.fixed or len(self.stores[out]) != 1:
            return "its source is seen as a whole elsewhere"
        grouped = any(isinstance(self.steps[n], Group) for n in self.stores[source])
        return "its source is stored row by row" if grouped else ""


def _fixed(program: Program) -> frozenset[str]:
    """Buffers whose memory is seen as a whole: views, panels, operands and results of kernels without an epilogue."""
    found: set[str] = set()
    for step in program.steps:
        if isinstance(step, Assign):
            found.update(read_whole(step))
        for leaf in leaves(step):
            if isinstance(leaf, View):
                found.update((leaf.out, leaf.of))
            elif isinstance(leaf, Kernel):
                operands = [(n, o.buffer if isinstance(o, Load) else str(o)) for n, o in leaf.operands]
                found.update(b for n, b in operands if leaf.value is None or n in PANELS)
                found.update(leaf.outputs if leaf.value is None else ())
    return frozenset(found)


def _conjuncts(condition: Expr) -> list[Expr]:
    if isinstance(condition, Apply) and condition.op == "and":
        return [c for a in condition.args for c in _conjuncts(a)]
    return [condition]


def _natural(condition: Expr) -> Expr | None:
    """What is not negative just where the comparison of integers holds."""
    if not isinstance(condition, Apply) or len(condition.args) != 2 or condition.args[0].type != INT64:
        return None
    a, b = condition.args
    return {"ge": a - b, "gt": a - b - 1, "le": b - a, "lt": b - a - 1}.get(condition.op)


def _moved(step: Step, source: str, out: str, low: list[int]) -> Step:
    """The step using the inside of `out` for `source`."""

    def shifted(index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(i + start for i, start in zip(index, low, strict=True))

    def visit(load: Load) -> Expr | None:
        return Load(out, shifted(load.index), load.type) if load.buffer == source else None

    step = map_loads(step, visit)
    if isinstance(step, Compute) and step.out == source:
        return replace(step, out=out, index=shifted(step.index))
    if isinstance(step, Kernel) and step.outputs == (source,):
        return replace(step, outputs=(out,), index=shifted(step.index))
    return step


def _border(
    pad: Compute, inner: tuple[Expr, ...], low: list[int], fill: Expr, names: Names, outer: tuple[Expr, ...]
) -> list[Compute]:
    """Steps that fill what lies around the inside, each element once: a dimension's sides between those before it."""
    steps = []
    for dim, start in enumerate(low):
        end = static(outer[dim] - inner[dim])
        assert end is not None
        for sides in _sides(start, end - start, inner[dim]):
            axes = (
                [names.axes([e]) for e in inner[:dim]],
                names.axes(sides[0]),
                [names.axes([e]) for e in outer[dim + 1 :]],
            )
            before = [a.var + s for (a,), s in zip(axes[0], low)]
            index = (*before, sides[1](axes[1]), *(a.var for (a,) in axes[2]))
            every = (*(a for (a,) in axes[0]), *axes[1], *(a for (a,) in axes[2]))
            steps.append(Compute(names.step(f"{pad.name}.border"), pad.out, every, index, fill, pad.origins))
    return steps


Side = tuple[tuple[Expr, ...], Callable[[tuple[Axis, ...]], Expr]]


def _sides(low: int, high: int, size: Expr) -> list[Side]:
    """Extents of loops over the elements before and behind the inside, and the index that they give."""
    if low == high and low:
        return [((constant(2), constant(low)), lambda a: a[0].var * (size + low) + a[1].var)]
    sides: list[Side] = []
    if low:
        sides.append(((constant(low),), lambda a: a[0].var))
    if high:
        sides.append(((constant(high),), lambda a: a[0].var + size + low))
    return sides
