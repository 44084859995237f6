"""Interpolation at points that data give: GridSample, DeformConv, RoiAlign.

The points are computed by steps of their own, once for all channels. Indices are kept inside by clamping, so points
anywhere (NaN too) are safe.

Specification: https://onnx.ai/onnx/operators/onnx__GridSample.html, onnx__DeformConv.html, onnx__RoiAlign.html
Opset history: GridSample 16 had the modes bilinear and bicubic; RoiAlign 10 had output_half_pixel coordinates only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import onnx_ir as ir

from castiron.ops.common import fail, lifted, renewed, static, temp_like, wide
from castiron.ops.matmul import multiply
from castiron.ops.registry import Call, Case, Operator
from castiron.ops.resize import cubic
from castiron.program.builder import Tensor
from castiron.program.expr import BOOL, INT64, Axis, Expr, Reduce, all_of, apply, cast, constant, select

CUBIC = -0.75


@dataclass(frozen=True)
class Tap:
    """One neighbour of a point along a dimension: its index (inside the dimension), its weight, whether it counts."""

    at: Expr
    weight: Expr
    counts: Expr


def _clamped(i: Expr, size: Expr) -> Expr:
    return apply("max", apply("min", i, size - 1), 0)


def _sum(x: Tensor, lead: Sequence[Expr], taps: Sequence[Sequence[Tap]]) -> Expr:
    """The weighted sum of the elements x[lead + taps]: 0 for those that do not count."""
    total: Expr | None = None
    for corner in product(*taps):
        element = select(all_of([t.counts for t in corner]), lifted(x.load(*lead, *(t.at for t in corner))), 0)
        for tap in corner:
            element = element * cast(tap.weight, element.type)
        total = element if total is None else total + element
    assert total is not None
    return total


# GridSample -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grid:
    """How GridSample reads along one dimension of `size`."""

    size: Expr
    mode: str
    padding: str
    aligned: bool

    def place(self, normal: Expr) -> Expr:
        """Where in the dimension -1..1 is, brought inside as the padding says."""
        length = cast(self.size, normal.type)
        x = (normal + 1) / 2 * (length - 1) if self.aligned else ((normal + 1) * length - 1) / 2
        x = apply("round", x) if self.mode == "nearest" else x
        if self.padding == "border":
            return apply("max", apply("min", x, length - 1), 0)
        return self._reflected(x, length) if self.padding == "reflection" else x

    def _reflected(self, x: Expr, length: Expr) -> Expr:
        """Folded back at both ends: of the elements' centres where corners are aligned, else of their far sides."""
        first, span = (constant(0, x.type), length - 1) if self.aligned else (constant(-0.5, x.type), length)
        away = apply("abs", x - first)
        away = away - span * 2 * apply("floor", away / (span * 2))
        folded = first + apply("min", away, span * 2 - away)
        return select((x < first) | (x > first + span), folded, x)

    def taps(self, x: Expr) -> list[Tap]:
        """The neighbours of a place."""
        start = apply("floor", x)
        part = x - start
        if self.mode == "nearest":
            weights, first = [constant(1, x.type)], cast(x, INT64)
        elif self.mode == "linear":
            weights, first = [1 - part, part], cast(start, INT64)
        else:
            weights, first = cubic(part, CUBIC), cast(start, INT64) - 1
        return [self._tap(first + t, weight) for t, weight in enumerate(weights)]

    def _tap(self, i: Expr, weight: Expr) -> Tap:
        inside = (i >= 0) & (i < self.size)
        if self.padding == "zeros":
            return Tap(_clamped(i, self.size), weight, inside)
        if self.padding == "reflection":
            folded = self._reflected(cast(i, weight.type), cast(self.size, weight.type))
            i = select(inside, i, cast(folded, INT64))
        return Tap(_clamped(i, self.size), weight, constant(True, BOOL))


def _lower_grid_sample(call: Call) -> None:
    x, grid, build = call.input(0), call.input(1), call.build
    mode, padding = call.attribute("mode", "linear"), call.attribute("padding_mode", "zeros")
    if mode not in ("nearest", "linear", "cubic") or padding not in ("zeros", "border", "reflection"):
        fail(call, f"mode {mode}, padding_mode {padding}")
    lines = [Grid(size, mode, padding, bool(call.attribute("align_corners", 0))) for size in x.shape[2:]]
    if static(grid.shape[-1]) != len(lines):
        fail(call, f"points of {len(lines)} coordinates are needed")
    places = []
    for d, line in enumerate(lines):  # the last coordinate is that of the first dimension
        at = constant(len(lines) - 1 - d)
        place = temp_like(build, grid, f"dim{d}", grid.shape[:-1])
        places.append(build.compute(place, lambda *i, line=line, at=at: line.place(lifted(grid.load(*i, at)))))

    def value(n: Expr, c: Expr, *index: Expr) -> Expr:
        taps = [line.taps(place.load(n, *index)) for line, place in zip(lines, places, strict=True)]
        return cast(_sum(x, (n, c), taps), call.out.type)

    build.compute(call.out, value)


def _upgrade_grid_sample(node: ir.Node, opset: int) -> list[ir.Node] | None:
    mode = node.attributes.get_string("mode", "bilinear" if opset < 20 else "linear")
    newest = {"bilinear": "linear", "bicubic": "cubic"}.get(mode)
    return None if newest is None else [renewed(node, mode=newest)]


# DeformConv -----------------------------------------------------------------------------------------------------------


def _lower_deform_conv(call: Call) -> None:
    """The elements under the shifted windows are gathered, [batch, group, channels * taps, places], then multiplied."""
    x, weight, build, out = call.input(0), call.input(1), call.build, call.out
    bias, groups = call.optional(3), call.attribute("group", 1)
    if x.rank != 4:
        fail(call, f"{x.rank - 2} spatial dimensions")
    channels, taps = weight.shape[1], weight.shape[2:]
    shape = (x.shape[0], constant(groups), channels, *taps, *out.shape[2:])
    columns = temp_like(build, x, "columns", shape)
    build.compute(columns, _deformed(call))
    places = out.shape[2] * out.shape[3]
    depth = channels * taps[0] * taps[1]
    filters = out.shape[1] // groups
    a = build.view(temp_like(build, weight, "rows", (constant(groups), filters, depth)), _widened(call, weight))
    b = build.view(temp_like(build, x, "matrix", (x.shape[0], constant(groups), depth, places)), columns)
    total = temp_like(build, out, "sum", (x.shape[0], constant(groups), filters, places))
    multiply(build, total, a, b)
    result = build.view(temp_like(build, out, "result"), total)

    def value(*index: Expr) -> Expr:
        element = result.load(*index)
        return cast(element if bias is None else element + lifted(bias.load(index[1])), out.type)

    build.compute(out, value)


def _widened(call: Call, tensor: Tensor) -> Tensor:
    if tensor.type == wide(tensor.type):
        return tensor
    wider = temp_like(call.build, tensor, "wide")
    return call.build.compute(wider, lambda *index: lifted(tensor.load(*index)))


def _deformed(call: Call) -> Callable[..., Expr]:
    """(n, group, channel, kh, kw, h, w) -> the interpolated element, times its mask."""
    x, weight, offset, mask = call.input(0), call.input(1), call.input(2), call.optional(4)
    strides, dilations = (call.attribute(name) or [1, 1] for name in ("strides", "dilations"))
    pads, many = call.attribute("pads") or [0] * 4, call.attribute("offset_group", 1)
    channels, (kernel_h, kernel_w) = weight.shape[1], weight.shape[2:]
    lines = [Grid(size, "linear", "zeros", True) for size in x.shape[2:]]

    def value(n: Expr, group: Expr, c: Expr, kh: Expr, kw: Expr, h: Expr, w: Expr) -> Expr:
        channel = group * channels + c
        tap = (channel // (x.shape[1] // many) * kernel_h + kh) * kernel_w + kw
        taps = []
        for d, (line, o, k) in enumerate(zip(lines, (h, w), (kh, kw), strict=True)):
            shift = lifted(offset.load(n, tap * 2 + d, h, w))
            taps.append(line.taps(cast(o * strides[d] + k * dilations[d] - pads[d], shift.type) + shift))
        element = _sum(x, (n, channel), taps)
        return element if mask is None else element * cast(mask.load(n, tap, h, w), element.type)

    return value


# RoiAlign -------------------------------------------------------------------------------------------------------------


def _lower_roi_align(call: Call) -> None:
    x, rois, out, build = call.input(0), call.input(1), call.out, call.build
    many = int(call.attribute("sampling_ratio", 0))
    if many <= 0:
        fail(call, "sampling_ratio 0 (as many samples as the region's size asks for); export with a fixed number")
    samples = build.axes([many, many])
    highest = call.attribute("mode", "avg") == "max"

    def taps(d: int, roi: Expr, bin: Expr, sample: Axis) -> list[Tap]:
        place = _in_region(call, d, roi, bin, cast(sample.var, wide(rois.type)), many)
        return _near(place, x.shape[2 + d])

    def value(roi: Expr, c: Expr, *bins: Expr) -> Expr:
        batch = apply("checked_index", cast(call.input(2).load(roi), INT64), x.shape[0])
        near = [taps(d, roi, bin, sample) for d, (bin, sample) in enumerate(zip(bins, samples, strict=True))]
        if highest:
            corners = [_sum(x, (batch, c), [[tap] for tap in corner]) for corner in product(*near)]
            best = corners[0]
            for corner in corners[1:]:
                best = apply("max", best, corner)
            return cast(Reduce("max", samples, best), out.type)
        return cast(Reduce("sum", samples, _sum(x, (batch, c), near)) / (many * many), out.type)

    build.compute(out, value)


def _in_region(call: Call, d: int, roi: Expr, bin: Expr, sample: Expr, many: int) -> Expr:
    """Where along dimension `d` (0 rows, 1 columns) a sample of a bin is; regions are x1, y1, x2, y2."""
    rois, bins = call.input(1), call.out.shape[2 + d]
    scale = float(call.attribute("spatial_scale", 1.0))
    half = call.attribute("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    first, last = (lifted(rois.load(roi, constant(1 - d + side))) * scale - (0.5 if half else 0) for side in (0, 2))
    size = last - first if half else apply("max", last - first, 1)
    step = size / cast(bins, size.type)
    return first + cast(bin, size.type) * step + (sample + 0.5) * step / many


def _near(place: Expr, size: Expr) -> list[Tap]:
    """The two neighbours of a place; beyond a distance of 1 nothing counts."""
    length = cast(size, place.type)
    inside = (place >= -1) & (place <= length)
    clamped = apply("max", apply("min", place, length - 1), 0)
    first = cast(apply("floor", clamped), INT64)
    part = clamped - apply("floor", clamped)
    return [Tap(_clamped(first, size), 1 - part, inside), Tap(_clamped(first + 1, size), part, inside)]


def _upgrade_roi_align(node: ir.Node, opset: int) -> list[ir.Node] | None:
    """Before 16 coordinates were not shifted by half a pixel."""
    if opset >= 16 or "coordinate_transformation_mode" in node.attributes:
        return None
    return [renewed(node, coordinate_transformation_mode="output_half_pixel")]


_X = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)
_POINTS = np.array([[[[-3, 0.2], [np.inf, 0.5], [0.1, -9]]]], np.float32)

OPERATORS = (
    Operator("DeformConv", _lower_deform_conv),
    Operator(
        "GridSample",
        _lower_grid_sample,
        upgrade=_upgrade_grid_sample,
        cases=(Case("far away", (_X, _POINTS[:, :, ::2]), {"padding_mode": "reflection"}),),
    ),
    Operator("RoiAlign", _lower_roi_align, upgrade=_upgrade_roi_align),
)
