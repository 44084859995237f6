"""Rules of size inference that onnx-shape-inference does not have yet, for the newest opset (sizes.py registers them)."""

from __future__ import annotations

import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext, check_inputs

Dim = int | ir.SymbolicDim


def constant_of_shape(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """The output's sizes are the input's elements, which may be symbolic; a short integer vector's contents are known."""
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


RULES = {"ConstantOfShape": constant_of_shape, "Pad": pad}
