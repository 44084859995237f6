"""View of a view, load of a view, store that only a view reads -> the root's memory by another index.

Where dimensions only split on the way from the view to its root (or are of size 1), the root's index is linear in the
view's and the view is not needed. Merged dimensions would need divisions: those are taken where they come out even,
else the view stays, and the memory plan gives both names one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from castiron.program.dead import dead
from castiron.program.edit import Names, bound, elements, is_one, map_loads, readers, writers
from castiron.program.expr import (
    Expr,
    Load,
    Polynomial,
    Var,
    constant,
    free_variables,
    from_polynomial,
    polynomial,
    substitute,
)
from castiron.program.types import Buffer, Compute, Kernel, Kind, Program, Shape, Step, View, late_sizes


def resolve(program: Program) -> Program:
    """Takes views away where an index can stand for them; an OUTPUT that cannot share memory becomes a copy."""
    return dead(_stores(_loads(_copies(_rooted(program)))))


def _rooted(program: Program) -> Program:
    """A view of a view becomes a view of its root; a view of a known constant a constant."""
    roots: dict[str, str] = {}
    buffers = dict(program.buffers)
    steps: list[Step] = []
    for step in program.steps:
        if not isinstance(step, View):
            steps.append(step)
            continue
        root = roots[step.out] = roots.get(step.of, step.of)
        of, out = buffers[root], buffers[step.out]
        known = _shape(out.shape)
        if of.kind == Kind.CONSTANT and of.value is not None and out.kind == Kind.TEMP and known is not None:
            buffers[step.out] = replace(out, kind=Kind.CONSTANT, value=of.value.reshape(known))
        else:
            steps.append(replace(step, of=root))
    return replace(program, buffers=buffers, steps=tuple(steps))


def _shape(shape: Shape) -> tuple[int, ...] | None:
    known = tuple(int(polynomial(d).get((), 0)) for d in shape if set(polynomial(d)) <= {()})
    return known if len(known) == len(shape) else None


def _copies(program: Program) -> Program:
    """An OUTPUT is stored by a step of its own where its root's memory is another port's or output's."""
    taken: set[str] = set()
    names = Names(program)
    steps: list[Step] = []
    for step in program.steps:
        if isinstance(step, View) and program.buffers[step.out].kind == Kind.OUTPUT:
            apart = program.buffers[step.of].kind != Kind.TEMP or _is_later(step, program)
            if apart or step.of in taken:
                step = copy(step, program.buffers, names)
            else:
                taken.add(step.of)
        steps.append(step)
    return replace(program, steps=tuple(steps))


def _is_later(view: View, program: Program) -> bool:
    """Whether there may be no memory yet for the view's sizes where what it views is stored."""
    sizes = [frozenset().union(*map(free_variables, program.buffers[n].shape)) for n in (view.out, view.of)]
    return bool((sizes[0] - sizes[1]) & late_sizes(program))


def copy(view: View, buffers: Mapping[str, Buffer], names: Names) -> Compute:
    """The step that stores what the view shows."""
    out, of = buffers[view.out], buffers[view.of]
    axes = names.axes(out.shape)
    index = tuple(a.var for a in axes)
    found = reindex(index, out.shape, of.shape, {a.name: a.extent for a in axes}, divide=True)
    assert found is not None
    return Compute(view.name, view.out, axes, index, Load(of.name, found, of.type), view.origins)


def _loads(program: Program) -> Program:
    """Loads of a view become loads of its root where the index needs no division."""
    views = {s.out: s.of for s in program.steps if isinstance(s, View)}
    if not views:
        return program
    buffers = program.buffers

    def rooted(step: Step) -> Step:
        if isinstance(step, View):
            return step
        extents = {a.name: a.extent for a in bound(step)}

        def visit(load: Load) -> Expr | None:
            if load.buffer not in views or buffers[load.buffer].kind != Kind.TEMP:
                return None
            root = buffers[views[load.buffer]]
            index = reindex(load.index, buffers[load.buffer].shape, root.shape, extents)
            return None if index is None else Load(root.name, index, load.type)

        return map_loads(step, visit)

    return replace(program, steps=tuple(rooted(s) for s in program.steps))


def _stores(program: Program) -> Program:
    """A TEMP that only a view reads is stored as the view, where the index needs no division."""
    stores, loads = writers(program.steps), readers(program.steps)
    steps: list[Step | None] = list(program.steps)
    for number, view in enumerate(program.steps):
        if not isinstance(view, View) or program.buffers[view.of].kind != Kind.TEMP:
            continue
        if loads[view.of] != [number] or _is_later(view, program):
            continue
        changed = {n: _restored(steps[n], view, program.buffers) for n in stores[view.of]}
        if all(c is not None for c in changed.values()):
            steps[number] = None
            for n, step in changed.items():
                steps[n] = step
    return replace(program, steps=tuple(s for s in steps if s is not None))


def _restored(step: Step | None, view: View, buffers: Mapping[str, Buffer]) -> Step | None:
    """The step storing `view.out` instead of `view.of`."""
    if not isinstance(step, Compute | Kernel) or step.value is None:
        return None
    extents = {a.name: a.extent for a in step.axes}
    index = reindex(step.index, buffers[view.of].shape, buffers[view.out].shape, extents)
    if index is None:
        return None
    if isinstance(step, Kernel):
        return replace(step, outputs=(view.out,), index=index)
    return replace(step, out=view.out, index=index)


# Indices --------------------------------------------------------------------------------------------------------------


def reindex(
    index: Sequence[Expr], shape: Shape, root: Shape, extents: Mapping[str, Expr], divide: bool = False
) -> tuple[Expr, ...] | None:
    """The index in `root` of the element at `index` in `shape`, both row-major over the same elements.

    Args:
        extents: of the axes in `index`, which tell that a division comes out even.
        divide: whether divisions are taken where they do not; else the result is None then.
    """
    for known in range(len(shape), -1, -1):
        # An index lies within its dimension, whatever it is made of: the last ones may stand for themselves.
        names = {f"#{d}": index[d] for d in range(known, len(shape))}
        ranges = {**extents, **{name: shape[int(name[1:])] for name in names}}
        opaque = (*index[:known], *(Var(name) for name in names))
        found = _reindexed(opaque, shape, root, ranges, divide=False)
        if found is not None:
            return tuple(substitute(i, names) for i in found)
    return _reindexed(index, shape, root, extents, divide=True) if divide else None


def _reindexed(
    index: Sequence[Expr], shape: Shape, root: Shape, extents: Mapping[str, Expr], divide: bool
) -> tuple[Expr, ...] | None:
    found: list[Expr] = [constant(0)] * len(root)
    for group, targets in _aligned(shape, root):
        flat = constant(0)
        for dim in group:
            flat = flat * shape[dim] + index[dim]
        for position, dim in enumerate(targets):
            rest = elements(root[d] for d in targets[position + 1 :])
            if is_one(rest):
                found[dim] = flat
                continue
            parts = _divided(flat, rest, extents)
            if parts is None and not divide:
                return None
            found[dim], flat = (flat // rest, flat % rest) if parts is None else parts
    return tuple(found)


def _aligned(shape: Shape, root: Shape) -> list[tuple[list[int], list[int]]]:
    """Runs of dimensions with as many elements on both sides, as short as they can be; those of size 1 left out."""
    left = [d for d, size in enumerate(shape) if not is_one(size)]
    right = [d for d, size in enumerate(root) if not is_one(size)]
    runs: list[tuple[list[int], list[int]]] = []
    while left or right:
        a, b = _run([shape[d] for d in left], [root[d] for d in right])
        runs.append((left[:a], right[:b]))
        left, right = left[a:], right[b:]
    return runs


def _run(left: Sequence[Expr], right: Sequence[Expr]) -> tuple[int, int]:
    """How many leading sizes of each have one product; all of them where no fewer do."""
    products: dict[Expr, int] = {}
    total = constant(1)
    for number, size in enumerate(left, 1):
        total = total * size
        products.setdefault(total, number)
    total = constant(1)
    for number, size in enumerate(right, 1):
        total = total * size
        if total in products:
            return products[total], number
    return len(left), len(right)


def _divided(e: Expr, by: Expr, extents: Mapping[str, Expr]) -> tuple[Expr, Expr] | None:
    """Quotient and remainder, where the terms that are no multiples of `by` are known to lie in [0, by)."""
    divisor = polynomial(by)
    if len(divisor) != 1:
        return None
    (factors, number), *_ = divisor.items()
    quotient: Polynomial = {}
    rest: Polynomial = {}
    for monomial, c in polynomial(e).items():
        left = _without(monomial, factors) if c % number == 0 else None
        if left is None:
            rest[monomial] = c
        else:
            quotient[left] = c // number
    remainder = from_polynomial(rest)
    return (from_polynomial(quotient), remainder) if _is_within(rest, by, extents) else None


def _without(monomial: tuple[Expr, ...], factors: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    left = list(monomial)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def _is_within(terms: Polynomial, limit: Expr, extents: Mapping[str, Expr]) -> bool:
    """Whether 0 <= terms < limit for all values of the axes."""
    most = constant(1)
    for monomial, c in terms.items():
        if c < 0:
            return False
        term: Expr = constant(c)
        for atom in monomial:
            if isinstance(atom, Var) and atom.name in extents:
                atom = extents[atom.name] - 1
            elif not isinstance(atom, Var):
                return False
            term = term * atom
        most = most + term
    return all(c > 0 for c in polynomial(limit - most).values())
