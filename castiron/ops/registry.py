"""The operators castiron knows: whatever the files of this folder list in their `OPERATORS`.

A family's file holds its specification links, `upgrade` of old spellings, `lower` and its own test cases; nothing else
needs an edit to add one. Files are found by being in the folder (not by import side effect: each just lists its rows).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import onnx_ir as ir

from castiron.errors import Unsupported
from castiron.ops.body import Body
from castiron.program.builder import Builder, Tensor
from castiron.program.expr import INT64, Const, Expr, Var, cast, constant


@dataclass(frozen=True)
class Call:
    """One node on its way into the program: its inputs and outputs as tensors, its attributes as Python values.

    An absent optional input or output is None. Output tensors are declared (type and shape are inferred) and empty:
    `lower` adds the steps that fill them.
    """

    node: ir.Node
    build: Builder
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]
    attributes: Mapping[str, Any]

    @property
    def out(self) -> Tensor:
        """The first output."""
        out = self.outputs[0]
        assert out is not None
        return out

    def input(self, number: int) -> Tensor:
        """Input `number`, which the specification requires."""
        found = self.optional(number)
        if found is None:
            raise Unsupported(f"{self.node.op_type} {self.node.name!r}: input {number} is missing")
        return found

    def optional(self, number: int) -> Tensor | None:
        """Input `number`, or None."""
        return self.inputs[number] if number < len(self.inputs) else None

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value (int, float, str, list, TensorProto as ndarray), or `default`."""
        return self.attributes.get(name, default)

    def known(self, number: int, why: str = "") -> np.ndarray | None:
        """The value of input `number` where it is absent (None) or known at build; else the node is Unsupported."""
        tensor = self.optional(number)
        if tensor is None:
            return None
        if tensor.value is None:
            where = f"{self.node.op_type} {self.node.name!r}: input {number} ({why or tensor.name})"
            raise Unsupported(f"{where} must be known at build")
        return tensor.value

    def sizes(self, *values: Expr, output: int = 0, hint: str = "size") -> None:
        """What data say of the shape of an output: `values` for its dimensions, as far as nobody knows them yet."""
        out = self.outputs[output]
        if out is not None:
            pending = {d: v for d, v in zip(out.shape, values, strict=True) if isinstance(d, Var)}
            self.build.assign(
                {d: v for d, v in pending.items() if d.name in self.build.pending}, hint=f"{out.name}.{hint}"
            )

    def integers(self, number: int, why: str = "") -> tuple[Expr, ...]:
        """The elements of integer input `number` in row-major order: known at build, or from sizes, or from data.

        Unsupported where nobody knows how many there are."""
        tensor = self.input(number)
        if tensor.value is None and tensor.elements is not None:
            return tensor.elements
        if tensor.value is None and tensor.rank <= 1 and all(isinstance(d, Const) for d in tensor.shape):
            counts = [range(int(d.value)) for d in tensor.shape if isinstance(d, Const)]
            return tuple(cast(tensor.load(*map(constant, at)), INT64) for at in product(*counts))
        value = self.known(number, why)
        assert value is not None
        return tuple(constant(int(v)) for v in value.flat)


Lower = Callable[[Call], None]
Upgrade = Callable[[ir.Node, int], Sequence[ir.Node] | None]
Expand = Callable[[Body], Sequence[ir.Value | None]]


@dataclass(frozen=True)
class Case:
    """A test case beyond the official ones: a node's attributes and its inputs; the meaning is onnx.reference's."""

    name: str
    inputs: tuple[np.ndarray | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1


@dataclass(frozen=True)
class Operator:
    """A row of the registry.

    name, domain: as in the specification. lower: adds the steps of one node. upgrade(node, opset): the nodes that say
    the same in the newest opset (the last one's outputs stand for the node's), or None where the old spelling is the
    newest's too. expand(body), in place of `lower`: writes the node in standard operators and gives the values that
    stand for its outputs. cases: inputs worth testing.
    elementwise: whether element i of the output depends on element i of the (broadcast) inputs only, so that a
    transpose may be moved across.
    """

    name: str
    lower: Lower | None = None
    domain: str = ""
    upgrade: Upgrade | None = None
    expand: Expand | None = None
    cases: tuple[Case, ...] = ()
    elementwise: bool = False


@cache
def operators() -> Mapping[tuple[str, str], Operator]:
    """(domain, name) -> operator, from every file of this folder."""
    import castiron.ops as folder

    found: dict[tuple[str, str], Operator] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(folder.__path__)):
        for row in getattr(importlib.import_module(f"castiron.ops.{module}"), "OPERATORS", ()):
            if (row.domain, row.name) in found:
                raise ValueError(f"operator {row.domain}::{row.name} has two homes")
            found[row.domain, row.name] = row
    return found


def find(node: ir.Node) -> Operator | None:
    """The operator of a node, or None. `ai.onnx` is the empty domain."""
    return operators().get(("" if node.domain == "ai.onnx" else node.domain, node.op_type))
