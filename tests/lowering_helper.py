"""One ONNX node with static shapes -> a program, run by the interpreter: what the operator tests need of the driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from castiron.errors import Unsupported
from castiron.ops.registry import Call, find
from castiron.program.builder import Builder, Tensor
from castiron.program.run import run
from castiron.program.types import Kind

Arrays = Sequence[np.ndarray | None]


def attributes_of(node: ir.Node) -> dict[str, Any]:
    """Attribute values as Python's; tensors as arrays."""
    return {
        a.name: a.value.numpy() if isinstance(a.value, ir.TensorProtocol) else a.value for a in node.attributes.values()
    }


def lower_and_run(
    node: onnx.NodeProto, inputs: Arrays, outputs: Arrays, known: bool = False
) -> list[np.ndarray | None]:
    """The node's outputs; `outputs` gives their types and shapes. `known`: integer inputs are constants."""
    converted = ir.serde.deserialize_node(node)
    operator = find(converted)
    if operator is None or operator.lower is None:
        raise Unsupported(f"operator {node.op_type}")
    build = Builder()

    def declare(array: np.ndarray | None, kind: Kind, name: str) -> Tensor | None:
        if array is None:
            return None
        constant = kind == Kind.INPUT and known and (array.dtype.kind in "ib" or array.size <= 8)
        type = ir.DataType.from_numpy(array.dtype)
        return build.declare(name, type, array.shape, Kind.CONSTANT if constant else kind, array if constant else None)

    given = [declare(a, Kind.INPUT, f"x{i}") for i, a in enumerate(inputs)]
    wanted = [declare(a, Kind.OUTPUT, f"y{i}") for i, a in enumerate(outputs)]
    operator.lower(Call(converted, build, tuple(given), tuple(wanted), attributes_of(converted)))
    fed = {t.name: a for t, a in zip(given, inputs, strict=True) if t is not None and t.buffer.kind == Kind.INPUT}
    names = [t.name for t in wanted if t is not None]
    program = build.program("forward", list(fed), names)
    result = run(program, fed)
    return [None if t is None else result[t.name] for t in wanted]
