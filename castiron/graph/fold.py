"""nodes over known small values -> their values; Identity, Dropout -> nothing; If of a known condition -> its branch.

CastLike becomes Cast, so that a constant cast to the type of an input folds.

A parameter is never folded and neither is anything computed from one: folding weights is the work of `prepare`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator
from onnx_ir.passes import common

from castiron.graph.nodes import add_initializer, bodies, constant_of, graphs, is_standard, move_in, remove, replace
from castiron.graph.sizes import infer_sizes

LIMIT = 1024
"""Elements of the largest result that is folded in general."""
INTEGER_LIMIT = 1 << 20
"""The same for integers and bools: tables of positions, masks."""
_RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}


def fold(model: ir.Model, parameters: frozenset[str]) -> ir.Model:
    """`model` with all folded that depends on known small values only; `parameters` names initializers to keep.

    Sizes should be inferred before: values that inference knows (shapes) fold too. Nodes that nothing reads go.
    """
    choices = _choices(model)
    _fold_once(model, parameters)
    while choices > (choices := _choices(model)):  # what a branch gives may decide about the next one
        _fold_once(infer_sizes(model), parameters)
    return model


def _choices(model: ir.Model) -> int:
    return sum(is_standard(node, "If") for graph in graphs(model.graph) for node in graph)


def _fold_once(model: ir.Model, parameters: frozenset[str]) -> None:
    for graph in list(graphs(model.graph)):
        for node in list(graph):
            if node.graph is graph:
                _fold_node(model, node, parameters)
    common.LiftSubgraphInitializersToMainGraphPass()(model)
    common.CommonSubexpressionEliminationPass()(model)
    common.RemoveUnusedNodesPass()(model)


def _fold_node(model: ir.Model, node: ir.Node, parameters: frozenset[str]) -> None:
    if is_standard(node, "If"):
        _choose_branch(model, node, parameters)
    elif is_standard(node, "CastLike") and node.inputs[1] is not None and node.inputs[1].dtype is not None:
        _fold_node(model, _substitute(node, "Cast", _cast_attributes(node, node.inputs[1].dtype)), parameters)
    elif _passes_through(node):
        _bypass(node)
    elif is_standard(node, "Constant"):
        tensor = _constant_tensor(node)
        if tensor is not None:
            _become(node, [tensor])
    else:
        found = _known_outputs(node) or _evaluated(model, node, parameters)
        if found is not None:
            _become(node, found)


def _cast_attributes(node: ir.Node, to: ir.DataType) -> dict[str, int | str]:
    """Those of the Cast that a CastLike is."""
    kept = {name: node.attributes[name].value for name in ("saturate", "round_mode") if name in node.attributes}
    return {"to": int(to), **kept}


def _passes_through(node: ir.Node) -> bool:
    """Whether the first output is the first input as it is, and no other output is wanted."""
    if any(v.uses() or v.is_graph_output() for v in node.outputs[1:]):
        return False
    if is_standard(node, "Dropout"):
        training = node.inputs[2] if len(node.inputs) > 2 else None
        known = constant_of(training)
        return training is None or (known is not None and not known.any())
    source = node.inputs[0] if node.inputs else None
    if is_standard(node, "Cast"):
        return source is not None and source.dtype is not None and source.dtype == node.attributes.get_int("to")
    return is_standard(node, "Identity")


def _bypass(node: ir.Node) -> None:
    """Lets users of a node's output read its input; stays where the graph's output would lose its name by it."""
    source, out = node.inputs[0], node.outputs[0]
    assert source is not None and node.graph is not None
    if out.is_graph_output():
        producer = source.producer()
        keep = producer is None or producer.graph is not node.graph or source.is_graph_output()
        if keep:
            if not is_standard(node, "Identity"):
                _substitute(node, "Identity", {})
            return
    replace([out], [source])
    remove(node.graph, [node])


def _substitute(node: ir.Node, op: str, attributes: Mapping[str, int | str]) -> ir.Node:
    """`op` of the node's first input in place of `node`."""
    assert node.graph is not None
    new = ir.node(op, [node.inputs[0]], attributes, name=node.name, metadata_props=dict(node.metadata_props))
    out, old = new.outputs[0], node.outputs[0]
    out.type, out.shape, out.name = old.type, old.shape, old.name
    node.graph.insert_before(node, new)
    replace([old], [out])
    remove(node.graph, [node])
    return new


def _become(node: ir.Node, tensors: list[ir.TensorProtocol]) -> None:
    """Puts initializers in place of a node's outputs, under the outputs' names."""
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    for value, tensor in zip(node.outputs, tensors):
        name, value.name = value.name or node.name or "constant", None
        replace([value], [add_initializer(graph, name, tensor)])
    remove(graph, [node])


def _constant_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    tensor = ir.convenience.get_const_tensor(node.outputs[0])
    if tensor is not None:
        return tensor
    for name, attribute in node.attributes.items():
        if name in ("value_string", "value_strings", "sparse_value"):
            return None
        dtype = np.float32 if "float" in name else np.int64
        return attribute.as_tensor() if name == "value" else ir.tensor(np.asarray(attribute.value, dtype))
    return None


def _known_outputs(node: ir.Node) -> list[ir.TensorProtocol] | None:
    """The outputs' values where size inference knows them all."""
    tensors = [value.const_value for value in node.outputs if value.name]
    return [t for t in tensors if t is not None] if all(t is not None for t in tensors) else None


def _evaluated(model: ir.Model, node: ir.Node, parameters: frozenset[str]) -> list[ir.TensorProtocol] | None:
    """The outputs by onnx.reference, where all inputs are known, none is a parameter, and all is small."""
    if node.op_type in _RANDOM or bodies(node) or node.domain not in ("", "ai.onnx"):
        return None
    values = [v for v in node.inputs if v is not None]
    if any(not v.is_initializer() or v.name in parameters or v.const_value is None for v in values):
        return None
    if not values or not all(_is_small(v) for v in [*values, *node.outputs]):
        return None
    held = {str(v.name): constant_of(v) for v in values}
    try:
        results = ReferenceEvaluator(_single(model, node)).run(None, held)
    except Exception:  # the reference has gaps; what it cannot do stays in the graph, and is compiled
        return None
    arrays = [np.asarray(r) for r in results]
    return [ir.tensor(a) for a in arrays] if all(_limit(a.dtype.kind in "biu") >= a.size for a in arrays) else None


def _is_small(value: ir.Value) -> bool:
    """Whether a value may be folded, as far as its size is known (inputs always are known)."""
    if value.shape is None:
        return True
    dims = [d for d in value.shape if isinstance(d, int)]
    if len(dims) < len(value.shape):
        return False
    whole = value.dtype is not None and (value.dtype.is_integer() or value.dtype == ir.DataType.BOOL)
    return math.prod(dims) <= _limit(whole)


def _limit(whole: bool) -> int:
    return INTEGER_LIMIT if whole else LIMIT


def _single(model: ir.Model, node: ir.Node) -> onnx.ModelProto:
    """A model of this one node; its inputs are the node's."""
    proto = ir.to_proto(node)
    values = {v.name: v for v in node.inputs if v is not None}
    inputs = [onnx.helper.make_tensor_value_info(str(n), int(v.dtype or 1), None) for n, v in values.items()]
    outputs = [onnx.helper.make_tensor_value_info(o, 0, None) for o in proto.output if o]
    graph = onnx.helper.make_graph([proto], "node", inputs, outputs)
    opset = onnx.helper.make_opsetid("", model.opset_imports.get("", onnx.defs.onnx_opset_version()))
    return onnx.helper.make_model(graph, opset_imports=[opset])


def _choose_branch(model: ir.Model, node: ir.Node, parameters: frozenset[str]) -> None:
    """If of a known condition -> the nodes of the branch taken."""
    condition = constant_of(node.inputs[0])
    graph = node.graph
    if not isinstance(graph, ir.Graph) or (condition is None and not _squeezes(node)):
        return
    branch = node.attributes["then_branch" if condition is None or condition.all() else "else_branch"].as_graph()
    outputs, nodes = move_in(branch, graph, node)
    replace(node.outputs, outputs)
    remove(graph, [node])
    for moved in nodes:
        if moved.graph is graph:
            _fold_node(model, moved, parameters)


def _squeezes(node: ir.Node) -> bool:
    """Whether an If drops a dimension where it is 1, and else keeps it: PyTorch's `squeeze(dim)`.

    What follows is written for one number of dimensions: that with the dimension gone. Squeeze refuses other sizes."""
    branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    then, other = ([n for n in branch if not is_standard(n, "Constant")] for branch in branches)
    if (
        len(then) != 1
        or len(other) != 1
        or not is_standard(then[0], "Squeeze")
        or not is_standard(other[0], "Identity")
    ):
        return False
    return then[0].inputs[0] is other[0].inputs[0] and then[0].inputs[0] is not None
