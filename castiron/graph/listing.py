"""A graph as text: a line a node, in the manner of torch.export's listing; and whether two graphs compute the same."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import defs

from castiron.graph.nodes import bodies, is_standard, module_path, operator_name, source_line

_SHORT = {
    ir.DataType.FLOAT: "f32", ir.DataType.DOUBLE: "f64", ir.DataType.FLOAT16: "f16", ir.DataType.BFLOAT16: "bf16",
    **{t: t.name.lower().replace("uint", "u").replace("int", "i") for t in ir.DataType if "INT" in t.name},
}  # fmt: skip
_SHOWN = 8
"""Elements of a constant that are printed."""


def listing(model: ir.Model, name: str) -> str:
    """All of a model: its ports, its parameters, a line a node with type and sizes of what it makes and where it comes
    from, and its functions. Attributes that have the operator's default value are left out."""
    graph = model.graph
    lines = [f"{_head(name, graph.inputs, graph.outputs, graph.initializers)}:", *_body(graph)]
    for function in model.functions.values():
        lines += [
            "",
            f"{function.domain}::{_head(function.name, function.inputs, function.outputs, ())}:",
            *_body(function),
        ]
    return "\n".join(lines) + "\n"


def node_line(node: ir.Node, names: Mapping[ir.Value, str]) -> str:
    """`relu: f32[batch, 8] = Relu(linear)`. names: of values that are called otherwise than by their own names."""
    made = ", ".join(_typed(v, names) for v in node.outputs if v.name) or "()"
    if is_standard(node, "Constant"):
        return f"{made} = {_constant(node)}"
    inputs = ["None" if v is None else names.get(v, str(v.name)) for v in node.inputs]
    return f"{made} = {operator_name(node)}({', '.join([*inputs, *_attributes(node)])})"


def _head(name: str, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], own: Iterable[str]) -> str:
    given = ", ".join(_typed(v) for v in inputs if v.name not in set(own))
    return f"{name}({given}) -> ({', '.join(_typed(v) for v in outputs)})"


def _body(graph: ir.Graph | ir.Function, indent: str = "    ") -> Iterator[str]:
    initializers: Iterable[ir.Value] = graph.initializers.values() if isinstance(graph, ir.Graph) else ()
    for value in initializers:
        yield f"{indent}{_typed(value)} = {_held(value)}"
    for node in graph:
        yield f"{indent}{node_line(node, {})}{_origin(node)}"
        for name, body in _named_bodies(node):
            yield f"{indent}    {_head(name, body.inputs, body.outputs, body.initializers)}:"
            yield from _body(body, indent + "        ")
    yield f"{indent}return {', '.join(str(v.name) for v in graph.outputs)}"


def _named_bodies(node: ir.Node) -> Iterator[tuple[str, ir.Graph]]:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.name, attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from ((f"{attribute.name}[{i}]", body) for i, body in enumerate(attribute.as_graphs()))


def _origin(node: ir.Node) -> str:
    found = ", ".join(part for part in (module_path(node), source_line(node)) if part)
    return f"  # {found}" if found else ""


def _typed(value: ir.Value, names: Mapping[ir.Value, str] | None = None) -> str:
    name = (names or {}).get(value, str(value.name))
    kind = type_text(value)
    return f"{name}: {kind}" if kind else name


def type_text(value: ir.Value) -> str:
    """`f32[batch, 4]`, `seq(f32[2])`; "" where nothing is known."""
    kind: Any = value.type
    wrapped = []
    while isinstance(kind, ir.SequenceType | ir.OptionalType):
        wrapped.append("seq" if isinstance(kind, ir.SequenceType) else "optional")
        kind = kind.elem_type
    if kind is None:
        return ""
    short = _SHORT.get(kind.dtype, kind.dtype.name.lower())
    dims = "…" if value.shape is None else ", ".join(_dim(d) for d in value.shape)
    return f"{''.join(f'{w}(' for w in wrapped)}{short}[{dims}]{')' * len(wrapped)}"


def _dim(size: int | ir.SymbolicDim) -> str:
    return str(size) if isinstance(size, int) else str(size.value or "?")


def _held(value: ir.Value) -> str:
    tensor = value.const_value
    if tensor is None or (tensor.dtype.is_floating_point() and len(tensor.shape)):
        return "parameter"
    return _values(tensor)


def _constant(node: ir.Node) -> str:
    (attribute,) = node.attributes.values()
    if attribute.type == ir.AttributeType.TENSOR:
        return _values(attribute.as_tensor())
    return attribute_text(attribute)


def _values(tensor: ir.TensorProtocol) -> str:
    if tensor.size > _SHOWN:
        return "constant"
    return str(tensor.numpy().astype(object).tolist())


def _attributes(node: ir.Node) -> Iterator[str]:
    for name, attribute in sorted(explicit(node).items()):
        if attribute.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
            yield f"{name}={attribute_text(attribute)}"


def attribute_text(attribute: ir.Attr) -> str:
    """Its value; a tensor as its numbers, where these are few."""
    if attribute.ref_attr_name is not None:
        return f"@{attribute.ref_attr_name}"
    if attribute.type == ir.AttributeType.TENSOR:
        return _values(attribute.as_tensor())
    value: Any = attribute.value
    return str([_narrow(v) for v in value]) if isinstance(value, tuple | list) else repr(_narrow(value))


def _narrow(value: object) -> object:
    """A float as a file holds it, in 32 bits, with the fewest digits; what is not one as it is."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def explicit(node: ir.Node) -> dict[str, ir.Attr]:
    """The attributes that differ from what the operator has without them."""
    defaults = _defaults(node.op_type, node.domain)
    return {
        name: attribute
        for name, attribute in node.attributes.items()
        if name not in defaults or defaults[name] != (attribute.type, _plain(attribute.value))
    }


def _defaults(operator: str, domain: str) -> dict[str, tuple[ir.AttributeType, Any]]:
    try:
        schema = defs.get_schema(operator, domain if domain != "ai.onnx" else "")
    except defs.SchemaError:
        return {}
    given: list[Any] = [ir.from_proto(a.default_value) for a in schema.attributes.values() if a.default_value.type]
    return {a.name: (a.type, _plain(a.value)) for a in given}


def _plain(value: Any) -> Any:
    return tuple(map(_narrow, value)) if isinstance(value, list | tuple) else _narrow(value)


# Whether two graphs compute the same ----------------------------------------------------------------------------------


def prints(graph: ir.Graph) -> tuple[tuple[str, ...], Counter[str]]:
    """What each output is, and every node there is, as digests: of operators, attributes, what they read down to the
    ports by position and the initializers by name. Names of nodes and values, and their order, make no difference."""
    known: dict[ir.Value, str] = {v: f"initializer {v.name}" for v in graph.initializers.values()}
    known |= {v: f"input {i} {type_text(v)}" for i, v in enumerate(graph.inputs) if v not in known}
    nodes = Counter(_print_nodes(graph, known))
    return tuple(known.get(v, "") for v in graph.outputs), nodes


def _print_nodes(graph: ir.Graph, known: dict[ir.Value, str]) -> Iterator[str]:
    for node in graph:
        parts = [operator_name(node), *("" if v is None else known.get(v, "") for v in node.inputs)]
        parts += [
            f"{k}={_digest_attribute(a)}" for k, a in sorted(explicit(node).items()) if "GRAPH" not in a.type.name
        ]
        for body in bodies(node):
            inner = known | {v: f"own {v.name}" for v in body.initializers.values()}
            inner |= {v: f"inner {i}" for i, v in enumerate(body.inputs)}
            parts += sorted(_print_nodes(body, inner))
            parts += [inner.get(v, "") for v in body.outputs]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        known.update({v: f"{digest} {i}" for i, v in enumerate(node.outputs)})
        yield digest


def _digest_attribute(attribute: ir.Attr) -> str:
    if attribute.type != ir.AttributeType.TENSOR or attribute.ref_attr_name is not None:
        return attribute_text(attribute)
    array = np.ascontiguousarray(attribute.as_tensor().numpy())
    return f"{array.dtype}{array.shape}{hashlib.sha256(array.tobytes()).hexdigest()}"
