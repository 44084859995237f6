"""Resize: each resized dimension has a table of taps and weights, an output element is the weighted sum over them.

The tables are arrays that a step computes (in double precision) from sizes alone: with sizes known at build that step
belongs to `prepare`. Whole factors of nearest neighbours are plain index arithmetic.

Specification: https://onnx.ai/onnx/operators/onnx__Resize.html, onnx__Upsample.html
Opset history: Resize 10 had scales as input 1, no roi, and asymmetric coordinates rounded down, as Upsample (1-9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType

from castiron.ops.common import ZERO, constant_node, fail, lifted, normal_axes, renewed, static, wide
from castiron.ops.registry import Call, Case, Operator
from castiron.program.builder import Builder, Tensor
from castiron.program.expr import BOOL, INT64, Const, Expr, Reduce, apply, cast, constant, select

DOUBLE = DataType.DOUBLE


@dataclass(frozen=True)
class Sampling:
    """How one dimension is resized: `scale` = output / input as DOUBLE, `crop` the region's ends (roi)."""

    call: Call
    size: Expr
    out: Expr
    scale: Expr
    crop: tuple[Expr, Expr] | None

    def coordinate(self, i: Expr) -> Expr:
        """Where output i lies in the input, as DOUBLE."""
        x, size, out = (cast(e, DOUBLE) for e in (i, self.size, self.out))
        mode = self.call.attribute("coordinate_transformation_mode", "half_pixel")
        if mode == "asymmetric":
            return x / self.scale
        if mode == "align_corners":
            return select(apply("eq", self.out, 1), constant(0, DOUBLE), x * (size - 1) / (out - 1))
        if mode == "tf_crop_and_resize":
            return self._cropped(x, size, out)
        centered = (x + 0.5) / self.scale - 0.5
        if mode == "pytorch_half_pixel":
            return select(apply("eq", self.out, 1), constant(0, DOUBLE), centered)
        if mode == "half_pixel_symmetric":
            return size / 2 * (1 - out / (self.scale * size)) + centered
        if mode != "half_pixel":
            fail(self.call, f"coordinate_transformation_mode {mode}")
        return centered

    def _cropped(self, x: Expr, size: Expr, out: Expr) -> Expr:
        assert self.crop is not None
        start, end = (cast(e, DOUBLE) for e in self.crop)
        along = start * (size - 1) + x * (end - start) * (size - 1) / (out - 1)
        return select(apply("eq", self.out, 1), (start + end) * 0.5 * (size - 1), along)

    def outside(self, i: Expr) -> Expr:
        """Whether output i lies beyond the input (tf_crop_and_resize gives it the extrapolation value)."""
        x = self.coordinate(i)
        return (x < 0) | (x > cast(self.size - 1, DOUBLE))

    # taps: how many, where from, and their weights

    @property
    def taps(self) -> int:
        return {"nearest": 1, "linear": 2, "cubic": 4}[self.call.attribute("mode", "nearest")]

    def first(self, i: Expr) -> Expr:
        """The first tap of output i as INT64, possibly outside."""
        x = self.coordinate(i)
        if self.taps == 1:
            return cast(_nearest(self.call.attribute("nearest_mode", "round_prefer_floor"), x), INT64)
        return cast(apply("floor", x), INT64) - (self.taps // 2 - 1)

    def weights(self, i: Expr) -> list[Expr]:
        """The weight of each tap of output i, as DOUBLE; those outside are left out where the node says so."""
        if self.taps == 1:
            return [constant(1, DOUBLE)]
        x = self.coordinate(i)
        part = x - apply("floor", x)
        found = [1 - part, part] if self.taps == 2 else cubic(part, self.call.attribute("cubic_coeff_a", -0.75))
        if not self.call.attribute("exclude_outside", 0):
            return found
        place = [self.first(i) + t for t in range(self.taps)]
        found = [select((p >= 0) & (p < self.size), w, 0) for p, w in zip(place, found, strict=True)]
        total = found[0]
        for weight in found[1:]:
            total = total + weight
        return [w / total for w in found]

    def factor(self) -> int | None:
        """The whole factor by which nearest neighbours repeat, or None."""
        scale = self.scale.value if isinstance(self.scale, Const) else None
        if self.taps != 1 or self.crop or scale is None or scale < 1 or scale != int(scale):
            return None
        if self.out is not self.size * int(scale):
            return None
        sample = Sampling(self.call, constant(8), constant(8 * int(scale)), self.scale, None)
        places = [static(sample.first(constant(i))) for i in range(8 * int(scale))]
        return int(scale) if places == [i // int(scale) for i in range(8 * int(scale))] else None


def _nearest(mode: str, x: Expr) -> Expr:
    if mode == "round_prefer_floor":
        return apply("ceil", x - 0.5)
    if mode == "round_prefer_ceil":
        return apply("floor", x + 0.5)
    return apply("floor" if mode == "floor" else "ceil", x)


def cubic(t: Expr, a: float) -> list[Expr]:
    """Keys' kernel at distances 1 + t, t, 1 - t, 2 - t."""
    return [_far(t + 1, a), _near(t, a), _near(1 - t, a), _far(2 - t, a)]


def _near(d: Expr, a: float) -> Expr:
    return (d * (a + 2) - (a + 3)) * d * d + 1


def _far(d: Expr, a: float) -> Expr:
    return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a


# Reading the node -----------------------------------------------------------------------------------------------------


def _samplings(call: Call) -> dict[int, Sampling]:
    """The dimensions that change."""
    x, out = call.input(0), call.out
    given = call.attribute("axes")
    axes = normal_axes(call, given, x.rank) if given else tuple(range(x.rank))
    scales = _scales(call, axes)
    crop = call.attribute("coordinate_transformation_mode") == "tf_crop_and_resize"
    region = call.known(1, "roi") if crop else None
    found = {}
    for number, (axis, scale) in enumerate(zip(axes, scales, strict=True)):
        ends = None
        if region is not None:
            ends = (constant(float(region[number]), DOUBLE), constant(float(region[len(axes) + number]), DOUBLE))
        same = isinstance(scale, Const) and scale.value == 1 and out.shape[axis] is x.shape[axis]
        if not same or ends not in (None, (constant(0, DOUBLE), constant(1, DOUBLE))):
            found[axis] = Sampling(call, x.shape[axis], out.shape[axis], scale, ends)
    return found


def _scales(call: Call, axes: Sequence[int]) -> list[Expr]:
    """Output size / input size of each axis: as given, or by the sizes."""
    x, out, scales = call.input(0), call.out, call.optional(2)
    if scales is not None and not (scales.rank == 1 and scales.shape[0] is ZERO):
        known = call.known(2, "scales")
        assert known is not None
        return [constant(float(s), DOUBLE) for s in known]
    policy = call.attribute("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch" or call.optional(3) is None:
        return [_ratio(out.shape[a], x.shape[a]) for a in axes]
    ratios = [_ratio(s, x.shape[a]) for s, a in zip(call.integers(3, "sizes"), axes, strict=True)]
    scale = ratios[0]
    for ratio in ratios[1:]:
        scale = apply("min" if policy == "not_larger" else "max", scale, ratio)
    return [scale] * len(axes)


def _ratio(out: Expr, size: Expr) -> Expr:
    return constant(1, DOUBLE) if out is size else cast(out, DOUBLE) / cast(size, DOUBLE)


# Lowering -------------------------------------------------------------------------------------------------------------


Tap = Callable[[Expr], tuple[Expr, Expr]]
"""Output index -> where the tap is in the input, and its weight."""


def _tables(build: Builder, axis: int, s: Sampling, type: DataType) -> list[Tap]:
    """The taps of a dimension, in tables that steps of their own fill."""
    name = f"{s.call.out.name}.dim{axis}"
    places = build.temp(INT64, (s.out, s.taps), f"{name}.taps")
    i, t = build.axes(places.shape)
    clamped = apply("max", apply("min", s.first(i.var) + t.var, s.size - 1), 0)
    build.store(places, (i, t), (i.var, t.var), clamped)
    if s.taps == 1:
        return [lambda o: (places.load(o, ZERO), constant(1, type))]
    weights = build.temp(type, (s.out, s.taps), f"{name}.weights")

    def weight(o: Expr, tap: Expr) -> Expr:
        chosen = s.weights(o)
        found = chosen[-1]
        for number in range(len(chosen) - 2, -1, -1):
            found = select(apply("eq", tap, number), chosen[number], found)
        return cast(found, type)

    build.compute(weights, weight)

    def tap(number: Expr) -> Tap:
        return lambda o: (places.load(o, number), weights.load(o, number))

    return [tap(constant(t)) for t in range(s.taps)]


def _lower(call: Call) -> None:
    x, samplings = call.input(0), _samplings(call)
    if call.attribute("antialias", 0) and samplings and call.attribute("mode", "nearest") != "nearest":
        return _lower_antialias(call, x, samplings)
    factors = {axis: s.factor() for axis, s in samplings.items()}
    if all(f is not None for f in factors.values()):
        return _repeat(call, x, {axis: f for axis, f in factors.items() if f is not None})
    type = wide(x.type)
    tables = {axis: _tables(call.build, axis, s, type) for axis, s in samplings.items()}

    def value(*index: Expr) -> Expr:
        total = _weighted(x, list(index), sorted(tables), tables)
        if call.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
            beyond = constant(False, BOOL)
            for axis, s in samplings.items():
                beyond = beyond | s.outside(index[axis])
            total = select(beyond, call.attribute("extrapolation_value", 0.0), total)
        return cast(total, x.type)

    call.build.compute(call.out, value)
    return None


def _weighted(x: Tensor, index: list[Expr], axes: Sequence[int], tables: dict[int, list[Tap]]) -> Expr:
    """The sum over the taps of the first axis of the sums over those of the others."""
    if not axes:
        return lifted(x.load(*index))
    axis, *rest = axes
    total: Expr | None = None
    for tap in tables[axis]:
        place, weight = tap(index[axis])
        term = _weighted(x, [place if d == axis else i for d, i in enumerate(index)], rest, tables)
        if len(tables[axis]) > 1:
            term = term * cast(weight, term.type)
        total = term if total is None else total + term
    assert total is not None
    return total


def _lower_antialias(call: Call, x: Tensor, samplings: dict[int, Sampling]) -> None:
    """Where a dimension shrinks, its kernel is as much wider: a sum over all taps of all dimensions."""
    build, type = call.build, wide(x.type)
    places, weights = {}, {}
    for axis, s in samplings.items():
        scale = float(s.scale.value) if isinstance(s.scale, Const) else None
        if scale is None:
            fail(call, "antialias with sizes that are not known at build")
        places[axis], weights[axis] = _wide_tables(build, axis, s, min(scale, 1.0), type)

    def value(*index: Expr) -> Expr:
        source, factor = list(index), None
        axes = build.axes([places[axis].shape[1] for axis in sorted(places)])
        for axis, tap in zip(sorted(places), axes, strict=True):
            source[axis] = places[axis].load(index[axis], tap.var)
            weight = weights[axis].load(index[axis], tap.var)
            factor = weight if factor is None else factor * weight
        assert factor is not None
        return cast(Reduce("sum", axes, lifted(x.load(*source)) * factor), x.type)

    build.compute(call.out, value)


def _wide_tables(build: Builder, axis: int, s: Sampling, scale: float, type: DataType) -> tuple[Tensor, Tensor]:
    """[out, taps]: where the taps of each output are, and their weights, which add up to 1."""
    name, reach, a = f"{s.call.out.name}.dim{axis}", s.taps // 2, float(s.call.attribute("cubic_coeff_a", -0.75))
    first = floor(-reach / scale) + 1
    taps = 2 * (1 - first)
    outside = bool(s.call.attribute("exclude_outside", 0))

    def place(i: Expr, tap: Expr) -> Expr:
        return cast(apply("floor", s.coordinate(i)), INT64) + tap + first

    def weight(i: Expr, tap: Expr) -> Expr:
        x = s.coordinate(i)
        away = apply("abs", (cast(tap + first, DOUBLE) - (x - apply("floor", x))) * scale)
        found = apply("max", 1 - away, 0) if reach == 1 else _keys(away, a)
        at = place(i, tap)
        return select((at >= 0) & (at < s.size), found, 0) if outside else found

    places = build.temp(INT64, (s.out, taps), f"{name}.taps")
    build.compute(places, lambda i, tap: apply("max", apply("min", place(i, tap), s.size - 1), 0))
    raw, total = build.temp(DOUBLE, places.shape, f"{name}.raw"), build.temp(DOUBLE, (s.out,), f"{name}.total")
    build.compute(raw, weight)
    (along,) = build.axes([taps])
    build.compute(total, lambda i: Reduce("sum", (along,), raw.load(i, along.var)))
    weights = build.temp(type, places.shape, f"{name}.weights")
    return places, build.compute(weights, lambda i, tap: cast(raw.load(i, tap) / total.load(i), type))


def _keys(d: Expr, a: float) -> Expr:
    """Keys' kernel at a distance."""
    near, far = _near(d, a), _far(d, a)
    return select(d <= 1, near, select(d < 2, far, 0))


def _repeat(call: Call, x: Tensor, factors: dict[int, int]) -> None:
    """Nearest neighbours by whole factors."""
    shape: list[Expr | int] = []
    for axis, size in enumerate(x.shape):
        shape += [size, factors[axis]] if axis in factors else [size]
    axes = call.build.axes(shape)
    variables = iter(a.var for a in axes)
    source: list[Expr] = []
    target: list[Expr] = []
    for axis in range(x.rank):
        i = next(variables)
        source.append(i)
        target.append(i * factors[axis] + next(variables) if axis in factors else i)
    call.build.store(call.out, axes, target, x.load(*source))


# Upgrades -------------------------------------------------------------------------------------------------------------


def _upgrade_resize(node: ir.Node, opset: int) -> list[ir.Node] | None:
    if opset >= 11:
        return None
    linear = "mode" in node.attributes and node.attributes["mode"].as_string() in ("linear", "bilinear")
    return [
        renewed(
            node,
            [node.inputs[0], None, node.inputs[1]],
            mode="linear" if linear else "nearest",
            op_type="Resize",
            drop=["scales", "height_scale", "width_scale"],
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
    ]


def _upgrade_upsample(node: ir.Node, opset: int) -> list[ir.Node] | None:
    if len(node.inputs) > 1:
        return _upgrade_resize(node, 9)
    given = node.attributes.get("scales")
    if given is None:
        sides = [node.attributes[n].as_float() for n in ("height_scale", "width_scale")]
        values = [1.0, 1.0, *sides]
    else:
        values = [float(s) for s in given.as_floats()]
    scales = constant_node(values, DataType.FLOAT)
    return [scales, *(_upgrade_resize(renewed(node, [node.inputs[0], scales.outputs[0]]), 9) or [])]


_X = np.arange(24, dtype=np.float32).reshape(1, 1, 4, 6)


def _scaled(name: str, *scales: float, **attributes: object) -> Case:
    return Case(name, (_X, None, np.array(scales, np.float32)), attributes)


OPERATORS = (
    Operator(
        "Resize",
        _lower,
        upgrade=_upgrade_resize,
        cases=(
            _scaled(
                "whole factors",
                1,
                1,
                2,
                3,
                mode="nearest",
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
            ),
            _scaled("linear", 1, 1, 1.7, 0.6, mode="linear"),
            _scaled("cubic aligned", 1, 1, 2, 1.5, mode="cubic", coordinate_transformation_mode="align_corners"),
        ),
    ),
    Operator("Upsample", _lower, upgrade=_upgrade_upsample),
)
