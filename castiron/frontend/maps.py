"""A model whose outputs are lists of maps -> the same with tensors: row n, column c is the value of key c in map n.

What is in maps is a table with names for its columns (ZipMap of scikit-learn's converters); a native file gives the table.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir


def load_tables(path: Path) -> ir.Model | None:
    """The model of a file that onnx_ir cannot read, for it has no maps; None where that is not why."""
    try:
        proto = onnx.load(path)
    except Exception:  # whatever protobuf raises; the caller tells what onnx_ir says
        return None
    maps = [node for node in proto.graph.node if node.domain == "ai.onnx.ml" and node.op_type == "ZipMap"]
    if not maps:
        return None
    for node in maps:
        _as_table(proto.graph, node)
    return ir.serde.deserialize_model(proto)


def _as_table(graph: onnx.GraphProto, node: onnx.NodeProto) -> None:
    columns = max(len(a.ints) + len(a.strings) for a in node.attribute)
    for port in graph.output:
        if port.name == node.output[0]:
            port.CopyFrom(onnx.helper.make_tensor_value_info(port.name, onnx.TensorProto.FLOAT, [None, columns]))
    node.CopyFrom(onnx.helper.make_node("Identity", node.input, node.output, name=node.name))
