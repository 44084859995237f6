"""SequenceAt(SplitToSequence(x), 1) -> Split(x)[1]: lists of tensors whose items are known one by one dissolve.

PyTorch's `split`, `chunk` and `unbind` are exported as sequences. What stays (a list that a loop makes, a position that
only the data tells) is reported by lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from castiron.graph.nodes import add_initializer, constant_of, graphs, is_standard, move_in, remove, replace

Items = tuple[ir.Value, ...]


def dissolve_sequences(model: ir.Model) -> ir.Model:
    """`model` (with sizes) without the sequences whose items are known."""
    for graph in graphs(model.graph):
        lists: dict[ir.Value, Items] = {}
        dead = [node for node in list(graph) if is_standard(node, *_RULES) and _dissolve(graph, node, lists)]
        for node in reversed(dead):
            if not any(v.uses() or v.is_graph_output() for v in node.outputs):
                remove(graph, [node])
    return model


def _dissolve(graph: ir.Graph, node: ir.Node, lists: dict[ir.Value, Items]) -> bool:
    """Puts tensors in place of the node's output, or takes note of the items it stands for."""
    given = [lists.get(v) for v in node.inputs if v is not None]
    if node.op_type in _READ_A_LIST and (not given or given[0] is None):
        return False
    found = _RULES[node.op_type](_Site(graph, node), given[0] or () if given else ())
    if found is None:
        return False
    if isinstance(found, tuple):
        lists[node.outputs[0]] = found
    else:
        replace([node.outputs[0]], [found])
    return True


class _Site:
    """A node of a graph, in front of which others can be put."""

    def __init__(self, graph: ir.Graph, node: ir.Node) -> None:
        self.graph, self.node = graph, node
        self._made = 0

    def integer(self, name: str, default: int) -> int:
        """An attribute."""
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.as_int()

    def known(self, number: int) -> np.ndarray | None:
        """The contents of an input."""
        return constant_of(self.node.inputs[number])

    def has(self, number: int) -> bool:
        return len(self.node.inputs) > number and self.node.inputs[number] is not None

    def constant(self, values: list[int]) -> ir.Value:
        return add_initializer(self.graph, f"{self.node.name}.sizes", np.array(values, np.int64))

    def add(self, op: str, inputs: list[ir.Value], outputs: int = 1, **attributes: int) -> Items:
        """The outputs of a new node."""
        made = ir.node(op, inputs, attributes, num_outputs=outputs, name=f"{self.node.name}.{op}")
        made.metadata_props.update(self.node.metadata_props)
        for value in made.outputs:
            value.name = f"{self.node.outputs[0].name}.part{self._made}"
            self._made += 1
        self.graph.insert_before(self.node, made)
        return tuple(made.outputs)

    def position(self, number: int, count: int) -> int | None:
        """Where input `number` points to in a list of `count` items; None where nobody knows."""
        known = self.known(number)
        at = None if known is None else int(known.item())
        return None if at is None or not -count <= at < count else at % count


def _split(site: _Site, _: Items) -> Items | None:
    x, axis = site.node.inputs[0], site.integer("axis", 0)
    size = None if x is None or x.shape is None else x.shape[axis]
    if x is None or not isinstance(size, int):
        return None
    if site.has(1):
        split = site.known(1)
        if split is None:
            return None
        step = int(split.item()) if split.ndim == 0 else 0
        sizes = [min(step, size - i) for i in range(0, size, step)] if split.ndim == 0 else [int(n) for n in split]
    else:
        sizes = [1] * size
    parts = site.add("Split", [x, site.constant(sizes)], len(sizes), axis=axis) if len(sizes) > 1 else (x,)
    if site.has(1) or site.integer("keepdims", 1):
        return parts
    return tuple(site.add("Squeeze", [part, site.constant([axis])])[0] for part in parts)


def _at(site: _Site, items: Items) -> ir.Value | None:
    position = site.position(1, len(items))
    return None if position is None else items[position]


def _insert(site: _Site, items: Items) -> Items | None:
    tensor = site.node.inputs[1]
    if tensor is None or not site.has(2):
        return None if tensor is None else (*items, tensor)
    known = site.known(2)
    at_end = known is not None and int(known.item()) == len(items)
    position = len(items) if at_end else site.position(2, len(items))
    return None if position is None else (*items[:position], tensor, *items[position:])


def _erase(site: _Site, items: Items) -> Items | None:
    position = site.position(1, len(items)) if site.has(1) else len(items) - 1
    return None if position is None else (*items[:position], *items[position + 1 :])


def _concat(site: _Site, items: Items) -> ir.Value | None:
    axis = site.integer("axis", 0)
    if site.integer("new_axis", 0):
        items = tuple(site.add("Unsqueeze", [item, site.constant([axis])])[0] for item in items)
    return site.add("Concat", list(items), axis=axis)[0] if items else None


def _map(site: _Site, items: Items) -> Items | None:
    """The body, once an item."""
    node = site.node
    if len(node.inputs) != 1 or len(node.outputs) != 1:
        return None
    body = node.attributes["body"].as_graph()
    copies = (body.clone(allow_outer_scope_values=True) for _ in items)
    return tuple(move_in(copy, site.graph, node, [item])[0][0] for copy, item in zip(copies, items))


def _length(site: _Site, items: Items) -> ir.Value:
    return add_initializer(site.graph, f"{site.node.name}.length", np.array(len(items), np.int64))


_READ_A_LIST = frozenset(
    {"SequenceAt", "SequenceInsert", "SequenceErase", "ConcatFromSequence", "SequenceLength", "SequenceMap"}
)

_RULES: Mapping[str, Callable[[_Site, Items], ir.Value | Items | None]] = {
    "SplitToSequence": _split,
    "SequenceConstruct": lambda site, _: tuple(v for v in site.node.inputs if v is not None),
    "SequenceEmpty": lambda site, _: (),
    "SequenceAt": _at,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "ConcatFromSequence": _concat,
    "SequenceLength": _length,
    "SequenceMap": _map,
}
