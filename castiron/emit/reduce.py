"""Reductions, in one of two orders of addition that depend on the program alone (the law of bits).

Lanes: the last axis is contiguous in memory. Blocks of at most 256 terms, 16 lanes and one tree a block
(`ci_lanes_sum_f32` of runtime/reduce.h).
In order: all others, and those of few terms. Blocks of at most 256 terms made of blocks of at most 16, whose terms are
added one after another: as exact as lanes. Where the output's innermost axis is contiguous instead, a strip of outputs
is summed at once: same order, whole vectors.
Of both, blocks are added in order, 4,096 terms at a time, and the sums of these in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product as combinations

from onnx_ir import DataType

from castiron.emit import expr_c
from castiron.emit.access import STORE, ZERO, contiguous
from castiron.emit.cost import cost
from castiron.emit.expr_c import C
from castiron.emit.loops import chunks, loop, loops
from castiron.emit.scope import Block, Scope
from castiron.program.expr import (
    Apply,
    Axis,
    Const,
    Expr,
    Load,
    Reduce,
    apply,
    constant,
    free_variables,
    rewrite,
    substitute,
)
from castiron.program.scalar import FLOATS, REDUCTIONS, neutral

MANY = 1 << 12  # terms of a block of blocks
BLOCK = 1 << 8  # terms of a block
RUN = 1 << 4  # terms added one after another
STRIP = 64  # outputs summed side by side
FEW = 25  # terms that are written out, a 5x5 window
CHEAP = 12  # cycles of a term that may be written out


def few_terms(node: Reduce) -> bool:
    """Whether the number of terms is known and small."""
    return _static_terms(node.axes) <= FEW


def _static_terms(axes: tuple[Axis, ...]) -> int:
    total = 1
    for axis in axes:
        total *= int(axis.extent.value) if isinstance(axis.extent, Const) else MANY + 1
    return total


def in_lanes(node: Reduce) -> bool:
    """Which of the two orders a reduction has."""
    return node.type in FLOATS and not few_terms(node) and contiguous(node.value, node.axes[-1].name)


def written_out(e: Expr) -> Expr:
    """`e` with reductions of few cheap terms as one expression: no inner loop keeps an outer one from vectorizing."""

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, Reduce) or not few_terms(node) or node.type in expr_c.HALVES:
            return None
        price = cost(node.value)
        if not isinstance(price, Const) or int(price.value) > CHEAP:
            return None
        total: Expr = constant(neutral(node.op, node.type), node.type)
        for point in combinations(*(range(int(a.extent.value)) for a in node.axes if isinstance(a.extent, Const))):
            at = {a.name: constant(i) for a, i in zip(node.axes, point, strict=True)}
            total = apply(REDUCTIONS[node.op][0], total, substitute(node.value, at))
        return total

    return rewrite(e, visit)


def in_strips(node: Reduce, axis: Axis) -> bool:
    """Whether the sums of neighbours along `axis` are better made side by side."""
    return axis.name in free_variables(node) and not in_lanes(node) and contiguous(node.value, axis.name)


@dataclass(frozen=True)
class Strip:
    """A stretch of an output axis: C of its first and behind-last item."""

    axis: Axis
    first: str
    last: str


@dataclass(frozen=True)
class Accumulator:
    """Where terms go: a local, or for a strip an array of them. Half types add up in float."""

    scope: Scope
    op: str
    type: DataType
    name: str
    strip: Strip | None = None

    @property
    def element(self) -> str:
        """The accumulator of the element at hand."""
        return (
            self.name if self.strip is None else f"{self.name}[{self.scope.axis(self.strip.axis)} - {self.strip.first}]"
        )

    def declare(self, block: Block) -> None:
        start = expr_c.literal(neutral(self.op, self.type), self.type).text
        if self.strip is None:
            block.lines.append(f"{expr_c.register(self.type)} {self.name} = {start};")
            return
        block.lines.append(f"{expr_c.register(self.type)} {self.name}[{STRIP}];")
        with self.elements(block) as inner:
            inner.lines.append(f"{self.element} = {start};")

    @contextmanager
    def elements(self, block: Block) -> Iterator[Block]:
        """The block where one element is at hand."""
        if self.strip is None:
            yield block
            return
        with loop(self.scope, self.strip.axis, block, self.strip.first, self.strip.last, simd=True) as inner:
            yield inner

    def add(self, term: Expr, block: Block) -> None:
        """Adds a term. One that is neutral except under a condition (a window over a border) is left out instead."""
        if self._is_guarded(term):
            assert isinstance(term, Apply)
            condition = self.scope.value(term.args[0], block)
            inner = Block(block, stays=lambda v: not self.scope.eager(v))
            self.add(term.args[1], inner)
            block.nest([f"if ({condition.text}) {{"], inner)
            return
        with self.elements(block) as inner:
            self.join(self.scope.value(term, inner), inner)

    def join(self, value: C, block: Block) -> None:
        """Adds a C value to the element at hand."""
        wide = _wide(self.type)
        joined = expr_c.operation(REDUCTIONS[self.op][0], [C(self.element), value], [wide, wide], wide)
        block.lines.append(f"{self.element} = {joined.text};")

    def join_part(self, part: Accumulator, block: Block) -> None:
        """Adds a block's sum."""
        with self.elements(block) as inner:
            self.join(C(part.element), inner)

    def part(self) -> Accumulator:
        """An accumulator of the same kind for one block of terms."""
        return Accumulator(self.scope, self.op, self.type, self.scope.local("part"), self.strip)

    def _is_guarded(self, term: Expr) -> bool:
        if not (isinstance(term, Apply) and term.op == "select" and isinstance(term.args[2], Const)):
            return False
        if self.strip is not None and self.strip.axis.name in free_variables(term.args[0]):
            return False
        return term.args[2].value == neutral(self.op, term.type)


def reduction(scope: Scope, node: Reduce, block: Block) -> C:
    """Prints a reduction for one output into `block`; gives the result's name."""
    total = Accumulator(scope, node.op, node.type, scope.local(node.op))
    total.declare(block)
    if in_lanes(node):
        _in_blocks(scope, _Terms(node, node.axes), total, block, (MANY,) if _is_rounded(node) else (), _by_lanes)
    else:
        in_order(scope, node, total, block)
    return expr_c.rounded(C(total.name), node.type)


def in_order(scope: Scope, node: Reduce, total: Accumulator, block: Block) -> None:
    """Terms one after another; where order counts, in blocks."""
    sizes = (MANY, BLOCK, RUN) if _is_rounded(node) else ()
    _in_blocks(scope, _Terms(node, node.axes), total, block, sizes, _one_by_one)


def _is_rounded(node: Reduce) -> bool:
    return node.type in FLOATS and node.op in ("sum", "prod")


@dataclass(frozen=True)
class _Terms:
    """The terms of `node` over its last `axes`; of the first of these only the items from `first` to `last` (C)."""

    node: Reduce
    axes: tuple[Axis, ...]
    first: str = "0"
    last: str | None = None

    def inside(self, axes: tuple[Axis, ...]) -> tuple[str, str | None]:
        """The limits of the axis that follows `axes`, the first of the terms' own."""
        return ("0", None) if axes else (self.first, self.last)

    @contextmanager
    def walk(self, scope: Scope, axes: tuple[Axis, ...], block: Block) -> Iterator[Block]:
        """Loops over `axes`, the first of the terms' own."""
        if not axes:
            yield block
            return
        with loop(scope, axes[0], block, self.first, self.last) as row, loops(scope, axes[1:], row) as inner:
            yield inner


Leaf = Callable[[Scope, _Terms, Accumulator, Block], None]


def _in_blocks(
    scope: Scope, terms: _Terms, total: Accumulator, block: Block, sizes: tuple[int, ...], leaf: Leaf
) -> None:
    """Adds blocks of at most `sizes[0]` terms, each made of blocks of the sizes that follow, the smallest by `leaf`."""
    if not sizes:
        leaf(scope, terms, total, block)
        return
    outer, axis, size, rest = _blocks(terms.axes, sizes[0])
    if not outer and axis is None:
        _in_blocks(scope, terms, total, block, sizes[1:], leaf)
        return

    def add(inside: _Terms, block: Block) -> None:
        part = total.part()
        part.declare(block)
        _in_blocks(scope, inside, part, block, sizes[1:], leaf)
        total.join_part(part, block)

    with terms.walk(scope, outer, block) as row:
        if axis is None:
            add(_Terms(terms.node, rest), row)
            return
        with chunks(scope, axis, size, row, *terms.inside(outer)) as (chunk, first, last):
            add(_Terms(terms.node, (axis, *rest), first, last), chunk)


def _blocks(axes: tuple[Axis, ...], most: int) -> tuple[tuple[Axis, ...], Axis | None, int, tuple[Axis, ...]]:
    """Outer axes, the axis that is cut (if any), into pieces of how many, the axes inside: at most `most` terms each."""
    cut = len(axes)
    while cut and _static_terms(axes[cut - 1 :]) <= most:
        cut -= 1
    size = most // max(1, _static_terms(axes[cut:]))
    if not cut or size == 1:
        return axes[:cut], None, 0, axes[cut:]
    return axes[: cut - 1], axes[cut - 1], size, axes[cut:]


def _one_by_one(scope: Scope, terms: _Terms, total: Accumulator, block: Block) -> None:
    with terms.walk(scope, terms.axes, block) as inner:
        total.add(terms.node.value, inner)


def _by_lanes(scope: Scope, terms: _Terms, total: Accumulator, block: Block) -> None:
    """Blocks of the last axis; their terms are computed into an array first, unless they lie in memory as they are."""
    *outer, axis = terms.axes
    with terms.walk(scope, tuple(outer), block) as row:
        if _static_terms((axis,)) <= BLOCK:
            total.join(_block_sum(scope, terms.node, "0", scope.int(axis.extent, row), row), row)
            return
        with chunks(scope, axis, BLOCK, row, *terms.inside(tuple(outer))) as (chunk, first, last):
            total.join(_block_sum(scope, terms.node, first, last, chunk), chunk)


def _block_sum(scope: Scope, node: Reduce, first: str, last: str, block: Block) -> C:
    axis, value = node.axes[-1], node.value
    function = f"ci_lanes_{node.op}_{expr_c.suffix(node.type)}"
    count = C(last) if first == "0" else C(f"{last} - {first}")
    if isinstance(value, Load) and value.type not in expr_c.HALVES and value.buffer != STORE:
        start = scope.value(substitute(value.index[0], {axis.name: ZERO}), block)
        where = [scope.pointer(value.buffer), *(t for t in (start.text, first) if t != "0")]
        return expr_c.call(function, C(" + ".join(where)), count)
    terms = scope.local("term")
    block.lines.append(f"{expr_c.register(node.type)} {terms}[{min(BLOCK, _static_terms((axis,)))}];")
    with loop(scope, axis, block, first, last, simd=True) as inner:
        position = scope.axis(axis) if first == "0" else f"{scope.axis(axis)} - {first}"
        inner.lines.append(f"{terms}[{position}] = {scope.value(value, inner).text};")
    return expr_c.call(function, C(terms), count)


def _wide(type: DataType) -> DataType:
    return DataType.FLOAT if type in expr_c.HALVES else type
