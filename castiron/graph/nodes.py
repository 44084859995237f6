"""What several passes ask of a graph: where a node comes from, what depends on weights alone; replacing values."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import onnx_ir as ir

_SCOPES = "pkg.torch.onnx.name_scopes"
_TRACE = "pkg.torch.onnx.stack_trace"


def is_standard(node: ir.Node, *names: str) -> bool:
    """Whether `node` is one of these operators of the standard domain."""
    return node.domain in ("", "ai.onnx") and node.op_type in names


def operator_name(node: ir.Node) -> str:
    """`Conv`, or `com.microsoft::FusedConv` outside the standard domain."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def module_path(node: ir.Node) -> str:
    """The path of the nn.Module that a node comes from (`layers.0.conv`), or "" where no exporter recorded it."""
    scopes = node.metadata_props.get(_SCOPES)
    if scopes:
        try:
            path = [str(s) for s in ast.literal_eval(scopes)]
        except (ValueError, SyntaxError):
            path = []
        return path[-2] if len(path) > 1 else ""
    name = node.name or ""
    return ".".join(name.split("/")[1:-1]) if name.startswith("/") else ""  # how the TorchScript exporter names nodes


def source_line(node: ir.Node) -> str:
    """`file.py:12`, the line of the user's forward that made the node, or ""."""
    found = re.findall(r'File "([^"]+)", line (\d+)', node.metadata_props.get(_TRACE, ""))
    own = [f"{file}:{line}" for file, line in found if "site-packages" not in file] or [f"{f}:{n}" for f, n in found]
    return own[-1] if own else ""


def place(node: ir.Node) -> str:
    """Where a node is, for messages: its name and what the exporter recorded of its origin."""
    recorded = ", ".join(part for part in (module_path(node), source_line(node)) if part)
    return f"{node.name!r}" + (f" ({recorded})" if recorded else "")


def graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    """The graph and all graphs inside its nodes."""
    yield graph
    for node in graph:
        yield from (inner for body in bodies(node) for inner in graphs(body))


def bodies(node: ir.Node) -> list[ir.Graph]:
    """The sub-graphs of a node."""
    found: list[ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            found.append(attribute.as_graph())
        elif attribute.type == ir.AttributeType.GRAPHS:
            found.extend(attribute.as_graphs())
    return found


def captured(node: ir.Node) -> list[ir.Value]:
    """The values that a node reads, those that its sub-graphs take from outside among them."""
    found = [v for v in node.inputs if v is not None]
    for body in bodies(node):
        own = {*body.inputs, *body.initializers.values()}
        for inner in body:
            found += [v for v in captured(inner) if v not in own]
            own.update(inner.outputs)
        found += [v for v in body.outputs if v not in own]
    return found


def is_wanted(value: ir.Value) -> bool:
    """Whether something reads a node's output."""
    return bool(value.name) and (bool(value.uses()) or value.is_graph_output())


def scanned(node: ir.Node, kind: str, count: int) -> list[tuple[int, bool]]:
    """What a Scan takes slices of ("input") or stacks ("output"): along which axis, and whether from the end."""
    axes = node.attributes.get_ints(f"scan_{kind}_axes", [0] * count)
    directions = node.attributes.get_ints(f"scan_{kind}_directions", [0] * count)
    return [(axis, bool(direction)) for axis, direction in zip(axes, directions)]


def goes_on(body: ir.Graph) -> bool:
    """Whether the condition that a Loop's body gives is always true: a constant, or the one it was given."""
    value: ir.Value | None = body.outputs[0]
    while value is not None and (made := value.producer()) is not None and is_standard(made, "Identity"):
        value = made.inputs[0]
    known = constant_of(value)
    return value is body.inputs[1] or (known is not None and bool(known.all()))


def weight_values(graph: ir.Graph) -> set[ir.Value]:
    """The values that depend on initializers alone, the initializers among them."""
    found = set(graph.initializers.values())
    for node in graph:
        if node.inputs and not bodies(node) and all(v is None or v in found for v in node.inputs):
            found.update(node.outputs)
    return found


def constant_of(value: ir.Value | None) -> np.ndarray | None:
    """The contents of an initializer or of a value known by inference."""
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def add_initializer(graph: ir.Graph, name: str, tensor: ir.TensorProtocol | np.ndarray) -> ir.Value:
    """A new initializer of `graph` under `name`, or under that name with a number behind it where it is taken."""
    taken = {v.name for node in graph for v in node.outputs} | set(graph.initializers) | {v.name for v in graph.inputs}
    unique, number = name, 2
    while unique in taken:
        unique, number = f"{name}.{number}", number + 1
    held = ir.tensor(tensor, name=unique) if isinstance(tensor, np.ndarray) else tensor
    value = ir.Value(name=unique, shape=ir.Shape([*held.shape]), type=ir.TensorType(held.dtype), const_value=held)
    graph.register_initializer(value)
    return value


def replace(old: Sequence[ir.Value], new: Sequence[ir.Value]) -> None:
    """Lets the users of `old` (and the graph's outputs) read `new`; names of graph outputs survive."""
    for before, after in zip(old, new, strict=True):
        renamable = after.producer() is not None and not after.is_graph_output()
        if before.is_graph_output() and before.name is not None and renamable:
            name, before.name = before.name, None
            after.name = name
        ir.convenience.replace_all_uses_with(before, after, replace_graph_outputs=True)


def remove(graph: ir.Graph, nodes: Iterable[ir.Node]) -> None:
    """Takes out nodes that nothing reads any more."""
    graph.remove(list(nodes), safe=True)


def move_in(
    body: ir.Graph, graph: ir.Graph, before: ir.Node, inputs: Sequence[ir.Value] = ()
) -> tuple[list[ir.Value], list[ir.Node]]:
    """Moves what a sub-graph of `before` holds into `graph`, ahead of it; gives what were its outputs, and its nodes.

    `inputs` stand for its own. Names stay unique."""
    stand_ins = dict(zip(body.inputs, inputs, strict=True))
    for value in body.initializers.values():
        if value.const_value is not None:
            stand_ins[value] = add_initializer(graph, str(value.name), value.const_value)
    outputs, nodes = [stand_ins.get(v, v) for v in body.outputs], list(body)
    body.outputs.clear()
    for value, stand_in in stand_ins.items():
        ir.convenience.replace_all_uses_with(value, stand_in)
    body.remove(nodes)
    unique_names(graph, nodes)
    graph.insert_before(before, nodes)
    return outputs, nodes


def unique_names(graph: ir.Graph, nodes: Sequence[ir.Node]) -> None:
    """Puts numbers behind the names of outputs of `nodes`, which are not yet in `graph`, that it has already."""
    taken = {v.name for n in graph for v in n.outputs} | set(graph.initializers) | {v.name for v in graph.inputs}
    for value in (v for n in nodes for v in n.outputs):
        base, number = value.name, 2
        while value.name in taken:
            value.name, number = f"{base}.{number}", number + 1
        taken.add(value.name)
