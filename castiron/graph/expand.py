"""an operator without a lowering -> what its file in ops/ writes, or its ONNX function body."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir

from castiron.graph.inline import inline
from castiron.graph.nodes import graphs
from castiron.graph.sizes import infer_sizes
from castiron.graph.upgrade import NEWEST, upgrade_graph
from castiron.graph.written import names, write_out
from castiron.ops import registry

_DEPTH = 8  # bodies use operators with bodies; none of the specification goes deeper than three


def expand(model: ir.Model) -> ir.Model:
    """`model` with operators that castiron does not lower replaced by their bodies (types of values must be inferred).

    What has neither stays: lowering reports it with all else that is not compiled.
    """
    for _ in range(_DEPTH):
        unknown = [node for graph in graphs(model.graph) for node in graph if not _is_lowered(node)]
        taken = names(model.graph) if unknown else set()
        expandable = [node for node in unknown if write_out(node, taken) or _give_body(model, node)]
        if not expandable:
            break
        infer_sizes(inline(model))  # bodies of operators inside bodies depend on types
    return model


def _is_lowered(node: ir.Node) -> bool:
    operator = registry.find(node)
    return operator is not None and operator.lower is not None


def _give_body(model: ir.Model, node: ir.Node) -> bool:
    """Makes `node` call a function of the model with its operator's body; False where the specification has none."""
    body = function_body(node, model.opset_imports.get(node.domain, NEWEST if node.domain == "" else 1))
    if body is None:
        return False
    proto, opset = body
    function = ir.serde.deserialize_function(proto)
    upgrade_graph(function, opset)
    function.opset_imports[""] = NEWEST
    overload = str(len(model.functions))
    function.overload, node.overload = overload, overload
    model.functions[function.identifier()] = function
    return True


def function_body(node: ir.Node, opset: int) -> tuple[onnx.FunctionProto, int] | None:
    """The function that the specification gives for `node`, and the standard opset it is written in; None: none."""
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, opset, "" if node.domain == "ai.onnx" else node.domain)
    except onnx.defs.SchemaError:
        return None
    if not all(v is None or isinstance(v.type, ir.TensorType | None) for v in node.inputs):
        return None
    _set_defaults(node, schema)
    if schema.has_context_dependent_function:
        version = max(schema.context_dependent_function_opset_versions)
        types = [_type_proto(v) for v in node.inputs]
        data = schema.get_context_dependent_function_with_opset_version(
            version, ir.to_proto(node).SerializeToString(), [t.SerializeToString() for t in types]
        )
    elif schema.has_function:
        version = max(schema.function_opset_versions)
        data = schema.get_function_with_opset_version(version)
    else:
        return None
    function = onnx.FunctionProto()
    function.ParseFromString(data if isinstance(data, bytes) else data.SerializeToString())
    if not function.node:
        return None
    written = {o.domain: o.version for o in function.opset_import}
    function.domain, function.name = node.domain, node.op_type
    _complete(function, node)
    return function, written.get("", version if node.domain in ("", "ai.onnx") else NEWEST)


def _set_defaults(node: ir.Node, schema: Any) -> None:
    """Attributes that a node leaves out, as the specification has them: a body refers to them by name."""
    for name, attribute in schema.attributes.items():
        if name not in node.attributes and attribute.default_value.name:
            node.attributes.add(ir.serde.deserialize_attribute(attribute.default_value))


def _complete(function: onnx.FunctionProto, node: ir.Node) -> None:
    """Fits a body that was written for this very node to its call.

    Outputs that it leaves out, since the node does not want them, become the first input; subgraphs are part of it now.
    """
    made = {name for inner in function.node for name in inner.output}
    missing = [name for name in function.output if name not in made]
    function.node.extend(onnx.helper.make_node("Identity", [function.input[0]], [name]) for name in missing)
    graphs = [a.name for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH]
    function.attribute[:] = [name for name in function.attribute if name not in graphs]
    for name in graphs:
        node.attributes.pop(name)


def _type_proto(value: ir.Value | None) -> onnx.TypeProto:
    if value is None or value.dtype is None:
        return onnx.TypeProto()
    shape = None if value.shape is None else [d if isinstance(d, int) else d.value for d in value.shape]
    return onnx.helper.make_tensor_type_proto(int(value.dtype), shape)
