"""steps that nothing reads, buffers that no step touches -> nothing."""

from __future__ import annotations

from dataclasses import replace

from castiron.program.types import Assign, Compute, Control, Group, Kind, Program, Require, Step, read, written


def dead(program: Program) -> Program:
    """Keeps what the outputs need. INPUT and OUTPUT buffers stay; of the others those that a kept step touches.

    Sizes, what they are required to be, branches and loops stay."""
    needed = set(program.outputs)
    kept, before = _kept(program, needed), -1
    while before != len(needed) and any(isinstance(s, Assign) for s in program.steps):
        before = len(needed)  # what a turn of a loop reads of the one before it is stored further down
        kept = _kept(program, needed)
    steps = tuple(reversed(kept))
    touched = {n for s in steps for n in (*read(s), *written(s))}
    stays = (Kind.INPUT, Kind.OUTPUT)
    buffers = {n: b for n, b in program.buffers.items() if n in touched or b.kind in stays}
    return replace(program, steps=steps, buffers=buffers)


def _kept(program: Program, needed: set[str]) -> list[Step]:
    """The steps that are needed, last one first; `needed` grows by what they read."""
    kept: list[Step] = []
    for step in reversed(program.steps):
        if isinstance(step, Group):
            live = _parts(step, needed)
            step = replace(step, parts=live) if live else step
        if isinstance(step, Assign):
            moves, appends = (tuple(p for p in pairs if p[0] in needed) for pairs in (step.moves, step.appends))
            step = replace(step, moves=moves, appends=appends)
        if not isinstance(step, Assign | Require | Control) and needed.isdisjoint(written(step)):
            continue
        needed.update(read(step))
        kept.append(step)
    return kept


def _parts(group: Group, needed: set[str]) -> tuple[Compute, ...]:
    wanted = set(needed)
    kept = []
    for part in reversed(group.parts):
        if part.out in wanted:
            wanted.update(read(part))
            kept.append(part)
    return tuple(reversed(kept))
