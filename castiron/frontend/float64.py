"""float32 model -> the same model in float64, to judge the rounding error of float32 by."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

_STAYS_FLOAT32 = {"Resize": (1, 2), "Upsample": (1,)}
"""Inputs that the specification wants in float32 whatever the data's type is."""


def in_float64(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of `model` with float64 for float32: inputs, outputs, initializers, constants, and casts."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    _widen_graph(wide.graph)
    for function in wide.functions:
        del function.value_info[:]
        _widen_nodes(function.node)
    return wide


def _widen_graph(graph: onnx.GraphProto) -> None:
    del graph.value_info[:]
    for value in [*graph.input, *graph.output]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    _widen_nodes(graph.node)
    _keep_narrow(graph)


def _widen_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        if node.op_type == "Constant":
            _widen_constant(node)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _widen_graph(attribute.g)
            elif attribute.type == onnx.AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE


def _widen_constant(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.name in ("value_float", "value_floats"):
            numbers = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            attribute.CopyFrom(
                onnx.helper.make_attribute("value", numpy_helper.from_array(np.asarray(numbers, np.float64)))
            )


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), name))


def _keep_narrow(graph: onnx.GraphProto) -> None:
    """Puts a Cast back to float32 before the inputs that must stay so."""
    nodes = list(graph.node)
    out: list[onnx.NodeProto] = []
    for number, node in enumerate(nodes):
        for i in _STAYS_FLOAT32.get(node.op_type, ()):
            if i < len(node.input) and node.input[i]:
                name = f"{node.input[i]}.float32.{number}.{i}"
                out.append(onnx.helper.make_node("Cast", [node.input[i]], [name], to=TensorProto.FLOAT))
                node.input[i] = name
        out.append(node)
    del graph.node[:]
    graph.node.extend(out)
