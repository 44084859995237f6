"""Which sizes an operator needs to be equal, by the specification."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, zip_longest

import onnx_ir as ir

from castiron.graph.nodes import is_standard
from castiron.graph.sizes import symbolic_elements

Dim = int | ir.SymbolicDim
Pairs = Iterator[tuple[Dim, Dim]]
Shapes = Sequence[Sequence[Dim] | None]


def equal_sizes(node: ir.Node) -> Pairs:
    """Pairs of sizes of the inputs of `node` that must be equal.

    Sizes that are broadcast count as equal unless one is 1 already at build: a size that is 1 only at run time is not
    broadcast (pin it with --shape where that is meant)."""
    rule = _RULES.get(node.op_type) if is_standard(node, node.op_type) else None
    if rule is None:
        return
    shapes = [None if v is None or v.shape is None else list(v.shape) for v in node.inputs]
    for a, b in rule(node, [*shapes, *[None] * 8]):
        if a != b and (isinstance(a, int) or a.value) and (isinstance(b, int) or b.value):
            yield a, b


def _broadcast(*shapes: Sequence[Dim] | None) -> Pairs:
    """Dimensions from the last one on."""
    for dims in zip_longest(*(reversed(s) for s in shapes if s is not None), fillvalue=1):
        yield from pairwise(d for d in dims if d != 1)


def _at(shape: Sequence[Dim] | None, *positions: int) -> list[Dim]:
    """The dimensions at these positions, where there are any."""
    return [shape[p] for p in positions if shape is not None and -len(shape) <= p < len(shape)]


def _elementwise(node: ir.Node, shapes: Shapes) -> Pairs:
    return _broadcast(*shapes)


def _concat(node: ir.Node, shapes: Shapes) -> Pairs:
    axis = node.attributes.get_int("axis", 0)
    known = [s for s in shapes if s]
    for first, second in pairwise(known):
        rank = len(first)
        if rank == len(second):
            yield from ((a, b) for i, (a, b) in enumerate(zip(first, second)) if i != axis % rank)


def _matmul(node: ir.Node, shapes: Shapes) -> Pairs:
    a, b = shapes[:2]
    if a and b:
        yield a[-1], b[-2 if len(b) > 1 else -1]
        yield from _broadcast(a[:-2], b[:-2])


def _gemm(node: ir.Node, shapes: Shapes) -> Pairs:
    a, b, c = shapes[:3]
    if a and b and len(a) == len(b) == 2:
        if node.attributes.get_int("transA", 0):
            a = a[::-1]
        if node.attributes.get_int("transB", 0):
            b = b[::-1]
        yield a[1], b[0]
        yield from _broadcast([a[0], b[1]], c)


def _conv(node: ir.Node, shapes: Shapes) -> Pairs:
    x, w, bias = shapes[:3]
    groups = node.attributes.get_int("group", 1)
    if x and w and isinstance(w[1], int):
        yield x[1], w[1] * groups
    yield from zip(_at(w, 0), _at(bias, 0))


def _conv_transpose(node: ir.Node, shapes: Shapes) -> Pairs:
    yield from zip(_at(shapes[0], 1), _at(shapes[1], 0))


def _channels(node: ir.Node, shapes: Shapes) -> Pairs:
    """Parameters that hold a number for each channel."""
    for parameter in shapes[1:]:
        yield from zip(_at(shapes[0], 1), _at(parameter, 0))


def _recurrent(node: ir.Node, shapes: Shapes) -> Pairs:
    x, w, r, _, lengths, h, c = shapes[:7]
    batch, states = (1, 1) if node.attributes.get_int("layout", 0) == 0 else (0, 0)
    yield from zip(_at(x, 2), _at(w, 2))
    for batches in (_at(lengths, 0), _at(h, states), _at(c, states)):
        yield from zip(_at(x, batch), batches)
    for state in (h, c):
        yield from zip(_at(r, 2), _at(state, 2))


def _einsum(node: ir.Node, shapes: Shapes) -> Pairs:
    equation = node.attributes.get_string("equation", "").replace(" ", "")
    found: dict[str, Dim] = {}
    for term, shape in zip(equation.partition("->")[0].split(","), shapes):
        if shape is None or "." in term or len(term) != len(shape):
            continue
        for letter, size in zip(term, shape):
            yield found.setdefault(letter, size), size


def _expand(node: ir.Node, shapes: Shapes) -> Pairs:
    target = None if node.inputs[1] is None else symbolic_elements(node.inputs[1])
    if target is not None:
        yield from _broadcast(shapes[0], target)


def _scatter_nd(node: ir.Node, shapes: Shapes) -> Pairs:
    data, indices, updates = shapes[:3]
    if data and indices and updates and isinstance(indices[-1], int):
        yield from zip(updates, [*indices[:-1], *data[indices[-1] :]])


def _same(node: ir.Node, shapes: Shapes) -> Pairs:
    """Indices and updates."""
    yield from zip(shapes[1] or (), shapes[2] or ())


_ELEMENTWISE = (
    "Add", "Sub", "Mul", "Div", "Mod", "Pow", "Max", "Min", "Mean", "Sum", "Where", "Equal", "Less", "LessOrEqual",
    "Greater", "GreaterOrEqual", "And", "Or", "Xor", "PRelu", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift",
)  # fmt: skip

_RULES: dict[str, Callable[[ir.Node, Shapes], Pairs]] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization", "GroupNormalization"), _channels),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    "LayerNormalization": _elementwise,
    "RMSNormalization": _elementwise,
    "Concat": _concat,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Einsum": _einsum,
    "Expand": _expand,
    "ScatterND": _scatter_nd,
    "ScatterElements": _same,
}
