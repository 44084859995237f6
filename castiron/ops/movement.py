"""Shapes, slices and orders: operators that only move elements. Each is index arithmetic, or a view.

Specification: https://onnx.ai/onnx/operators/ (onnx__Reshape.html, onnx__Transpose.html, onnx__Slice.html, …)
Opset history: Squeeze, Unsqueeze, Split (13), Slice (10), Pad (11), Reshape (5), Tile (6) took attributes before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType

from castiron.errors import Unsupported
from castiron.ops.common import (
    ONE,
    ZERO,
    attribute_to_input,
    constant_node,
    drop_consumed_inputs,
    fail,
    integers,
    normal_axes,
    normal_axis,
    product,
    renewed,
    scalar_of,
    static,
)
from castiron.ops.registry import Call, Case, Operator
from castiron.program.builder import Tensor
from castiron.program.expr import Expr, all_of, apply, cast, constant, loads, select, text
from castiron.program.types import Equal


def _lower_view(call: Call) -> None:
    call.build.view(call.out, call.input(0))


def _lower_squeeze(call: Call) -> None:
    x = call.input(0)
    axes = [static(a) for a in call.integers(1, "axes")] if call.optional(1) else []
    for axis in (normal_axis(call, a, x.rank) for a in axes if a is not None):
        size = x.shape[axis]
        if size is not ONE:
            message = f"Squeeze {call.node.name!r} needs {text(size)} to be 1"
            call.build.require(Equal(size, ONE, message))
    _lower_view(call)


def _lower_reshape(call: Call) -> None:
    if call.build.pending:
        x = call.input(0)
        call.sizes(*_reshaped(call.integers(1, "shape"), x.shape, bool(call.attribute("allowzero", 0))))
    _lower_view(call)


def _reshaped(wanted: Sequence[Expr], shape: Sequence[Expr], allow_zero: bool) -> list[Expr]:
    """The sizes: 0 keeps what there is, -1 is what is left."""
    sizes = []
    for dim, size in enumerate(wanted):
        same = dim < len(shape) and not allow_zero and (static(size) is None or static(size) == 0)
        sizes.append(select(apply("eq", size, 0), shape[dim], size) if same else size)
    known = [ONE if static(s) == -1 else s if static(s) is not None else select(s < 0, ONE, s) for s in sizes]
    rest = apply("floordiv", product(shape), apply("max", product(known), 1))
    return [s if static(s) not in (None, -1) else select(s < 0, rest, s) for s in sizes]


def _lower_transpose(call: Call) -> None:
    x = call.input(0)
    order = call.attribute("perm") or list(range(x.rank))[::-1]
    place = {dim: position for position, dim in enumerate(order)}
    call.build.compute(call.out, lambda *index: x.load(*(index[place[d]] for d in range(x.rank))))


def _lower_concat(call: Call) -> None:
    axis = normal_axis(call, call.attribute("axis", 1), call.out.rank)
    offset: Expr = ZERO
    for part in call.inputs:
        assert part is not None
        axes = call.build.axes(part.shape)
        index = [a.var for a in axes]
        place = [i + offset if d == axis else i for d, i in enumerate(index)]
        call.build.store(call.out, axes, place, part.load(*index))
        offset = offset + part.shape[axis]


def _lower_split(call: Call) -> None:
    x = call.input(0)
    axis = normal_axis(call, call.attribute("axis", 0), x.rank)
    start: Expr = ZERO
    for out, size in zip(call.outputs, _split_sizes(call, x.shape[axis]), strict=True):
        if out is not None:
            call.build.compute(out, lambda *i, s=start: x.load(*(v + s if d == axis else v for d, v in enumerate(i))))
        start = start + size


def _split_sizes(call: Call, extent: Expr) -> Sequence[Expr]:
    """The parts' sizes; where they are not given, equal ones (the last may be smaller)."""
    if call.optional(1) is not None:
        return call.integers(1, "split")
    count = len(call.outputs)
    return [(extent + (count - 1)) // count] * count


def _slice_start(start: Expr, step: int, extent: Expr) -> Expr:
    """Where a slice begins. An empty slice loads nothing, so forward slices need no upper bound."""
    known = static(start)
    if known is None:
        start = select(start < 0, start + extent, start)
    elif known < 0:
        start = start + extent
    if step < 0:
        return apply("max", apply("min", start, extent - 1), 0)
    return start if known is not None and known >= -1 else apply("max", start, 0)


def _lower_slice(call: Call) -> None:
    x = call.input(0)
    starts, ends = call.integers(1, "starts"), call.integers(2, "ends")
    axes = [static(a) for a in call.integers(3, "axes")] if call.optional(3) else list(range(len(starts)))
    steps = [static(s) for s in call.integers(4, "steps")] if call.optional(4) else [1] * len(starts)
    if None in axes or None in steps:
        fail(call, "axes and steps must be known at build")
    moved: dict[int, tuple[Expr, int]] = {}
    sizes = list(x.shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        assert axis is not None and step is not None
        axis = normal_axis(call, axis, x.rank)
        extent = x.shape[axis]
        moved[axis] = (call.build.natural(_slice_start(start, step, extent), f"{call.out.name}.start"), step)
        sizes[axis] = _slice_size(start, end, step, extent)
    call.sizes(*sizes)

    def value(*index: Expr) -> Expr:
        return x.load(*(moved[d][0] + i * moved[d][1] if d in moved else i for d, i in enumerate(index)))

    call.build.compute(call.out, value)


def _slice_size(start: Expr, end: Expr, step: int, extent: Expr) -> Expr:
    """The number of elements, bounds clamped as the specification says."""
    low, high = (ZERO, extent) if step > 0 else (ZERO, extent - 1)
    first = _clamped(start, extent, low, high)
    last = _clamped(end, extent, low if step > 0 else constant(-1), high)
    length = last - first if step > 0 else first - last
    return apply("max", apply("floordiv", length + (abs(step) - 1), constant(abs(step))), 0)


def _clamped(bound: Expr, extent: Expr, low: Expr, high: Expr) -> Expr:
    from_front = select(bound < 0, bound + extent, bound)
    return apply("max", apply("min", from_front, high), low)


def _reflected(i: Expr, extent: Expr, before: Expr, after: Expr) -> Expr:
    """`i` folded back at both ends, which are not repeated; the ends once where the pads are known to be short."""
    last = extent - 1
    size, short = static(extent), [static(before), static(after)]
    if size is not None and all(p is not None and p < size for p in short):
        away = apply("max", i, -i)
        return apply("min", away, last * 2 - away)
    away = i % apply("max", last * 2, 1)
    return apply("min", away, last * 2 - away)


def _padded_index(mode: str, i: Expr, extent: Expr, before: Expr, after: Expr) -> Expr:
    if mode == "reflect":
        return _reflected(i, extent, before, after)
    if mode == "wrap":
        return i % extent
    return apply("max", apply("min", i, extent - 1), 0) if mode == "edge" else i


def _signed(call: Call, value: Expr) -> Expr:
    """A number that data give, which may be negative, as a difference of two sizes."""
    if not loads(value):
        return value
    up, down = (call.build.natural(apply("max", v, 0), f"{call.out.name}.pad") for v in (value, -value))
    return up - down


def _lower_pad(call: Call) -> None:
    x, mode = call.input(0), call.attribute("mode", "constant")
    pads = [_signed(call, p) for p in call.integers(1, "pads")]
    given = [static(a) for a in call.integers(3, "axes")] if call.optional(3) else list(range(x.rank))
    axes = normal_axes(call, [a for a in given if a is not None], x.rank)
    if len(pads) != 2 * len(axes):
        fail(call, f"{len(pads)} pads for {len(axes)} axes")
    after = dict(zip(axes, pads[len(axes) :], strict=True))
    before = {a: p for a, p in zip(axes, pads, strict=False) if p is not ZERO or after[a] is not ZERO}
    fill = constant(0, x.type) if call.optional(2) is None else scalar_of(call.input(2))
    call.sizes(*(size + before.get(d, ZERO) + after.get(d, ZERO) for d, size in enumerate(x.shape)))

    def value(*index: Expr) -> Expr:
        inside, place = [], list(index)
        for axis, pad in before.items():
            extent, place[axis] = x.shape[axis], index[axis] - pad
            if mode == "constant":
                inside += [] if pad is ZERO else [place[axis] >= 0]
                inside += [] if after[axis] is ZERO else [place[axis] < extent]
            place[axis] = _padded_index(mode, place[axis], extent, pad, after[axis])
        return select(all_of(inside), x.load(*place), fill)

    call.build.compute(call.out, value)


def _lower_expand(call: Call) -> None:
    x = call.input(0)
    if call.build.pending:
        _expand_by_data(call, x)
        return
    call.build.compute(call.out, lambda *index: x.broadcast(index))


def _expand_by_data(call: Call, x: Tensor) -> None:
    """A wanted size of 1 keeps what there is; what there is is repeated where it is 1, which the run may tell too."""
    wanted = call.integers(1, "shape")
    own = [ONE] * (len(wanted) - x.rank) + list(x.shape)
    wanted = (ONE,) * (x.rank - len(wanted)) + tuple(wanted)
    sizes = [_broadcast_size(a, b) for a, b in zip(own, wanted, strict=True)]
    call.sizes(*sizes)
    out = call.out.shape
    for have, size in zip(own, out, strict=True):
        unlike = apply("min", apply("max", have - 1, 1 - have), 1) * (have - size)
        call.build.require(Equal(unlike, ZERO, f"Expand {call.node.name!r} needs {text(have)} to be 1 or {text(size)}"))

    def value(*index: Expr) -> Expr:
        inner = zip(index[len(index) - x.rank :], x.shape, strict=True)
        return x.load(
            *(ZERO if static(n) == 1 else i if static(n) is not None else apply("min", i, n - 1) for i, n in inner)
        )

    call.build.compute(call.out, value)


def _broadcast_size(have: Expr, wanted: Expr) -> Expr:
    if static(wanted) == 1:
        return have
    if static(have) == 1:
        return wanted
    return select(apply("eq", wanted, 1), have, wanted)


def _lower_tile(call: Call) -> None:
    x = call.input(0)
    if call.build.pending:
        call.sizes(*(n * size for n, size in zip(call.integers(1, "repeats"), x.shape, strict=True)))

    def value(*index: Expr) -> Expr:
        same = [out is size for out, size in zip(call.out.shape, x.shape, strict=True)]
        whole = zip(same, index, x.shape, strict=True)
        return x.load(*(i if keep else ZERO if size is ONE else i % size for keep, i, size in whole))

    call.build.compute(call.out, value)


def _lower_depth_to_space(call: Call) -> None:
    x, block = call.input(0), int(call.attribute("blocksize"))
    crd = call.attribute("mode", "DCR") == "CRD"
    n, depth, h, w = x.shape
    channels = depth // (block * block)
    axes = call.build.axes([n, channels, h, block, w, block])
    b, c, y, i, xx, j = (a.var for a in axes)
    channel = c * (block * block) + i * block + j if crd else (i * block + j) * channels + c
    call.build.store(call.out, axes, (b, c, y * block + i, xx * block + j), x.load(b, channel, y, xx))


def _lower_space_to_depth(call: Call) -> None:
    x, block = call.input(0), int(call.attribute("blocksize"))
    crd = call.attribute("mode", "DCR") == "CRD"
    n, channels = x.shape[:2]
    axes = call.build.axes([n, block, block, channels, *call.out.shape[2:]])
    b, i, j, c, y, xx = (a.var for a in axes)
    channel = c * (block * block) + i * block + j if crd else (i * block + j) * channels + c
    place = (b, channel, y, xx)
    call.build.store(call.out, axes, place, x.load(b, c, y * block + i, xx * block + j))


def _lower_trilu(call: Call) -> None:
    x, k = call.input(0), call.optional(1)
    diagonal = ZERO if k is None else cast(scalar_of(k), DataType.INT64)
    upper = call.attribute("upper", 1)

    def value(*index: Expr) -> Expr:
        row, column = index[-2:]
        kept = row + diagonal <= column if upper else column <= row + diagonal
        return select(kept, x.load(*index), constant(0, x.type))

    call.build.compute(call.out, value)


def _lower_reverse_sequence(call: Call) -> None:
    x, lengths = call.input(0), call.input(1)
    batch, time = call.attribute("batch_axis", 1), call.attribute("time_axis", 0)

    def value(*index: Expr) -> Expr:
        length, t = lengths.load(index[batch]), index[time]
        place = list(index)
        place[time] = apply("min", apply("max", select(t < length, length - 1 - t, t), 0), x.shape[time] - 1)
        return x.load(*place)

    call.build.compute(call.out, value)


# Upgrades -------------------------------------------------------------------------------------------------------------


def _upgrade_slice(node: ir.Node, opset: int) -> list[ir.Node] | None:
    starts, ends = integers(node, "starts"), integers(node, "ends")
    if opset >= 10 or starts is None or ends is None:
        return None
    axes = integers(node, "axes") or list(range(len(starts)))
    extra = [constant_node(v) for v in (starts, ends, axes)]
    inputs = [node.inputs[0], *(e.outputs[0] for e in extra)]
    return [*extra, renewed(node, inputs, drop=["starts", "ends", "axes"])]


def _upgrade_pad(node: ir.Node, opset: int) -> list[ir.Node] | None:
    pads = integers(node, "pads") or integers(node, "paddings")
    if opset >= 11 or pads is None:
        return None
    x, value = node.inputs[0], node.attributes.get("value")
    type = x.dtype if x is not None and x.dtype is not None else DataType.FLOAT
    extra = [constant_node(pads), constant_node(0.0 if value is None else value.as_float(), type)]
    inputs = [x, *(e.outputs[0] for e in extra)]
    return [*extra, renewed(node, inputs, drop=["pads", "paddings", "value"])]


def _upgrade_tile(node: ir.Node, opset: int) -> list[ir.Node] | None:
    """Before 6: Tile(x, tiles, axis), one axis at a time."""
    if opset >= 6 or len(node.inputs) != 3:
        return None
    x, tiles, axis = node.inputs
    if x is None or x.shape is None or axis is None or axis.const_value is None:
        raise Unsupported(f"Tile {node.name!r}: opset {opset} needs a known rank and axis")
    before = int(axis.const_value.numpy().item())
    ones = [constant_node([1] * before), constant_node([1] * (len(x.shape) - before - 1)), constant_node([1])]
    one = ir.node("Reshape", [tiles, ones[2].outputs[0]])
    repeats = ir.node("Concat", [ones[0].outputs[0], one.outputs[0], ones[1].outputs[0]], {"axis": 0})
    return [*ones, one, repeats, renewed(node, [x, repeats.outputs[0]])]


def _upgrade_split(node: ir.Node, opset: int) -> list[ir.Node] | None:
    upgraded = attribute_to_input("split", 1, before=13)(node, opset)
    if upgraded is None and opset < 18 and len(node.inputs) < 2:
        return [renewed(node, num_outputs=len(node.outputs))]
    return upgraded


def _upgrade_concat(node: ir.Node, opset: int) -> list[ir.Node] | None:
    """Before 4 the axis could be left out: 1."""
    return [renewed(node, axis=1)] if opset < 4 and "axis" not in node.attributes else None


_upgrade_axes = attribute_to_input("axes", 1, before=13)


def _upgrade_reshape(node: ir.Node, opset: int) -> Sequence[ir.Node] | None:
    return attribute_to_input("shape", 1, before=5)(node, opset) or drop_consumed_inputs(node, opset)


_X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def _i(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


OPERATORS = (
    Operator(
        "Concat", _lower_concat, upgrade=_upgrade_concat, cases=(Case("three", (_X, _X[:, :1], _X), {"axis": 1}),)
    ),
    Operator("DepthToSpace", _lower_depth_to_space),
    Operator("Expand", _lower_expand),
    Operator("Flatten", _lower_view),
    Operator(
        "Pad",
        _lower_pad,
        upgrade=_upgrade_pad,
        cases=(
            Case("reflect long", (_X, _i(0, 0, 7, 0, 5, 6)), {"mode": "reflect"}),
            Case("wrap", (_X, _i(1, 0, 3, 1, 2, 5)), {"mode": "wrap"}),
        ),
    ),
    Operator("Reshape", _lower_reshape, upgrade=_upgrade_reshape),
    Operator("ReverseSequence", _lower_reverse_sequence),
    Operator(
        "Slice",
        _lower_slice,
        upgrade=_upgrade_slice,
        cases=(
            Case("backwards", (_X, _i(-1, 100), _i(-100, 0), _i(1, 2), _i(-1, -2))),
            Case("beyond", (_X, _i(-100), _i(100), _i(2))),
        ),
    ),
    Operator("SpaceToDepth", _lower_space_to_depth),
    Operator("Split", _lower_split, upgrade=_upgrade_split),
    Operator("Squeeze", _lower_squeeze, upgrade=_upgrade_axes),
    Operator("Tile", _lower_tile, upgrade=_upgrade_tile, cases=(Case("one", (_X[:1], _i(3, 1, 2))),)),
    Operator("Transpose", _lower_transpose, cases=(Case("cycle", (_X,), {"perm": [1, 2, 0]}),)),
    Operator("Trilu", _lower_trilu),
    Operator("Unsqueeze", _lower_view, upgrade=_upgrade_axes),
)
