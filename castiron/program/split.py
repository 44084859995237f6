"""forward -> (prepare, forward): what depends on weights and constants alone runs once, before the first input.

Runs before fusion: a pack(w) that were fused into its consumer could not be told apart any more. Buffers that prepare
stores and forward reads become PACKED. A WEIGHT that forward reads as it is gets a copy in prepare.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from castiron.program.dead import dead
from castiron.program.edit import (
    Names,
    at_most,
    cost,
    elements,
    has_reduce,
    leaves,
    renamed,
    static,
    writers,
)
from castiron.program.expr import Expr, Load, free_variables
from castiron.program.types import Buffer, Compute, Kernel, Kind, Program, Step, View, expressions, read, written
from castiron.program.views import copy

CHEAP = 2
"""Cycles an element up to which forward computes what would only make the packed weights larger."""


def split(program: Program) -> tuple[Program, Program]:
    """(prepare, forward). `prepare.inputs` are its WEIGHT buffers, `prepare.outputs` the PACKED ones, in order."""
    program = _outputs_copied(program, _early(program))
    early = _early(program)
    steps = program.steps
    stays = [s for s in steps if not _is_within(s, early)]
    forward_steps = _recomputed(program, early, stays)
    names = Names(program)
    crossing = [n for n in _read(forward_steps) if n not in _written(forward_steps)]
    packed = {n: replace(program.buffers[n], kind=Kind.PACKED, value=None) for n in crossing if n in early}
    copies = {n: names.buffer(f"{n}.packed") for n in crossing if program.buffers[n].kind == Kind.WEIGHT}
    packed |= {to: replace(program.buffers[n], name=to, kind=Kind.PACKED, value=None) for n, to in copies.items()}
    buffers = {**program.buffers, **packed}
    prepare_steps = [s for s in steps if _is_within(s, early)]
    prepare_steps += [_copy(program.buffers[n], to, names) for n, to in copies.items()]
    prepare = Program("prepare", (), buffers, _views_copied(prepare_steps, buffers, names), (), tuple(packed))
    forward = replace(program, steps=tuple(renamed(s, copies) for s in forward_steps), buffers=buffers)
    return _bordered(dead(prepare)), dead(forward)


def _is_within(step: Step, buffers: frozenset[str] | set[str]) -> bool:
    """Whether a step stores, and into these buffers alone."""
    stored = written(step)
    return bool(stored) and buffers.issuperset(stored)


def _bordered(prepare: Program) -> Program:
    """prepare without the ports of forward, its weights as inputs."""
    buffers = {n: b for n, b in prepare.buffers.items() if b.kind not in (Kind.INPUT, Kind.OUTPUT)}
    weights = tuple(n for n, b in buffers.items() if b.kind == Kind.WEIGHT)
    return replace(prepare, buffers=buffers, inputs=weights)


def _early(program: Program) -> frozenset[str]:
    """Buffers whose every store depends on weights and constants alone, over known sizes, and on one of these."""
    early: set[str] = set()
    for name, numbers in writers(program.steps).items():
        if program.buffers[name].kind == Kind.TEMP and all(static(d) is not None for d in program.buffers[name].shape):
            early.add(name)
        assert numbers
    late = {n for n, b in program.buffers.items() if b.kind in (Kind.INPUT, Kind.OUTPUT, Kind.STATE)}
    changed = True
    while changed:  # a second round only where one step of several that fill a buffer turns out to be late
        changed = False
        for step in program.steps:
            if not late.isdisjoint(read(step)) or not early.issuperset(written(step)) or not _is_static(step):
                changed |= not late.issuperset(written(step))
                late.update(written(step))
                early.difference_update(written(step))
    return frozenset(early - _filled(program, early))


def _is_static(step: Step) -> bool:
    return all(
        static(a.extent) is not None for leaf in leaves(step) if not isinstance(leaf, View) for a in leaf.axes
    ) and not any(_sizes(step))


def _sizes(step: Step) -> frozenset[str]:
    """Run-time sizes that the step's expressions hold."""
    axes = {a.name for leaf in leaves(step) if not isinstance(leaf, View) for a in leaf.axes}
    axes |= {a.name for leaf in leaves(step) if isinstance(leaf, Kernel) for a in leaf.inner}
    free: frozenset[str] = frozenset().union(*(free_variables(e) for e in expressions(step)))
    return free - axes


def _filled(program: Program, early: set[str]) -> set[str]:
    """Early buffers that read nothing and that no early step needs: filling them anew is cheaper than keeping them."""
    sources = {n for s in program.steps if _is_within(s, early) for n in read(s)}
    fed = {n for s in program.steps if read(s) for n in written(s)}
    return {n for n in early if n not in fed and n not in sources}


def _recomputed(program: Program, early: frozenset[str], stays: list[Step]) -> tuple[Step, ...]:
    """The steps of forward: `stays`, and the early ones it runs again as their results are blow-ups, or views."""
    stores = writers(program.steps)
    again: set[int] = set()
    whole = {n for s in stays for n in _operands(s)}
    pending = [n for s in stays for n in read(s) if n in early]
    while pending:
        name = pending.pop()
        number, *more = stores[name]
        step = program.steps[number]
        if number in again or more or name in whole or not (isinstance(step, View) or _is_blowup(step, program)):
            continue
        again.add(number)
        pending += [n for n in read(step) if n in early]
    return tuple(s for n, s in enumerate(program.steps) if n in again or not _is_within(s, early))


def _operands(step: Step) -> list[str]:
    """Buffers that a kernel needs in memory."""
    if not isinstance(step, Kernel):
        return []
    return [o.buffer if isinstance(o, Load) else str(o) for _, o in step.operands]


def _is_blowup(step: Step, program: Program) -> bool:
    """Whether a step cheaply makes much of little: an Expand, a fill."""
    if not isinstance(step, Compute) or has_reduce(step.value) or cost(step.value) > CHEAP:
        return False
    source: Expr = sum((elements(program.buffers[n].shape) for n in read(step)), start=elements(()) * 0)
    return at_most(source * 2, elements(program.buffers[step.out].shape))


def _outputs_copied(program: Program, early: frozenset[str]) -> Program:
    """An OUTPUT that views an early buffer is stored by forward itself."""
    names = Names(program)
    steps = tuple(
        copy(s, program.buffers, names)
        if isinstance(s, View) and program.buffers[s.out].kind == Kind.OUTPUT and s.of in early else s
        for s in program.steps
    )  # fmt: skip
    return replace(program, steps=steps)


def _views_copied(steps: Iterable[Step], buffers: dict[str, Buffer], names: Names) -> tuple[Step, ...]:
    """A PACKED buffer that would view other memory is stored by a step."""
    return tuple(
        copy(s, buffers, names) if isinstance(s, View) and buffers[s.out].kind == Kind.PACKED else s for s in steps
    )


def _copy(weight: Buffer, to: str, names: Names) -> Compute:
    axes = names.axes(weight.shape)
    index = tuple(a.var for a in axes)
    return Compute(names.step(to), to, axes, index, Load(weight.name, index, weight.type))


def _read(steps: Iterable[Step]) -> list[str]:
    return list(dict.fromkeys(n for s in steps for n in read(s)))


def _written(steps: Iterable[Step]) -> set[str]:
    return {n for s in steps for n in written(s)}
