"""prepare, forward -> the same, without what prepare makes of constants alone: that is computed at build, once.

Nobody replaces a CONSTANT, so neither what is made of it: the result becomes a CONSTANT itself, and what it was made of
need not be in the artifact. Runs after fusion, so that no array on the way is computed for nothing.
"""

from __future__ import annotations

from dataclasses import replace

from castiron.program.dead import dead
from castiron.program.run import run
from castiron.program.types import Kind, Program, read, written


def embed(prepare: Program, forward: Program) -> tuple[Program, Program]:
    """(prepare, forward) with the PACKED buffers that no WEIGHT reaches as CONSTANTs."""
    replaceable = {b.name for b in prepare.of_kind(Kind.WEIGHT)}
    for step in prepare.steps:
        if not replaceable.isdisjoint(read(step)):
            replaceable.update(written(step))
    fixed = tuple(n for n in prepare.outputs if n not in replaceable)
    if not fixed:
        return prepare, forward
    values = run(_giving(prepare, fixed), {})
    known = {n: replace(prepare.buffers[n], kind=Kind.CONSTANT, value=values[n]) for n in fixed}
    steps = tuple(s for s in prepare.steps if known.keys().isdisjoint(written(s)))
    prepare = replace(prepare, buffers={**prepare.buffers, **known}, steps=steps)
    rest = _giving(prepare, tuple(n for n in prepare.outputs if n not in known))
    return rest, replace(forward, buffers={**forward.buffers, **known})


def _giving(prepare: Program, outputs: tuple[str, ...]) -> Program:
    """What of prepare these outputs need, its weights as inputs."""
    needed = dead(replace(prepare, inputs=(), outputs=outputs))
    return replace(needed, inputs=tuple(b.name for b in needed.of_kind(Kind.WEIGHT)))
