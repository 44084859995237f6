"""sizes N and M that an operator needs to be equal -> N: `Concat(x[N, 8], y[M, 8], axis=1)` makes M another name of N.

Exporters often give each input a batch size of its own. Symbols that meet in an element-wise operator count as equal
too: a size that is 1 only at run time is not broadcast (pin it with --shape where that is meant).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import onnx_ir as ir

from castiron.graph.nodes import is_standard
from castiron.graph.sizes import infer_sizes, symbols

_BROADCASTS = (
    "Add", "Sub", "Mul", "Div", "Mod", "Pow", "Max", "Min", "Mean", "Sum", "Where", "Equal", "Less", "LessOrEqual",
    "Greater", "GreaterOrEqual", "And", "Or", "Xor", "PRelu", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift",
)  # fmt: skip


def unify(model: ir.Model) -> ir.Model:
    """`model` (with sizes) whose inputs share one symbol for sizes that must be equal; sizes are inferred anew."""
    while True:
        names = symbols(model.graph)
        order = list(names)
        renamed: dict[str, str] = {}
        for a, b in (pair for node in model.graph for pair in _equal(node)):
            if a != b and a in names and b in names and a not in renamed and b not in renamed:
                first, second = sorted((a, b), key=order.index)
                renamed[second] = first
        if not renamed:
            return model
        for value in model.graph.inputs:
            value.shape = ir.Shape([_renamed(d, renamed) for d in value.shape or ()])
        infer_sizes(model)


def _equal(node: ir.Node) -> Iterator[tuple[str, str]]:
    """Pairs of symbols that `node` needs to be equal."""
    shapes = [list(v.shape) for v in node.inputs if v is not None and v.shape is not None]
    if is_standard(node, "Concat"):
        axis = node.attributes.get_int("axis", 0)
        rank = len(shapes[0]) if shapes else 0
        shapes = [[1 if i == axis % rank else d for i, d in enumerate(s)] for s in shapes if len(s) == rank]
    elif not is_standard(node, *_BROADCASTS):
        return
    for first, second in pairwise(shapes):
        for a, b in zip(reversed(first), reversed(second)):
            if not isinstance(a, int) and not isinstance(b, int) and a.value and b.value:
                yield a.value, b.value


def _renamed(dim: int | ir.SymbolicDim, renamed: dict[str, str]) -> int | ir.SymbolicDim:
    if isinstance(dim, int) or not dim.value:
        return dim
    if dim.value in renamed:
        return ir.SymbolicDim(renamed[dim.value])
    return dim
