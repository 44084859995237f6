"""Loops as context managers: the body is printed into the block that `with` gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from castiron.emit.expr_c import ADD, within
from castiron.emit.scope import SHORT_SIMD, SIMD, Block, Scope
from castiron.program.expr import Axis, Const

SHORT = 64
"""Turns up to which a loop is short."""


@contextmanager
def loop(
    scope: Scope, axis: Axis, block: Block, begin: str = "0", end: str | None = None, simd: bool = False
) -> Iterator[Block]:
    """`for` over an axis, or over its part from `begin` to `end`; `simd` where iterations are independent."""
    name = scope.axis(axis)
    stop = scope.int(axis.extent, block) if end is None else end
    inner = Block(block, {axis.name})
    yield inner
    head = f"for (int64_t {name} = {begin}; {name} < {stop}; {name}++) {{"
    block.nest([_pragma(axis, end), head] if simd else [head], inner)


def _pragma(axis: Axis, end: str | None) -> str:
    short = end is None and isinstance(axis.extent, Const) and int(axis.extent.value) <= SHORT
    return SHORT_SIMD if short else SIMD


@contextmanager
def loops(scope: Scope, axes: Sequence[Axis], block: Block) -> Iterator[Block]:
    """A nest over `axes`, outer first."""
    with ExitStack() as stack:
        for axis in axes:
            block = stack.enter_context(loop(scope, axis, block))
        yield block


@contextmanager
def chunks(
    scope: Scope, axis: Axis, size: int, block: Block, begin: str = "0", end: str | None = None
) -> Iterator[tuple[Block, str, str]]:
    """A loop over stretches of `size` of an axis: the block, and the C of a stretch's first and behind-last item."""
    first, last = (scope.namer(f"{axis.name}_{word}") for word in ("first", "last"))
    extent = within(scope.value(axis.extent, block), ADD) if end is None else end
    inner = Block(block)
    inner.lines.append(f"const int64_t {last} = {extent} - {first} < {size} ? {extent} : {first} + {size};")
    yield inner, first, last
    block.nest([f"for (int64_t {first} = {begin}; {first} < {extent}; {first} += {size}) {{"], inner)
