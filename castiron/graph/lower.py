"""graph -> program: declares the buffers of all values and lets each operator add its steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import mul
from typing import Any

import onnx_ir as ir

from castiron.errors import ModelError, Unsupported
from castiron.graph.control import lower_control
from castiron.graph.equal import equal_sizes
from castiron.graph.faults import NO_LOWERING, Fault, unsupported
from castiron.graph.nodes import (
    bodies,
    captured,
    constant_of,
    graphs,
    is_standard,
    is_wanted,
    module_path,
    operator_name,
    place,
)
from castiron.graph.sizes import elements_of, is_sized, shape_of, size_expr, symbols, unknown_sizes
from castiron.graph.written import expanded
from castiron.ops import registry
from castiron.program.builder import Builder, Tensor
from castiron.program.expr import Const, Expr, apply, cast, constant, free_variables, select, text
from castiron.program.notes import Note, silent
from castiron.program.scalar import C_TYPES
from castiron.program.types import Equal, Kind, Origin, Program, Size


def lower(model: ir.Model, parameters: frozenset[str], note: Note = silent) -> Program:
    """The program of a graph whose sizes are inferred. `parameters` names initializers that become WEIGHT.

    Buffers have the names of their ONNX values. Raises one Unsupported that names all that is not compiled.
    `note` is told of choices that lowerings make.
    """
    return _Lowering(model, parameters, note).program()


class _Lowering:
    def __init__(self, model: ir.Model, parameters: frozenset[str], note: Note) -> None:
        self.graph = model.graph
        self.build = Builder(note, (str(v.name) for v in self.graph.outputs))
        self.faults: list[Fault] = []
        self.tensors: dict[ir.Value, Tensor] = {}
        self.outputs: set[str] = set()
        self.known = symbols(self.graph)
        self._declare_inputs()
        self._declare_initializers(parameters)

    def program(self) -> Program:
        self.lower_nodes(self.graph)
        if self.faults:
            raise unsupported(self.faults)
        outputs = [self._finish_output(value) for value in self.graph.outputs]
        return self.build.program(self.graph.name or "model", [str(v.name) for v in self.graph.inputs], outputs)

    def lower_nodes(self, graph: ir.Graph) -> None:
        """Adds the steps of a graph's nodes; takes note of those that are not compiled."""
        for node in graph:
            try:
                self._lower_node(node)
            except Unsupported as error:
                self.faults.append(Fault.of(node, error))

    def _declare_inputs(self) -> None:
        for name, (source, position) in self.known.items():
            self.build.sizes.append(Size(name, source, position))
        for value in self.graph.inputs:
            self.tensors[value] = self.build.declare(str(value.name), _type(value), shape_of(value), Kind.INPUT)

    def _declare_initializers(self, parameters: frozenset[str]) -> None:
        found = [item for graph in graphs(self.graph) for item in graph.initializers.items()]
        for name, value in found:
            if not value.uses() and not value.is_graph_output():
                continue
            if value.dtype == ir.DataType.STRING:
                continue  # reported with the nodes that read it
            kind = Kind.WEIGHT if name in parameters else Kind.CONSTANT
            array = constant_of(value) if kind == Kind.CONSTANT else None
            self.tensors[value] = self.build.declare(name, _type(value), shape_of(value), kind, array)

    def _lower_node(self, node: ir.Node) -> None:
        operator = registry.find(node)
        if not bodies(node) and (operator is None or operator.lower is None):
            expanded(node)  # says why it was not
            raise Unsupported(NO_LOWERING)
        missing = [v for v in captured(node) if v not in self.tensors]
        if missing:
            for value in missing:
                if value.is_initializer():
                    _type(value)
            return  # a node before it is at fault, and listed
        outer = frozenset(self.build.pending)  # of the node whose body this one is in
        for value in node.outputs:
            self._expect_sizes(value)
        self.build.origin = (Origin(node.name or "", operator_name(node), module_path(node)),)
        if bodies(node):
            lower_control(self, node)
        else:
            assert operator is not None and operator.lower is not None
            self._lower_operator(node, operator.lower)
        if self.build.pending - outer:
            self._refuse_sizes(node, outer)

    def _lower_operator(self, node: ir.Node, lower: registry.Lower) -> None:
        inputs = tuple(None if v is None else self.tensors[v] for v in node.inputs)
        outputs = tuple(self.declare_output(v) for v in node.outputs)
        required = list(self._equal_sizes(node))
        if is_standard(node, "Reshape") and inputs[0] is not None and outputs[0] is not None:
            required += self._equal_counts(node, inputs[0], outputs[0])
        after = [e for e in required if self._is_pending(e.left) or self._is_pending(e.right)]
        for equal in required:
            if equal not in after:
                self.build.require(equal)
        if outputs and all(t is None or t.elements is not None for t in outputs):
            for tensor in outputs:
                if tensor is not None:
                    self._store_elements(tensor)
            return
        lower(registry.Call(node, self.build, inputs, outputs, attributes(node)))
        for equal in after:
            self.build.require(equal)

    def _is_pending(self, size: Expr) -> bool:
        return not self.build.pending.isdisjoint(free_variables(size))

    def _equal_sizes(self, node: ir.Node) -> Iterator[Equal]:
        for a, b in equal_sizes(node):
            left, right = size_expr(a), size_expr(b)
            if left is not right:
                message = f"{operator_name(node)} {place(node)} needs {text(left)} = {text(right)}"
                yield Equal(left, right, message)

    def _equal_counts(self, node: ir.Node, before: Tensor, after: Tensor) -> Iterator[Equal]:
        """A Reshape that keeps the number of elements for some sizes of the inputs only asks for these at run time."""
        left, right = (reduce(mul, t.shape, constant(1)) for t in (before, after))
        shapes = " to ".join("[" + ", ".join(map(text, t.shape)) + "]" for t in (before, after))
        if isinstance(left, Const) and isinstance(right, Const) and left is not right:
            raise ModelError(f"Reshape {place(node)}: {shapes} changes the number of elements")
        if left is not right:
            message = f"Reshape {place(node)} would change the number of elements"
            yield Equal(left, right, message)

    def _expect_sizes(self, value: ir.Value) -> None:
        """Declares the sizes of an output that the node's own lowering must assign, as data tell them."""
        if not is_wanted(value) or not _type(value) or is_sized(value, self.known):
            return
        if value.shape is None:
            raise Unsupported(
                f"{value.name!r} is of unknown rank; export the model without numbers of dimensions that depend on data"
            )
        self.declare_sizes(value)

    def declare_sizes(self, value: ir.Value) -> None:
        """Declares those sizes of a value that nobody knows yet."""
        for name in unknown_sizes(value, self.known):
            self.known[name] = ("", 0)
            self.build.late_size(name)

    def _refuse_sizes(self, node: ir.Node, outer: frozenset[str]) -> None:
        """No step has assigned them."""
        pending, shapes = self.build.pending - outer, [f"{v.name!r} of sizes {v.shape}" for v in node.outputs]
        self.build.pending &= outer
        raise Unsupported(
            f"{', '.join(shapes)}: {', '.join(sorted(pending))} cannot be told before running; pin the inputs' sizes "
            "with --shape NAME=…, or export the model without sizes that depend on data"
        )

    def declare_output(self, value: ir.Value) -> Tensor | None:
        """A buffer for a node's output; None where nothing wants it. What is read again later is no OUTPUT buffer."""
        if not is_wanted(value):
            return None
        result, taken = value in self.graph.outputs, value.name in self.build.buffers
        if result and not value.uses() and not taken:
            tensor = self.build.declare(str(value.name), _type(value), shape_of(value), Kind.OUTPUT)
        elif result or taken:
            tensor = self.build.temp(_type(value), shape_of(value), f"{value.name}.value")
        else:
            tensor = self.build.declare(str(value.name), _type(value), shape_of(value), Kind.TEMP)
        self.tensors[value] = Tensor(tensor.buffer, elements_of(value, frozenset(self.known)))
        return self.tensors[value]

    def _store_elements(self, tensor: Tensor) -> None:
        """Integers that follow from sizes are stored as such, whatever operators made them."""
        elements = tensor.elements or ()
        self.build.compute(tensor, lambda *index: _element(elements, index, tensor.type))

    def _finish_output(self, value: ir.Value) -> str:
        """The name of the OUTPUT buffer of `value`, copied from where the value is if that is another buffer."""
        source = self.tensors[value]
        if source.buffer.kind == Kind.OUTPUT and source.name not in self.outputs:
            self.outputs.add(source.name)
            return source.name
        name, number = str(value.name), 2
        while name in self.build.buffers:
            name, number = f"{value.name}.{number}", number + 1
        self.build.origin = (Origin(name, "Identity"),)
        out = self.build.declare(name, source.type, source.shape, Kind.OUTPUT)
        self.build.compute(out, source.load)
        return name


def attributes(node: ir.Node) -> Mapping[str, Any]:
    """A node's attributes as Python values; tensors as arrays."""
    return {name: _attribute(a) for name, a in node.attributes.items()}


def _attribute(attribute: ir.Attr) -> Any:
    if attribute.type == ir.AttributeType.TENSOR:
        return attribute.as_tensor().numpy()
    if attribute.type == ir.AttributeType.TENSORS:
        return [t.numpy() for t in attribute.as_tensors()]
    if attribute.type in (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS):
        return list(attribute.value)
    return attribute.value


def _element(elements: tuple[Expr, ...], index: tuple[Expr, ...], type: ir.DataType) -> Expr:
    value = cast(elements[-1], type) if elements else constant(0, type)
    for position in reversed(range(len(elements) - 1)):
        value = select(apply("eq", index[0], position), cast(elements[position], type), value)
    return value


def _type(value: ir.Value) -> ir.DataType:
    if not isinstance(value.type, ir.TensorType | None) or value.dtype is None or value.dtype == ir.DataType.UNDEFINED:
        raise Unsupported(f"value {value.name!r} is {value.type or 'of unknown type'}; only tensors are compiled")
    if value.dtype == ir.DataType.STRING:
        raise Unsupported(f"value {value.name!r} holds strings; give the model what the strings stand for as numbers")
    if value.dtype not in C_TYPES:
        raise Unsupported(f"value {value.name!r} is of type {value.dtype.name}, which is not compiled")
    return value.dtype
