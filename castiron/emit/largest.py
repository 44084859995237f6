"""The C that tells how large the integers of a model can become for given sizes, before any of them is computed.

Sizes come from callers: products of them may be more than an int64 holds. The bound is a polynomial of the sizes with
positive factors, computed in `double`, where it cannot overflow. Where it is small, no size, offset or number of bytes
in the whole model wraps around.
"""

from __future__ import annotations

from collections.abc import Sequence

from castiron.emit.access import product
from castiron.emit.names import Namer
from castiron.errors import InternalError
from castiron.program.expr import Apply, Expr, Var, constant, free_variables, from_polynomial, polynomial
from castiron.program.planned import Planned
from castiron.program.types import Size, late_sizes

_WIDEST = 8
"""Bytes of the largest element."""


def print_largest(forward: Planned, sizes: Sequence[Size]) -> list[str]:
    """`static double largest(const int64_t *sizes)`; nothing where no size is known at run time only."""
    given = {s.name: number for number, s in enumerate(sizes) if s.value is None and not s.late}
    total = _largest(forward)
    used = [name for name in given if any(Var(name) in monomial for monomial in polynomial(total))]
    if not used:
        return []
    namer = Namer()
    names: dict[Expr, str] = {Var(name): namer(name) for name in used}
    terms = [" * ".join([repr(float(c)), *(names[a] for a in m)]) for m, c in polynomial(total).items()]
    return [
        "static double largest(const int64_t *sizes)",
        "{",
        *(f"const double {names[Var(name)]} = (double)sizes[{given[name]}];" for name in used),
        f"return {' + '.join(terms)};",
        "}",
        "",
    ]


def _largest(forward: Planned) -> Expr:
    """All buffers' bytes, and whatever else is computed of sizes before the run, added up."""
    program = forward.program
    late = late_sizes(program)
    shapes = dict.fromkeys(
        tuple(b.shape)
        for b in program.buffers.values()
        if late.isdisjoint(v for d in b.shape for v in free_variables(d))
    )
    others = dict.fromkeys(side for e in program.requires for side in (e.left, e.right))
    total = constant(0)
    for shape in shapes:
        total = total + product(map(magnitude, shape)) * _WIDEST
    for e in (*others, *(s.value for s in program.sizes if s.value is not None)):
        total = total + magnitude(e)
    return total


def magnitude(e: Expr) -> Expr:
    """A polynomial of sizes with positive factors that is nowhere less than the size of `e`, signs left out."""
    total = constant(0)
    for monomial, factor in polynomial(e).items():
        term = constant(abs(factor))
        for atom in monomial:
            term = term * _atom(atom)
        total = total + term
    return from_polynomial(polynomial(total))


def _atom(e: Expr) -> Expr:
    if isinstance(e, Var):
        return e
    if isinstance(e, Apply) and e.op in ("min", "max"):
        return magnitude(e.args[0]) + magnitude(e.args[1])
    if isinstance(e, Apply) and e.op == "floordiv":
        return magnitude(e.args[0]) + 1
    if isinstance(e, Apply) and e.op == "mod":
        return magnitude(e.args[1])
    raise InternalError(f"a size has no bound: {e}")
