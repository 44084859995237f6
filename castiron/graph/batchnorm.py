"""BatchNormalization(Conv(x, w, b)) -> Conv(x, w * f, (b - mean) * f + shift) with f = scale / sqrt(var + epsilon).

The same for ConvTranspose and Gemm. The arithmetic is nodes of the graph: as it depends on weights alone it becomes
part of `prepare`, and the parameters keep their names.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from castiron.graph.nodes import add_initializer, is_standard, operator_name, remove, replace, weight_values
from castiron.program.notes import Note, silent


def fold_batchnorm(model: ir.Model, note: Note = silent) -> ir.Model:
    """`model` with BatchNormalizations moved into the weights of the layers before them, unless others read these.

    Declines where the layer's weights or the statistics are computed from inputs, for grouped ConvTranspose, and for
    Gemm with alpha or beta; `note` is told why.
    """
    graph = model.graph
    weights = weight_values(graph)
    for norm in list(graph):
        if is_standard(norm, "BatchNormalization") and not norm.attributes.get_int("training_mode", 0):
            layer = norm.inputs[0].producer() if norm.inputs[0] is not None else None
            objection = "the model's input is what it normalizes" if layer is None else _objection(layer, norm, weights)
            if layer is not None and not objection:
                _fold(graph, layer, norm)
            else:
                note(f"BatchNormalization {norm.name}", f"not folded: {objection}")
    return model


def _objection(layer: ir.Node, norm: ir.Node, weights: set[ir.Value]) -> str:
    """Why `norm` cannot be moved into the weights of `layer`, or ""."""
    out = layer.outputs[0]
    if not is_standard(layer, "Conv", "ConvTranspose", "Gemm"):
        return f"it follows a {operator_name(layer)}, not a layer with weights"
    if len(out.uses()) != 1 or out.is_graph_output():
        return "others read the layer before it"
    if not all(v in weights for v in [*layer.inputs[1:], *norm.inputs[1:]] if v is not None):
        return "its statistics, or the weights of the layer before it, are computed from inputs"
    attributes = layer.attributes
    if layer.op_type == "ConvTranspose" and attributes.get_int("group", 1) != 1:
        return "the ConvTranspose before it has groups"
    plain = attributes.get_float("alpha", 1.0) == 1.0 and attributes.get_float("beta", 1.0) == 1.0
    if layer.op_type == "Gemm" and not plain:
        return "the Gemm before it scales its operands"
    known = layer.inputs[1] is not None and layer.inputs[1].shape is not None
    return "" if known else "the weights of the layer before it are of unknown sizes"


class _Arithmetic:
    """Adds element-wise nodes over weights before a node."""

    def __init__(self, graph: ir.Graph, before: ir.Node) -> None:
        self.graph, self.before, self.count = graph, before, 0

    def __call__(self, op: str, *inputs: ir.Value, like: ir.Value) -> ir.Value:
        name = f"{self.before.name}.fold{self.count}"
        self.count += 1
        node = ir.node(op, list(inputs), name=name, metadata_props=dict(self.before.metadata_props))
        out = node.outputs[0]
        out.name, out.type, out.shape = name, like.type, like.shape
        self.graph.insert_before(self.before, node)
        return out


def _fold(graph: ir.Graph, layer: ir.Node, norm: ir.Node) -> None:
    _, scale, shift, mean, variance = norm.inputs[:5]
    weight, bias = layer.inputs[1], layer.inputs[2] if len(layer.inputs) > 2 else None
    assert scale and shift and mean and variance and weight
    make = _Arithmetic(graph, layer)
    kind = variance.dtype.numpy() if variance.dtype is not None else np.dtype(np.float32)
    epsilon = add_initializer(graph, f"{norm.name}.epsilon", np.array(norm.attributes.get_float("epsilon", 1e-5), kind))
    deviation = make("Sqrt", make("Add", variance, epsilon, like=variance), like=variance)
    factor = make("Div", scale, deviation, like=scale)
    sizes = add_initializer(graph, f"{norm.name}.shape", np.array(_factor_shape(layer, weight), np.int64))
    spread = make("Reshape", factor, sizes, like=scale)
    spread.shape = ir.Shape(
        [d if d == 1 else scale.shape[0] for d in _factor_shape(layer, weight)] if scale.shape else []
    )
    folded = make("Mul", weight, spread, like=weight)
    centred = make("Sub", bias, mean, like=mean) if bias is not None else make("Neg", mean, like=mean)
    moved = make("Add", make("Mul", centred, factor, like=mean), shift, like=mean)
    layer.replace_input_with(1, folded)
    if bias is None:
        layer.resize_inputs(3)
    layer.replace_input_with(2, moved)
    replace([norm.outputs[0]], [layer.outputs[0]])
    remove(graph, [norm])


def _factor_shape(layer: ir.Node, weight: ir.Value) -> list[int]:
    """One size a dimension of the weight: -1 at its output channels."""
    rank = len(weight.shape or ())
    first = layer.op_type == "Conv" or (layer.op_type == "Gemm" and bool(layer.attributes.get_int("transB", 0)))
    return [-1 if i == (0 if first else 1) else 1 for i in range(rank)]
