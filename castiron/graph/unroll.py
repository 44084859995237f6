"""Scan, or Loop, of few turns that are known at build -> its body, once a turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from castiron.graph.nodes import (
    add_initializer,
    constant_of,
    goes_on,
    graphs,
    is_standard,
    move_in,
    remove,
    replace,
    scanned,
    unique_names,
)

MOST = 4096
"""Nodes that a loop may become."""


@dataclass(frozen=True)
class _Scanned:
    """What a turn takes a slice of, or adds one to: along which dimension, and whether from the end."""

    axis: int = 0
    backwards: bool = False


@dataclass(frozen=True)
class _Turns:
    """A loop of `count` turns. The body takes `counted` values that are numbers of turns and conditions, then states,
    then slices of `inputs`; it gives as many conditions (`checked`), states, and slices of outputs."""

    node: ir.Node
    body: ir.Graph
    count: int
    states: Sequence[ir.Value]
    counted: int
    checked: int
    inputs: Sequence[tuple[ir.Value, _Scanned]]
    outputs: Sequence[_Scanned]


def unroll(model: ir.Model) -> ir.Model:
    """`model` (with sizes) with such loops unrolled. Others stay, and lowering refuses them."""
    for node in list(model.graph):
        turns = _scan(node) if is_standard(node, "Scan") else _loop(node) if is_standard(node, "Loop") else None
        if turns is not None and turns.count and turns.count * _nodes(turns.body) <= MOST:
            _unroll(model.graph, turns)
    return model


def _nodes(body: ir.Graph) -> int:
    return sum(len(inner) for inner in graphs(body)) + len(body.inputs)


def _scan(node: ir.Node) -> _Turns | None:
    body = node.attributes["body"].as_graph()
    many = node.attributes.get_int("num_scan_inputs")
    given = [v for v in node.inputs if v is not None]
    if many is None or len(given) != len(node.inputs):
        return None
    first = len(given) - many
    inputs = list(zip(given[first:], _scanned(node, "input", many)))
    lengths = {v.shape[s.axis] if v.shape is not None else None for v, s in inputs}
    length = lengths.pop() if len(lengths) == 1 else None
    if not isinstance(length, int):
        return None
    outputs = _scanned(node, "output", len(body.outputs) - first)
    return _Turns(node, body, length, given[:first], 0, 0, inputs, outputs)


def _scanned(node: ir.Node, kind: str, count: int) -> list[_Scanned]:
    return [_Scanned(*way) for way in scanned(node, kind, count)]


def _loop(node: ir.Node) -> _Turns | None:
    """A Loop whose condition always holds; None where data may end it."""
    body = node.attributes["body"].as_graph()
    count, condition = constant_of(node.inputs[0]), constant_of(node.inputs[1])
    runs = node.inputs[1] is None or (condition is not None and condition.all())
    states = [v for v in node.inputs[2:] if v is not None]
    if count is None or not runs or not goes_on(body) or len(states) != len(node.inputs) - 2:
        return None
    outputs = [_Scanned() for _ in body.outputs[1 + len(states) :]]
    return _Turns(node, body, max(0, int(count.reshape(()))), states, 2, 1, (), outputs)


def _unroll(graph: ir.Graph, turns: _Turns) -> None:
    states = list(turns.states)
    collected: list[list[ir.Value]] = [[] for _ in turns.outputs]
    for turn in range(turns.count):
        body = turns.body.clone(allow_outer_scope_values=True)
        given = [*_counts(graph, turns, turn), *states, *(_slice(graph, turns, turn, *i) for i in turns.inputs)]
        results = move_in(body, graph, turns.node, given)[0][turns.checked :]
        states = results[: len(states)]
        for slices, value in zip(collected, results[len(states) :], strict=True):
            slices.append(value)
    stacked = [_stack(graph, turns, s, v) for s, v in zip(turns.outputs, collected, strict=True)]
    named = [_own(graph, turns, v) for v in states]
    replace(turns.node.outputs, [*named, *stacked][: len(turns.node.outputs)])
    remove(graph, [turns.node])


def _counts(graph: ir.Graph, turns: _Turns, turn: int) -> list[ir.Value]:
    values = [np.array(turn, np.int64), np.array(True)][: turns.counted]
    return [add_initializer(graph, f"{turns.node.name}.turn", value) for value in values]


def _slice(graph: ir.Graph, turns: _Turns, turn: int, value: ir.Value, scanned: _Scanned) -> ir.Value:
    position = turns.count - 1 - turn if scanned.backwards else turn
    index = add_initializer(graph, f"{turns.node.name}.turn", np.array(position, np.int64))
    return _insert(graph, turns, "Gather", [value, index], f"{value.name}.slice", axis=scanned.axis)


def _stack(graph: ir.Graph, turns: _Turns, scanned: _Scanned, slices: Sequence[ir.Value]) -> ir.Value:
    axis = add_initializer(graph, f"{turns.node.name}.axis", np.array([scanned.axis], np.int64))
    rows = [_insert(graph, turns, "Unsqueeze", [v, axis], f"{v.name}.row") for v in slices]
    ordered = rows[::-1] if scanned.backwards else rows
    return _insert(graph, turns, "Concat", ordered, f"{turns.node.name}.stacked", axis=scanned.axis)


def _own(graph: ir.Graph, turns: _Turns, value: ir.Value) -> ir.Value:
    """A value of this loop's own, which can take the name of the loop's output."""
    return _insert(graph, turns, "Identity", [value], f"{value.name}.last")


def _insert(
    graph: ir.Graph, turns: _Turns, op: str, inputs: Sequence[ir.Value], name: str, **attributes: int
) -> ir.Value:
    node = ir.node(op, inputs, attributes, name=turns.node.name, metadata_props=dict(turns.node.metadata_props))
    node.outputs[0].name = name
    unique_names(graph, [node])
    graph.insert_before(turns.node, node)
    return node.outputs[0]
