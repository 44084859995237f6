"""Rules of size inference that onnx-shape-inference lacks, for the newest opset (sizes.py registers them)."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import onnx_ir as ir
import sympy
from onnx_shape_inference import ShapeInferenceContext, _engine, _symbolic_shapes, check_inputs, registry

from castiron.errors import Unsupported
from castiron.graph import body_sizes
from castiron.graph.nodes import constant_of
from castiron.graph.upgrade import NEWEST
from castiron.graph.written import expanded

Dim = int | ir.SymbolicDim
Rule = Callable[[ShapeInferenceContext, ir.Node], None]
_FAR = 1 << 29
"""Where exporters mean `to the end` they write 2^63 - 1, 2^31 - 1 or 10^9: any bound from here on."""


def constant_of_shape(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """The output's sizes are the input's elements, which may be symbolic; an integer vector's contents are known."""
    (sizes,) = check_inputs(node, "input")
    value = node.attributes.get("value")
    fill = value.as_tensor() if value is not None else None
    dims = ctx.get_symbolic_value(sizes)
    if dims is None and sizes.shape is not None and isinstance(sizes.shape[0], int):
        dims = [ctx.new_symbolic_dim() for _ in range(sizes.shape[0])]
    dtype = fill.dtype if fill is not None else ir.DataType.FLOAT
    ctx.set_shape_and_dtype(node.outputs[0], None if dims is None else ir.Shape(dims), dtype)
    if fill is not None and dtype.is_integer() and dims is not None and len(dims) == 1 and isinstance(dims[0], int):
        ctx.set_symbolic_value(node.outputs[0], [int(fill.numpy().reshape(-1)[0])] * dims[0])


def pad(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """Each size grows by its two pads, which may be symbolic."""
    data, pads_value = check_inputs(node, "data", "pads")
    shape: ir.Shape | None = None
    if data.shape is not None:
        rank = data.shape.rank()
        pads = ctx.get_symbolic_value(pads_value)
        axes_value = node.inputs[3] if len(node.inputs) > 3 else None
        axes = range(rank) if axes_value is None else ctx.get_symbolic_value(axes_value)
        dims: list[Dim] = list(data.shape.dims)
        for i in range(rank):
            if pads is None or axes is None:
                dims[i] = ctx.new_symbolic_dim()
        for i, axis in enumerate(axes if pads is not None and axes is not None else ()):
            assert pads is not None and axes is not None and isinstance(axis, int)
            dims[axis] = ctx.simplify_dim(dims[axis] + pads[i] + pads[i + len(axes)])
        shape = ir.Shape(dims)
    ctx.set_shape_and_dtype(node.outputs[0], shape, data.dtype)


def slice_(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """Bounds are clamped as specified, symbolically where they or the size are; vectors keep their contents."""
    data = check_inputs(node, "data", "starts", "ends")[0]
    if data.shape is None:
        ctx.set_shape_and_dtype(node.outputs[0], None, data.dtype)
        return
    rank = data.shape.rank()
    starts, ends, axes, steps = (
        ctx.get_symbolic_value(v) if v is not None else None for v in [*node.inputs[1:], None, None][:4]
    )
    count = node.inputs[1].shape[0] if node.inputs[1] is not None and node.inputs[1].shape is not None else None
    if axes is None and isinstance(count, int) and (len(node.inputs) < 4 or node.inputs[3] is None):
        axes = list(range(count))
    dims: list[Dim] = list(data.shape.dims)
    if axes is None or not all(isinstance(a, int) for a in axes):
        dims = [ctx.new_symbolic_dim() for _ in dims]
    for i, axis in enumerate(int(a) % rank for a in axes or () if isinstance(a, int)):
        step = steps[i] if steps is not None else 1
        extent = None
        if starts is not None and ends is not None and isinstance(step, int):
            extent = _extent(_expr(dims[axis]), _expr(starts[i]), _expr(ends[i]), step)
        dims[axis] = ctx.new_symbolic_dim() if extent is None else _dim(extent)
    ctx.set_shape_and_dtype(node.outputs[0], ir.Shape(dims), data.dtype)
    elements = ctx.get_symbolic_value(data)
    if elements is not None and rank == 1 and starts and ends:
        start, end, step = starts[0], ends[0], steps[0] if steps is not None else 1
        if isinstance(start, int) and isinstance(end, int) and isinstance(step, int):
            ctx.set_symbolic_value(node.outputs[0], elements[start:end:step])


def equal(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """Elements compare where their difference tells: a size is never -1, so that idioms with a default size resolve."""
    _library("Equal")(ctx, node)
    first, second = (ctx.get_symbolic_value(v) if v is not None else None for v in node.inputs)
    if first is None or second is None:
        return
    if len(first) != len(second) and 1 not in (len(first), len(second)):
        return
    count = max(len(first), len(second))
    pairs = zip(first * (count // len(first) or 1), second * (count // len(second) or 1))
    differences = [sympy.expand(_expr(a) - _expr(b)) for a, b in pairs]
    if all(d.is_zero is not None for d in differences):
        ctx.set_symbolic_value(node.outputs[0], [int(d.is_zero) for d in differences])


def where(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """A known condition chooses among the elements of vectors."""
    _library("Where")(ctx, node)
    condition, first, second = (ctx.get_symbolic_value(v) if v is not None else None for v in node.inputs)
    known = constant_of(node.inputs[0])
    if condition is None and known is not None and known.ndim == 1:
        condition = [int(c) for c in known]
    if condition is None or first is None or second is None:
        return
    if len(condition) == len(first) == len(second):
        ctx.set_symbolic_value(node.outputs[0], [a if c else b for c, a, b in zip(condition, first, second)])


def extreme(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """Max and Min of vectors and scalars whose elements are sizes."""
    _library(node.op_type)(ctx, node)
    found = [ctx.get_symbolic_value(v) if v is not None else None for v in node.inputs]
    vectors = [v for v in found if v is not None]
    count = max((len(v) for v in vectors), default=0)
    if not count or len(vectors) < len(node.inputs) or any(len(v) not in (1, count) for v in vectors):
        return
    choose = sympy.Max if node.op_type == "Max" else sympy.Min
    elements = [choose(*(_expr(v[i % len(v)]) for v in vectors)) for i in range(count)]
    ctx.set_symbolic_value(node.outputs[0], [_dim(e) for e in elements])


def squeeze(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """Axes that only the run knows leave no size known."""
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    if axes is None or constant_of(axes) is not None:
        _library("Squeeze")(ctx, node)
        return
    data = check_inputs(node, "data")[0]
    count = axes.shape[0] if axes.shape is not None else None
    rank = data.shape.rank() - count if data.shape is not None and isinstance(count, int) else None
    shape = None if rank is None else ir.Shape([ctx.new_symbolic_dim() for _ in range(rank)])
    ctx.set_shape_and_dtype(node.outputs[0], shape, data.dtype)


def resize(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """Where the aspect ratio is kept, all axes have one scale, and sizes are rounded half up."""
    (data,) = check_inputs(node, "X")
    sizes = node.inputs[3] if len(node.inputs) > 3 else None
    policy = node.attributes.get_string("keep_aspect_ratio_policy", "stretch")
    if sizes is None or data.shape is None or policy == "stretch":
        _library("Resize")(ctx, node)
        return
    dims: list[Dim] = list(data.shape.dims)
    axes = node.attributes.get_ints("axes", range(len(dims)))
    pairs = [(wanted, dims[axis]) for wanted, axis in zip(ctx.get_symbolic_value(sizes) or [], axes)]
    scales = [Fraction(w, d) for w, d in pairs if isinstance(w, int) and isinstance(d, int) and d]
    scale = (min if policy == "not_larger" else max)(scales) if len(scales) == len(axes) else None
    for axis in axes:
        dim = dims[axis]
        if scale is not None and isinstance(dim, int):
            dims[axis] = math.floor(scale * dim + Fraction(1, 2))
        else:
            dims[axis] = ctx.new_symbolic_dim()
    ctx.set_shape_and_dtype(node.outputs[0], ir.Shape(dims), data.dtype)


def unique(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """Along the axis, or of all elements, there are as many as data tell."""
    data = check_inputs(node, "X")[0]
    distinct = ctx.new_symbolic_dim()
    axis = node.attributes.get_int("axis", None)
    dims: list[Dim] | None = None if data.shape is None else list(data.shape.dims)
    every: Dim = ctx.new_symbolic_dim()
    if axis is None:
        every = (
            math.prod(d for d in dims if isinstance(d, int))
            if dims and all(isinstance(d, int) for d in dims)
            else every
        )
        dims = [distinct]
    elif dims is not None:
        every, dims[axis] = dims[axis], distinct
    ctx.set_shape_and_dtype(node.outputs[0], None if dims is None else ir.Shape(dims), data.dtype)
    for value, size in zip(node.outputs[1:], (distinct, every, distinct)):
        ctx.set_shape_and_dtype(value, ir.Shape([size]), ir.DataType.INT64)


def as_written(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """An operator that its file writes in others: their sizes are its own."""
    inputs = [None if v is None else _stand_in(v) for v in node.inputs]
    outputs = [ir.Value(name=v.name) for v in node.outputs]
    copy = ir.Node(node.domain, node.op_type, inputs, node.attributes.values(), outputs=outputs, name=node.name)
    try:
        written = expanded(copy)
    except Unsupported:
        return  # lowering says why
    if written is None:
        return
    nodes, results = written
    body = ir.Graph([v for v in inputs if v is not None], [v for v in results if v is not None], nodes=nodes)
    _engine._process_graph(ctx, body, warn_on_missing=False)
    for value, result in zip(node.outputs, results, strict=False):
        if result is not None and result.dtype is not None:
            ctx.set_shape_and_dtype(value, result.shape, result.dtype)


def _stand_in(value: ir.Value) -> ir.Value:
    """A value of its own of which the same is known."""
    return ir.Value(
        name=value.name,
        shape=value.shape,
        type=value.type,
        const_value=ir.convenience.get_const_tensor(value),
        metadata_props=dict(value.metadata_props),
    )


def _library(op: str) -> Rule:
    """The library's own rule, which these refine."""
    rule: Rule | None = registry.get("", op, version=NEWEST - 1)
    assert rule is not None
    return rule


def _extent(size: sympy.Expr, start: sympy.Expr, end: sympy.Expr, step: int) -> sympy.Expr | None:
    """The number of elements of [start:end:step] of `size`; None where the sign of a bound is not known."""
    bounds = [_from_front(bound, size) for bound in (start, end)]
    if None in bounds:
        return None
    high = size if step > 0 else size - 1
    lows = (0, 0) if step > 0 else (sympy.Min(0, high), -1)  # a start before the first element is the first one
    first, last = (sympy.Max(low, sympy.Min(bound, high)) for low, bound in zip(lows, bounds))
    length = last - first if step > 0 else first - last
    return sympy.Max(0, length if abs(step) == 1 else sympy.floor((length + abs(step) - 1) / abs(step)))


def _from_front(bound: sympy.Expr, size: sympy.Expr) -> sympy.Expr | None:
    if bound.is_Integer and bound >= _FAR:
        return size
    if bound.is_Integer and bound <= -_FAR:
        return sympy.Integer(-1)
    if bound.is_nonnegative:
        return bound
    return bound + size if bound.is_negative else None


def _expr(dim: Dim) -> sympy.Expr:
    return sympy.Integer(dim) if isinstance(dim, int) else _symbolic_shapes.parse_symbolic_expression(str(dim.value))


def _dim(e: sympy.Expr) -> Dim:
    return int(e) if e.is_Integer else ir.SymbolicDim(e)


RULES = {
    "ConstantOfShape": constant_of_shape,
    "Equal": equal,
    "Loop": body_sizes.loop,
    "Max": extreme,
    "Min": extreme,
    "Pad": pad,
    "Resize": resize,
    "Slice": slice_,
    "Squeeze": squeeze,
    "Unique": unique,
    "Where": where,
}
