"""Blocks of C and what is computed where: shared values get names, each in the outermost block that can hold it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from onnx_ir import DataType

from castiron.emit import expr_c
from castiron.emit.access import is_cheap_index
from castiron.emit.expr_c import C
from castiron.emit.memory import Memory
from castiron.emit.names import Namer
from castiron.program.expr import (
    BOOL,
    INT64,
    Apply,
    Axis,
    Const,
    Expr,
    Load,
    Reduce,
    Var,
    free_variables,
    from_polynomial,
    nodes,
    polynomial,
    text,
)  # fmt: skip
from castiron.program.scalar import FLOATS

SIMD = "CI_SIMD"
SHORT_SIMD = "CI_SHORT_SIMD"

Term = tuple[tuple[Expr, ...], int]
"""A monomial and its coefficient."""
TILE_SIMD = "CI_TILE_SIMD"


class Block:
    """Lines between braces. `binds` are the variables it defines; `stays` tells which values must not leave it."""

    def __init__(
        self, parent: Block | None, binds: Iterable[str] = (), stays: Callable[[Expr], bool] | None = None
    ) -> None:
        self.parent = parent
        self.binds = frozenset(binds)
        self.stays = stays
        self.lines: list[str] = []
        self.names: dict[Expr, C] = {}

    def find(self, value: Expr) -> C | None:
        """The name that `value` has here."""
        block: Block | None = self
        while block is not None:
            if value in block.names:
                return block.names[value]
            block = block.parent
        return None

    def nest(self, head: Sequence[str], inner: Block) -> None:
        """Puts a finished block here, behind its head (the last line of which opens the brace)."""
        self.lines += [*head, *inner.lines, "}"]


class Scope:
    """One C function on its way: its names, the memory and sizes it uses, its values by block.

    `reduce(scope, node, block)` prints a reduction into a block and gives its result."""

    def __init__(self, memory: Memory, reduce: Callable[[Scope, Reduce, Block], C]) -> None:
        self.memory = memory
        self.reduce = reduce
        self.namer = Namer()
        self.top = Block(None)
        self.pointers: dict[tuple[str, DataType], str] = {}
        self.arrays: dict[str, str] = {}  # of the function itself, not of the program: name -> C
        self.stored: set[str] = set()
        self.safe: frozenset[Expr] = frozenset()  # loads that are in bounds wherever they stand
        self.sizes: dict[str, str] = {}
        self.axes: dict[str, str] = {}
        self._uses: dict[Expr, int] = {}
        self._eager: dict[Expr, bool] = {}
        self._numbers: dict[str, int] = {}

    # names

    def local(self, letter: str) -> str:
        """A new local: t1, t2, … ."""
        self._numbers[letter] = self._numbers.get(letter, 0) + 1
        return self.namer(f"{letter}{self._numbers[letter]}")

    def axis(self, axis: Axis) -> str:
        """The C name of a loop variable."""
        if axis.name not in self.axes:
            self.axes[axis.name] = self.namer(axis.name)
        return self.axes[axis.name]

    def pointer(self, buffer: str, store: bool = False) -> str:
        """The C name of the memory of `buffer`."""
        if buffer in self.arrays:
            return self.arrays[buffer]
        root, type = self.memory.root(buffer), self.memory.type(buffer)
        if (root, type) not in self.pointers:
            self.pointers[root, type] = self.namer(buffer)
        if store:
            self.stored.add(root)
        return self.pointers[root, type]

    def prologue(self) -> list[str]:
        """Declarations of the sizes and the memory that the function has come to use."""
        lines = [f"const int64_t {name} = {self.memory.size(size)};" for size, name in self.sizes.items()]
        roots = [root for root, _ in self.pointers]
        for (root, type), name in self.pointers.items():
            const = "" if root in self.stored else "const "
            star = "*restrict " if roots.count(root) == 1 else "*"
            lines.append(
                f"{const}{expr_c.stored(type)} {star}{name} = {self.memory.address(root, type, root in self.stored)};"
            )
        return lines

    # values

    def count(self, roots: Iterable[Expr]) -> None:
        """Takes note of how often each sub-expression is used, so that shared ones get names."""
        seen: set[Expr] = set()
        for root in roots:
            self._uses[root] = self._uses.get(root, 0) + 1
            for node in nodes(root):
                if node not in seen:
                    seen.add(node)
                    for operand in node.operands:
                        self._uses[operand] = self._uses.get(operand, 0) + 1

    def eager(self, value: Expr) -> bool:
        """Whether `value` may be computed where nobody needs it: it touches no memory and cannot fault."""
        if value not in self._eager:
            risky = (isinstance(value, (Load, Reduce)) and value not in self.safe) or (
                isinstance(value, Apply) and value.op == "checked_index"
            )
            self._eager[value] = not risky and all(self.eager(o) for o in value.operands)
        return self._eager[value]

    def value(self, e: Expr, block: Block) -> C:
        """`e` as C for use in `block`."""
        if isinstance(e, Const):
            return expr_c.literal(e.value, e.type)
        if isinstance(e, Var):
            return C(self._variable(e.name))
        found = block.find(e)
        if found is not None:
            return found
        if e.type == INT64 and isinstance(e, Apply) and is_cheap_index(e):
            return self._compute(e, block)
        home = self._home(e, block)
        if isinstance(e, Reduce):
            home.names[e] = self.reduce(self, e, home)
            return home.names[e]
        if home is block and self._uses.get(e, 0) < 2 and e not in self.safe:
            return self._compute(e, block)
        return self.named(e, self._compute(e, home), home)

    def named(self, e: Expr, value: C, block: Block, wish: str = "") -> C:
        """Gives `value` a name in `block`, known there as `e`."""
        name = self.namer(wish) if wish else self.local("t")
        block.lines.append(f"const {expr_c.register(e.type)} {name} = {value.text};")
        block.names[e] = C(name)
        return block.names[e]

    def int(self, e: Expr, block: Block | None = None) -> str:
        """An index or size as C text."""
        return self.value(e, block or self.top).text

    def element(self, buffer: str, offset: Expr, block: Block) -> C:
        """`buffer[offset]`."""
        return C(f"{self.pointer(buffer)}[{self.value(offset, block).text}]")

    def _variable(self, name: str) -> str:
        if name in self.axes:
            return self.axes[name]
        if name not in self.sizes:
            self.sizes[name] = self.namer(name)
        return self.sizes[name]

    def _home(self, e: Expr, block: Block) -> Block:
        free = free_variables(e)
        while block.parent is not None and not free & block.binds and not (block.stays and block.stays(e)):
            block = block.parent
        return block

    def _compute(self, e: Expr, block: Block) -> C:
        if isinstance(e, Load):
            return expr_c.loaded(self.element(e.buffer, e.index[0], block), e.type)
        assert isinstance(e, Apply), text(e)
        if e.op == "select":
            return self._select(e, block)
        if e.type == INT64 and e.op in ("add", "sub", "mul"):
            return self._polynomial(e, block)
        arguments = [self.value(a, block) for a in e.args]
        if e.op in ("floordiv", "mod") and self._is_natural(e.args[0]) and _is_positive(e.args[1]):
            return expr_c.infix(arguments[0], "/" if e.op == "floordiv" else "%", arguments[1])
        if e.op == "div" and isinstance(e.args[1], Const) and e.type not in FLOATS and int(e.args[1].value) > 0:
            return expr_c.infix(arguments[0], "/", arguments[1])
        return expr_c.operation(e.op, arguments, [a.type for a in e.args], e.type)

    def _polynomial(self, e: Expr, block: Block) -> C:
        """Terms of outer loops first: what stays the same in an inner loop stands together, by name if it is long."""
        depth = {name: i for i, name in enumerate(self.axes)}

        def level(monomial: tuple[Expr, ...]) -> int:
            return max((depth.get(v, -1) for a in monomial for v in free_variables(a)), default=-1)

        def key(term: Term) -> tuple[bool, bool, int, list[str]]:
            return term[1] < 0, not term[0], level(term[0]), [text(a) for a in term[0]]

        terms = polynomial(e)
        innermost = max(map(level, terms), default=-1)
        outer = {m: n for m, n in terms.items() if 0 <= level(m) < innermost}
        total: C | None = None
        if len(outer) > 1 and any(len(m) > 1 for m in outer):
            terms = {m: n for m, n in terms.items() if m not in outer}
            total = self._hoisted(from_polynomial(outer), block)
        for monomial, number in sorted(terms.items(), key=key):
            total = self._term(total, (monomial, number), block)
        assert total is not None
        return total

    def _hoisted(self, e: Expr, block: Block) -> C:
        """`e` by a name in the outermost block that can hold it."""
        home = self._home(e, block)
        return block.find(e) or self.named(e, self._compute(e, home), home)

    def _term(self, total: C | None, term: Term, block: Block) -> C:
        """`total` and one more term."""
        monomial, number = term
        factors = [self.value(a, block) for a in monomial]
        size = abs(number) if total is not None else number
        if size != 1 or not factors:
            factors.append(expr_c.literal(size, INT64))
        product = factors[0]
        for factor in factors[1:]:
            product = expr_c.infix(product, "*", factor)
        return product if total is None else expr_c.infix(total, "+" if number > 0 else "-", product)

    def _select(self, e: Apply, block: Block) -> C:
        """A conditional expression; a branch that needs statements of its own becomes if and else."""
        condition = self.value(e.args[0], block)
        branches, values = [], []
        for branch in e.args[1:]:
            inner = Block(block, stays=lambda v: not self.eager(v))
            values.append(self.value(branch, inner))
            branches.append(inner)
        if not any(b.lines for b in branches):
            return expr_c.operation("select", [condition, *values], [BOOL, e.type, e.type], e.type)
        name = self.local("t")
        block.lines.append(f"{expr_c.register(e.type)} {name};")
        for head, inner, value in zip((f"if ({condition.text}) {{", "else {"), branches, values, strict=True):
            inner.lines.append(f"{name} = {value.text};")
            block.nest([head], inner)
        return C(name)

    def _is_natural(self, e: Expr) -> bool:
        """Whether `e` is known not to be negative: a sum of products of loop variables."""
        return all(
            number > 0 and all(self._is_natural_atom(a) for a in monomial) for monomial, number in polynomial(e).items()
        )

    def _is_natural_atom(self, e: Expr) -> bool:
        if isinstance(e, Var):
            return e.name in self.axes
        is_quotient = isinstance(e, Apply) and e.op in ("floordiv", "mod")
        return is_quotient and self._is_natural(e.operands[0]) and _is_positive(e.operands[1])


def _is_positive(e: Expr) -> bool:
    return isinstance(e, Const) and int(e.value) > 0
