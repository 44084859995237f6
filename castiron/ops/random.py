"""Random numbers: a hash of the element's number and the seed, so that each run of an artifact gives the same ones.

The seed is the node's; a node without one takes its own name, so that nodes differ. Uniform numbers have 24 bits (53 for
DOUBLE); normal ones are made of two uniform ones (Box and Muller).
The hash is `lowbias32` of https://nullprogram.com/blog/2018/07/31/, once for the seed and once for the element.

Specification: https://onnx.ai/onnx/operators/onnx__RandomUniform.html, onnx__RandomNormal.html,
onnx__RandomUniformLike.html, onnx__RandomNormalLike.html, onnx__Bernoulli.html, onnx__Multinomial.html
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from math import pi

import onnx_ir as ir
from onnx_ir import DataType

from castiron.ops.body import Body
from castiron.ops.common import wide
from castiron.ops.registry import Call, Operator
from castiron.program.expr import Expr, apply, cast, constant

UINT32, DOUBLE, INT64 = DataType.UINT32, DataType.DOUBLE, DataType.INT64


def seed_of(call: Call) -> int:
    """32 bits of the node's seed, or of its name."""
    given = call.attribute("seed")
    return zlib.crc32((call.node.name or "").encode() if given is None else struct.pack("<f", given))


def _mixed(x: Expr) -> Expr:
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, None)):
        x = apply("bitxor", x, apply("shr", x, shift))
        x = x if factor is None else x * factor
    return x


def flat_number(index: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The number of an element in row-major order."""
    number: Expr = constant(0)
    for i, size in zip(index, shape, strict=True):
        number = number * size + i
    return number


def bits(number: Expr, seed: int, stream: int) -> Expr:
    """32 random bits for element `number` of a stream of a node."""
    start = _mixed(constant((seed + 0x9E3779B9 * (stream + 1)) % (1 << 32), UINT32))
    return _mixed(apply("bitxor", _mixed(cast(number, UINT32)), start))


def uniform(number: Expr, seed: int, stream: int, type: DataType) -> Expr:
    """In [0, 1), as the type to compute in."""
    high = bits(number, seed, 2 * stream)
    if wide(type) != DOUBLE:
        return cast(apply("shr", high, 8), DataType.FLOAT) * 2.0**-24
    low = bits(number, seed, 2 * stream + 1)
    upper, lower = (cast(apply("shr", part, shift), DOUBLE) for part, shift in ((high, 5), (low, 6)))
    return (upper * 2.0**26 + lower) * 2.0**-53


def normal(number: Expr, seed: int, type: DataType) -> Expr:
    """Of mean 0 and deviation 1."""
    first, second = (uniform(number, seed, stream, type) for stream in (0, 1))
    radius = apply("sqrt", apply("log", constant(1, first.type) - first) * -2)
    return radius * apply("cos", second * (2 * pi))


def _lower(draw: Callable[[Expr, Call], Expr]) -> Callable[[Call], None]:
    def lower(call: Call) -> None:
        out = call.out

        def value(*index: Expr) -> Expr:
            return cast(draw(flat_number(index, out.shape), call), out.type)

        call.build.compute(out, value)

    return lower


def _uniform(number: Expr, call: Call) -> Expr:
    low, high = float(call.attribute("low", 0.0)), float(call.attribute("high", 1.0))
    return uniform(number, seed_of(call), 0, call.out.type) * (high - low) + low


def _normal(number: Expr, call: Call) -> Expr:
    mean, scale = float(call.attribute("mean", 0.0)), float(call.attribute("scale", 1.0))
    return normal(number, seed_of(call), call.out.type) * scale + mean


def _bernoulli(body: Body) -> list[ir.Value]:
    """1 with the probability that the input gives (the specification's function body compares the wrong way round)."""
    p, type = body.input(0), DataType(body.attribute("dtype") or int(body.type))
    drawn = body.op("RandomUniformLike", p, seed=body.attribute("seed"))
    return [body.cast(body.op("Less", drawn, p), type)]


def _multinomial(body: Body) -> list[ir.Value]:
    """How many of the running sums of the probabilities are at most a uniform number."""
    x, count = body.input(0), int(body.attribute("sample_size", 1))
    type = DataType(body.attribute("dtype", int(DataType.INT32)))
    sums = body.op("CumSum", body.op("Softmax", x, axis=1), body.constant(1, INT64))
    shape = body.op("Concat", body.op("Shape", x, start=0, end=1), [count], axis=0)
    drawn = body.op(
        "RandomUniformLike", body.op("ConstantOfShape", shape), dtype=int(body.type), seed=body.attribute("seed")
    )
    behind = body.op("LessOrEqual", body.op("Unsqueeze", sums, [1]), body.op("Unsqueeze", drawn, [2]))
    found = body.op("ReduceSum", body.cast(behind, INT64), [2], keepdims=0)
    last = body.op("Sub", body.op("Shape", x, start=1, end=2), 1)
    return [body.cast(body.op("Min", found, last), type)]


RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)

OPERATORS = (
    Operator("Bernoulli", expand=_bernoulli),
    Operator("Multinomial", expand=_multinomial),
    Operator("RandomNormal", _lower(_normal)),
    Operator("RandomNormalLike", _lower(_normal)),
    Operator("RandomUniform", _lower(_uniform)),
    Operator("RandomUniformLike", _lower(_uniform)),
)
