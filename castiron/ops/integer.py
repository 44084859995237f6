"""Products of matrices of bytes, minus zero points: sums of INT32 by the tile kernel `matmul_integer`.

The kernel multiplies unsigned bytes by signed ones. Other bytes are moved by 128, and so are their zero points; these come
off the sum afterwards, by the sums of rows and columns:

    sum (a - za)(b - zb) = sum a b - za sum b - zb sum a + k za zb

Where `b` is a constant its panels and sums are made at build; a zero point known to be 0 costs nothing.

Specification: https://onnx.ai/onnx/operators/onnx__MatMulInteger.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx_ir import DataType

from castiron.ops.common import ONE, ZERO, scalar_of, static
from castiron.ops.matmul import BATCH, multiply
from castiron.ops.registry import Call, Case, Operator
from castiron.program.builder import Builder, Tensor
from castiron.program.expr import Expr, Load, Reduce, cast, constant, select
from castiron.program.kernels import FOUR, PANEL
from castiron.program.types import Kind

INT32 = DataType.INT32
HALF = 128
Zero = Callable[[Sequence[Expr]], Expr]
"""The zero point that belongs to an index of the product, as INT32."""


def multiply_integers(
    build: Builder, out: Tensor, a: Tensor, a_zero: Tensor | None, b: Tensor, b_zero: Tensor | None
) -> None:
    """`out = (a - a_zero) @ (b - b_zero)` by NumPy's rules, INT32 modulo 2^32, of INT8 and UINT8.

    A zero point is one number, one a row of `a` or a column of `b`, or an array that broadcasts to these."""
    objection = _objection(out, a, b)
    if objection:
        build.remark(f"loops, not the matmul_integer kernel: {objection}")
        return multiply(build, out, _centered(build, a, a_zero, -2), _centered(build, b, b_zero, -1))
    shift_a, shift_b = HALF * (a.type == DataType.INT8), -HALF * (b.type == DataType.UINT8)
    za, zb = (_moved(zero, axis, by) for zero, axis, by in ((a_zero, -2, shift_a), (b_zero, -1, shift_b)))
    if za is None and zb is None:
        return _product(build, out, _rows(build, a, shift_a), _panels(build, b, shift_b), b)
    total = build.temp(INT32, out.shape, f"{out.name}.bytes")
    _product(build, total, _rows(build, a, shift_a), _panels(build, b, shift_b), b)
    columns = None if za is None else _sums(build, b, shift_b, -2)
    rows = None if zb is None else _sums(build, a, shift_a, -1)

    def value(*index: Expr) -> Expr:
        found = total.load(*index)
        if za is not None and columns is not None:
            found = found - za(index) * columns.broadcast((*index[:-2], index[-1]))
        if zb is not None and rows is not None:
            found = found - zb(index) * rows.broadcast(index[:-1])
        return found if za is None or zb is None else found + za(index) * zb(index) * cast(a.shape[-1], INT32)

    build.compute(out, value)
    return None


def entry(tensor: Tensor, axis: int) -> Zero:
    """A number, or one an entry of a dimension of the index, or what broadcasts to the index; in the tensor's type."""
    if tensor.rank == 0 or all(static(size) == 1 for size in tensor.shape):
        return lambda index: scalar_of(tensor)
    if tensor.rank == 1:
        return lambda index: tensor.load(index[axis])
    return lambda index: tensor.broadcast(index)


def _objection(out: Tensor, a: Tensor, b: Tensor) -> str:
    """Why the kernel does not fit, or ""."""
    if a.rank < 2 or b.rank < 2 or b.shape[-1] is ONE:
        return "one operand is a vector"
    return f"more than {BATCH} batch dimensions" if out.rank - 2 > BATCH else ""


def _moved(zero: Tensor | None, axis: int, by: int) -> Zero | None:
    """The zero point of bytes that are moved by so much; None where it is known to be 0."""
    if zero is None:
        return (lambda index: constant(by, INT32)) if by else None
    known = zero.value if zero.buffer.kind == Kind.CONSTANT else None
    if known is not None and known.size and (known == known.flat[0]).all():
        number = int(known.flat[0]) + by
        return (lambda index: constant(number, INT32)) if number else None
    at = entry(zero, axis)
    return lambda index: cast(at(index), INT32) + by


def _byte(tensor: Tensor, index: Sequence[Expr], by: int, type: DataType) -> Expr:
    """An element moved to where `type` holds it."""
    found = tensor.load(*index)
    return cast(cast(found, INT32) + by, type) if by else found


def _fours(terms: Expr) -> Expr:
    return (terms + (FOUR - 1)) // FOUR


def _rows(build: Builder, a: Tensor, by: int) -> Tensor:
    """`a` as unsigned bytes, its rows filled up to whole fours."""
    terms = a.shape[-1]
    whole = terms % FOUR is ZERO
    if whole and not by:
        return a
    rows = build.temp(DataType.UINT8, (*a.shape[:-1], _fours(terms) * FOUR), f"{a.name}.rows")

    def value(*index: Expr) -> Expr:
        found = _byte(a, index, by, DataType.UINT8)
        return found if whole else select(index[-1] < terms, found, 0)

    return build.compute(rows, value)


def _panels(build: Builder, b: Tensor, by: int) -> Tensor:
    """`b` as signed bytes, [batch…, ceil(columns / 16), ceil(terms / 4), 16, 4], filled up with zeros."""
    *batch, terms, columns = b.shape
    panels = (columns + (PANEL - 1)) // PANEL
    packed = build.temp(DataType.INT8, (*batch, panels, _fours(terms), PANEL, FOUR), f"{b.name}.panels")

    def value(*index: Expr) -> Expr:
        *outer, panel, four, column, term = index
        column, term = panel * PANEL + column, four * FOUR + term
        found = _byte(b, (*outer, term, column), by, DataType.INT8)
        for at, size, step in ((term, terms, FOUR), (column, columns, PANEL)):
            found = found if size % step is ZERO else select(at < size, found, 0)
        return found

    return build.compute(packed, value)


def _sums(build: Builder, tensor: Tensor, by: int, axis: int) -> Tensor:
    """The sums of moved bytes along one of the last two dimensions."""
    shape = [size for d, size in enumerate(tensor.shape) if d != tensor.rank + axis]
    out = build.temp(INT32, shape, f"{tensor.name}.sums")
    (inner,) = build.axes([tensor.shape[axis]])

    def value(*index: Expr) -> Expr:
        place = [*index[: tensor.rank + axis], inner.var, *index[tensor.rank + axis :]]
        return Reduce("sum", (inner,), cast(tensor.load(*place), INT32) + by)

    return build.compute(out, value)


def _product(build: Builder, out: Tensor, rows: Tensor, panels: Tensor, b: Tensor) -> None:
    """The sums of products of bytes."""
    axes = build.axes(out.shape)
    (k,) = build.axes([rows.shape[-1]])
    *batch, row, _ = axes
    outer = [axis.var for axis in batch]
    left = [
        ZERO if size is ONE else i for i, size in zip(outer[len(outer) - rows.rank + 2 :], rows.shape, strict=False)
    ]
    right = [ZERO if size is ONE else i for i, size in zip(outer[len(outer) - b.rank + 2 :], b.shape, strict=False)]
    operands: dict[str, Expr] = {
        "rows": rows.load(*left[: rows.rank - 2], row.var, k.var),
        "panels": Load(panels.name, (*right[: b.rank - 2], ZERO, ZERO, ZERO, ZERO), panels.type),
    }
    unused = build.axes([ONE] * (BATCH - len(batch)))
    build.tile_kernel("matmul_integer", out, (*unused, *axes), (k,), operands, [axis.var for axis in axes])


def _centered(build: Builder, x: Tensor, zero: Tensor | None, axis: int) -> Tensor:
    """x minus its zero point as INT32."""
    out = build.temp(INT32, x.shape, f"{x.name}.centered")
    at = None if zero is None else entry(zero, axis)
    return build.compute(
        out, lambda *i: cast(x.load(*i), INT32) - (cast(at(i), INT32) if at is not None else constant(0, INT32))
    )


def _lower(call: Call) -> None:
    multiply_integers(call.build, call.out, call.input(0), call.optional(2), call.input(1), call.optional(3))


def _bytes(type: np.dtype[Any], *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8).view(type)


I8, U8 = np.dtype(np.int8), np.dtype(np.uint8)

OPERATORS = (
    Operator(
        "MatMulInteger",
        _lower,
        cases=(
            Case("signed", (_bytes(I8, 5, 9), _bytes(I8, 9, 17))),
            Case("unsigned", (_bytes(U8, 3, 8), _bytes(U8, 8, 20), np.array([3], U8), np.array([200], U8))),
            Case("batches", (_bytes(U8, 2, 1, 4, 6), _bytes(I8, 3, 6, 33), np.array(7, U8))),
            Case("rows and columns", (_bytes(I8, 3, 7), _bytes(U8, 7, 5), _bytes(I8, 3, 1), _bytes(U8, 5))),
        ),
    ),
)
