"""y = table[i], where prepare makes table = f(integers) -> y = f(integers[i]): the table stays as small as its integers.

What forward picks from a table by indices that data gives is little of it: computing what is picked costs less than
reading a larger table, and the artifact holds the integers alone. The same operations on the same elements: the same bits.
"""

from __future__ import annotations

from dataclasses import replace

from castiron.program.cost import nbytes
from castiron.program.dead import dead
from castiron.program.edit import Names, at_most, cost, elements, has_reduce, leaves, map_loads, whole, writers
from castiron.program.expr import Expr, Load, constant, loads, nodes, substitute
from castiron.program.types import Compute, Kernel, Kind, Program, Step, read

CHEAP = 8
"""Cycles an element that forward may spend on what it picks."""


def gathered(prepare: Program, forward: Program) -> tuple[Program, Program]:
    """(prepare, forward), where forward picks from integers what it picked from PACKED tables made of them."""
    stores = writers(prepare.steps)
    names = Names(replace(prepare, buffers={**prepare.buffers, **forward.buffers}))
    copies: dict[str, str] = {}
    for table in prepare.outputs:
        numbers = stores.get(table, [])
        maker = prepare.steps[numbers[0]] if len(numbers) == 1 else None
        if not isinstance(maker, Compute) or not _is_dequantized(maker, prepare) or not _is_picked(table, forward):
            continue
        for name in read(maker):
            if prepare.buffers[name].kind == Kind.WEIGHT:
                copies.setdefault(name, names.buffer(f"{name}.packed"))
        forward = _picking(table, maker, copies, prepare, forward)
        prepare = replace(prepare, outputs=tuple(n for n in prepare.outputs if n != table))
    return with_copies(prepare, copies, names), dead(forward)


def _is_dequantized(maker: Compute, prepare: Program) -> bool:
    """Whether each element is cheaply made of one of an array of bytes, which is much smaller than the table."""
    shape = prepare.buffers[maker.out].shape
    if has_reduce(maker.value) or cost(maker.value) > CHEAP or whole(maker.index, shape, maker.axes) is None:
        return False
    sources = [prepare.buffers[name] for name in read(maker)]
    kept = all(b.kind in (Kind.CONSTANT, Kind.WEIGHT) for b in sources)
    bytes_read = sum((nbytes(b) for b in sources), start=constant(0))
    whole_bytes = any(b.type.bitwidth <= 8 and elements(b.shape) is elements(shape) for b in sources)
    return kept and whole_bytes and at_most(bytes_read * 2, nbytes(prepare.buffers[maker.out]))


def _is_picked(table: str, forward: Program) -> bool:
    """Whether all that is read of the table is picked by data, once an element."""
    for step in forward.steps:
        if table not in read(step):
            continue
        parts = [part for part in leaves(step) if isinstance(part, Compute | Kernel)]
        found = [load for p in parts if p.value is not None for load in loads(p.value) if load.buffer == table]
        by_data = all(any(isinstance(n, Load) for i in load.index for n in nodes(i)) for load in found)
        operands = [o for p in parts if isinstance(p, Kernel) for _, o in p.operands]
        whole_read = any(o == table or (isinstance(o, Load) and o.buffer == table) for o in operands)
        if not found or not by_data or whole_read or any(p.value is not None and has_reduce(p.value) for p in parts):
            return False
    return True


def _picking(table: str, maker: Compute, copies: dict[str, str], prepare: Program, forward: Program) -> Program:
    dims = whole(maker.index, prepare.buffers[table].shape, maker.axes)
    assert dims is not None

    def own(load: Load) -> Expr | None:
        return Load(copies[load.buffer], load.index, load.type) if load.buffer in copies else None

    maker = map_loads(maker, own)  # type: ignore[assignment]  # a Compute stays one

    def picked(load: Load) -> Expr | None:
        if load.buffer != table:
            return None
        values = {axis: constant(0) if dim is None else load.index[dim] for axis, dim in dims.items()}
        return substitute(maker.value, values)

    back = {to: name for name, to in copies.items()}
    new = {}
    for name in read(maker):
        buffer = prepare.buffers[back.get(name, name)]
        new[name] = replace(buffer, name=name, kind=Kind.PACKED, value=None) if name in back else buffer
    steps = tuple(map_loads(step, picked) for step in forward.steps)
    return replace(forward, steps=steps, buffers={**forward.buffers, **new})


def with_copies(prepare: Program, copies: dict[str, str], names: Names) -> Program:
    """prepare, which also gives the weights that forward now reads itself."""
    buffers, steps = dict(prepare.buffers), list[Step](prepare.steps)
    for name, to in copies.items():
        buffers[to] = replace(buffers[name], name=to, kind=Kind.PACKED, value=None)
        axes = names.axes(buffers[to].shape)
        index = tuple(a.var for a in axes)
        steps.append(Compute(names.step(to), to, axes, index, Load(name, index, buffers[name].type)))
    outputs = (*prepare.outputs, *copies.values())
    left = dead(replace(prepare, inputs=(), outputs=outputs, steps=tuple(steps), buffers=buffers))
    return replace(left, inputs=tuple(b.name for b in left.of_kind(Kind.WEIGHT)))
