"""Discrete Fourier transforms as sums of products with a table of the unit circle (exact angles: k*n modulo N).

The table depends on sizes alone, so it belongs to `prepare`. Complex numbers are a last dimension of 2.

Specification: https://onnx.ai/onnx/operators/onnx__DFT.html, onnx__STFT.html
Opset history: DFT 17 had the axis as an attribute, 1 where it was left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import pi

import onnx_ir as ir
from onnx_ir import DataType

from castiron.ops.common import ONE, ZERO, constant_node, fail, integer, lifted, normal_axis, renewed, static, wide
from castiron.ops.registry import Call, Operator
from castiron.program.builder import Builder, Tensor
from castiron.program.expr import Expr, Reduce, apply, cast, constant, select

Complex = tuple[Expr, Expr | None]
"""Real part, and imaginary part where there is one."""


@dataclass(frozen=True)
class Circle:
    """cos and sin of 2 pi m / length for m < length, as tables."""

    length: Expr
    cos: Tensor
    sin: Tensor

    def at(self, k: Expr, n: Expr, sign: int) -> tuple[Expr, Expr]:
        """Parts of exp(sign * 2 pi i k n / length)."""
        m = k * n % self.length
        sine = self.sin.load(m)
        return self.cos.load(m), sine if sign > 0 else -sine


def _circle(build: Builder, length: Expr, type: DataType, hint: str) -> Circle:
    def table(op: str) -> Tensor:
        def value(m: Expr) -> Expr:
            turn = cast(m, DataType.DOUBLE) * (2 * pi) / cast(length, DataType.DOUBLE)
            return cast(apply(op, turn), type)

        return build.compute(build.temp(type, (length,), f"{hint}.{op}"), value)

    return Circle(length, table("cos"), table("sin"))


def _part(circle: Circle, element: Complex, k: Expr, n: Expr, sign: int, imaginary: bool) -> Expr:
    """A part of the product of an element with its place on the circle."""
    (real, other), (cosine, sine) = element, circle.at(k, n, sign)
    if imaginary:
        return real * sine if other is None else real * sine + other * cosine
    return real * cosine if other is None else real * cosine - other * sine


def _element(x: Tensor, index: Sequence[Expr]) -> Complex:
    real = lifted(x.load(*index, ZERO))
    return real, None if x.shape[-1] is ONE else lifted(x.load(*index, ONE))


def _store(call: Call, parts: int, value: Callable[[Sequence[Expr], bool], Expr]) -> None:
    """Stores the real and the imaginary parts of the output."""
    for part in range(parts):
        axes = call.build.axes(call.out.shape[:-1])
        index = [a.var for a in axes]
        element = cast(value(index, part == 1), call.out.type)
        call.build.store(call.out, axes, (*index, constant(part)), element)


def _lower_dft(call: Call) -> None:
    x, out, build = call.input(0), call.out, call.build
    axis = call.known(2, "axis")
    along = normal_axis(call, -2 if axis is None else int(axis.reshape(())), x.rank)
    inverse, onesided = bool(call.attribute("inverse", 0)), bool(call.attribute("onesided", 0))
    size, to_real = x.shape[along], inverse and onesided
    given = call.optional(1)
    length = call.integers(1, "dft_length")[0] if given is not None else (size - 1) * 2 if to_real else size
    circle = _circle(build, length, wide(x.type), out.name)
    used = apply("min", size, length // 2 + 1 if to_real else length)

    def value(index: Sequence[Expr], imaginary: bool) -> Expr:
        (n,) = build.axes([used])
        place = (*index[:along], n.var, *index[along + 1 :])
        term = _part(circle, _element(x, place), index[along], n.var, 1 if inverse else -1, imaginary)
        if to_real:  # the other half is the mirror image
            alone = apply("eq", n.var, 0) | apply("eq", n.var * 2, length)
            term = term * select(alone, constant(1, term.type), constant(2, term.type))
        total = Reduce("sum", (n,), term)
        return total / cast(length, total.type) if inverse else total

    _store(call, 1 if to_real else 2, value)


def _lower_stft(call: Call) -> None:
    x, window, build = call.input(0), call.optional(2), call.build
    step = static(call.integers(1, "frame_step")[0])
    if step is None:
        fail(call, "frame_step must be known at build")
    if call.optional(3) is not None:
        length = call.integers(3, "frame_length")[0]
    elif window is not None:
        length = window.shape[0]
    else:
        fail(call, "neither a window nor a frame_length")
    circle = _circle(build, length, wide(x.type), call.out.name)

    def value(index: Sequence[Expr], imaginary: bool) -> Expr:
        (n,) = build.axes([length])
        batch, frame, k = index
        real, other = _element(x, (batch, frame * step + n.var))
        if window is not None:
            factor = lifted(window.load(n.var))
            real, other = real * factor, None if other is None else other * factor
        return Reduce("sum", (n,), _part(circle, (real, other), k, n.var, -1, imaginary))

    _store(call, 2, value)


def _upgrade_dft(node: ir.Node, opset: int) -> list[ir.Node] | None:
    if opset >= 20:
        return None
    axis = constant_node(integer(node, "axis", 1))
    inputs = [*node.inputs, None][:2]
    return [axis, renewed(node, [*inputs, axis.outputs[0]], drop=["axis"])]


OPERATORS = (
    Operator("DFT", _lower_dft, upgrade=_upgrade_dft),
    Operator("STFT", _lower_stft),
)
