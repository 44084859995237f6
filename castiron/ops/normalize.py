"""Normalizations, as rows of statistics and one element-wise step. Variances take two passes.

Specification: https://onnx.ai/onnx/operators/onnx__BatchNormalization.html, onnx__LayerNormalization.html,
onnx__InstanceNormalization.html, onnx__GroupNormalization.html, onnx__RMSNormalization.html,
onnx__LpNormalization.html, onnx__MeanVarianceNormalization.html, onnx__LRN.html
Opset history: BatchNormalization had five outputs, `spatial`, `is_test` (before 14, 9, 7); the scale of
GroupNormalization was of groups before 21.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor

import numpy as np
import onnx_ir as ir

from castiron.errors import Unsupported
from castiron.ops.common import (
    ZERO,
    integer,
    kept,
    lifted,
    normal_axes,
    normal_axis,
    product,
    renewed,
    rows_of,
    temp_like,
    with_output,
)
from castiron.ops.elementwise import power
from castiron.ops.registry import Call, Case, Operator
from castiron.program.builder import Builder, Tensor
from castiron.program.expr import Expr, Reduce, all_of, apply, cast, constant, select

# Statistics -----------------------------------------------------------------------------------------------------------


def _row(index: Sequence[Expr], axes: Sequence[int]) -> list[Expr]:
    """Where the statistics of the row that holds `index` are."""
    return [ZERO if d in axes else i for d, i in enumerate(index)]


def _mean(call: Call, x: Tensor, axes: Sequence[int], hint: str, value: Callable[..., Expr]) -> Tensor:
    """The mean of `value(*index)` over `axes` of x's shape; dimensions `axes` become 1."""
    count = product([x.shape[a] for a in axes])
    total = temp_like(call.build, x, f"{hint}", kept(x.shape, axes))
    inner = dict(zip(axes, call.build.axes([x.shape[a] for a in axes]), strict=True))

    def mean(*index: Expr) -> Expr:
        terms = value(*(inner[d].var if d in inner else i for d, i in enumerate(index)))
        return Reduce("sum", tuple(inner.values()), terms) / cast(count, total.type)

    return call.build.compute(total, mean)


def _centered(call: Call, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Callable[..., Expr], Callable[..., Expr]]:
    """The mean over `axes`; x minus it at an index; the variance of the row of an index."""
    mean = _mean(call, x, axes, "mean", lambda *i: lifted(x.load(*i)))

    def away(*index: Expr) -> Expr:
        return lifted(x.load(*index)) - mean.load(*_row(index, axes))

    def squared(*index: Expr) -> Expr:
        distance = away(*index)
        return distance * distance

    variance = _mean(call, x, axes, "variance", squared)
    return mean, away, lambda *index: variance.load(*_row(index, axes))


def _one_over_root(call: Call, x: Tensor, axes: Sequence[int], value: Callable[..., Expr]) -> Tensor:
    """1 / sqrt(value + epsilon), a number a row."""
    scale = temp_like(call.build, x, "inverse", kept(x.shape, axes))
    epsilon = call.attribute("epsilon", 1e-5)
    return call.build.compute(scale, lambda *i: constant(1, scale.type) / apply("sqrt", value(*i) + epsilon))


# Operators ------------------------------------------------------------------------------------------------------------


def _lower_batch(call: Call) -> None:
    """x * a + b with a and b of the channels: the form PyTorch computes, and a convolution can take in."""
    if call.attribute("training_mode", 0):
        _lower_batch_training(call)
        return
    x, scale, bias, mean, variance = (call.input(i) for i in range(5))
    build, epsilon = call.build, call.attribute("epsilon", 1e-5)
    a = temp_like(build, x, "scale", scale.shape)
    b = temp_like(build, x, "shift", scale.shape)

    def load(tensor: Tensor, c: Expr) -> Expr:
        return cast(tensor.load(c), a.type)

    build.compute(a, lambda c: load(scale, c) / apply("sqrt", load(variance, c) + epsilon))
    build.compute(b, lambda c: load(bias, c) - load(mean, c) * a.load(c))

    def value(*index: Expr) -> Expr:
        channel = index[1] if x.rank > 1 else ZERO
        return cast(lifted(x.load(*index)) * a.load(channel) + b.load(channel), call.out.type)

    build.compute(call.out, value)


def _lower_batch_training(call: Call) -> None:
    """By the statistics of the batch; the running ones move towards them by 1 - momentum."""
    x, keep = call.input(0), float(call.attribute("momentum", 0.9))
    axes = tuple(d for d in range(x.rank) if d != 1)
    mean, away, variance = _centered(call, x, axes)
    inverse = _one_over_root(call, x, axes, variance)

    def value(*index: Expr) -> Expr:
        scale, bias = (lifted(call.input(i).load(index[1])) for i in (1, 2))
        return cast(away(*index) * inverse.load(*_row(index, axes)) * scale + bias, call.out.type)

    call.build.compute(call.out, value)
    row = [ZERO] * x.rank
    for output, number, found in zip(call.outputs[1:], (3, 4), (mean.load, variance), strict=False):
        if output is None:
            continue

        def moved(c: Expr, number: int = number, found: Callable[..., Expr] = found, out: Tensor = output) -> Expr:
            now = found(*row[:1], c, *row[2:])
            return cast(lifted(call.input(number).load(c)) * keep + now * (1 - keep), out.type)

        call.build.compute(output, moved)


def _lower_layer(call: Call) -> None:
    call = with_output(call, call.input(0).shape)
    x, bias = call.input(0), call.optional(2)
    axes = tuple(range(normal_axis(call, call.attribute("axis", -1), x.rank), x.rank))
    mean, away, variance = _centered(call, x, axes)
    inverse = _one_over_root(call, x, axes, variance)

    def value(*index: Expr) -> Expr:
        scaled = away(*index) * inverse.load(*_row(index, axes)) * lifted(call.input(1).broadcast(index))
        return cast(scaled if bias is None else scaled + lifted(bias.broadcast(index)), call.out.type)

    call.build.compute(call.out, value)
    for output, found in zip(call.outputs[1:], (mean, inverse), strict=False):
        if output is not None:
            _copy(call.build, output, found)


def _copy(build: Builder, out: Tensor, of: Tensor) -> None:
    build.compute(out, lambda *index: cast(of.load(*index), out.type))


def _lower_rms(call: Call) -> None:
    x = call.input(0)
    axes = tuple(range(normal_axis(call, call.attribute("axis", -1), x.rank), x.rank))
    square = _mean(call, x, axes, "square", lambda *i: lifted(x.load(*i)) * lifted(x.load(*i)))
    inverse = _one_over_root(call, x, axes, square.load)

    def value(*index: Expr) -> Expr:
        normal = lifted(x.load(*index)) * inverse.load(*_row(index, axes))
        return cast(normal * cast(call.input(1).broadcast(index), normal.type), call.out.type)

    call.build.compute(call.out, value)


def _lower_instance(call: Call) -> None:
    x, axes = call.input(0), tuple(range(2, call.input(0).rank))
    _, away, variance = _centered(call, x, axes)
    inverse = _one_over_root(call, x, axes, variance)

    def value(*index: Expr) -> Expr:
        scale, bias = (lifted(call.input(i).load(index[1])) for i in (1, 2))
        return cast(away(*index) * inverse.load(*_row(index, axes)) * scale + bias, call.out.type)

    call.build.compute(call.out, value)


def _lower_group(call: Call) -> None:
    """As over [N, groups, channels of the group, …]; scale and bias are of channels (of groups before opset 21)."""
    x, build = call.input(0), call.build
    groups = constant(int(call.attribute("num_groups")))
    inside = x.shape[1] // groups
    shape = (x.shape[0], groups, inside, *x.shape[2:])
    grouped = build.view(build.temp(x.type, shape, f"{x.name}.groups"), x)
    axes = tuple(range(2, len(shape)))
    _, away, variance = _centered(call, grouped, axes)
    inverse = _one_over_root(call, grouped, axes, variance)
    loops = build.axes(shape)
    n, g, c, *rest = index = [a.var for a in loops]
    channel = g * inside + c
    scale, bias = (lifted(t.load(g if t.shape[0] is groups else channel)) for t in (call.input(1), call.input(2)))
    value = away(*index) * inverse.load(*_row(index, axes)) * scale + bias
    build.store(call.out, loops, (n, channel, *rest), cast(value, call.out.type))


def _lower_lp(call: Call) -> None:
    x, p = call.input(0), call.attribute("p", 2)
    axis = normal_axis(call, call.attribute("axis", -1), x.rank)
    norm = temp_like(call.build, x, "norm", kept(x.shape, [axis]))

    def term(*index: Expr) -> Expr:
        element = lifted(x.load(*index))
        return apply("abs", element) if p == 1 else element * element

    rows_of(call.build, norm, [axis], "sum", x.shape, term)

    def value(*index: Expr) -> Expr:
        total = norm.load(*_row(index, [axis]))
        total = total if p == 1 else apply("sqrt", total)
        return cast(select(apply("eq", total, 0), 0, lifted(x.load(*index)) / total), call.out.type)

    call.build.compute(call.out, value)


def _lower_mean_variance(call: Call) -> None:
    x = call.input(0)
    axes = normal_axes(call, call.attribute("axes") or [0, 2, 3], x.rank)
    _, away, variance = _centered(call, x, axes)

    def value(*index: Expr) -> Expr:
        return cast(away(*index) / (apply("sqrt", variance(*index)) + 1e-9), call.out.type)

    call.build.compute(call.out, value)


def _lower_lrn(call: Call) -> None:
    x, size = call.input(0), int(call.attribute("size"))
    alpha, beta, bias = (call.attribute(n, d) for n, d in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    before = floor((size - 1) / 2)
    assert before + ceil((size - 1) / 2) + 1 == size
    (near,) = call.build.axes([size])

    def value(*index: Expr) -> Expr:
        channel = index[1] + near.var - before
        other = lifted(x.load(index[0], channel, *index[2:]))
        inside = all_of([channel >= 0, channel < x.shape[1]])
        total = Reduce("sum", (near,), select(inside, other * other, 0))
        element = lifted(x.load(*index))
        return cast(element / power(total * (alpha / size) + bias, constant(beta, element.type)), call.out.type)

    call.build.compute(call.out, value)


# Upgrades -------------------------------------------------------------------------------------------------------------


def _upgrade_batch(node: ir.Node, opset: int) -> list[ir.Node] | None:
    """Inference has one output; `spatial` 0 (statistics of every element, not of channels) is refused."""
    if opset >= 15:
        return None
    if opset < 9 and not integer(node, "spatial", 1):
        raise Unsupported(f"BatchNormalization {node.name!r}: `spatial` 0 of opset {opset}")
    if integer(node, "training_mode"):
        return None
    return [renewed(node, drop=["spatial", "is_test", "consumed_inputs", "training_mode"], outputs=1)]


def _upgrade_mean_variance(node: ir.Node, opset: int) -> list[ir.Node] | None:
    """The operator of opset 1, with `across_channels` instead of axes."""
    if "across_channels" not in node.attributes:
        return None
    axes = [0, 1, 2, 3] if integer(node, "across_channels") else [0, 2, 3]
    return [renewed(node, drop=["across_channels", "normalize_variance"], axes=axes)]


_X = np.random.default_rng(3).standard_normal((2, 4, 3, 5), np.float32)
_C = np.arange(1, 5, dtype=np.float32)

OPERATORS = (
    Operator("BatchNormalization", _lower_batch, upgrade=_upgrade_batch, cases=(Case("plain", (_X, _C, _C, _C, _C)),)),
    Operator("GroupNormalization", _lower_group),
    Operator("InstanceNormalization", _lower_instance, cases=(Case("offset", (_X + 30, _C, _C)),)),
    Operator(
        "LayerNormalization", _lower_layer, cases=(Case("offset", (_X + 5, np.array([1, 2, 3, 4, 5], np.float32))),)
    ),
    Operator("LpNormalization", _lower_lp),
    Operator("LRN", _lower_lrn),
    Operator("MeanVarianceNormalization", _lower_mean_variance, upgrade=_upgrade_mean_variance),
    Operator("RMSNormalization", _lower_rms),
)
