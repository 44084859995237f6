"""Operators whose output is as long as data tell: what is nonzero, chosen, or distinct.

Specification: https://onnx.ai/onnx/operators/onnx__NonZero.html, onnx__Compress.html,
onnx__NonMaxSuppression.html
Opset history: none that matters; negative axes since 11 (Compress).
"""

from __future__ import annotations

from castiron.ops.common import normal_axis, product
from castiron.ops.registry import Call, Operator
from castiron.program.builder import Tensor
from castiron.program.expr import BOOL, INT64, Expr, apply, cast, constant


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


OPERATORS = (
    Operator("Compress", _lower_compress),
    Operator("NonMaxSuppression", _lower_nms),
    Operator("NonZero", _lower_non_zero),
)
