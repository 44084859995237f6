"""The scalar language of the program: what one element of a buffer is computed from.

Expressions are immutable and interned: two expressions that are built alike are one object, so `is` compares them, a
dictionary keyed by them never walks a tree, and a shared sub-expression is shared for the printer too.
Sizes and indices are expressions of type INT64 and are kept in one normal form (a polynomial with sorted terms): the size
`2*(N + 1)` and the size `N + N + 2` are the same object.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from onnx_ir import DataType

from castiron.program import scalar

INT64 = DataType.INT64
BOOL = DataType.BOOL


class _Interned(type):
    """Gives the one existing object for equal fields (equal by identity of sub-expressions and by bits of constants)."""

    _table: ClassVar[weakref.WeakValueDictionary[tuple[Any, ...], Expr]] = weakref.WeakValueDictionary()

    def __call__(cls, *fields: Any) -> Any:
        key = (cls, *(_bits(f) for f in fields))
        found = _Interned._table.get(key)
        if found is None:
            found = super().__call__(*fields)
            _Interned._table[key] = found
        return found


def _bits(field: Any) -> Any:
    """A key that keeps 1, 1.0 and True apart, as well as 0.0 and -0.0, and holds NaN equal to itself."""
    if isinstance(field, float):
        return struct.pack("<d", field)
    return (bool, field) if isinstance(field, bool) else field


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Expr(metaclass=_Interned):
    """One scalar. `type` is its ONNX data type. The operators build (and fold) further expressions."""

    if TYPE_CHECKING:  # each kind has a field or a property of this name

        @property
        def type(self) -> DataType: ...

    @property
    def operands(self) -> tuple[Expr, ...]:
        """The sub-expressions, in order."""
        return ()

    def __add__(self, other: Expr | int | float) -> Expr:
        return apply("add", self, other)

    def __radd__(self, other: int | float) -> Expr:
        return apply("add", constant(other, self.type), self)

    def __sub__(self, other: Expr | int | float) -> Expr:
        return apply("sub", self, other)

    def __rsub__(self, other: int | float) -> Expr:
        return apply("sub", constant(other, self.type), self)

    def __mul__(self, other: Expr | int | float) -> Expr:
        return apply("mul", self, other)

    def __rmul__(self, other: int | float) -> Expr:
        return apply("mul", constant(other, self.type), self)

    def __truediv__(self, other: Expr | int | float) -> Expr:
        return apply("div", self, other)

    def __floordiv__(self, other: Expr | int) -> Expr:
        return apply("floordiv", self, other)

    def __mod__(self, other: Expr | int) -> Expr:
        return apply("mod", self, other)

    def __neg__(self) -> Expr:
        return apply("neg", self)

    def __lt__(self, other: Expr | int | float) -> Expr:
        return apply("lt", self, other)

    def __le__(self, other: Expr | int | float) -> Expr:
        return apply("le", self, other)

    def __gt__(self, other: Expr | int | float) -> Expr:
        return apply("gt", self, other)

    def __ge__(self, other: Expr | int | float) -> Expr:
        return apply("ge", self, other)

    def __and__(self, other: Expr) -> Expr:
        return apply("and", self, other)

    def __or__(self, other: Expr) -> Expr:
        return apply("or", self, other)

    def __bool__(self) -> bool:
        raise TypeError("an expression has no truth value; compare with `is`, or build one with select()")


@dataclass(frozen=True, eq=False, slots=True)
class Const(Expr):
    """A literal. Integers and bools hold Python's, floats a Python float that the type represents exactly."""

    value: int | float | bool
    type: DataType


@dataclass(frozen=True, eq=False, slots=True)
class Var(Expr):
    """An int64 by name: a loop axis, or a size that is known only at run time."""

    name: str

    @property
    def type(self) -> DataType:
        return INT64


@dataclass(frozen=True, eq=False, slots=True)
class Load(Expr):
    """The element of `buffer` (by name) at `index`, one int64 expression a dimension. The index is in bounds."""

    buffer: str
    index: tuple[Expr, ...]
    type: DataType

    @property
    def operands(self) -> tuple[Expr, ...]:
        return self.index


@dataclass(frozen=True, eq=False, slots=True)
class Apply(Expr):
    """`scalar.TABLE[op]` of `operands`; `type` is the result's. `cast` is the operator that changes a type at will."""

    op: str
    args: tuple[Expr, ...]
    type: DataType

    @property
    def operands(self) -> tuple[Expr, ...]:
        return self.args


@dataclass(frozen=True, eq=False, slots=True)
class Axis:
    """A loop from 0 to `extent` (exclusive); `name` is unique in its program."""

    name: str
    extent: Expr

    @property
    def var(self) -> Var:
        return Var(self.name)


@dataclass(frozen=True, eq=False, slots=True)
class Reduce(Expr):
    """`value` reduced over `axes` by `op`, one of `scalar.REDUCTIONS`; an empty reduction gives the operation's neutral.

    Order of a floating-point sum (the law of bits): if the last axis is contiguous in memory, the printer takes blocks
    of at most 256 terms, 16 lanes a block, one fixed tree over the lanes; else blocks of at most 256 terms made of
    blocks of at most 16, in order. Blocks are added in order in larger ones of at most 4,096 terms, and those in
    order. The choice depends on the program alone, never on the instruction set.
    """

    op: str
    axes: tuple[Axis, ...]
    value: Expr

    @property
    def type(self) -> DataType:
        return self.value.type

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.value,)


@dataclass(frozen=True, eq=False, slots=True)
class Acc(Expr):
    """What a kernel has summed up for the element at hand; stands in the epilogue of a Kernel step only."""

    type: DataType


# Building -----------------------------------------------------------------------------------------------------------------


def constant(value: int | float | bool | Expr, type: DataType = INT64) -> Expr:
    """A literal of `type`; an expression comes back as it is."""
    if isinstance(value, Expr):
        return value
    if type == BOOL:
        return Const(bool(value), type)
    if type.is_integer():
        return Const(int(value), type)
    return Const(scalar.rounded(float(value), type), type)


def apply(op: str, *operands: Expr | int | float) -> Expr:
    """`op` of the operands, folded where they are known; numbers take the type of the first expression among them."""
    kind = next(
        o.type for o in operands if isinstance(o, Expr) and not (op == "select" and o.type == BOOL and o is operands[0])
    )
    args = tuple(constant(o, kind) for o in operands)
    type = scalar.result_type(op, tuple(a.type for a in args))
    if type == INT64 and op in _POLYNOMIAL and all(a.type == INT64 for a in args):
        return _POLYNOMIAL[op](*args)
    return _folded(op, args, type)


def cast(value: Expr, type: DataType) -> Expr:
    """`value` as `type`, by the ONNX rules of Cast; nothing where it has that type."""
    return value if value.type == type else _folded("cast", (value,), type)


def bitcast(value: Expr, type: DataType) -> Expr:
    """The bits of `value` as another type of the same width."""
    return value if value.type == type else Apply("bitcast", (value,), type)


def select(condition: Expr, then: Expr | int | float, other: Expr | int | float) -> Expr:
    """`then` where `condition` holds, else `other`. Only the chosen one is evaluated (loads out of bounds are safe)."""
    kind = next(e.type for e in (then, other) if isinstance(e, Expr))
    then, other = constant(then, kind), constant(other, kind)
    if isinstance(condition, Const):
        return then if condition.value else other
    return then if then is other else Apply("select", (condition, then, other), kind)


def all_of(conditions: list[Expr]) -> Expr:
    """The conjunction; true where there are none."""
    held: Expr = Const(True, BOOL)
    for condition in conditions:
        held = apply("and", held, condition)
    return held


def _folded(op: str, args: tuple[Expr, ...], type: DataType) -> Expr:
    known = [a for a in args if isinstance(a, Const)]
    if len(known) == len(args) and scalar.TABLE[op].foldable:
        return constant(scalar.evaluate(op, [a.value for a in known], [a.type for a in known], type), type)
    if op in ("and", "or"):
        for a, b in (args, args[::-1]):
            if isinstance(a, Const):
                return b if a.value == (op == "and") else a
    return Apply(op, args, type)


# The normal form of int64 expressions ---------------------------------------------------------------------------------------
# A polynomial maps a monomial (a sorted tuple of atoms) to its coefficient; an atom is anything that is not a sum, a
# difference or a product. Printing order is by text, so it never depends on addresses.

Polynomial = dict[tuple[Expr, ...], int]


def polynomial(e: Expr) -> Polynomial:
    """The terms of an int64 expression: {(): 3, (N,): 2, (N, T): 1} is N*T + 2*N + 3."""
    if isinstance(e, Const):
        return {(): int(e.value)} if e.value else {}
    if isinstance(e, Apply) and e.type == INT64:
        if e.op == "add":
            return _sum(polynomial(e.args[0]), polynomial(e.args[1]), 1)
        if e.op == "sub":
            return _sum(polynomial(e.args[0]), polynomial(e.args[1]), -1)
        if e.op == "mul":
            return _product(polynomial(e.args[0]), polynomial(e.args[1]))
        if e.op == "neg":
            return _sum({}, polynomial(e.args[0]), -1)
    return {(e,): 1}


def from_polynomial(terms: Polynomial) -> Expr:
    """The one expression that stands for these terms: positive terms first, their constant last."""
    ordered = sorted(terms.items(), key=lambda t: (t[1] < 0, not t[0], len(t[0]), [text(a) for a in t[0]]))
    total: Expr | None = None
    for monomial, coefficient in ordered:
        term: Expr | None = None
        for atom in monomial:
            term = atom if term is None else Apply("mul", (term, atom), INT64)
        size = abs(coefficient) if total is not None else coefficient
        if term is None:
            term = Const(size, INT64)
        elif size != 1:
            term = Apply("mul", (term, Const(size, INT64)), INT64)
        total = term if total is None else Apply("add" if coefficient > 0 else "sub", (total, term), INT64)
    return total if total is not None else Const(0, INT64)


def _sum(a: Polynomial, b: Polynomial, sign: int) -> Polynomial:
    out = dict(a)
    for monomial, coefficient in b.items():
        out[monomial] = out.get(monomial, 0) + sign * coefficient
    return {m: c for m, c in out.items() if c}


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    out: Polynomial = {}
    for m, c in a.items():
        for n, d in b.items():
            key = tuple(sorted(m + n, key=text))
            out[key] = out.get(key, 0) + c * d
    return {m: c for m, c in out.items() if c}


def _floordiv(a: Expr, b: Expr) -> Expr:
    """The terms of `a` that are multiples of a known `b` come out of the division: (2*N + 3) // 2 is N + 1."""
    if isinstance(b, Const) and b.value:
        whole, rest = _split(polynomial(a), int(b.value))
        if not set(rest) - {()}:
            return from_polynomial(_sum(whole, {(): rest.get((), 0) // int(b.value)}, 1))
        return from_polynomial(_sum(whole, {(_folded("floordiv", (from_polynomial(rest), b), INT64),): 1}, 1))
    if a is b:
        return Const(1, INT64)
    return _folded("floordiv", (a, b), INT64)


def _mod(a: Expr, b: Expr) -> Expr:
    if isinstance(b, Const) and b.value:
        a = from_polynomial(_split(polynomial(a), int(b.value))[1])
    return _folded("mod", (a, b), INT64)


def _split(terms: Polynomial, divisor: int) -> tuple[Polynomial, Polynomial]:
    """Quotient of the terms that `divisor` divides, and the other terms; of the known term only the remainder is left."""
    whole, rest = {}, {}
    for monomial, c in terms.items():
        if c % divisor == 0 or not monomial:
            whole[monomial] = c // divisor
        if c % divisor:
            rest[monomial] = c if monomial else c % divisor
    return {m: c for m, c in whole.items() if c}, rest


def _extreme(op: str) -> Callable[[Expr, Expr], Expr]:
    def build(a: Expr, b: Expr) -> Expr:
        difference = polynomial(a - b)
        if not difference or set(difference) == {()}:
            return a if (difference.get((), 0) >= 0) == (op == "max") else b
        return _folded(op, tuple(sorted((a, b), key=text)), INT64)

    return build


_POLYNOMIAL: Mapping[str, Callable[..., Expr]] = {
    "add": lambda a, b: from_polynomial(_sum(polynomial(a), polynomial(b), 1)),
    "sub": lambda a, b: from_polynomial(_sum(polynomial(a), polynomial(b), -1)),
    "mul": lambda a, b: from_polynomial(_product(polynomial(a), polynomial(b))),
    "neg": lambda a: from_polynomial(_sum({}, polynomial(a), -1)),
    "floordiv": _floordiv,
    "mod": _mod,
    "max": _extreme("max"),
    "min": _extreme("min"),
}


def linear(e: Expr, variables: frozenset[str]) -> tuple[dict[str, Expr], Expr] | None:
    """`e` as a sum of `coefficient * variable` and a rest free of the variables; None where it is not linear in them."""
    coefficients: dict[str, Polynomial] = {}
    rest: Polynomial = {}
    for monomial, c in polynomial(e).items():
        inside = [a for a in monomial if isinstance(a, Var) and a.name in variables]
        others = tuple(a for a in monomial if not (isinstance(a, Var) and a.name in variables))
        if len(inside) > 1 or any(variables & free_variables(a) for a in others):
            return None
        target = coefficients.setdefault(inside[0].name, {}) if inside else rest
        target[others] = target.get(others, 0) + c
    return {v: from_polynomial(p) for v, p in coefficients.items()}, from_polynomial(rest)


# Walking ------------------------------------------------------------------------------------------------------------------


def nodes(e: Expr, known: Container[Expr] = ()) -> Iterator[Expr]:
    """Every distinct sub-expression, operands before users; not those in `known`, nor what only they use."""
    seen: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(e, False)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            yield node
        elif node not in seen and node not in known:
            seen.add(node)
            stack.append((node, True))
            stack.extend([(o, False) for o in reversed(node.operands)])


_LOADS: weakref.WeakKeyDictionary[Expr, tuple[Load, ...]] = weakref.WeakKeyDictionary()


def loads(e: Expr) -> tuple[Load, ...]:
    """The distinct loads in `e`, those in indices of others included."""
    found = _LOADS.get(e)
    if found is None:
        found = tuple(n for n in nodes(e) if isinstance(n, Load))
        if not isinstance(e, Load):  # a value that holds its key would never be freed
            _LOADS[e] = found
    return found


_FREE: weakref.WeakKeyDictionary[Expr, frozenset[str]] = weakref.WeakKeyDictionary()


def free_variables(e: Expr) -> frozenset[str]:
    """Names of the axes and sizes that `e` depends on, those bound by its own reductions left out (their extents count)."""
    for node in nodes(e, _FREE):
        if isinstance(node, Var):
            found = frozenset({node.name})
        else:
            found = frozenset().union(*(_FREE[o] for o in node.operands))
        if isinstance(node, Reduce):
            found -= {a.name for a in node.axes}
            found = found.union(*(free_variables(a.extent) for a in node.axes))
        _FREE[node] = found
    return _FREE[e]


def rewrite(e: Expr, visit: Callable[[Expr], Expr | None]) -> Expr:
    """`e` with each node, operands first, replaced by `visit(node)` where that is not None; rebuilt through the folding."""
    done: dict[Expr, Expr] = {}
    for node in nodes(e):
        rebuilt = _rebuilt(node, tuple(done[o] for o in node.operands))
        replacement = visit(rebuilt)
        done[node] = rebuilt if replacement is None else replacement
    return done[e]


def substitute(e: Expr, values: Mapping[str, Expr]) -> Expr:
    """`e` with variables replaced by name (also in the extents of reductions)."""

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Var):
            return values.get(node.name)
        if isinstance(node, Reduce):
            axes = tuple(Axis(a.name, substitute(a.extent, values)) for a in node.axes)
            if any(a.extent is not b.extent for a, b in zip(axes, node.axes, strict=True)):
                return Reduce(node.op, axes, node.value)
        return None

    return rewrite(e, visit)


def _rebuilt(node: Expr, operands: tuple[Expr, ...]) -> Expr:
    if all(a is b for a, b in zip(operands, node.operands, strict=True)):
        return node
    if isinstance(node, Load):
        return Load(node.buffer, operands, node.type)
    if isinstance(node, Reduce):
        return Reduce(node.op, node.axes, operands[0])
    assert isinstance(node, Apply)
    if node.op == "select":
        return select(*operands)
    if node.op in ("cast", "bitcast"):
        return (cast if node.op == "cast" else bitcast)(operands[0], node.type)
    return apply(node.op, *operands)


_TEXT: weakref.WeakKeyDictionary[Expr, str] = weakref.WeakKeyDictionary()


def text(e: Expr) -> str:
    """`e` for a reader; the same for every run, so it also serves as a sorting key."""
    for node in nodes(e, _TEXT):
        _TEXT[node] = _spelled(node, [_TEXT[o] for o in node.operands])
    return _TEXT[e]


_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "floordiv": "//",
    "mod": "%",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
    "and": "and",
    "or": "or",
}


def _spelled(node: Expr, operands: list[str]) -> str:
    if isinstance(node, Const):
        return str(node.value).lower() if node.type == BOOL else repr(node.value)
    if isinstance(node, Var):
        return node.name
    if isinstance(node, Acc):
        return "acc"
    if isinstance(node, Load):
        return f"{node.buffer}[{', '.join(operands)}]"
    if isinstance(node, Reduce):
        axes = ", ".join(f"{a.name}<{text(a.extent)}" for a in node.axes)
        return f"{node.op}({axes}: {operands[0]})"
    assert isinstance(node, Apply)
    if node.op in _INFIX:
        return f"({operands[0]} {_INFIX[node.op]} {operands[1]})"
    if node.op in ("cast", "bitcast"):
        bits = "bits_of_" if node.op == "bitcast" else ""
        return f"{bits}{node.type.name.lower()}({operands[0]})"
    return f"{node.op}({', '.join(operands)})"
