"""Products of matrices.

FLOAT goes through the tile kernel `matmul`: the right operand is packed into panels of 16 columns by a step of its own
(which belongs to `prepare` where the operand is a weight), alpha, beta and the third operand of Gemm are an
element-wise step that fusion puts into the kernel's epilogue. Other types are plain sums.

Specification: https://onnx.ai/onnx/operators/onnx__MatMul.html, onnx__Gemm.html
Opset history: Gemm had `broadcast` before 7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx_ir import DataType

from castiron.ops.common import ONE, ZERO, drop_attributes, lifted, product, wide
from castiron.ops.registry import Call, Case, Operator
from castiron.program.builder import Builder, Tensor
from castiron.program.expr import Axis, Const, Expr, Load, Reduce, cast, select
from castiron.program.kernels import PANEL

BATCH = 3
"""Batch axes of the kernel."""

FEW = 64
"""Elements of the right operand up to which loops do without the kernel: its panels would be mostly padding, and a program
of such layers alone needs none of the kernel's code."""


def panels(
    build: Builder, hint: str, batch: Sequence[Expr], columns: Expr, depth: Sequence[Expr], element: Callable[..., Expr]
) -> Tensor:
    """`element(*batch, column, *depth)` packed as [*batch, ceil(columns / 16), *depth, 16], filled up with zeros."""
    packed = build.temp(DataType.FLOAT, (*batch, (columns + (PANEL - 1)) // PANEL, *depth, PANEL), f"{hint}.panels")
    whole = columns % PANEL is ZERO

    def value(*index: Expr) -> Expr:
        column = index[len(batch)] * PANEL + index[-1]
        found = element(*index[: len(batch)], column, *index[len(batch) + 1 : -1])
        return found if whole else select(column < columns, found, 0)

    return build.compute(packed, value)


def panel_operand(packed: Tensor, batch: Sequence[Expr]) -> Expr:
    """The Load that tells a tile kernel where the panels of a batch entry start."""
    return Load(packed.name, (*batch, *(ZERO for _ in packed.shape[len(batch) :])), packed.type)


def product_kernel(
    build: Builder,
    out: Tensor,
    batch: Sequence[Axis],
    row: Axis,
    column: Axis,
    inner: Axis,
    a: Expr,
    b: Expr,
    index: Sequence[Expr],
) -> None:
    """`out[index] = sum over inner of a * b` by the tile kernel; up to three batch axes, `b` from `panel_operand`."""
    unused = build.axes([ONE] * (BATCH - len(batch)))
    build.tile_kernel("matmul", out, (*unused, *batch, row, column), (inner,), {"a": a, "b": b}, index)


# MatMul ---------------------------------------------------------------------------------------------------------------


def _sum_of_products(build: Builder, out: Tensor, a: Tensor, b: Tensor) -> None:
    """Any type, any rank: each element is one reduction over k."""
    (k,) = build.axes([a.shape[-1]])
    type = _sum_type(out, b)

    def value(*index: Expr) -> Expr:
        outer = index[: max(a.rank, b.rank) - 2] if max(a.rank, b.rank) > 2 else ()
        own = index[len(outer) :]
        left = (*outer, own[0], k.var) if a.rank > 1 else (k.var,)
        right = (*outer, k.var, own[-1]) if b.rank > 1 else (k.var,)
        terms = cast(_broadcast(a, left), type) * cast(_broadcast(b, right), type)
        return cast(Reduce("sum", (k,), terms), out.type)

    build.compute(out, value)


def _broadcast(tensor: Tensor, index: Sequence[Expr]) -> Expr:
    """As Tensor.broadcast, for batch dimensions alone."""
    own = list(index[len(index) - tensor.rank :])
    batch = max(tensor.rank - 2, 0)
    return tensor.load(*(ZERO if d < batch and tensor.shape[d] is ONE else i for d, i in enumerate(own)))


def _collapsed(build: Builder, tensor: Tensor) -> Tensor:
    """The batch dimensions as one, as a view."""
    shape = (product(tensor.shape[:-2]), *tensor.shape[-2:])
    return build.view(build.temp(tensor.type, shape, f"{tensor.name}.collapsed"), tensor)


def _by_kernel(build: Builder, out: Tensor, a: Tensor, b: Tensor) -> None:
    """FLOAT operands of rank 2 or more with up to three batch dimensions."""
    packed = panels(build, b.name, b.shape[:-2], b.shape[-1], (b.shape[-2],), lambda *i: b.load(*i[:-2], i[-1], i[-2]))
    axes = build.axes(out.shape)
    (k,) = build.axes([a.shape[-1]])
    *batch, row, column = axes
    index = [axis.var for axis in batch]
    own = [ZERO if size is ONE else i for i, size in zip(index[len(index) - b.rank + 2 :], b.shape[:-2], strict=True)]
    left = _broadcast(a, (*index, row.var, k.var))
    place = [axis.var for axis in axes]
    if row.extent is ONE and batch and (not own or own[-1] is ZERO):
        batch[-1], row = row, batch[-1]  # one row an entry: the entries are the rows
    product_kernel(build, out, batch, row, column, k, left, panel_operand(packed, own), place)


def _objection(out: Tensor, a: Tensor, b: Tensor) -> str:
    """Why the kernel does not fit, or ""."""
    if out.type != DataType.FLOAT:
        return f"it computes float32, not {out.type.name.lower()}"
    if _is_little(b):
        return f"the right operand has no more than {FEW} elements"
    return "one operand is a vector" if a.rank < 2 or b.rank < 2 or b.shape[-1] is ONE else ""


def _sum_type(out: Tensor, b: Tensor) -> DataType:
    """Loops add one term after the other: little sums in float64, so that they are no less exact than the kernel's."""
    return DataType.DOUBLE if out.type == DataType.FLOAT and _is_little(b) else wide(out.type)


def _is_little(b: Tensor) -> bool:
    size = product(b.shape)
    return isinstance(size, Const) and int(size.value) <= FEW


def multiply(build: Builder, out: Tensor, a: Tensor, b: Tensor) -> None:
    """`out = a @ b` by NumPy's rules."""
    objection = _objection(out, a, b)
    if objection:
        build.remark(f"loops, not the matmul kernel: {objection}")
        return _sum_of_products(build, out, a, b)
    if out.rank - 2 <= BATCH:
        return _by_kernel(build, out, a, b)
    same = a.shape[:-2] == out.shape[:-2]
    if not same or (b.rank > 2 and b.shape[:-2] != out.shape[:-2]):
        build.remark(f"loops, not the matmul kernel: more than {BATCH} batch dimensions, some broadcast")
        return _sum_of_products(build, out, a, b)
    short = build.temp(out.type, (product(out.shape[:-2]), *out.shape[-2:]), f"{out.name}.collapsed")
    _by_kernel(build, short, _collapsed(build, a), _collapsed(build, b) if b.rank > 2 else b)
    build.view(out, short)
    return None


def _lower_matmul(call: Call) -> None:
    multiply(call.build, call.out, call.input(0), call.input(1))


# Gemm -----------------------------------------------------------------------------------------------------------------


def _lower_gemm(call: Call) -> None:
    build, out = call.build, call.out
    alpha, beta, c = call.attribute("alpha", 1.0), call.attribute("beta", 1.0), call.optional(2)
    plain = alpha == 1.0 and c is None
    total = out if plain else build.temp(wide(out.type), out.shape, f"{out.name}.product")
    _gemm_product(call, total)
    if plain:
        return

    def value(*index: Expr) -> Expr:
        scaled = total.load(*index) if alpha == 1.0 else total.load(*index) * alpha
        if c is None:
            return cast(scaled, out.type)
        added = lifted(c.broadcast(index))
        return cast(scaled + (added if beta == 1.0 else added * beta), out.type)

    build.compute(out, value)


def _gemm_product(call: Call, out: Tensor) -> None:
    """`out` is the product of the operands, transposed where the node says so."""
    build, a, b = call.build, call.input(0), call.input(1)
    row, column = build.axes(out.shape)
    across_a, across_b = call.attribute("transA", 0), call.attribute("transB", 0)
    (k,) = build.axes([a.shape[0 if across_a else 1]])
    left = a.load(k.var, row.var) if across_a else a.load(row.var, k.var)

    def right(column: Expr, k: Expr) -> Expr:
        return b.load(column, k) if across_b else b.load(k, column)

    place = (row.var, column.var)
    if a.type == DataType.FLOAT and column.extent is not ONE and not _is_little(b):
        packed = panels(build, b.name, (), column.extent, (k.extent,), right)
        product_kernel(build, out, (), row, column, k, left, panel_operand(packed, ()), place)
    else:
        build.remark(f"loops, not the matmul kernel: {_objection(out, a, b) or 'one operand is a vector'}")
        if across_b and _is_little(b):  # columns side by side, so that they become vectors
            b, across_b = (
                build.compute(build.temp(b.type, b.shape[::-1], f"{b.name}.transposed"), lambda k, n: b.load(n, k)),
                0,
            )
        type = _sum_type(out, b)
        terms = cast(left, type) * cast(right(column.var, k.var), type)
        build.store(out, (row, column), place, cast(Reduce("sum", (k,), terms), out.type))


def _f(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


OPERATORS = (
    Operator(
        "Gemm",
        _lower_gemm,
        upgrade=drop_attributes("broadcast", before=7),
        cases=(
            Case("column", (_f(5, 7), _f(7, 1))),
            Case("wide", (_f(7, 3), _f(35, 7), _f(3, 1)), {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
        ),
    ),
    Operator(
        "MatMul",
        _lower_matmul,
        cases=(
            Case("shared right", (_f(5, 1, 8), _f(8, 20))),
            Case("broadcast both", (_f(2, 1, 3, 4), _f(5, 4, 17))),
            Case("five dimensions", (_f(2, 2, 1, 2, 3, 4), _f(2, 2, 1, 2, 4, 5))),
            Case("vectors", (_f(9), _f(9))),
            Case("double", (_f(3, 4).astype(np.float64), _f(2, 4, 3).astype(np.float64))),
        ),
    ),
)
