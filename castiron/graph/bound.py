"""table[512][:N] -> Gather(table, Range(N)): a part of a fixed table as long as a size that only running tells.

Positions and masks are made like this. Slice would cut N to 512 and fail later, where the part meets N values; Gather
checks its indices, so that an N beyond the table is an error that names this node.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from castiron.graph.nodes import add_initializer, constant_of, is_standard, remove, replace
from castiron.graph.sizes import infer_sizes, size_expr, symbolic_elements
from castiron.program.expr import Const


def bound_slices(model: ir.Model) -> ir.Model:
    """`model` (with sizes) with such slices replaced, where they start at 0 with step 1; sizes are inferred anew."""
    slices = [node for node in model.graph if is_standard(node, "Slice") and _axis(node) is not None]
    for node in slices:
        _replace(model.graph, node)
    return infer_sizes(model) if slices else model


def _axis(node: ir.Node) -> int | None:
    """The one sliced dimension, where it is fixed and the end of the slice is not; else None."""
    data, starts, ends, axes, steps = [*node.inputs, None, None][:5]
    if data is None or data.shape is None or ends is None:
        return None
    start, axis, step = constant_of(starts), constant_of(axes), constant_of(steps)
    end = symbolic_elements(ends)
    if end is None or len(end) != 1 or start is None or start.any() or (step is not None and (step != 1).any()):
        return None
    if (axes is not None and axis is None) or isinstance(size_expr(end[0]), Const):
        return None
    position = 0 if axis is None else int(axis[0]) % len(data.shape)
    return position if isinstance(data.shape[position], int) else None


def _replace(graph: ir.Graph, node: ir.Node) -> None:
    whole = np.dtype(np.int64)
    ends, axis = node.inputs[2], _axis(node)
    assert ends is not None and axis is not None
    zero = add_initializer(graph, f"{node.name}.zero", np.zeros((), whole))
    one = add_initializer(graph, f"{node.name}.one", np.ones((), whole))
    cast = _node(node, "Cast", [ends], "int64", to=int(ir.DataType.INT64))
    limit = _node(node, "Squeeze", [cast.outputs[0]], "limit")
    indices = _node(node, "Range", [zero, limit.outputs[0], one], "indices")
    gather = ir.node("Gather", [node.inputs[0], indices.outputs[0]], {"axis": axis}, name=node.name)
    gather.metadata_props.update(node.metadata_props)
    gather.outputs[0].name, gather.outputs[0].type = node.outputs[0].name, node.outputs[0].type
    graph.insert_before(node, [cast, limit, indices, gather])
    replace(node.outputs, gather.outputs)
    remove(graph, [node])


def _node(at: ir.Node, op: str, inputs: list[ir.Value], part: str, **attributes: int) -> ir.Node:
    node = ir.node(op, inputs, attributes, name=f"{at.name}.{part}", metadata_props=dict(at.metadata_props))
    node.outputs[0].name, node.outputs[0].type = f"{at.name}.{part}", ir.TensorType(ir.DataType.INT64)
    return node
