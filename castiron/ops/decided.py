"""Operators whose output is as long as data tell: what is nonzero, chosen, or distinct.

Specification: https://onnx.ai/onnx/operators/onnx__NonZero.html, onnx__Compress.html,
onnx__NonMaxSuppression.html, onnx__Unique.html
Opset history: none that matters; negative axes since 11 (Compress).
"""

from __future__ import annotations

from castiron.ops.common import ONE, ZERO, normal_axis, product
from castiron.ops.registry import Call, Operator
from castiron.program.builder import Tensor
from castiron.program.expr import BOOL, INT64, Expr, Reduce, apply, cast, constant, select
from castiron.program.scalar import FLOATS


def selected(call: Call, flags: Tensor) -> tuple[Tensor, Expr]:
    """Where the flags (BOOL, one dimension) are set, in order, and how often: a load that a size can be made of."""
    build, count = call.build, flags.shape[0]
    positions = build.temp(INT64, [count + 1], f"{call.out.name}.positions")  # one to spare, written and not read
    number = build.temp(INT64, [], f"{call.out.name}.count")
    build.whole_kernel("select", {"positions": positions, "count": number}, {"flags": flags}, {"n": count})
    return positions, number.load()


def coordinates(position: Expr, shape: tuple[Expr, ...]) -> list[Expr]:
    """The index of element `position` in row-major order."""
    found: list[Expr] = []
    for size in reversed(shape[1:]):
        found.append(position % apply("max", size, 1))
        position = apply("floordiv", position, apply("max", size, 1))
    return [*reversed([*found, position])] if shape else []


def _flat_flags(call: Call, x: Tensor) -> Tensor:
    """Whether each element is not zero."""
    count = product(x.shape)
    flags = call.build.temp(BOOL, x.shape, f"{x.name}.flags")
    call.build.compute(flags, lambda *i: cast(x.load(*i), BOOL))
    return call.build.view(call.build.temp(BOOL, [count], f"{x.name}.flat"), flags)


def _lower_non_zero(call: Call) -> None:
    x, out = call.input(0), call.out
    positions, count = selected(call, _flat_flags(call, x))
    call.sizes(constant(x.rank), count)
    for dim in range(x.rank):
        axes = call.build.axes([out.shape[1]])
        place = coordinates(positions.load(axes[0].var), x.shape)[dim]
        call.build.store(out, axes, (constant(dim), axes[0].var), place)


def _lower_compress(call: Call) -> None:
    x, condition, out = call.input(0), call.input(1), call.out
    axis = call.attribute("axis")
    dim = None if axis is None else normal_axis(call, int(axis), x.rank)
    extent = product(x.shape) if dim is None else x.shape[dim]
    length = apply("min", condition.shape[0], extent)
    flags = call.build.temp(BOOL, [length], f"{condition.name}.flags")
    call.build.compute(flags, lambda i: condition.load(i))
    positions, count = selected(call, flags)
    if dim is None:
        call.sizes(count)
        call.build.compute(out, lambda i: x.load(*coordinates(positions.load(i), x.shape)))
        return
    call.sizes(*(count if d == dim else size for d, size in enumerate(x.shape)))
    call.build.compute(out, lambda *i: x.load(*i[:dim], positions.load(i[dim]), *i[dim + 1 :]))


def _lower_nms(call: Call) -> None:
    boxes, scores, build = call.input(0), call.input(1), call.build
    batch, classes, n = scores.shape
    given = dict(zip(("most", "overlap", "threshold"), (call.optional(k) for k in (2, 3, 4)), strict=True))
    outputs = {
        "selected": build.temp(INT64, [batch * classes * n, constant(3)], f"{call.out.name}.all"),
        "count": build.temp(INT64, [], f"{call.out.name}.count"),
        "gone": build.temp(BOOL, [n], f"{call.out.name}.gone"),
    }
    operands = {"boxes": boxes, "scores": scores, **{name: t for name, t in given.items() if t is not None}}
    params: dict[str, Expr | int | float] = {
        "batch": batch,
        "classes": classes,
        "n": n,
        "centered": int(call.attribute("center_point_box", 0)),
    }
    build.whole_kernel("nms_run", outputs, operands, params)
    call.sizes(outputs["count"].load(), constant(3))
    build.compute(call.out, outputs["selected"].load)


def _lower_unique(call: Call) -> None:
    """Each slice looks for equal ones before it, each distinct one for smaller ones: quadratic in their number."""
    x, build, axis = call.input(0), call.build, call.attribute("axis")
    dim = 0 if axis is None else normal_axis(call, int(axis), x.rank)
    shape = [ONE, product(x.shape), ONE]
    if axis is not None:
        shape = [product(x.shape[:dim]), x.shape[dim], product(x.shape[dim + 1 :])]
    slices = build.view(build.temp(x.type, shape, f"{call.out.name}.slices"), x)
    count = slices.shape[1]
    flags = build.temp(INT64, [count], f"{call.out.name}.seen")
    (other,) = build.axes([count])

    def seen(i: Expr) -> Expr:
        return select(other.var < i, _is_same(call, slices, other.var, i), constant(False, BOOL))

    build.compute(flags, lambda i: Reduce("max", (other,), cast(seen(i), INT64)))
    first = build.temp(BOOL, [count], f"{call.out.name}.first")
    build.compute(first, lambda i: apply("eq", flags.load(i), 0))
    positions, number = selected(call, first)
    distinct = build.natural(number, f"{call.out.name}.distinct")
    chosen = _ordered(call, slices, positions, distinct)
    _give_unique(call, slices, chosen, distinct, None if axis is None else dim)


def _is_same(call: Call, slices: Tensor, i: Expr, j: Expr) -> Expr:
    """Whether two slices are equal; NaN is equal to itself."""
    return apply("eq", _first_difference(call, slices, i, j), slices.shape[0] * slices.shape[2])


def _first_difference(call: Call, slices: Tensor, i: Expr, j: Expr) -> Expr:
    """The first element, in row-major order, in which two slices differ; their size where there is none."""
    before, _, after = slices.shape
    a, c = call.build.axes([before, after])
    mine, theirs = slices.load(a.var, i, c.var), slices.load(a.var, j, c.var)
    place = select(_equal(mine, theirs), before * after, a.var * after + c.var)
    return Reduce("min", (a, c), place)


def _equal(a: Expr, b: Expr) -> Expr:
    same = apply("eq", a, b)
    return same | (apply("isnan", a) & apply("isnan", b)) if a.type in FLOATS else same


def _is_less(call: Call, slices: Tensor, i: Expr, j: Expr) -> Expr:
    """Whether slice `i` comes before slice `j` in the order of their first difference; NaN comes last."""
    before, _, after = slices.shape
    at = apply("min", _first_difference(call, slices, i, j), apply("max", before * after - 1, 0))
    a, c = (ZERO, ZERO) if before is ONE and after is ONE else (apply("floordiv", at, after), at % after)
    mine, theirs = slices.load(a, i, c), slices.load(a, j, c)
    less = mine < theirs
    return less | (apply("isnan", theirs) & apply("not", apply("isnan", mine))) if mine.type in FLOATS else less


def _ordered(call: Call, slices: Tensor, positions: Tensor, distinct: Expr) -> Tensor:
    """Where the distinct slices are: in the order of their values, or of their places."""
    build, name = call.build, call.out.name
    chosen = build.temp(INT64, [distinct], f"{name}.chosen")
    if not call.attribute("sorted", 1):
        return build.compute(chosen, positions.load)
    rank = build.temp(INT64, [distinct], f"{name}.rank")
    (other,) = build.axes([distinct])

    def ahead(i: Expr) -> Expr:
        return _is_less(call, slices, positions.load(other.var), positions.load(i))

    build.compute(rank, lambda i: Reduce("sum", (other,), cast(ahead(i), INT64)))
    (along,) = build.axes([distinct])

    def at(k: Expr) -> Expr:
        return select(apply("eq", rank.load(along.var), k), positions.load(along.var), ZERO)

    return build.compute(chosen, lambda k: Reduce("max", (along,), at(k)))


def _give_unique(call: Call, slices: Tensor, chosen: Tensor, distinct: Expr, dim: int | None) -> None:
    x, build = call.input(0), call.build
    values, first, inverse, counts = (*call.outputs, None, None, None)[:4]
    call.sizes(*([distinct] if dim is None else [distinct if d == dim else n for d, n in enumerate(x.shape)]))
    for number, sizes in ((1, distinct), (2, slices.shape[1]), (3, distinct)):
        if number < len(call.outputs):
            call.sizes(sizes, output=number)
    if values is not None and dim is None:
        build.compute(values, lambda k: slices.load(ZERO, chosen.load(k), ZERO))
    elif values is not None and dim is not None:
        build.compute(values, lambda *i: x.load(*i[:dim], chosen.load(i[dim]), *i[dim + 1 :]))
    if first is not None:
        build.compute(first, chosen.load)
    if inverse is not None:
        (along,) = build.axes([distinct])

        def same(i: Expr) -> Expr:
            return _is_same(call, slices, chosen.load(along.var), i)

        build.compute(inverse, lambda i: Reduce("max", (along,), select(same(i), along.var, ZERO)))
    if counts is not None:
        (every,) = build.axes([slices.shape[1]])

        def equal(k: Expr) -> Expr:
            return _is_same(call, slices, every.var, chosen.load(k))

        build.compute(counts, lambda k: Reduce("sum", (every,), cast(equal(k), INT64)))


OPERATORS = (
    Operator("Compress", _lower_compress),
    Operator("NonMaxSuppression", _lower_nms),
    Operator("NonZero", _lower_non_zero),
    Operator("Unique", _lower_unique),
)
