"""Compute and Group steps as loop nests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from castiron.emit import expr_c
from castiron.emit.access import (
    ONE,
    STORE,
    ZERO,
    coefficient,
    contiguous,
    flat,
    is_const,
    merged,
    offset,
    ordered,
    product,
    tidy_reductions,
    without_units,
)
from castiron.emit.cost import cost, per_vector
from castiron.emit.expr_c import C
from castiron.emit.guard import guarded
from castiron.emit.loops import chunks, loop, loops
from castiron.emit.memory import Memory
from castiron.emit.ranges import settled
from castiron.emit.reduce import STRIP, Accumulator, Strip, in_order, in_strips, reduction, written_out
from castiron.emit.scope import Block, Scope
from castiron.program.expr import (
    Apply,
    Axis,
    Const,
    Expr,
    Load,
    Reduce,
    free_variables,
    nodes,
    rewrite,
    substitute,
)
from castiron.program.types import Compute, Group

SMALL_JOB = 20_000
"""Cycles below which a step is not offered to other threads."""
FEW_ROWS = 64
"""Items that threads should have to share out: where an outermost axis has fewer, the next ones join it."""
COSTLY = 8
"""Cycles an element from which vectors pay although loads are not contiguous."""


@dataclass(frozen=True)
class Part:
    """One store in a nest, over `axes` inside the shared ones.

    local: into a C variable instead of memory. safe: loads that are in bounds even where their value is not wanted."""

    out: str
    axes: tuple[Axis, ...]
    store: Load
    value: Expr
    local: bool = False
    safe: frozenset[Expr] = frozenset()


@dataclass(frozen=True)
class Nest:
    """Shared axes and what is done in them, part after part."""

    axes: tuple[Axis, ...]
    parts: tuple[Part, ...]


def nest_of(step: Compute | Group, memory: Memory) -> Nest:
    """The loops of a step: units gone, neighbours merged, the last axis of each part next to next in memory."""
    shared = step.axes if isinstance(step, Group) else ()
    computes = step.parts if isinstance(step, Group) else (step,)
    locals_ = {c.out for c in computes if not memory.has_place(c.out)}
    parts = [_part(c, shared, locals_, memory) for c in computes]
    axes, zeros = without_units(shared)
    parts = [replace(p, store=_at(p.store, zeros), value=substitute(p.value, zeros)) for p in parts]
    axes, flat_values = merged(axes, [e for p in parts for e in (p.store, p.value)])
    parts = [_tidied(p, axes, flat_values[2 * i], flat_values[2 * i + 1], memory) for i, p in enumerate(parts)]
    if isinstance(step, Compute) and len(parts[0].axes) > 1:
        axes, parts[0] = parts[0].axes[:-1], replace(parts[0], axes=parts[0].axes[-1:])
    return Nest(axes, tuple(parts))


def _part(step: Compute, shared: tuple[Axis, ...], locals_: set[str], memory: Memory) -> Part:
    own = ordered(tuple(a for a in step.axes if all(a.name != s.name for s in shared)), step.index)

    def in_registers(node: Expr) -> Expr | None:
        return Load(node.buffer, (ZERO,), node.type) if isinstance(node, Load) and node.buffer in locals_ else None

    value = settled(rewrite(flat(step.value, memory.buffers), in_registers), step.axes)
    index = [flat(i, memory.buffers) for i in step.index]
    store = Load(STORE, (offset(index, memory.buffers[step.out].shape),), step.value.type)
    return Part(step.out, own, store, value, step.out in locals_)


def _tidied(part: Part, shared: tuple[Axis, ...], store: Expr, value: Expr, memory: Memory) -> Part:
    axes, zeros = without_units(part.axes)
    axes, (store, value) = merged(axes, (_at(store, zeros), substitute(value, zeros)))
    assert isinstance(store, Load)
    value = tidy_reductions(value)
    safe: frozenset[Expr] = frozenset()
    if axes:
        value, safe = guarded(settled(written_out(value), (*shared, *axes)), axes[-1], memory.buffers)
    return Part(part.out, axes, store, value, part.local, safe)


def _at(store: Expr, values: dict[str, Expr]) -> Load:
    moved = substitute(store, values)
    assert isinstance(moved, Load)
    return moved


Limits = tuple[str, str | None]
"""C of the first and the behind-last item of a loop; None: the axis' extent."""

# Printing --------------------------------------------------------------------------------------------


def print_nest(name: str, nest: Nest, memory: Memory) -> list[str]:
    """The C functions of a step; the last one is `static void NAME(const ci_run *run)`."""
    work = _work(nest)
    first = _first_axis(nest)
    if first is None or (isinstance(work, Const) and int(work.value) < SMALL_JOB):
        return _function(f"static void {name}(const ci_run *run)", nest, memory, shared=0)
    shared = _shared(nest)
    body = _function(
        f"static void {name}_range(const ci_run *run, const void *argument, int64_t begin, int64_t end)",
        nest,
        memory,
        shared,
    )
    return [*body, "", *_parallel(name, nest, work, shared, memory)]


def _first_axis(nest: Nest) -> Axis | None:
    """The axis that threads share out."""
    if nest.axes:
        return nest.axes[0]
    return nest.parts[0].axes[0] if len(nest.parts) == 1 and nest.parts[0].axes else None


def _shared(nest: Nest) -> int:
    """How many outer axes threads share out together: enough for FEW_ROWS items."""
    count, items = 1, 1
    for axis in nest.axes[:-1] if not any(p.axes for p in nest.parts) else nest.axes:
        items *= int(axis.extent.value) if isinstance(axis.extent, Const) else FEW_ROWS
        if items >= FEW_ROWS:
            break
        count += 1
    return max(1, min(count, len(nest.axes)))


def _work(nest: Nest) -> Expr:
    """Cycles of the whole step."""
    total: Expr = ZERO
    for part in nest.parts:
        cycles = cost(part.value) * product(a.extent for a in part.axes)
        total = total + (per_vector(cycles) if _is_simd(part) else cycles)
    return total * product(a.extent for a in nest.axes)


def _parallel(name: str, nest: Nest, work: Expr, shared: int, memory: Memory) -> list[str]:
    scope = Scope(memory, reduction)
    axes = nest.axes[:shared] or nest.parts[0].axes[:1]
    count = product(a.extent for a in axes)
    inner = Nest(nest.axes[shared:], nest.parts) if nest.axes else _item(nest)
    item = scope.int(_work(inner))
    call = f"ci_parallel(run, {name}_range, NULL, {scope.int(count)}, {item});"
    return [f"static void {name}(const ci_run *run)", "{", *scope.prologue(), *scope.top.lines, call, "}"]


def _item(nest: Nest) -> Nest:
    return Nest((), (replace(nest.parts[0], axes=nest.parts[0].axes[1:]),))


def _function(head: str, nest: Nest, memory: Memory, shared: int) -> list[str]:
    """A function that loops over all axes; the first `shared` of them run from `begin` to `end` as one."""
    scope = Scope(memory, reduction)
    scope.count([e for p in nest.parts for e in (p.store, p.value)])
    scope.safe = frozenset().union(*(p.safe for p in nest.parts))
    if not nest.axes:
        limits: Limits | None = ("begin", "end") if shared else None
        _parts(scope, nest, scope.top, limits)
    elif shared > 1:
        inner = _item_block(scope, nest.axes[:shared])
        with loops(scope, nest.axes[shared:], inner) as body:
            _parts(scope, nest, body, None)
        scope.top.nest(["for (int64_t item = begin; item < end; item++) {"], inner)
    else:
        limits = ("begin", "end") if shared else ("0", None)
        with (
            loop(scope, nest.axes[0], scope.top, limits[0], limits[1]) as outer,
            loops(scope, nest.axes[1:], outer) as body,
        ):
            _parts(scope, nest, body, None)
    lines = scope.top.lines
    return [head, "{", *scope.prologue(), *lines, "}"]


def _item_block(scope: Scope, axes: Sequence[Axis]) -> Block:
    """The block of one item over several axes: an item's number is taken apart."""
    block = Block(scope.top, {a.name for a in axes})
    below: Expr = ONE
    lines = []
    for number, axis in reversed(list(enumerate(axes))):
        item = C("item") if below is ONE else expr_c.infix(C("item"), "/", scope.value(below, scope.top))
        index = expr_c.infix(item, "%", scope.value(axis.extent, scope.top)) if number else item
        lines.append(f"const int64_t {scope.axis(axis)} = {index.text};")
        below = below * axis.extent
    block.lines += reversed(lines)
    return block


def _parts(scope: Scope, nest: Nest, block: Block, limits: Limits | None) -> None:
    written = {scope.memory.root(p.out) for p in nest.parts} if len(nest.parts) > 1 else set()

    def follows_a_store(e: Expr) -> bool:
        return any(isinstance(n, Load) and scope.memory.root(n.buffer) in written for n in nodes(e))

    body = Block(block, stays=follows_a_store)
    for part in nest.parts:
        print_part(scope, part, body, limits)
    block.lines += body.lines


def print_part(scope: Scope, part: Part, block: Block, limits: Limits | None = None) -> None:
    """A part's own loops and its store. `limits` are the first axis' begin and end where threads share it out."""
    if part.local:
        value = scope.value(part.value, block)
        scope.named(Load(part.out, (ZERO,), part.value.type), value, block, part.out)
        return
    if not part.axes:
        store(scope, part, block)
        return
    with loops(scope, part.axes[:-1], block) as row:
        _inner_loop(scope, part, row, limits)


def _inner_loop(scope: Scope, part: Part, block: Block, limits: Limits | None) -> None:
    axis = part.axes[-1]
    strips = _strips(part)
    begin, end = limits or ("0", None)
    if not strips:
        with loop(scope, axis, block, begin, end, simd=_is_simd(part)) as inner:
            store(scope, part, inner)
        return
    with chunks(scope, axis, STRIP, block, begin, end) as (strip_block, first, last):
        _strip(scope, part, strips, Strip(axis, first, last), strip_block)


def _strip(scope: Scope, part: Part, reductions: Sequence[Reduce], strip: Strip, block: Block) -> None:
    """Sums a strip's reductions side by side, then does the rest of the value for the strip."""
    sums: list[Accumulator] = []
    for node in reductions:
        total = Accumulator(scope, node.op, node.type, scope.local(node.op), strip)
        total.declare(block)
        in_order(scope, node, total, block)
        sums.append(total)
    with loop(scope, strip.axis, block, strip.first, strip.last, simd=is_plain(part)) as inner:
        for node, total in zip(reductions, sums, strict=True):
            inner.names[node] = expr_c.rounded(C(total.element), node.type)
        store(scope, part, inner)


def _strips(part: Part) -> list[Reduce]:
    """Outermost reductions that are made in strips: none that only one branch of a select wants."""
    axis = part.axes[-1]
    found: list[Reduce] = []
    stack, seen = [part.value], {part.value}
    while stack:
        node = stack.pop()
        if isinstance(node, Reduce):
            if in_strips(node, axis):
                found.append(node)
            continue
        operands = node.operands[:1] if isinstance(node, Apply) and node.op == "select" else node.operands
        fresh = [o for o in operands if o not in seen]
        seen.update(fresh)
        stack += fresh
    return found


def _is_simd(part: Part) -> bool:
    """Whether the innermost loop is independent work on whole vectors: nothing sums up in it, memory is contiguous."""
    return (
        bool(part.axes)
        and is_plain(part)
        and not any(isinstance(n, Reduce) and part.axes[-1].name in free_variables(n) for n in nodes(part.value))
    )


def is_plain(part: Part) -> bool:
    axis = part.axes[-1].name
    step = coefficient(part.store.index[0], axis)
    calls = any(isinstance(n, Apply) and n.op == "checked_index" for n in nodes(part.value))
    if step is None or not is_const(step, 1) or calls:
        return False
    return contiguous(part.value, axis, some=False) or (_is_costly(part.value) and _is_strided(part.value, axis))


def _is_costly(value: Expr) -> bool:
    """Whether vectors pay even where loads must be gathered."""
    price = cost(value)
    return isinstance(price, Const) and int(price.value) >= COSTLY


def _is_strided(value: Expr, axis: str) -> bool:
    return all(coefficient(n.index[0], axis) is not None for n in nodes(value) if isinstance(n, Load))


def store(scope: Scope, part: Part, block: Block) -> None:
    value = scope.value(part.value, block)
    target = f"{scope.pointer(part.out, store=True)}[{scope.value(part.store.index[0], block).text}]"
    block.lines.append(f"{target} = {expr_c.to_store(value, part.value.type).text};")
