"""Determinants and inverses of square matrices, by elimination with the largest element of each column as pivot.

Each column is a step of standard operators over whole matrices, so the size must be known at build and small.

Specification: https://onnx.ai/onnx/operators/onnx__Det.html,
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md (Inverse)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType

from castiron.ops.body import Body, rank, size
from castiron.ops.contrib_fused import MICROSOFT
from castiron.ops.registry import Operator

Values = Sequence[ir.Value | None]
LARGEST = 32
"""Rows of the largest matrix: its steps are written out one after the other."""


def _square(body: Body) -> int:
    x = body.input(0)
    count = size(x, -1)
    if rank(x) < 2 or count is None or count != size(x, -2) or count > LARGEST:
        body.fail(f"a matrix that is not square, of a size not known at build, or of more than {LARGEST} rows")
    return count


def _pivoted(body: Body, a: ir.Value, column: int, count: int) -> tuple[ir.Value, ir.Value]:
    """`a` [..., count, m] with the row whose element of `column` is largest, from that row on, in its place.

    And 1, or -1 where rows were exchanged, [..., 1, 1]."""
    element = body.op("Slice", a, [column], [column + 1], [-1])
    sizes = body.op("Slice", body.op("Abs", element), [column], [count], [-2])
    place = body.op("Add", body.op("ArgMax", sizes, axis=-2, keepdims=1), column)  # [..., 1, 1]
    numbers = body.constant(np.arange(count).reshape(count, 1), DataType.INT64)
    here, there = (
        body.constant(np.arange(count).reshape(count, 1) == column, DataType.BOOL),
        body.op("Equal", numbers, place),
    )
    own = body.op("Slice", a, [column], [column + 1], [-2])
    other = body.op("ReduceSum", body.op("Where", there, a, body.constant(0)), [-2], keepdims=1)
    exchanged = body.op("Where", here, other, body.op("Where", there, own, a))
    same = body.op("Equal", place, body.constant(column, DataType.INT64))
    return exchanged, body.op("Where", same, 1.0, -1.0)


def _determinant(body: Body) -> Values:
    """The product of the pivots, with the sign of the exchanges."""
    count, a = _square(body), body.input(0)
    total: ir.Value | None = None
    for column in range(count):
        a, sign = _pivoted(body, a, column, count)
        row = body.op("Slice", a, [column], [column + 1], [-2])
        pivot = body.op("Slice", row, [column], [column + 1], [-1])
        factor = body.op("Mul", pivot, sign)
        total = factor if total is None else body.op("Mul", total, factor)
        if column < count - 1:
            safe = body.op("Where", body.op("Equal", pivot, body.constant(0)), 1.0, pivot)
            share = body.op("Div", body.op("Slice", a, [column], [column + 1], [-1]), safe)
            below = body.constant((np.arange(count) > column).reshape(count, 1))
            a = body.op("Sub", a, body.op("Mul", body.op("Mul", share, below), row))
    assert total is not None
    return [body.op("Squeeze", total, [-2, -1])]


def _inverse(body: Body) -> Values:
    """Elimination of [A | 1] upwards and downwards; a matrix without an inverse gives infinity or NaN."""
    count, a = _square(body), body.input(0)
    zeros = body.op("Mul", a, body.constant(0))
    a = body.op("Concat", a, body.op("Add", zeros, body.constant(np.eye(count))), axis=-1)
    for column in range(count):
        a, _ = _pivoted(body, a, column, count)
        row = body.op("Slice", a, [column], [column + 1], [-2])
        row = body.op("Div", row, body.op("Slice", row, [column], [column + 1], [-1]))
        others = body.constant((np.arange(count) != column).reshape(count, 1))
        share = body.op("Mul", body.op("Slice", a, [column], [column + 1], [-1]), others)
        here = body.constant((np.arange(count) == column).reshape(count, 1), DataType.BOOL)
        a = body.op("Where", here, row, body.op("Sub", a, body.op("Mul", share, row)))
    return [body.op("Slice", a, [count], [2 * count], [-1])]


def _max_unpool(body: Body) -> Values:
    """Elements back at the places that MaxPool gave, in zeros.

    Places count through a tensor of the inferred sizes; what `output_shape` has beyond it is at the end."""
    x, places, wanted = body.input(0), body.input(1), body.known(2)
    sizes = [size(x, d) for d in range(rank(x))]
    kernel = list(body.attribute("kernel_shape"))
    strides = list(body.attribute("strides") or [1] * len(kernel))
    pads = list(body.attribute("pads") or [0] * (2 * len(kernel)))
    if None in sizes or (wanted is None and body.optional(2) is not None):
        body.fail("sizes must be known at build")
    spatial = [
        (int(n or 0) - 1) * s + k - pads[d] - pads[d + len(kernel)]
        for d, (n, s, k) in enumerate(zip(sizes[2:], strides, kernel, strict=True))
    ]
    inferred = [int(sizes[0] or 0), int(sizes[1] or 0), *spatial]
    flat = body.cast(body.op("ConstantOfShape", [int(np.prod(inferred))]), body.type)
    filled = body.op("ScatterElements", flat, body.op("Reshape", places, [-1]), body.op("Reshape", x, [-1]))
    found = body.op("Reshape", filled, inferred)
    more = [0] * rank(x) if wanted is None else [int(n) - m for n, m in zip(wanted, inferred, strict=True)]
    return [body.op("Pad", found, [*[0] * rank(x), *more]) if any(more) else found]


OPERATORS = (
    Operator("Det", expand=_determinant),
    Operator("Inverse", domain=MICROSOFT, expand=_inverse),
    Operator("MaxUnpool", expand=_max_unpool),
)
