"""panels = f(bytes) in prepare -> bytes in panels in prepare, f of them in forward, just before the product that reads them.

A matrix of bytes that is dequantized for a product of many rows in float32 stays as small as it is. For few rows it would
cost more than the product, so that its panels are made once. The same operations on the same elements: the same bits.
"""

from __future__ import annotations

from dataclasses import replace

from castiron.program.cost import known, nbytes
from castiron.program.edit import Names, at_most, cost, elements, has_reduce, map_loads, whole, writers
from castiron.program.expr import Apply, Expr, Load, constant, loads, select
from castiron.program.gathered import CHEAP, with_copies
from castiron.program.types import Buffer, Compute, Kernel, Kind, Program, Step, read

SMALL = 1 << 16
"""Bytes of panels that are not worth it."""
MANY = 256
"""Rows of a product from which on dequantizing the panels costs little beside it, at most a tenth."""
PANELS = ("b", "filter")


def widened(prepare: Program, forward: Program) -> tuple[Program, Program]:
    """(prepare, forward), where forward dequantizes the panels of bytes."""
    stores = writers(prepare.steps)
    names = Names(
        replace(prepare, buffers={**prepare.buffers, **forward.buffers}, steps=(*prepare.steps, *forward.steps))
    )
    copies: dict[str, str] = {}
    for panels in prepare.outputs:
        numbers = stores.get(panels, [])
        maker = prepare.steps[numbers[0]] if len(numbers) == 1 else None
        source = _bytes_of(maker, prepare) if isinstance(maker, Compute) else None
        place = _product(panels, forward)
        if source is None or place is None:
            continue
        assert isinstance(maker, Compute)
        for name in read(maker):
            if prepare.buffers[name].kind == Kind.WEIGHT:
                copies.setdefault(name, names.buffer(f"{name}.packed"))
        prepare, forward = _moved(maker, source, place, names, copies, prepare, forward)
    return with_copies(prepare, copies, names), forward


def _bytes_of(maker: Compute, prepare: Program) -> Load | None:
    """The one load of bytes that nobody replaces, of which the panels are cheaply made; None where they are not."""
    out = prepare.buffers[maker.out]
    if has_reduce(maker.value) or cost(maker.value) > CHEAP or (known(nbytes(out)) or 0) < SMALL:
        return None
    if whole(maker.index, out.shape, maker.axes) is None:
        return None
    kinds = {prepare.buffers[name].kind for name in read(maker)}
    found = {n for n in loads(maker.value) if prepare.buffers[n.buffer].kind == Kind.CONSTANT and n.type.bitwidth == 8}
    large = [n for n in found if 2 * (known(nbytes(prepare.buffers[n.buffer])) or 0) > (known(nbytes(out)) or 0) // 4]
    return large[0] if len(large) == 1 and kinds <= {Kind.CONSTANT, Kind.WEIGHT} else None


def _product(panels: str, forward: Program) -> int | None:
    """The number of the one step that reads the panels, a product in float32."""
    readers = [number for number, step in enumerate(forward.steps) if panels in read(step)]
    if len(readers) != 1:
        return None
    step = forward.steps[readers[0]]
    if not isinstance(step, Kernel) or step.kernel not in ("matmul", "conv"):
        return None
    if not at_most(constant(MANY), elements(axis.extent for axis in step.axes[:-1])):
        return None
    return (
        readers[0]
        if any(n in PANELS and isinstance(o, Load) and o.buffer == panels for n, o in step.operands)
        else None
    )


def _moved(
    maker: Compute,
    source: Load,
    place: int,
    names: Names,
    copies: dict[str, str],
    prepare: Program,
    forward: Program,
) -> tuple[Program, Program]:
    """(prepare, forward) with the bytes in panels, and `maker` before the step at `place`."""
    out, narrow = prepare.buffers[maker.out], names.buffer(f"{maker.out}.bytes")
    small = Buffer(narrow, source.type, out.shape, Kind.PACKED)
    value: Expr = source
    if isinstance(maker.value, Apply) and maker.value.op == "select":
        value = select(maker.value.args[0], source, 0)
    pack = replace(maker, name=names.step(narrow), out=narrow, value=value)

    def moved(load: Load) -> Expr | None:
        if load is source:
            return Load(narrow, maker.index, source.type)
        return Load(copies[load.buffer], load.index, load.type) if load.buffer in copies else None

    wide = map_loads(maker, moved)
    new = {narrow: small, maker.out: replace(out, kind=Kind.TEMP)}
    back = {to: name for name, to in copies.items()}
    for name in read(wide):
        if name in back:
            new[name] = replace(prepare.buffers[back[name]], name=name, kind=Kind.PACKED, value=None)
        elif name != narrow:
            new[name] = prepare.buffers[name]
    steps: tuple[Step, ...] = (*forward.steps[:place], wide, *forward.steps[place:])
    outputs = tuple(narrow if n == maker.out else n for n in prepare.outputs)
    prepare = replace(
        prepare, buffers={**prepare.buffers, narrow: small}, steps=(*prepare.steps, pack), outputs=outputs
    )
    return prepare, replace(forward, buffers={**forward.buffers, **new}, steps=steps)
