"""Rules of size inference for Loop: states whose sizes change from turn to turn, and turns that only the run counts."""

from __future__ import annotations

import re

import onnx_ir as ir
from onnx_shape_inference import SYM_DATA_KEY, ShapeInferenceContext, _engine

from castiron.graph.nodes import captured, constant_of, goes_on, graphs

Dim = int | ir.SymbolicDim


def forget(graph: ir.Graph) -> None:
    """Takes off what inference knows of the values inside a graph."""
    for inner in graphs(graph):
        for value in (v for node in inner for v in node.outputs):
            value.shape, value.const_value = None, None
            value.metadata_props.pop(SYM_DATA_KEY, None)
        for node in inner:
            _forget_inputs(node)


def _forget_inputs(node: ir.Node) -> None:
    """What is fed to a Loop's body has the sizes of what feeds it, whatever an exporter wrote."""
    if node.op_type != "Loop" or "body" not in node.attributes:
        return
    number, going, *states = node.attributes["body"].as_graph().inputs
    for value in (number, going):
        value.shape = ir.Shape([]) if value.shape is None else value.shape
    for value in states:
        value.shape = None


def loop(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """A size of a state that a turn changes is a symbol of its own in the body, and another one behind the loop."""
    body = node.attributes["body"].as_graph()
    states = list(zip(body.inputs[2:], body.outputs[1:]))
    own: set[str] = set()
    while _widen(ctx, states, own):  # each round makes a further size a symbol
        forget(body)
        _engine._process_graph(ctx, body, warn_on_missing=False)
    for value, (state, result) in zip(node.outputs, states):
        if state.shape is None or result.shape is None or len(state.shape) != len(result.shape):
            continue
        dims = [ctx.new_symbolic_dim() if str(d) in own else d for d in state.shape]
        ctx.set_shape_and_dtype(value, ir.Shape(dims), result.dtype or state.dtype)
    outside = _symbols(captured(node))
    trip = _trip(ctx, node, body)
    for value, result in zip(node.outputs[len(states) :], body.outputs[1 + len(states) :]):
        if result.shape is not None and result.dtype is not None:
            dims = [d if isinstance(d, int) or _names(d) <= outside else ctx.new_symbolic_dim() for d in result.shape]
            ctx.set_shape_and_dtype(value, ir.Shape([trip or ctx.new_symbolic_dim(), *dims]), result.dtype)


def _widen(ctx: ShapeInferenceContext, states: list[tuple[ir.Value, ir.Value]], own: set[str]) -> bool:
    """Gives symbols to the sizes of states that a turn changes; False where there are none any more."""
    changed = False
    for state, result in states:
        if state.shape is None or result.shape is None or len(state.shape) != len(result.shape):
            continue
        dims: list[Dim] = list(state.shape)
        for position, after in enumerate(result.shape):
            if dims[position] != after and str(dims[position]) not in own:
                dims[position] = ctx.new_symbolic_dim()
                own.add(str(dims[position]))
                changed = True
        state.shape = ir.Shape(dims)
    return changed


def _trip(ctx: ShapeInferenceContext, node: ir.Node, body: ir.Graph) -> Dim | None:
    """The number of turns where nothing but their count ends the loop."""
    condition = constant_of(node.inputs[1])
    runs = node.inputs[1] is None or (condition is not None and bool(condition.all()))
    if node.inputs[0] is None or not runs or not goes_on(body):
        return None
    count = ctx.get_symbolic_value(node.inputs[0])
    if count is None or len(count) != 1:
        return None
    return max(0, count[0]) or None if isinstance(count[0], int) else count[0]


def _symbols(values: list[ir.Value]) -> set[str]:
    dims = [d for v in values for d in v.shape or () if not isinstance(d, int)]
    return set().union(*map(_names, dims))


def _names(dim: ir.SymbolicDim) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", str(dim.value)))
