"""What an operator's `expand` writes into: the nodes of the newest standard opset that say the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType

from castiron.errors import Unsupported

Operand = ir.Value | None | float | Sequence[int]
"""A value, an absent input, a number (an int is INT64, a float of the body's type), or a vector of INT64."""


class Body:
    """The nodes that stand for `node`, in the order of their making; ranks and types of its inputs are inferred.

    type: that of the first input, which literal floats get."""

    def __init__(self, node: ir.Node) -> None:
        self.node = node
        self.nodes: list[ir.Node] = []
        first = node.inputs[0] if node.inputs else None
        self.type = DataType.FLOAT if first is None or first.dtype is None else first.dtype

    # the node

    def input(self, number: int) -> ir.Value:
        """Input `number`, which the specification requires."""
        found = self.optional(number)
        if found is None:
            self.fail(f"input {number} is missing")
        return found

    def optional(self, number: int) -> ir.Value | None:
        """Input `number`, or None."""
        return self.node.inputs[number] if number < len(self.node.inputs) else None

    def wants(self, number: int) -> bool:
        """Whether the node has output `number`."""
        return number < len(self.node.outputs) and bool(self.node.outputs[number].name)

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value (int, float, str, list, tensor), or `default`."""
        found = self.node.attributes.get(name)
        return default if found is None else found.value

    def known(self, number: int) -> np.ndarray | None:
        """The contents of input `number` where it is there and known at build."""
        value = self.optional(number)
        tensor = None if value is None else ir.convenience.get_const_tensor(value)
        return None if tensor is None else tensor.numpy()

    def fail(self, why: str) -> NoReturn:
        """The node is valid, but nothing here compiles it."""
        raise Unsupported(f"{self.node.op_type} {self.node.name!r}: {why}")

    # writing

    def op(self, op_type: str, *inputs: Operand, domain: str = "", **attributes: Any) -> ir.Value:
        """The output of a further node. Attributes that are None are left out."""
        return self.ops(op_type, 1, *inputs, domain=domain, **attributes)[0]

    def ops(self, op_type: str, outputs: int, *inputs: Operand, domain: str = "", **attributes: Any) -> list[ir.Value]:
        """The outputs of a further node of several."""
        given = {k: v for k, v in attributes.items() if v is not None}
        node = ir.node(op_type, [self._value(i) for i in inputs], given, domain=domain, num_outputs=outputs)
        self.nodes.append(node)
        return list(node.outputs)

    def constant(self, value: Any, type: DataType | None = None) -> ir.Value:
        """A Constant; of the body's type unless another is given."""
        array = np.asarray(value, (type or self.type).numpy())
        return self.op("Constant", value=ir.tensor(array))

    def cast(self, value: ir.Value, type: DataType) -> ir.Value:
        """`value` as `type`."""
        return self.op("Cast", value, to=int(type))

    def _value(self, operand: Operand) -> ir.Value | None:
        if operand is None or isinstance(operand, ir.Value):
            return operand
        return self.constant(operand, self.type if isinstance(operand, float) else DataType.INT64)


def rank(value: ir.Value) -> int:
    """The number of dimensions; Unsupported where inference does not know it."""
    if value.shape is None:
        raise Unsupported(f"the number of dimensions of {value.name!r} is unknown")
    return len(value.shape)


def size(value: ir.Value, axis: int) -> int | None:
    """The size of a dimension where it is a number."""
    rank(value)
    assert value.shape is not None
    found = value.shape[axis]
    return found if isinstance(found, int) else None
