"""max, exp, sum, division … over the same rows -> one Group, which runs them row by row while the row is in cache.

Consecutive Computes join where their leading axes have the same extents and the later one loads what the earlier ones
have stored at its own row only. A TEMP with one element a row that only its group touches then needs no memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from castiron.program.edit import elements, has_reduce, is_one, map_part, static
from castiron.program.expr import Axis, Expr, Load, Reduce, constant, loads, nodes, substitute
from castiron.program.types import Compute, Group, Kind, Program, Step, read, written

LARGEST_ROW = 1 << 15
"""Elements of a row that still fit into the second-level cache."""


def group(program: Program) -> Program:
    """Groups rows. Results do not change: each part does what it did alone."""
    steps: list[Step] = []
    run: list[Compute] = []
    lead = 0
    for step in program.steps:
        joined = _joined(run, lead, step) if isinstance(step, Compute) and run else 0
        if joined and isinstance(step, Compute):
            run.append(step)
            lead = joined
            continue
        steps += _closed(run, lead)
        run, lead = [], 0
        if isinstance(step, Compute):
            run, lead = [step], _rows(step)
        else:
            steps.append(step)
    steps += _closed(run, lead)
    return replace(program, steps=tuple(steps))


def _rows(step: Compute) -> int:
    """How many of the leading axes may walk rows: all of a reduction's, else all but the innermost, the row."""
    axes = len(step.axes)
    while axes and is_one(step.axes[axes - 1].extent):
        axes -= 1
    return axes if has_reduce(step.value) else axes - 1


def _joined(run: list[Compute], lead: int, step: Compute) -> int:
    """The number of leading axes of the run with `step` in it; 0 where it does not belong."""
    count = 0
    for a, b in zip(run[0].axes[:lead], step.axes[: _rows(step)]):
        if a.extent is not b.extent:
            break
        count += 1
    if not count or (len(run) > 1 and count < lead) or not _is_worth(step, count):
        return 0
    if len(run) == 1 and not _is_worth(run[0], count):
        return 0
    stored = {part.out: part for part in run}
    found = [load for e in (step.value, *step.index) for load in loads(e) if load.buffer in stored]
    if not found or step.out in stored:
        return 0
    if not all(_is_same_row(stored[load.buffer], step, load, count) for load in found):
        return 0
    return count if len(run) == 1 or all(_is_row_kept(part, stored, count) for part in run) else 0


def _is_worth(step: Compute, lead: int) -> bool:
    """Whether there are several rows, short enough, each walked along memory."""
    rows = static(elements(a.extent for a in step.axes[:lead]))
    if rows is not None and rows < 2:
        return False
    inner = [a.extent for a in step.axes[lead:]]
    for node in nodes(step.value):
        if isinstance(node, Reduce):
            if not _is_along_memory(node):
                return False
            inner += [a.extent for a in node.axes]
    length = static(elements(inner))
    return length is None or length <= LARGEST_ROW


def _is_along_memory(reduction: Reduce) -> bool:
    last = reduction.axes[-1].var
    found = [load for load in loads(reduction.value) if any(last in set(nodes(i)) for i in load.index)]
    return all(load.index[-1] is last for load in found)


def _is_same_row(part: Compute, step: Compute, load: Load, lead: int) -> bool:
    """Whether `step` loads, at its row, only what `part` has stored at the same row."""
    for number in range(lead):
        dims = [d for d, i in enumerate(part.index) if i is part.axes[number].var]
        if is_one(part.axes[number].extent):
            continue
        if not dims or load.index[dims[0]] is not step.axes[number].var:
            return False
    return True


def _is_row_kept(part: Compute, stored: Mapping[str, Compute], lead: int) -> bool:
    return all(_is_same_row(stored[x.buffer], part, x, lead) for x in loads(part.value) if x.buffer in stored)


def _closed(run: list[Compute], lead: int) -> list[Step]:
    if len(run) < 2:
        return list(run)
    axes = run[0].axes[:lead]
    return [Group(run[-1].name, axes, tuple(_sharing(part, axes) for part in run))]


def _sharing(part: Compute, axes: tuple[Axis, ...]) -> Compute:
    """The part over the group's axes, without inner axes of extent 1."""
    lead = len(axes)
    values: dict[str, Expr] = {old.name: new.var for old, new in zip(part.axes, axes)}
    inner = tuple(a for a in part.axes[lead:] if not is_one(a.extent))
    values |= {a.name: constant(0) for a in part.axes[lead:] if is_one(a.extent)}
    return map_part(replace(part, axes=axes + inner), lambda e: substitute(e, values))


def locals_of(program: Program) -> frozenset[str]:
    """TEMPs with one element a row that one Group alone stores and loads: variables, not memory."""
    users: dict[str, set[int]] = {}
    rows: dict[str, int] = {}
    for number, step in enumerate(program.steps):
        for name in (*read(step), *written(step)):
            users.setdefault(name, set()).add(number)
        if isinstance(step, Group):
            for part in step.parts:
                users.setdefault(part.out, set()).add(number)
                if part.axes == step.axes and program.buffers[part.out].kind == Kind.TEMP:
                    rows[part.out] = number
    return frozenset(name for name, number in rows.items() if users[name] == {number})
