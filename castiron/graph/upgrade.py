"""opset N -> the newest opset: each operator's own `upgrade` rewrites its old spellings."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from castiron.errors import Unsupported
from castiron.graph.nodes import bodies, is_standard, replace
from castiron.ops import registry

NEWEST = onnx.defs.onnx_opset_version()
NEWEST_ML = onnx.defs.get_schema("TreeEnsemble", "ai.onnx.ml").since_version
"""Its operators changed by attributes that tell themselves apart."""


def upgrade(model: ir.Model) -> ir.Model:
    """`model` in the newest standard opset (functions of its own too).

    An operator without `upgrade` means today what it always meant. The outputs of the last node that `upgrade` gives
    stand for the outputs of the node it replaces.
    """
    opset = model.opset_imports.get("", NEWEST)
    if opset > NEWEST:
        raise Unsupported(
            f"the model uses opset {opset}, this castiron knows up to {NEWEST}; export with an older opset"
        )
    upgrade_graph(model.graph, opset)
    model.opset_imports[""] = NEWEST
    model.opset_imports["ai.onnx.ml"] = NEWEST_ML
    for function in model.functions.values():
        upgrade_graph(function, function.opset_imports.get("", opset))
        function.opset_imports[""] = NEWEST
    return model


def upgrade_graph(graph: ir.Graph | ir.Function, opset: int) -> None:
    """Rewrites the nodes of `graph` and of graphs inside them from `opset` to the newest."""
    for node in list(graph):
        for body in bodies(node):
            upgrade_graph(body, opset)
        if is_standard(node, "Scan") and opset < 9:
            raise Unsupported("Scan before opset 9 had a dimension for batches; export with opset 9 or later")
        operator = registry.find(node)
        new = operator.upgrade(node, opset) if operator is not None and operator.upgrade is not None else None
        if new is None:
            node.version = None
            continue
        _substitute(graph, node, list(new))


def _substitute(graph: ir.Graph | ir.Function, node: ir.Node, new: list[ir.Node]) -> None:
    for number, made in enumerate(new):
        made.name = node.name if number == len(new) - 1 else f"{node.name}.{number}"
        made.metadata_props.update(node.metadata_props)
        for k, value in enumerate(made.outputs):
            value.name = value.name or f"{node.name}.{number}.{k}"
    last = new[-1]
    for before, after in zip(node.outputs, last.outputs):
        after.type, after.shape = after.type or before.type, after.shape or before.shape
        after.name = before.name
    if isinstance(graph, ir.Function):
        outputs = [dict(zip(node.outputs, last.outputs)).get(v, v) for v in graph.outputs]
        graph.outputs[:] = outputs
    graph.insert_before(node, new)
    for before, after in zip(node.outputs, last.outputs):
        before.name = None
        replace([before], [after])
    graph.remove([node], safe=True)
