"""Einsum: a product of two FLOAT operands that is a product of matrices goes to the tile kernel, others are plain sums.

Specification: https://onnx.ai/onnx/operators/onnx__Einsum.html
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx_ir import DataType

from castiron.errors import ModelError
from castiron.ops.common import ONE, ZERO, lifted, reduced
from castiron.ops.matmul import BATCH, panel_operand, panels, product_kernel
from castiron.ops.registry import Call, Case, Operator
from castiron.program.builder import Tensor
from castiron.program.expr import Expr, cast

Labels = tuple[str, ...]


@dataclass(frozen=True)
class Equation:
    """Labels of each operand's dimensions and of the output's; those of an ellipsis are "0", "1", … from the last."""

    operands: tuple[Labels, ...]
    out: Labels

    @property
    def summed(self) -> Labels:
        """Labels that the output has not, in the order they appear."""
        return tuple(dict.fromkeys(label for labels in self.operands for label in labels if label not in self.out))


def parse(equation: str, ranks: list[int]) -> Equation:
    """The equation for operands of these ranks; ModelError where they do not fit."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ModelError(f"Einsum {equation!r}: {len(terms)} terms for {len(ranks)} operands")
    operands = tuple(_labels(t, rank, equation) for t, rank in zip(terms, ranks, strict=True))
    hidden = max((sum(label.isdigit() for label in labels) for labels in operands), default=0)
    if arrow:
        return Equation(operands, _labels(right, len(right.replace("...", "")) + hidden * ("..." in right), equation))
    letters = [label for labels in operands for label in labels if not label.isdigit()]
    once = sorted(label for label in set(letters) if letters.count(label) == 1)
    return Equation(operands, (*(str(n) for n in range(hidden - 1, -1, -1)), *once))


def _labels(term: str, rank: int, equation: str) -> Labels:
    before, dots, after = term.partition("...")
    hidden = rank - len(before) - len(after)
    if hidden < 0 or (hidden and not dots):
        raise ModelError(f"Einsum {equation!r}: the term {term!r} does not fit {rank} dimensions")
    return (*before, *(str(n) for n in range(hidden - 1, -1, -1)), *after)


def _sizes(equation: Equation, tensors: list[Tensor]) -> dict[str, Expr]:
    sizes: dict[str, Expr] = {}
    for labels, tensor in zip(equation.operands, tensors, strict=True):
        for label, size in zip(labels, tensor.shape, strict=True):
            if sizes.get(label, ONE) is ONE:
                sizes[label] = size
    return sizes


def _lower(call: Call) -> None:
    tensors = [call.input(i) for i in range(len(call.inputs))]
    equation = parse(call.attribute("equation"), [t.rank for t in tensors])
    if not _as_matrices(call, equation, tensors):
        _as_sum(call, equation, tensors)


def _at(labels: Labels, tensor: Tensor, index: dict[str, Expr]) -> list[Expr]:
    """The index of an operand; dimensions of size 1 are broadcast."""
    return [ZERO if size is ONE else index[label] for label, size in zip(labels, tensor.shape, strict=True)]


def _as_sum(call: Call, equation: Equation, tensors: list[Tensor]) -> None:
    sizes = _sizes(equation, tensors)
    inner = call.build.axes([sizes[label] for label in equation.summed])

    def value(*out: Expr) -> Expr:
        index = dict(zip(equation.out, out, strict=True)) | {
            label: axis.var for label, axis in zip(equation.summed, inner, strict=True)
        }
        terms: Expr | None = None
        for labels, tensor in zip(equation.operands, tensors, strict=True):
            factor = lifted(tensor.load(*_at(labels, tensor, index)))
            terms = factor if terms is None else terms * factor
        assert terms is not None
        return cast(reduced("sum", inner, terms), call.out.type)

    call.build.compute(call.out, value)


def _as_matrices(call: Call, equation: Equation, tensors: list[Tensor]) -> bool:
    """One label summed over, one of the right operand alone; up to three others beside the left's last."""
    if len(tensors) != 2 or call.out.type != DataType.FLOAT or len(equation.summed) != 1:
        return False
    (left, right), (a, b), out = equation.operands, tensors, equation.out
    (k,) = equation.summed
    if any(len(set(labels)) != len(labels) for labels in (left, right, out)) or k not in left or k not in right:
        return False
    sizes = _sizes(equation, tensors)
    exact = all(s is sizes[n] for t, names in ((a, left), (b, right)) for n, s in zip(names, t.shape, strict=True))
    columns = [n for n in right if n not in left]
    rows = [n for n in left if n not in right]
    outer = [n for n in out if n not in columns and n not in rows[-1:]]
    if not exact or len(columns) != 1 or not rows or len(outer) > BATCH or sizes[columns[0]] is ONE:
        return False
    build, shared = call.build, [n for n in outer if n in right]
    axes = dict(zip(out, build.axes(call.out.shape), strict=True))
    (inner,) = build.axes([sizes[k]])

    def element(*index: Expr) -> Expr:
        named = dict(zip([*shared, columns[0], k], index, strict=True))
        return b.load(*(named[n] for n in right))

    packed = panels(build, b.name, [sizes[n] for n in shared], sizes[columns[0]], (sizes[k],), element)
    variables = {n: axis.var for n, axis in axes.items()}
    factor = a.load(*(inner.var if n == k else variables[n] for n in left))
    operand = panel_operand(packed, [variables[n] for n in shared])
    batch, row, column = [axes[n] for n in outer], axes[rows[-1]], axes[columns[0]]
    product_kernel(build, call.out, batch, row, column, inner, factor, operand, [variables[n] for n in out])
    return True


_A = np.random.default_rng(5).standard_normal((2, 3, 4), np.float32)

OPERATORS = (
    Operator(
        "Einsum",
        _lower,
        cases=(
            Case("matrices", (_A, np.swapaxes(_A, 1, 2).copy()), {"equation": "bij,bjk->bik"}),
            Case("turned", (_A, _A[0]), {"equation": "bij,kj->kbi"}),
            Case("three", (_A, _A, _A), {"equation": "bij,bij,bij->i"}),
        ),
    ),
)
