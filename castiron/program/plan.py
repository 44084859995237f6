"""Program -> Planned: a place in memory for every buffer.

Views share their root's memory; a Compute, a Group's part or a kernel's epilogue stores over an operand whose last load
this is, element for element. What is left of the TEMPs is placed by lifetime: larger first, each into the smallest gap
that holds it. `ci_plan` in the runtime does the same where sizes are known at run time only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

import numpy as np

from castiron.errors import InternalError
from castiron.program.edit import leaves, static
from castiron.program.expr import Expr, Load, loads
from castiron.program.flow import nesting
from castiron.program.group import locals_of
from castiron.program.planned import Lives, Place, Planned, Storage
from castiron.program.stages import numbered, stage_of, stages
from castiron.program.types import Buffer, Compute, Group, Kernel, Kind, Program, Step, View, read, written

ALIGN = 64
"""Bytes; CI_ALIGN of castiron.h."""
FIXED = (Kind.INPUT, Kind.WEIGHT, Kind.CONSTANT)


def plan(program: Program, blobs: Storage) -> Planned:
    """Places every buffer that needs memory of its own."""
    free = locals_of(program)
    roots = _view_roots(program)
    life = _lives(program, roots)
    roots = _in_place(program, roots, life, free)
    life = _lives(program, roots)
    owners = dict.fromkeys(roots[n] for n in program.buffers)
    temps = [n for n in owners if program.buffers[n].kind == Kind.TEMP and n in life and n not in free]
    ports = _ports(program)
    states = {b.name: number for number, b in enumerate(program.of_kind(Kind.STATE))}
    numbers = numbered(program)
    by_stage: list[list[str]] = [[] for _ in stages(program)]
    for name in temps:
        by_stage[stage_of(program.buffers[name], numbers)].append(name)
    temps, *late = by_stage
    places: dict[str, Place] = {}
    for name in owners:
        kind = program.buffers[name].kind
        table = {Kind.PACKED: blobs.packed, Kind.CONSTANT: blobs.constants, Kind.STATE: states}.get(kind, ports)
        if kind != Kind.TEMP and name in table:
            places[name] = Place(kind, table[name])
    sizes = [_bytes(program.buffers[n]) for n in temps]
    dynamic = any(s is None for s in sizes)
    later: list[Lives] = []
    slot = len(temps) if dynamic else 0
    for stage, own in enumerate(late, 1):
        places |= {n: Place(Kind.TEMP, slot + i, dynamic=True, stage=stage) for i, n in enumerate(own)}
        later.append(tuple((n, *life[n]) for n in own))
        slot += len(own)
    if dynamic:
        places |= {n: Place(Kind.TEMP, slot, dynamic=True) for slot, n in enumerate(temps)}
        return Planned(program, places, roots, tuple((n, *life[n]) for n in temps), None, tuple(later))
    found, arena = placed([life[n] for n in temps], [s for s in sizes if s is not None])
    places |= {n: Place(Kind.TEMP, offset) for n, offset in zip(temps, found, strict=True)}
    return Planned(program, places, roots, (), arena, tuple(later))


def storage(prepare: Program, forward: Program) -> Storage:
    """Where the PACKED buffers are among the packed weights, the CONSTANTs that a program reads among the constants."""
    packed = {b.name: b for p in (prepare, forward) for b in p.of_kind(Kind.PACKED)}
    used = {n for p in (prepare, forward) for s in p.steps for n in read(s)}
    constants = {b.name: b for p in (prepare, forward) for b in p.of_kind(Kind.CONSTANT) if b.name in used}
    (packed_at, packed_bytes), (constants_at, constant_bytes) = (
        sequential(packed.values()),
        sequential(constants.values()),
    )
    return Storage(packed_at, constants_at, packed_bytes, constant_bytes)


def constants(prepare: Planned, forward: Planned, places: Storage) -> bytes:
    """The CONSTANT buffers of the two programs, each at its place."""
    out = bytearray(places.constant_bytes)
    buffers = {**prepare.program.buffers, **forward.program.buffers}
    for name, offset in places.constants.items():
        value = buffers[name].value
        assert value is not None, name
        data = np.ascontiguousarray(value, buffers[name].type.numpy()).tobytes()
        out[offset : offset + len(data)] = data
    return bytes(out)


def sequential(buffers: Iterable[Buffer]) -> tuple[dict[str, int], int]:
    """Offsets one after the other, aligned, and the bytes of all."""
    found: dict[str, int] = {}
    end = 0
    for buffer in buffers:
        size = _bytes(buffer)
        if size is None:
            raise InternalError(f"{buffer.kind.value} {buffer.name!r} has no size known at build")
        found[buffer.name] = end
        end += size
    return found, end


def placed(lives: list[tuple[int, int]], sizes: list[int]) -> tuple[list[int], int]:
    """Offsets of buffers of these lives (first and last step) and bytes, and bytes of all: best fit, larger first."""
    first, last = (np.array([life[i] for life in lives], np.int64) for i in (0, 1))
    bytes = np.array([_aligned(s) for s in sizes], np.int64)
    start = np.zeros(len(lives), np.int64)
    is_placed = np.zeros(len(lives), bool)
    for number in sorted(range(len(lives)), key=lambda n: (-bytes[n], n)):
        rivals = np.flatnonzero(is_placed & (first <= last[number]) & (last >= first[number]))
        rivals = rivals[np.argsort(start[rivals], kind="stable")]
        ends = np.maximum.accumulate(np.concatenate([[0], start[rivals] + bytes[rivals]]))
        gaps = start[rivals] - ends[:-1]
        fits = np.flatnonzero(gaps >= bytes[number])
        start[number] = ends[fits[np.argmin(gaps[fits])]] if len(fits) else ends[-1]
        is_placed[number] = True
    return [int(s) for s in start], int((start + bytes).max(initial=0))


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def _bytes(buffer: Buffer) -> int | None:
    """Bytes, rounded up; None where a size is not known at build."""
    shape = [static(d) for d in buffer.shape]
    if any(d is None for d in shape):
        return None
    return _aligned(prod(d for d in shape if d is not None) * buffer.type.numpy().itemsize)


def _ports(program: Program) -> dict[str, int]:
    """Numbers of the inputs (in prepare: of the weights) and of the outputs."""
    return {n: i for names in (program.inputs, program.outputs) for i, n in enumerate(names)}


# Roots --------------------------------------------------------------------------------------------


def _view_roots(program: Program) -> dict[str, str]:
    """Buffer -> whose memory it is. Of a view and what it views, the one that is not a TEMP owns the memory."""
    parent = {n: n for n in program.buffers}
    for step in program.steps:
        if isinstance(step, View):
            of, out = _root(parent, step.of), step.out
            kinds = program.buffers[of].kind, program.buffers[out].kind
            if kinds[1] == Kind.TEMP:
                parent[out] = of
            elif kinds[0] == Kind.TEMP:
                parent[of] = out
            else:
                raise InternalError(
                    f"{program.name}: {kinds[1].value} {out!r} cannot be a view of {kinds[0].value} {of!r}"
                )
    return {n: _root(parent, n) for n in parent}


def _root(parent: Mapping[str, str], name: str) -> str:
    while parent[name] != name:
        name = parent[name]
    return name


def _lives(program: Program, roots: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Root -> the first and the last step that touches it; what a loop finds there is needed until its last turn ends."""
    found: dict[str, tuple[int, int]] = {}
    nest = nesting(program.steps)
    for number, step in enumerate(program.steps):
        names = {roots[n] for n in (*read(step), *written(step))}
        for name in names:
            first, last = found.get(name, (number, number))
            found[name] = (first, max(last, nest.last(first, number)))
    return found


# In place -----------------------------------------------------------------------------------------


def _in_place(
    program: Program, roots: dict[str, str], life: dict[str, tuple[int, int]], free: frozenset[str]
) -> dict[str, str]:
    """Lets results take the memory of operands that die with the step. `life` is of the roots, and follows."""
    parent = dict(roots)
    life = dict(life)
    for number, step in enumerate(program.steps):
        for place, leaf in enumerate(leaves(step)):
            if (
                isinstance(leaf, View)
                or leaf.value is None
                or not _is_new(program, parent, life, leaf.out, number, free)
            ):
                continue
            victim = _victim(program, parent, life, step, place, number, free)
            if victim is not None:
                out = parent[leaf.out]
                parent[out] = victim
                life[victim] = (life[victim][0], life[out][1])
    return {n: _root(parent, n) for n in parent}


def _is_new(
    program: Program,
    parent: Mapping[str, str],
    life: Mapping[str, tuple[int, int]],
    out: str,
    number: int,
    free: frozenset[str],
) -> bool:
    root = _root(parent, out)
    return (
        program.buffers[root].kind == Kind.TEMP and root == parent[out] and out not in free and life[root][0] == number
    )


def _victim(
    program: Program,
    parent: Mapping[str, str],
    life: Mapping[str, tuple[int, int]],
    step: Step,
    place: int,
    number: int,
    free: frozenset[str],
) -> str | None:
    """The root that part `place` of the step may store over."""
    parts = leaves(step)
    leaf = parts[place]
    assert isinstance(leaf, (Compute, Kernel)) and leaf.value is not None
    out = program.buffers[leaf.out]
    for load in loads(leaf.value):
        root = _root(parent, load.buffer)
        operand = program.buffers[load.buffer]
        if (
            program.buffers[root].kind != Kind.TEMP
            or root in free
            or life[root][1] != number
            or root == _root(parent, leaf.out)
        ):
            continue
        if operand.type != out.type or operand.shape != out.shape or program.buffers[root].type != out.type:
            continue
        if _is_overwritable(parent, step, place, root, leaf.index):
            return root
    return None


def _is_overwritable(parent: Mapping[str, str], step: Step, place: int, root: str, index: tuple[Expr, ...]) -> bool:
    """Whether nothing loads or stores the root's memory in this step but at the element that is stored next.

    In a Group earlier parts may load other elements of the same row; later parts nothing."""
    lead = {a.var for a in step.axes} if isinstance(step, Group) else set()
    for number, leaf in enumerate(leaves(step)):
        if isinstance(leaf, View):
            return False
        if isinstance(leaf, Kernel):
            names = [o if isinstance(o, str) else o.buffer for _, o in leaf.operands if isinstance(o, (str, Load))]
            if any(_root(parent, n) == root for n in names):
                return False
        if _root(parent, leaf.out) == root and (number > place or not _covers_rows(step, leaf.index)):
            return False
        assert leaf.value is not None
        for load in [x for e in (leaf.value, *leaf.index) for x in loads(e) if _root(parent, x.buffer) == root]:
            if number > place or len(load.index) != len(index):
                return False
            pairs = zip(load.index, index, strict=True)
            if not all(a is b or (number < place and b not in lead) for a, b in pairs):
                return False
    return _covers_rows(step, index)


def _covers_rows(step: Step, index: tuple[Expr, ...]) -> bool:
    """Whether each of a Group's axes is one dimension of the index, so that rows do not overlap."""
    return not isinstance(step, Group) or all(a.var in index for a in step.axes)
