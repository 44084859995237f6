"""An operator -> the standard operators that its file in ops/ writes it in: what expansion and size inference share."""

from __future__ import annotations

import onnx_ir as ir

from castiron.errors import Unsupported
from castiron.graph.nodes import graphs, remove, replace
from castiron.ops import registry
from castiron.ops.body import Body


def names(graph: ir.Graph) -> set[str | None]:
    """The names of all values of a graph and of those inside its nodes."""
    found: set[str | None] = set()
    for inner in graphs(graph):
        found.update(inner.initializers, (v.name for v in inner.inputs))
        found.update(v.name for node in inner for v in node.outputs)
    return found


def write_out(node: ir.Node, taken: set[str | None]) -> bool:
    """Puts what the operator's `expand` writes in place of `node`; False where it has none, or refuses.

    `taken`: names that values have; those made are added."""
    try:
        written = expanded(node)
    except Unsupported:
        return False  # lowering says why
    if written is None:
        return False
    assert isinstance(node.graph, ir.Graph)
    nodes, outputs = written
    for number, made in enumerate(nodes):
        made.name = f"{node.name}.{number}"
        made.metadata_props.update(node.metadata_props)
        for k, value in enumerate(made.outputs):
            value.name = _free(f"{node.name}.{number}.{k}", taken)
    for before, after in zip(node.outputs, outputs, strict=False):
        if after is not None:
            after.type, after.shape = before.type, before.shape
            after.name, name = None, before.name
            replace([before], [after])
            before.name, after.name = None, name
    node.graph.insert_before(node, nodes)
    remove(node.graph, [node])
    return True


def _free(name: str, taken: set[str | None]) -> str:
    """`name`, or that with a number behind it where it is taken; then it is."""
    found, number = name, 2
    while found in taken:
        found, number = f"{name}.{number}", number + 1
    taken.add(found)
    return found


def expanded(node: ir.Node) -> tuple[list[ir.Node], list[ir.Value | None]] | None:
    """The nodes that the operator's `expand` writes, and those of their outputs that stand for the node's.

    None where it has none, or where types and ranks of the node's inputs are not inferred. Raises Unsupported."""
    operator = registry.find(node)
    if operator is None or operator.expand is None:
        return None
    if any(v is not None and (v.dtype is None or v.shape is None) for v in node.inputs):
        return None
    body = Body(node)
    outputs: list[ir.Value | None] = []
    for value in list(operator.expand(body))[: len(node.outputs)]:
        own = value is None or (value.producer() in body.nodes and value not in outputs)
        outputs.append(value if own else body.op("Identity", value))
    return body.nodes, outputs
