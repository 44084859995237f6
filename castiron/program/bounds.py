"""Requirements that keep memory safe: sizes for which a step would leave its buffers, told before anything runs.

Inputs bring sizes that nobody has seen at build: `Add(x[N], y[5])` reads `x` up to 5 whatever N is. Every load and
store whose index is linear in the loops is bounded here by its dimension, with symbols as they are; what does not hold
for all sizes becomes a requirement of the program. Conditions may guard indices of variables that they test; indices
that come from data are checked where they are used (`checked_index`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from operator import mul

from castiron.errors import ModelError
from castiron.program.edit import Names, leaves
from castiron.program.expr import (
    Apply,
    Axis,
    Const,
    Expr,
    Load,
    Polynomial,
    Reduce,
    Var,
    apply,
    constant,
    free_variables,
    from_polynomial,
    linear,
    nodes,
    polynomial,
    text,
)
from castiron.program.flow import nesting
from castiron.program.kernels import FOUR, KERNELS, PANEL
from castiron.program.types import Compute, Equal, Kernel, Program, Require, Step, View, late_sizes

_DEPTH = 4
_ARITHMETIC = frozenset({"add", "sub", "mul", "neg", "floordiv", "mod", "min", "max"})


def bounds(program: Program) -> Program:
    """The program with what its loads, stores and sizes require of the inputs; in branches and loops, and of sizes that
    only data tell, where the steps are. Raises ModelError where nothing fits."""
    found = {(e.left, e.right): e for e in program.requires}
    late, names, within = late_sizes(program), Names(program), nesting(program.steps).within
    steps: list[Step] = []
    asked: set[tuple[Expr, Expr, tuple[int, ...]]] = set()
    for number, step in enumerate(program.steps):
        for leaf in leaves(step):
            for equal in _required(leaf, program):
                key = (equal.left, equal.right)
                if isinstance(equal.left, Const) and isinstance(equal.right, Const):
                    raise ModelError(equal.message)
                early = (free_variables(equal.left) | free_variables(equal.right)).isdisjoint(late)
                if early and (not within[number] or key in found):
                    found.setdefault(key, equal)
                elif (*key, within[number]) not in asked:
                    asked.add((*key, within[number]))
                    steps.append(Require(names.step(f"{step.name}.require"), equal, step.origins))
        steps.append(step)
    return replace(program, requires=tuple(found.values()), steps=tuple(steps))


def _required(step: Compute | Kernel | View, program: Program) -> Iterator[Equal]:
    where = _place(step)
    outputs = step.outputs if isinstance(step, Kernel) else (step.out,)
    for name in outputs:
        for extent in program.buffers[name].shape:
            yield from _natural(extent, f"{where} would give {name!r} the negative size {text(extent)}")
    if isinstance(step, View):
        return
    axes = {axis.name: axis.extent for axis in step.axes}
    if step.value is not None:
        yield from _within(step.index, program.buffers[step.out].shape, axes, where)
    if isinstance(step, Kernel):
        yield from _kernel(step, program, axes, where)
    for load, inner, guards in _loads([*step.index, *([step.value] if step.value is not None else [])], axes):
        yield from _within(load.index, program.buffers[load.buffer].shape, inner, where, guards)


def _kernel(step: Kernel, program: Program, axes: Mapping[str, Expr], where: str) -> Iterator[Equal]:
    shapes = {n: program.buffers[o if isinstance(o, str) else o.buffer].shape for n, o in step.operands
              if isinstance(o, str | Load)}  # fmt: skip
    if not KERNELS[step.kernel].tile:
        batch = dict(step.params).get("batch")
        rows = {"lengths": 0, "h0": 1, "c0": 1}
        for name, dim in rows.items():
            if name in shapes and batch is not None:
                yield from _same(shapes[name][dim], batch, where)
        return
    first, packed = (operand for _, operand in step.operands)
    assert isinstance(first, Load) and isinstance(packed, Load)
    inner = {axis.name: axis.extent for axis in step.inner}
    yield from _within(first.index, program.buffers[first.buffer].shape, {**axes, **inner}, where)
    shape = program.buffers[packed.buffer].shape
    if KERNELS[step.kernel].integer:  # [..., terms / 4, 16, 4]
        shape = (*shape[:-3], shape[-3] * FOUR, shape[-2])
    for extent, axis in zip(shape[-1 - len(step.inner) : -1], step.inner, strict=True):
        yield from _same(extent, axis.extent, where)
    panels = shape[-2 - len(step.inner)]
    yield from _natural(panels * PANEL - step.axes[-1].extent, _needs(where, step.axes[-1].extent, panels * PANEL))


def _within(
    index: Iterable[Expr],
    shape: Iterable[Expr],
    axes: Mapping[str, Expr],
    where: str,
    guards: frozenset[str] | None = None,
) -> Iterator[Equal]:
    """That `index` stays within `shape` while each axis runs up to its extent. `guards`: see `_loads`."""
    if any(isinstance(extent, Const) and not extent.value for extent in axes.values()):
        return
    for position, extent in zip(index, shape, strict=True):
        form = linear(position, frozenset(axes))
        if guards is not None and (form is None or not form[0] or guards & free_variables(position)):
            continue
        if form is None or not _is_plain(form[1]):
            yield from _where_run(extent - 1, axes, f"{where} needs {text(extent)} not to be 0")
            continue
        steps = {name: (step, axes[name] - 1) for name, step in form[0].items()}
        if any(not _is_natural(step) and not _is_natural(-step) for step, _ in steps.values()):
            continue
        least, most = form[1], form[1]
        for step, turns in steps.values():
            if _is_natural(step):
                most = most + step * turns
            else:
                least = least + step * turns
        yield from _where_run(extent - 1 - most, axes, _needs(where, most + 1, extent))
        yield from _where_run(least, axes, f"{where} needs {text(least)} not to be negative")


def _where_run(e: Expr, axes: Mapping[str, Expr], message: str) -> Iterator[Equal]:
    """That `e` is not negative, unless an axis has no turn."""
    if not _is_natural(e):
        turns = reduce(mul, axes.values(), constant(1))
        yield Equal(apply("min", apply("max", -e, 0), turns), constant(0), message)


def _is_plain(e: Expr) -> bool:
    """Whether sizes alone decide the value."""
    return all(n.op in _ARITHMETIC if isinstance(n, Apply) else isinstance(n, Const | Var) for n in nodes(e))


def _loads(
    values: Iterable[Expr], axes: Mapping[str, Expr]
) -> Iterator[tuple[Load, Mapping[str, Expr], frozenset[str] | None]]:
    """Each load with the axes that run around it and, where it is done under conditions, the variables that these test:
    they may keep indices of these variables in bounds, not others."""
    stack: list[tuple[Expr, Mapping[str, Expr], frozenset[str] | None]] = [(value, axes, None) for value in values]
    seen: set[tuple[Expr, frozenset[str] | None]] = set()
    while stack:
        node, around, guards = stack.pop()
        if (node, guards) in seen:
            continue
        seen.add((node, guards))
        if isinstance(node, Load):
            yield node, around, guards
        if isinstance(node, Apply) and node.op == "select":
            tested = (guards or frozenset()) | free_variables(node.args[0])
            stack += [(node.args[0], around, guards), *((branch, around, tested) for branch in node.args[1:])]
        else:
            inner = {**around, **_extents(node.axes)} if isinstance(node, Reduce) else around
            stack += [(operand, inner, guards) for operand in node.operands]


def _extents(axes: Iterable[Axis]) -> dict[str, Expr]:
    return {axis.name: axis.extent for axis in axes}


# Requirements --------------------------------------------------------------------------------------


def _place(step: Step) -> str:
    origin = next(iter(step.origins), None)
    return f"step {step.name!r}" if origin is None else f"{origin.op} {origin.node!r}"


def _needs(where: str, part: Expr, whole: Expr) -> str:
    return f"{where} needs {text(part)} <= {text(whole)}"


def _same(left: Expr, right: Expr, where: str) -> Iterator[Equal]:
    if left is not right:
        yield Equal(left, right, f"{where} needs {text(left)} = {text(right)}")


def _natural(e: Expr, message: str) -> Iterator[Equal]:
    """That `e` is not negative, unless sizes never make it so."""
    if not _is_natural(e):
        yield Equal(apply("max", e, 0), e, message)


# What holds for all sizes --------------------------------------------------------------------------


def _is_natural(e: Expr) -> bool:
    """Whether `e` is known not to be negative, sizes being natural numbers."""
    return _holds(polynomial(e), _DEPTH)


def _holds(terms: Polynomial, depth: int) -> bool:
    if all(c > 0 and all(map(_is_natural_atom, monomial)) for monomial, c in terms.items()):
        return True
    return depth > 0 and any(_holds(lower, depth - 1) for lower in _lower(terms))


def _is_natural_atom(e: Expr) -> bool:
    if not isinstance(e, Apply):
        return not isinstance(e, Load)
    if e.op == "floordiv":
        return _is_natural(e.args[0]) and _is_positive(e.args[1])
    if e.op == "mod":
        return _is_positive(e.args[1])
    if e.op == "max":
        return any(map(_is_natural, e.args))
    return e.op == "min" and all(map(_is_natural, e.args))


def _lower(terms: Polynomial) -> Iterator[Polynomial]:
    """Polynomials that are nowhere larger: one atom of one term replaced by a bound of its own."""
    for monomial, c in terms.items():
        for place, atom in enumerate(monomial):
            others = (*monomial[:place], *monomial[place + 1 :])
            if not isinstance(atom, Apply) or not all(map(_is_natural_atom, others)):
                continue
            rest = from_polynomial({m: n for m, n in terms.items() if m != monomial})
            for factor, bound in _bounds(atom, c):
                yield polynomial(rest + from_polynomial({others: factor}) * bound)


def _bounds(e: Apply, c: int) -> Iterator[tuple[int, Expr]]:
    """(d, b) with d * b <= c * e."""
    if e.op == ("max" if c > 0 else "min"):
        yield from ((c, argument) for argument in e.args)
    if e.op == "floordiv" and _is_positive(e.args[1]):
        top, divisor = e.args[0], int(e.args[1].value)  # type: ignore[attr-defined]  # _is_positive: a Const
        if c % divisor == 0:
            yield c // divisor, top - (divisor - 1 if c > 0 else 0)
        elif c < 0 and _is_natural(top):
            yield c, top
    if e.op == "mod" and c < 0 and _is_positive(e.args[1]):
        yield c, e.args[1] - 1


def _is_positive(e: Expr) -> bool:
    return isinstance(e, Const) and int(e.value) > 0
