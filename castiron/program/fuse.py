"""A TEMP stored once and loaded once -> its value in the place of the load; a step after a kernel -> its epilogue.

Two sweeps, each over every step once:
1. `_inline`, first step to last: a producer's value replaces the loads of it, where no work is done twice (or hardly
   any: movement, casts, a flop). Operands of tile kernels take movement alone, as long as their index stays linear.
2. `_join`, last step to first: the one consumer of a kernel's result, element for element, becomes the epilogue; the
   kernel moves to the consumer's place, where all it loads has been stored. So does a Compute that stores at an
   index of its own (a merged view).
"""

from __future__ import annotations

from dataclasses import replace

from castiron.program.dead import dead
from castiron.program.edit import at_most, cost, elements, has_reduce, is_linear, is_one, map_loads, static, whole
from castiron.program.expr import (
    Apply,
    Const,
    Expr,
    Load,
    Reduce,
    constant,
    free_variables,
    linear,
    loads,
    nodes,
    rewrite,
    substitute,
)
from castiron.program.flow import nesting
from castiron.program.notes import Note, silent
from castiron.program.types import Compute, Kernel, Kind, Origin, Program, Step, View, read, written
from castiron.program.views import resolve

LARGEST = 150
"""Nodes of an expression beyond which nothing more is put into it."""
CHEAP = 2
"""Cycles an element that may be spent again by each of a few consumers."""
FEW = 4
MOVABLE = {"matmul": ("a",), "conv": ("x",), "matmul_integer": ()}
"""Operands of tile kernels that may have any strides."""


def fuse(program: Program, note: Note = silent) -> Program:
    """Fuses until nothing more fits. An index that fusion has put together may need a view no more.

    `note` is told of a buffer why it stays."""
    fused = _swept(program, note)
    while any(isinstance(s, View) for s in fused.steps):
        resolved = resolve(fused)
        if resolved.steps == fused.steps:
            break
        fused = _swept(resolved, note)
    return fused


def _swept(program: Program, note: Note) -> Program:
    work = _Work(program, note)
    for number in range(len(work.steps)):
        _inline(work, number)
    for number in reversed(range(len(work.steps))):
        place: int | None = number
        while place is not None:
            place = _join(work, place)
    return dead(replace(program, steps=tuple(s for s in work.steps if s is not None)))


class _Work:
    """Steps on the way, with who stores and loads each buffer kept up to date. A step's number is its place."""

    def __init__(self, program: Program, note: Note) -> None:
        self.note = note
        self.buffers = program.buffers
        self.outputs = frozenset(program.outputs)
        self.steps: list[Step | None] = list(program.steps)
        self._within = nesting(program.steps).within
        self.stores: dict[str, set[int]] = {}
        self.loads: dict[str, set[int]] = {}
        for number, step in enumerate(program.steps):
            self._note(number, step)

    def put(self, number: int, step: Step | None) -> None:
        """Replaces a step; what nothing loads any more goes too."""
        old = self.steps[number]
        self.steps[number] = step
        lost: tuple[str, ...] = ()
        if old is not None:
            for name in written(old):
                self.stores[name].discard(number)
            lost = read(old)
            for name in lost:
                self.loads[name].discard(number)
        if step is not None:
            self._note(number, step)
        for name in lost:
            self._sweep(name)

    def producer(self, name: str) -> tuple[int, Compute | Kernel] | None:
        """The one step that stores the TEMP, where it is a loop nest."""
        if self.buffers[name].kind != Kind.TEMP or len(self.stores.get(name, ())) != 1:
            return None
        (number,) = self.stores[name]
        step = self.steps[number]
        return (number, step) if isinstance(step, (Compute, Kernel)) and step.value is not None else None

    def apart(self, first: int, second: int) -> bool:
        """Whether two steps run under other conditions, or not equally often."""
        return self._within[first] != self._within[second]

    def _note(self, number: int, step: Step) -> None:
        for name in written(step):
            self.stores.setdefault(name, set()).add(number)
        for name in read(step):
            self.loads.setdefault(name, set()).add(number)

    def _sweep(self, name: str) -> None:
        found = self.producer(name)
        if found is not None and not self.loads.get(name):
            self.put(found[0], None)


# Inlining -----------------------------------------------------------------------------------------


def _inline(work: _Work, number: int) -> None:
    """Puts the values of producers into the step, as long as one fits."""
    refused: set[str] = set()
    while True:
        step = work.steps[number]
        if not isinstance(step, (Compute, Kernel)) or step.value is None:
            return
        names = [n for n in read(step) if n not in refused]
        changed = next((new for n in names if (new := _with(work, number, step, n, refused)) is not None), None)
        if changed is None:
            return
        work.put(number, changed)


def _with(work: _Work, number: int, step: Compute | Kernel, name: str, refused: set[str]) -> Step | None:
    """The step with the value of `name` in it; None (and it is refused) where that cannot be or does not pay."""
    refused.add(name)
    found = work.producer(name)
    if found is None or not isinstance(found[1], Compute):
        return None
    if work.apart(found[0], number):
        work.note(name, "it is computed outside of the branch or loop that reads it")
        return None
    producer = found[1]
    dims = whole(producer.index, work.buffers[name].shape, producer.axes)
    objection = "it is not stored an element an index" if dims is None else _objection(work, step, producer, dims)
    if dims is None or objection:
        work.note(name, objection)
        return None

    def visit(load: Load) -> Expr | None:
        return _at(producer, dims, load) if load.buffer == name else None

    changed = map_loads(step, visit)
    assert isinstance(changed, (Compute, Kernel)) and changed.value is not None
    if isinstance(changed, Kernel) and not _keeps_operands(step, changed):
        work.note(name, f"{changed.kernel} reads it along fixed strides, which what makes it does not have")
        return None
    refused.discard(name)
    return replace(changed, origins=_both(producer, step))


def _count(value: Expr | None) -> int:
    return sum(1 for _ in nodes(value)) if value is not None else 0


def _at(producer: Compute, dims: dict[str, int | None], load: Load) -> Expr:
    """The producer's value for the element that `load` asks for."""
    values = {axis: constant(0) if dim is None else load.index[dim] for axis, dim in dims.items()}
    return substitute(producer.value, values)


def _keeps_operands(before: Step, after: Kernel) -> bool:
    """Whether each operand is still a Load that the kernel can stride through, and panels are the same panels."""
    assert isinstance(before, Kernel)
    axes = (*after.axes, *after.inner)
    for (name, old), (_, new) in zip(before.operands, after.operands, strict=True):
        if old is new:
            continue
        if name not in MOVABLE[after.kernel] or not isinstance(new, Load) or not is_linear(new.index, axes):
            return False
    return is_linear(after.index, after.axes)


def _objection(work: _Work, step: Compute | Kernel, producer: Compute, dims: dict[str, int | None]) -> str:
    """Why computing the producer's elements where they are loaded saves no traffic or repeats work; "": it pays."""
    name, value = producer.out, producer.value
    if _count(step.value) + _count(value) > LARGEST:
        return f"the expression would have more than {LARGEST} parts"
    places = _evaluations(step, name)
    size = elements(work.buffers[name].shape)
    once = at_most(_sum(places), size)
    if _is_movement(value):
        free = once or _is_contiguous(producer, dims) or not isinstance(value, Load) or _is_hardly_more(places, size)
        return "" if free else "its elements would be gathered across memory more than once each"
    if isinstance(step, Kernel) and any(isinstance(o, Load) and o.buffer == name for _, o in step.operands):
        return f"{step.kernel} reads it from memory"
    if _awaits_epilogue(work, producer) and not _is_elementwise(work, step, name):
        return "it is part of the kernel before it"
    if has_reduce(value):
        single = len(places) == 1 and len(work.loads[name]) == 1
        pays = single and places[0] is size and isinstance(step, Compute) and _is_elementwise(work, step, name)
        return "" if pays else "its reduction would run again for each element that is read"
    users = len(work.loads[name])
    if users == 1:
        pays = once or (cost(value) <= CHEAP and at_most(_sum(places), size * FEW))
        return "" if pays else "it would be computed more than once an element"
    pays = once and cost(value) <= CHEAP and _is_light(work, producer) and _all_can(work, name)
    return "" if pays else "several steps read it, and loading it is cheaper than computing it in each"


def _sum(sizes: list[Expr]) -> Expr:
    total = constant(0)
    for size in sizes:
        total = total + size
    return total


def _evaluations(step: Compute | Kernel, name: str) -> list[Expr]:
    """How often each distinct load of `name` is evaluated in the step's index and value (operands not counted)."""
    found: dict[tuple[Expr, Expr], Expr] = {}
    seen: set[tuple[Expr, Expr]] = set()
    outer = elements(a.extent for a in step.axes)
    assert step.value is not None
    stack = [(e, outer) for e in (step.value, *step.index)]
    while stack:
        e, times = stack.pop()
        if (e, times) in seen:
            continue
        seen.add((e, times))
        if isinstance(e, Load) and e.buffer == name:
            found[e, times] = times
        inner = times * elements(a.extent for a in e.axes) if isinstance(e, Reduce) else times
        stack += [(o, inner) for o in e.operands]
    return list(found.values())


def _is_movement(value: Expr) -> bool:
    """Whether a value is a known number or one element of another buffer, at an index without divisions or data."""
    if isinstance(value, Apply) and value.op == "cast":
        value = value.args[0]
    if isinstance(value, Const):
        return True
    return isinstance(value, Load) and not any(
        isinstance(n, (Apply, Load)) and _is_costly(n) for i in value.index for n in nodes(i)
    )


def _is_hardly_more(places: list[Expr], size: Expr) -> bool:
    """Whether there are at most twice as many evaluations as elements where run-time sizes are in the hundreds."""
    typical = {n: constant(100) for n in free_variables(_sum(places)) | free_variables(size)}
    times, elements = static(substitute(_sum(places), typical)), static(substitute(size, typical))
    return times is not None and elements is not None and times <= 2 * elements


def _is_costly(node: Apply | Load) -> bool:
    return isinstance(node, Load) or node.op not in ("add", "sub", "mul", "neg")


def _is_contiguous(producer: Compute, dims: dict[str, int | None]) -> bool:
    """Whether the last dimension that the producer stores is the last that it loads, or not among what it loads."""
    found = loads(producer.value)
    if not found or not found[0].index:
        return True
    index, last = found[0].index, len(producer.index) - 1
    inner = frozenset(axis for axis, dim in dims.items() if dim == last)
    if all(inner.isdisjoint(free_variables(i)) for i in index):
        return True
    form = linear(index[-1], inner)
    return form is not None and all(is_one(c) for c in form[0].values()) and bool(form[0])


def _is_light(work: _Work, producer: Compute) -> bool:
    """Whether the value loads one array at most besides known ones, so that doing it again costs no further traffic."""
    kinds = [work.buffers[load.buffer].kind for load in loads(producer.value)]
    return sum(k not in (Kind.CONSTANT, Kind.PACKED, Kind.WEIGHT) for k in kinds) <= 1 and not _awaits_epilogue(
        work, producer
    )


def _all_can(work: _Work, name: str) -> bool:
    """Whether every consumer is a loop nest that loads `name` in its value only: then the array is not needed."""
    if len(work.loads[name]) > FEW:
        return False
    (place,) = work.stores[name]
    for number in work.loads[name]:
        step = work.steps[number]
        if not isinstance(step, (Compute, Kernel)) or step.value is None or work.apart(number, place):
            return False
        if isinstance(step, Kernel) and any(isinstance(o, Load) and o.buffer == name for _, o in step.operands):
            return False
        if not at_most(_sum(_evaluations(step, name)), elements(work.buffers[name].shape)):
            return False
    return True


def _awaits_epilogue(work: _Work, producer: Compute) -> bool:
    """Whether the producer can become the epilogue of a kernel, which is better than being part of a later step."""
    for load in loads(producer.value):
        found = work.producer(load.buffer)
        if found is not None and isinstance(found[1], Kernel) and _joined(work, found[0], producer) is not None:
            return True
    return False


def _is_elementwise(work: _Work, step: Compute | Kernel, name: str) -> bool:
    """Whether the step loads each element of `name` once, outside of reductions, an axis for each dimension."""
    assert step.value is not None
    found = [n for n in loads(step.value) if n.buffer == name]
    if has_reduce(step.value) or len(found) != 1:
        return False
    return whole(found[0].index, work.buffers[name].shape, step.axes) is not None


# Epilogues ----------------------------------------------------------------------------------------


def _join(work: _Work, number: int) -> int | None:
    """Puts the one consumer of a step's result into the step; gives the step's new place, None where nothing fits."""
    step = work.steps[number]
    if not isinstance(step, (Compute, Kernel)) or step.value is None:
        return None
    users = work.loads.get(step.out, set())
    if len(users) != 1:
        if isinstance(step, Kernel) and users:
            work.note(step.out, "several steps read it")
        return None
    (place,) = users
    consumer = work.steps[place]
    if not isinstance(consumer, Compute) or work.apart(number, place):
        if isinstance(step, Kernel):
            work.note(step.out, _reader(consumer))
        return None
    joined = _joined(work, number, consumer)
    if joined is None:
        return None
    work.put(place, joined)  # the step itself goes, as nothing loads its result any more
    return place


def _reader(consumer: Step | None) -> str:
    """Why nothing can be put behind a kernel whose result this step reads."""
    if isinstance(consumer, View):
        return "it is seen under another shape"
    if isinstance(consumer, Kernel):
        return f"{consumer.kernel} reads it from memory"
    return "a branch or loop lies between it and its reader"


def _joined(work: _Work, number: int, consumer: Compute) -> Compute | Kernel | None:
    """The step at `number` with `consumer` behind it, where that loads each element of its result exactly once."""
    step = work.steps[number]
    assert isinstance(step, (Compute, Kernel)) and step.value is not None
    out = step.out
    note = work.note if isinstance(step, Kernel) else silent  # why loops stay has been said by `_inline`
    if work.producer(out) is None or len(work.loads[out]) != 1:
        return None
    found = [n for e in (consumer.value, *consumer.index) for n in loads(e) if n.buffer == out]
    dims = whole(found[0].index, work.buffers[out].shape, consumer.axes) if len(set(found)) == 1 else None
    if dims is None or has_reduce(consumer.value):
        note(out, "what reads it does not take it element for element")
        return None
    values = {axis: constant(0) if dim is None else step.index[dim] for axis, dim in dims.items()}
    index = tuple(substitute(i, values) for i in consumer.index)
    value = _replaced(substitute(consumer.value, values), out, step.value)
    if _count(value) > LARGEST or any(n.buffer == out for i in index for n in loads(i)):
        note(out, f"the expression would have more than {LARGEST} parts")
        return None
    if isinstance(step, Compute):
        return replace(
            step, out=consumer.out, index=index, value=value, origins=_both(step, consumer), name=consumer.name
        )
    if not is_linear(index, step.axes) or any(
        o.buffer == consumer.out for _, o in step.operands if isinstance(o, Load)
    ):
        note(out, f"{step.kernel} stores along fixed strides, what reads it does not")
        return None
    return replace(
        step, outputs=(consumer.out,), index=index, value=value, origins=_both(step, consumer), name=consumer.name
    )


def _replaced(value: Expr, name: str, by: Expr) -> Expr:
    return rewrite(value, lambda n: by if isinstance(n, Load) and n.buffer == name else None)


def _both(first: Compute | Kernel, second: Compute | Kernel) -> tuple[Origin, ...]:
    return tuple(dict.fromkeys((*first.origins, *second.origins)))
