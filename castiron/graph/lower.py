"""graph -> program: declares the buffers of all values and lets each operator add its steps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import mul
from typing import Any

import onnx_ir as ir

from castiron.errors import ModelError, Unsupported
from castiron.graph.equal import equal_sizes
from castiron.graph.faults import DECIDES, NO_LOWERING, Fault, unsupported
from castiron.graph.nodes import bodies, constant_of, is_standard, module_path, operator_name, place
from castiron.graph.sizes import elements_of, is_sized, shape_of, size_expr, symbols
from castiron.graph.written import expanded
from castiron.ops import registry
from castiron.program.builder import Builder, Tensor
from castiron.program.expr import Const, Expr, apply, cast, constant, select, text
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
        self.build = Builder(note)
        self.faults: list[Fault] = []
        self.tensors: dict[ir.Value, Tensor] = {}
        self.outputs: set[str] = set()
        self.known = symbols(self.graph)
        self._declare_inputs()
        self._declare_initializers(parameters)

    def program(self) -> Program:
        for node in self.graph:
            try:
                self._lower_node(node)
            except Unsupported as error:
                self.faults.append(Fault.of(node, error))
        if self.faults:
            raise unsupported(self.faults)
        outputs = [self._finish_output(value) for value in self.graph.outputs]
        return self.build.program(self.graph.name or "model", [str(v.name) for v in self.graph.inputs], outputs)

    def _declare_inputs(self) -> None:
        for name, (source, position) in self.known.items():
            self.build.sizes.append(Size(name, source, position))
        for value in self.graph.inputs:
            self.tensors[value] = self.build.declare(str(value.name), _type(value), shape_of(value), Kind.INPUT)

    def _declare_initializers(self, parameters: frozenset[str]) -> None:
        for name, value in self.graph.initializers.items():
            if not value.uses() and not value.is_graph_output():
                continue
            if value.dtype == ir.DataType.STRING:
                continue  # reported with the nodes that read it
            kind = Kind.WEIGHT if name in parameters else Kind.CONSTANT
            array = constant_of(value) if kind == Kind.CONSTANT else None
            self.tensors[value] = self.build.declare(name, _type(value), shape_of(value), kind, array)

    def _lower_node(self, node: ir.Node) -> None:
        operator = registry.find(node)
        if bodies(node):
            raise Unsupported(DECIDES)
        if operator is None or operator.lower is None:
            expanded(node)  # says why it was not
            raise Unsupported(NO_LOWERING)
        missing = [v for v in node.inputs if v is not None and v not in self.tensors]
        if missing:
            for value in missing:
                if value.is_initializer():
                    _type(value)
            return  # a node before it is at fault, and listed
        for value in node.outputs:
            self._require_sizes(value)
        self.build.origin = (Origin(node.name or "", operator_name(node), module_path(node)),)
        inputs = tuple(None if v is None else self.tensors[v] for v in node.inputs)
        outputs = tuple(self._declare_output(v) for v in node.outputs)
        if is_standard(node, "Reshape") and inputs[0] is not None and outputs[0] is not None:
            self._require_equal_counts(node, inputs[0], outputs[0])
        self._require_equal_sizes(node)
        if outputs and all(t is None or t.elements is not None for t in outputs):
            for tensor in outputs:
                if tensor is not None:
                    self._store_elements(tensor)
            return
        operator.lower(registry.Call(node, self.build, inputs, outputs, attributes(node)))

    def _require_equal_sizes(self, node: ir.Node) -> None:
        for a, b in equal_sizes(node):
            left, right = size_expr(a), size_expr(b)
            if left is not right:
                message = f"{operator_name(node)} {place(node)} needs {text(left)} = {text(right)}"
                self.build.requires.append(Equal(left, right, message))

    def _require_equal_counts(self, node: ir.Node, before: Tensor, after: Tensor) -> None:
        """A Reshape that keeps the number of elements for some sizes of the inputs only asks for these at run time."""
        left, right = (reduce(mul, t.shape, constant(1)) for t in (before, after))
        shapes = " to ".join("[" + ", ".join(map(text, t.shape)) + "]" for t in (before, after))
        if isinstance(left, Const) and isinstance(right, Const) and left is not right:
            raise ModelError(f"Reshape {place(node)}: {shapes} changes the number of elements")
        if left is not right:
            message = f"Reshape {place(node)} would change the number of elements"
            self.build.requires.append(Equal(left, right, message))

    def _require_sizes(self, value: ir.Value) -> None:
        if _is_wanted(value) and _type(value) and not is_sized(value, self.known):
            sizes = "of unknown rank" if value.shape is None else f"of sizes {value.shape}"
            raise Unsupported(
                f"{value.name!r} is {sizes}, which cannot be told before running; pin the inputs' sizes with "
                "--shape NAME=…, or export the model without sizes that depend on data"
            )

    def _declare_output(self, value: ir.Value) -> Tensor | None:
        """A buffer for a node's output; None where nothing wants it. What is read again later is no OUTPUT buffer."""
        if not _is_wanted(value):
            return None
        if value.is_graph_output() and not value.uses() and value.name not in self.build.buffers:
            tensor = self.build.declare(str(value.name), _type(value), shape_of(value), Kind.OUTPUT)
        elif value.is_graph_output():
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


def _is_wanted(value: ir.Value) -> bool:
    return bool(value.name) and (bool(value.uses()) or value.is_graph_output())


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
