"""Convolutions and their transposes, in one to three spatial dimensions (plain sums beyond).

FLOAT goes through the tile kernel `conv`: the border is written into a padded copy of the input (nothing where there is
no padding), the filter is packed into panels of 16 output channels, the bias is an element-wise step that fusion puts
into the kernel's epilogue. One input channel a group for few outputs (depthwise) is a plain sum over the taps, channels
being an axis.
A transposed convolution with strides is one convolution for each remainder of the output position by the stride, with
the taps that reach it.

Specification: https://onnx.ai/onnx/operators/onnx__Conv.html, onnx__ConvTranspose.html, onnx__ConvInteger.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import gcd

import numpy as np
from onnx_ir import DataType

from castiron.ops.common import ONE, ZERO, fail, lifted, scalar_of, static, wide
from castiron.ops.matmul import panel_operand, panels
from castiron.ops.registry import Call, Case, Operator
from castiron.ops.windows import Window, bordered, windows
from castiron.program.builder import Builder, Tensor
from castiron.program.expr import Axis, Expr, Reduce, apply, cast, constant

SPATIAL = 3
"""Spatial axes of the kernel."""


@dataclass(frozen=True)
class Line:
    """One spatial dimension of one convolution: for o < extent and t < taps, output `offset + spacing*o` takes input

    `start + stride*o + dilation*t` times tap `first + step*t` of the filter."""

    extent: Expr
    taps: int
    start: Expr
    stride: int
    dilation: int
    offset: int = 0
    spacing: int = 1
    first: int = 0
    step: int = 1

    def input(self, o: Expr, t: Expr) -> Expr:
        return self.start + o * self.stride + t * self.dilation

    def output(self, o: Expr) -> Expr:
        return o * self.spacing + self.offset

    def tap(self, t: Expr) -> Expr:
        return t * self.step + self.first


def _taps(lines: Sequence[Line], taps: Sequence[Expr]) -> list[Expr]:
    """Where in the filter the taps of each line are."""
    return [line.tap(t) for line, t in zip(lines, taps, strict=True)]


def _index(axis: Axis) -> Expr:
    """The axis' variable; 0 where it takes no other value."""
    return ZERO if axis.extent is ONE else axis.var


FEW = 8
"""Output channels a group below which most of a panel of the kernel would be padding."""


@dataclass(frozen=True)
class Convolution:
    """`x` holds its border. `weight(group, channel out, channel in, *taps)` is an element; channels are the group's."""

    build: Builder
    out: Tensor
    x: Tensor
    name: str
    weight: Callable[..., Expr]
    groups: Expr
    inputs: Expr  # channels a group
    outputs: Expr

    def run(self, lines: Sequence[Line]) -> None:
        """Adds the steps of one convolution over `lines`."""
        if any(line.taps == 0 for line in lines):
            self._zeros(lines)
        elif objection := self._objection(lines):
            self.build.remark(f"loops, not the conv kernel: {objection}")
            self._sum(lines)
        else:
            self._kernel(lines)

    def _objection(self, lines: Sequence[Line]) -> str:
        """Why the kernel does not fit, or ""."""
        if self.out.type != DataType.FLOAT:
            return f"it computes float32, not {self.out.type.name.lower()}"
        if self.inputs is ONE and any(self.outputs is constant(n) for n in range(FEW)):
            return "one input channel a group leaves it nothing to sum over but the taps, for few outputs"
        return "" if len(lines) <= SPATIAL else f"it has {SPATIAL} spatial dimensions"

    def _place(self, n: Expr, channel: Expr, lines: Sequence[Line], at: Sequence[Expr]) -> list[Expr]:
        return [n, channel, *(line.output(o) for line, o in zip(lines, at, strict=True))]

    def _zeros(self, lines: Sequence[Line]) -> None:
        n, c, *at = axes = self.build.axes([*self.out.shape[:2], *(line.extent for line in lines)])
        place = self._place(n.var, c.var, lines, [a.var for a in at])
        self.build.store(self.out, axes, place, constant(0, self.out.type))

    def _operand(
        self, lines: Sequence[Line], g: Axis, c: Expr, n: Axis, at: Sequence[Axis], taps: Sequence[Axis]
    ) -> Expr:
        place = [line.input(o.var, t.var) for line, o, t in zip(lines, at, taps, strict=True)]
        return self.x.load(n.var, _index(g) * self.inputs + c, *place)

    def _packed(self, lines: Sequence[Line]) -> Tensor:
        unused = SPATIAL - len(lines)

        def element(g: Expr, o: Expr, *rest: Expr) -> Expr:
            return self.weight(g, o, rest[-1], *_taps(lines, rest[unused:SPATIAL]))

        depth = [*([ONE] * unused), *(constant(line.taps) for line in lines), self.inputs]
        return panels(self.build, self.name, (self.groups,), self.outputs, depth, element)

    def _kernel(self, lines: Sequence[Line]) -> None:
        build, unused = self.build, [ONE] * (SPATIAL - len(lines))
        n, g, *at, o = axes = build.axes(
            [self.out.shape[0], self.groups, *unused, *(line.extent for line in lines), self.outputs]
        )
        *taps, c = inner = build.axes([*unused, *(line.taps for line in lines), self.inputs])
        used = len(unused)
        x = self._operand(lines, g, c.var, n, at[used:], taps[used:])
        operands = {"x": x, "filter": panel_operand(self._packed(lines), (_index(g),))}
        channel = _index(g) * self.outputs + o.var
        place = self._place(n.var, channel, lines, [a.var for a in at[used:]])
        build.tile_kernel("conv", self.out, axes, inner, operands, place)

    def _sum(self, lines: Sequence[Line]) -> None:
        """A reduction an element, over taps and channels; with one channel a group over the taps alone."""
        build, depthwise = self.build, self.inputs is ONE
        n, g, *at = build.axes([self.out.shape[0], self.groups, *(line.extent for line in lines)])
        outputs = () if self.outputs is ONE else build.axes([self.outputs])
        taps = build.axes([line.taps for line in lines])
        channels = () if depthwise else build.axes([self.inputs])
        o, c = (axes[0].var if axes else ZERO for axes in (outputs, channels))
        element = self._by_taps(lines) if depthwise else self._at_taps(lines)
        x = self._operand(lines, g, c, n, at, taps)
        w = element(_index(g), o, c, *(t.var for t in taps))
        value = Reduce("sum", (*taps, *channels), lifted(x) * lifted(w))
        place = self._place(n.var, _index(g) * self.outputs + o, lines, [a.var for a in at])
        build.store(self.out, (n, g, *outputs, *at), place, cast(value, self.out.type))

    def _at_taps(self, lines: Sequence[Line]) -> Callable[..., Expr]:
        return lambda g, o, c, *taps: self.weight(g, o, c, *_taps(lines, taps))

    def _by_taps(self, lines: Sequence[Line]) -> Callable[..., Expr]:
        """The filter of a depthwise convolution as [taps…, groups, outputs]: neighbouring channels are neighbours."""
        shape = [*(constant(line.taps) for line in lines), self.groups, self.outputs]
        packed = self.build.temp(self.out.type, shape, f"{self.name}.by_taps")

        def value(*index: Expr) -> Expr:
            return lifted(self.weight(index[-2], index[-1], ZERO, *_taps(lines, index[:-2])))

        self.build.compute(packed, value)
        return lambda g, o, c, *taps: packed.load(*taps, g, o)


def _finish(call: Call, convolve: Callable[[Tensor], None]) -> None:
    """The convolution, and the bias where there is one."""
    bias, out = call.optional(2), call.out
    if bias is None and out.type == wide(out.type):
        return convolve(out)
    total = call.build.temp(wide(out.type), out.shape, f"{out.name}.sum")
    convolve(total)

    def value(*index: Expr) -> Expr:
        found = total.load(*index)
        return cast(found if bias is None else found + lifted(bias.load(index[1])), out.type)

    call.build.compute(out, value)
    return None


# Conv -----------------------------------------------------------------------------------------------------------------


def _convolve(call: Call, out: Tensor, x: Tensor, w: Tensor) -> None:
    groups = int(call.attribute("group", 1))
    spans = windows(call, x, w.shape[2:], out.shape[2:])
    padded = bordered(call.build, x, [(s.before, s.after) for s in spans])
    outputs = w.shape[0] // groups

    def weight(g: Expr, o: Expr, c: Expr, *taps: Expr) -> Expr:
        return w.load(g * outputs + o, c, *taps)

    convolution = Convolution(call.build, out, padded, w.name, weight, constant(groups), w.shape[1], outputs)
    convolution.run([Line(s.out, s.taps, ZERO, s.stride, s.dilation) for s in spans])


def _lower_conv(call: Call) -> None:
    _finish(call, lambda out: _convolve(call, out, call.input(0), call.input(1)))


def _lower_conv_integer(call: Call) -> None:
    parts = []
    for number in (0, 1):
        x, zero = call.input(number), call.optional(2 + number)
        wider = call.build.temp(DataType.INT32, x.shape, f"{x.name}.centered")

        def value(*index: Expr, x: Tensor = x, zero: Tensor | None = zero) -> Expr:
            found = cast(x.load(*index), DataType.INT32)
            if zero is None:
                return found
            one = zero.load(index[0]) if zero.rank == 1 and zero.shape[0] is not ONE else scalar_of(zero)
            return found - cast(one, DataType.INT32)

        parts.append(call.build.compute(wider, value))
    _convolve(call, call.out, *parts)


# ConvTranspose --------------------------------------------------------------------------------------------------------


def _transposed_windows(call: Call, x: Tensor, w: Tensor) -> list[Window]:
    """Windows over the output: element i of the input is added to output `i*stride + t*dilation - before`."""
    rank, out = x.rank - 2, call.out.shape[2:]
    strides, dilations = (call.attribute(n) or [1] * rank for n in ("strides", "dilations"))
    extra, pads = call.attribute("output_padding") or [0] * rank, call.attribute("pads") or [0] * (2 * rank)
    auto = call.attribute("auto_pad", "NOTSET")
    spans = []
    for d in range(rank):
        taps, before = static(w.shape[2 + d]) or 0, constant(pads[d])
        if auto in ("SAME_UPPER", "SAME_LOWER") or call.attribute("output_shape"):
            whole = (x.shape[2 + d] - 1) * strides[d] + extra[d] + (taps - 1) * dilations[d] + 1
            total = apply("max", whole - out[d], 0)
            before = total // 2 if auto == "SAME_UPPER" else total - total // 2
        if static(before) is None:
            fail(call, "the padding must be known at build")
        spans.append(Window(x.shape[2 + d], out[d], taps, strides[d], dilations[d], before, ZERO))
    return spans


def _phases(span: Window) -> tuple[list[Line], tuple[Expr, Expr]]:
    """A line for each remainder of the output position by the stride, and the border that the input needs."""
    lines, before, after = [], ZERO, ZERO
    common = gcd(span.stride, span.dilation)
    step, apart = span.stride // common, span.dilation // common
    for remainder in range(span.stride):
        extent = (span.out - remainder + (span.stride - 1)) // span.stride
        shift = remainder + (static(span.before) or 0)
        taps = [t for t in range(span.taps) if (shift - t * span.dilation) % span.stride == 0]
        if not taps:
            lines.append(Line(extent, 0, ZERO, 1, 1, remainder, span.stride))
            continue
        # Output r + s*q takes input q + (r + pad - t*dilation)/s: the last tap is the first in the input.
        start = (shift - taps[-1] * span.dilation) // span.stride
        reach = start + (len(taps) - 1) * apart
        lines.append(Line(extent, len(taps), constant(start), 1, apart, remainder, span.stride, taps[-1], -step))
        before = apply("max", before, constant(-start))
        after = apply("max", after, extent + reach - span.size)
    return [replace(line, start=line.start + before) for line in lines], (before, after)


def _convolve_transposed(call: Call, out: Tensor) -> None:
    x, w, groups = call.input(0), call.input(1), int(call.attribute("group", 1))
    phases = [_phases(span) for span in _transposed_windows(call, x, w)]
    padded = bordered(call.build, x, [border for _, border in phases])
    inputs = w.shape[0] // groups

    def weight(g: Expr, o: Expr, c: Expr, *taps: Expr) -> Expr:
        return w.load(g * inputs + c, o, *taps)

    convolution = Convolution(call.build, out, padded, w.name, weight, constant(groups), inputs, w.shape[1])
    for lines in product(*(lines for lines, _ in phases)):
        convolution.run(lines)


def _lower_conv_transpose(call: Call) -> None:
    _finish(call, lambda out: _convolve_transposed(call, out))


def _f(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape, np.float32)


OPERATORS = (
    Operator(
        "Conv",
        _lower_conv,
        cases=(
            Case("groups", (_f(2, 4, 7), _f(6, 2, 3), _f(6)), {"group": 2, "pads": [1, 2], "strides": [2]}),
            Case("depthwise", (_f(1, 3, 6, 5), _f(3, 1, 3, 3), _f(3)), {"group": 3, "pads": [1, 1, 1, 1]}),
            Case("multiplier", (_f(1, 3, 6, 5), _f(6, 1, 3, 3)), {"group": 3, "dilations": [2, 1]}),
            Case("large multiplier", (_f(2, 1, 40), _f(20, 1, 9)), {"strides": [4]}),
            Case("three dimensions", (_f(1, 2, 4, 5, 6), _f(17, 2, 2, 3, 1)), {"strides": [1, 2, 2]}),
            Case("four dimensions", (_f(1, 2, 3, 3, 3, 3), _f(2, 2, 2, 2, 2, 2)), {}),
            Case(
                "double", (_f(1, 2, 9).astype(np.float64), _f(3, 2, 3).astype(np.float64)), {"auto_pad": "SAME_LOWER"}
            ),
        ),
    ),
    Operator("ConvInteger", _lower_conv_integer),
    Operator(
        "ConvTranspose",
        _lower_conv_transpose,
        cases=(
            Case("stride 3", (_f(1, 2, 5), _f(2, 3, 4), _f(3)), {"strides": [3], "pads": [1, 2]}),
            Case("stride beyond taps", (_f(1, 2, 5), _f(2, 3, 2)), {"strides": [4]}),
            Case("dilated", (_f(1, 2, 5), _f(2, 3, 3)), {"strides": [2], "dilations": [3], "output_padding": [1]}),
            Case("depthwise", (_f(1, 3, 4), _f(3, 1, 4)), {"strides": [2], "group": 3, "pads": [1, 1]}),
        ),
    ),
)
