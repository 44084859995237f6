"""steps that nothing reads, buffers that no step touches -> nothing."""

from __future__ import annotations

from dataclasses import replace

from castiron.program.types import Compute, Group, Kind, Program, Step, read, written


def dead(program: Program) -> Program:
    """Keeps what the outputs need. INPUT and OUTPUT buffers stay; of the others those that a kept step touches."""
    needed = set(program.outputs)
    kept: list[Step] = []
    for step in reversed(program.steps):
        if isinstance(step, Group):
            live = _parts(step, needed)
            step = replace(step, parts=live) if live else step
        if needed.isdisjoint(written(step)):
            continue
        needed.update(read(step))
        kept.append(step)
    steps = tuple(reversed(kept))
    touched = {n for s in steps for n in (*read(s), *written(s))}
    stays = (Kind.INPUT, Kind.OUTPUT)
    buffers = {n: b for n, b in program.buffers.items() if n in touched or b.kind in stays}
    return replace(program, steps=steps, buffers=buffers)


def _parts(group: Group, needed: set[str]) -> tuple[Compute, ...]:
    wanted = set(needed)
    kept = []
    for part in reversed(group.parts):
        if part.out in wanted:
            wanted.update(read(part))
            kept.append(part)
    return tuple(reversed(kept))
