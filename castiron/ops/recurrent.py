"""Recurrent layers: the input's part of all steps is one product of matrices, the rest a kernel of the runtime.

Specification: https://onnx.ai/onnx/operators/onnx__LSTM.html, onnx__GRU.html, onnx__RNN.html
Opset history: `output_sequence` (before 7) is said by which outputs have names; `layout` came with 14.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx_ir import DataType

from castiron.ops.common import ONE, ZERO, drop_attributes, fail, static
from castiron.ops.matmul import panel_operand, panels, product_kernel
from castiron.ops.registry import Call, Case, Operator
from castiron.program.builder import Tensor
from castiron.program.expr import Expr, constant, select

# Name -> number of enum ci_activation, default alpha and beta.
ACTIVATIONS: dict[str, tuple[int, float, float]] = {
    "sigmoid": (0, 0.0, 0.0),
    "tanh": (1, 0.0, 0.0),
    "relu": (2, 0.0, 0.0),
    "affine": (3, 1.0, 0.0),
    "leakyrelu": (4, 0.01, 0.0),
    "thresholdedrelu": (5, 1.0, 0.0),
    "scaledtanh": (6, 1.0, 1.0),
    "hardsigmoid": (7, 0.2, 0.5),
    "elu": (8, 1.0, 0.0),
    "softsign": (9, 0.0, 0.0),
    "softplus": (10, 0.0, 0.0),
}
_WITH_ALPHA = {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
_WITH_BETA = {"affine", "scaledtanh", "hardsigmoid"}


@dataclass(frozen=True)
class Cell:
    """A kind of layer: its kernel, how many gates it has, its activations."""

    kernel: str
    gates: int
    activations: tuple[str, ...]


CELLS = {
    "GRU": Cell("gru", 3, ("Sigmoid", "Tanh")),
    "LSTM": Cell("lstm", 4, ("Sigmoid", "Tanh", "Tanh")),
    "RNN": Cell("rnn", 1, ("Tanh",)),
}


def _activations(call: Call, cell: Cell, directions: int) -> list[dict[str, int | float]]:
    """Parameters of the kernel's activations, a dictionary a direction. Alphas and betas go to those that take one."""
    given = call.attribute("activations") or list(cell.activations) * directions
    alphas, betas = (list(call.attribute(f"activation_{n}") or []) for n in ("alpha", "beta"))
    found: list[dict[str, int | float]] = []
    for number, name in enumerate(given):
        if name.lower() not in ACTIVATIONS:
            fail(call, f"activation {name}")
        kind, alpha, beta = ACTIVATIONS[name.lower()]
        alpha = alphas.pop(0) if alphas and name.lower() in _WITH_ALPHA else alpha
        beta = betas.pop(0) if betas and name.lower() in _WITH_BETA else beta
        direction, place = divmod(number, len(cell.activations))
        found += [{}] if place == 0 else []
        found[direction] |= {
            f"activations[{place}].kind": kind,
            f"activations[{place}].alpha": float(alpha),
            f"activations[{place}].beta": float(beta),
        }
    return found


def _turned(call: Call, x: Tensor | None, order: Sequence[int]) -> Tensor | None:
    """x with its dimensions in another order; x itself where layout 0 says they are right."""
    if x is None or not call.attribute("layout", 0):
        return x
    turned = call.build.temp(x.type, [x.shape[d] for d in order], f"{x.name}.turned")
    place = [order.index(d) for d in range(x.rank)]
    return call.build.compute(turned, lambda *index: x.load(*(index[p] for p in place)))


@dataclass(frozen=True)
class Layer:
    """One node: operands with time first, as the kernel takes them, and sizes."""

    call: Call
    cell: Cell
    x: Tensor  # [steps, batch, features]
    hidden: Expr
    directions: int

    def projected(self, direction: int) -> Tensor:
        """x W^T + bias of all steps, [steps, batch, gates * hidden]."""
        call, build = self.call, self.call.build
        w, steps, batch, features = call.input(1), *self.x.shape
        width, at = self.hidden * self.cell.gates, constant(direction)
        packed = panels(build, f"{w.name}.{direction}", (), width, (features,), lambda column, k: w.load(at, column, k))
        gates = build.temp(DataType.FLOAT, (steps, batch, width), f"{call.node.name or self.cell.kernel}.gates")
        step, entry, column = build.axes(gates.shape)
        (k,) = build.axes([features])
        left, place = self.x.load(step.var, entry.var, k.var), (step.var, entry.var, column.var)
        outer, row = (entry, step) if batch is ONE else (step, entry)
        bias = self._bias(direction)
        summed = gates if bias is None else build.temp(gates.type, gates.shape, f"{gates.name}.product")
        product_kernel(build, summed, (outer,), row, column, k, left, panel_operand(packed, ()), place)
        return gates if bias is None else build.compute(gates, lambda *i: summed.load(*i) + bias.load(i[2]))

    def _bias(self, direction: int) -> Tensor | None:
        """The input's bias and the state's; without the latter's last gate where a GRU resets after the product."""
        b = self.call.optional(3)
        if b is None:
            return None
        width, at = self.hidden * self.cell.gates, constant(direction)
        later = self.cell.kernel == "gru" and self.call.attribute("linear_before_reset", 0)
        total = self.call.build.temp(b.type, (width,), f"{b.name}.{direction}.sum")

        def value(j: Expr) -> Expr:
            both = b.load(at, j) + b.load(at, width + j)
            return select(j < self.hidden * 2, both, b.load(at, j)) if later else both

        return self.call.build.compute(total, value)

    def row(self, number: int, direction: int, start: Expr, size: Expr, hint: str) -> Tensor | None:
        """Part of a [directions, …] input as an array of its own."""
        tensor = self.call.optional(number)
        if tensor is None:
            return None
        part = self.call.build.temp(tensor.type, (size,), f"{tensor.name}.{direction}.{hint}")
        return self.call.build.compute(part, lambda j: tensor.load(constant(direction), start + j))

    def operands(self, direction: int, states: dict[str, Tensor]) -> dict[str, Tensor]:
        """What one call of the kernel reads."""
        call, r, at = self.call, self.call.input(2), constant(direction)
        width = self.hidden * self.cell.gates
        found = {
            "gates": self.projected(direction),
            "recurrent": panels(
                call.build, f"{r.name}.{direction}", (), width, (self.hidden,), lambda column, k: r.load(at, column, k)
            ),
            **states,
        }
        extra: dict[str, Tensor | None] = {"lengths": call.optional(4)}
        if self.cell.kernel == "gru" and call.attribute("linear_before_reset", 0):
            extra["recurrent_bias"] = self.row(3, direction, self.hidden * 5, self.hidden, "recurrent")
        if self.cell.kernel == "lstm":
            extra["peephole"] = self.row(7, direction, ZERO, self.hidden * 3, "peephole")
        return found | {name: tensor for name, tensor in extra.items() if tensor is not None}

    def run(self, direction: int, states: dict[str, Tensor], outputs: dict[str, Tensor]) -> None:
        """Adds the steps of one direction."""
        call, (steps, batch, _) = self.call, self.x.shape
        count = self.cell.gates * batch * self.hidden + 2 * batch * self.hidden
        scratch = call.build.temp(DataType.FLOAT, (count,), f"{call.node.name or self.cell.kernel}.scratch")
        kind = call.attribute("direction", "forward")
        params: dict[str, Expr | int | float] = {
            "steps": steps,
            "batch": batch,
            "hidden": self.hidden,
            "directions": self.directions,
            "direction": direction,
            "reverse": int(kind == "reverse" or direction == 1),
            "input_forget": int(call.attribute("input_forget", 0)),
            "linear_before_reset": int(call.attribute("linear_before_reset", 0)),
            "clip": float(call.attribute("clip", 0.0)),
            **_activations(call, self.cell, self.directions)[direction],
        }
        operands = self.operands(direction, states)
        call.build.whole_kernel(self.cell.kernel, {**outputs, "scratch": scratch}, operands, params)


Turn = tuple[Tensor, Tensor, tuple[int, ...]]
"""An output, the kernel's own form of it, and where the dimensions of the latter are in the former."""


def _outputs(call: Call, names: Sequence[str]) -> tuple[dict[str, Tensor], list[Turn]]:
    """The kernel's outputs by field, and those to turn afterwards."""
    fields: dict[str, Tensor] = {}
    turned: list[Turn] = []
    for name, out in zip(names, call.outputs, strict=False):
        if out is None:
            continue
        order: tuple[int, ...] = (1, 2, 0, 3) if name == "y" else (1, 0, 2)
        if call.attribute("layout", 0):
            inner = call.build.temp(out.type, [out.shape[d] for d in order], f"{out.name}.turned")
            turned.append((out, inner, order))
            fields[name] = inner
        else:
            fields[name] = out
    return fields, turned


def _lower(call: Call) -> None:
    cell = CELLS[call.node.op_type]
    if call.input(0).type != DataType.FLOAT:
        fail(call, f"type {call.input(0).type.name}; only FLOAT is compiled")
    directions = static(call.input(1).shape[0]) or 1
    x = _turned(call, call.input(0), (1, 0, 2))
    assert x is not None
    layer = Layer(call, cell, x, call.input(2).shape[2], directions)
    given = {"h0": _turned(call, call.optional(5), (1, 0, 2))}
    if cell.kernel == "lstm":
        given["c0"] = _turned(call, call.optional(6), (1, 0, 2))
    states = {name: tensor for name, tensor in given.items() if tensor is not None}
    outputs, turned = _outputs(call, ("y", "yh", "yc"))
    for direction in range(directions):
        layer.run(direction, states, outputs)
    for out, inner, order in turned:
        call.build.compute(out, lambda *index, inner=inner, order=order: inner.load(*(index[d] for d in order)))


_upgrade = drop_attributes("output_sequence", before=7)
_R = np.random.default_rng(4)


def _f(*shape: int) -> np.ndarray:
    return _R.standard_normal(shape, np.float32) * np.array(0.5, np.float32)


def _case(gates: int, name: str, *more: np.ndarray | None, **attributes: int | str) -> Case:
    """Five steps of a batch of 2, 3 features, 4 hidden, both directions."""
    weights = (_f(5, 2, 3), _f(2, gates * 4, 3), _f(2, gates * 4, 4), _f(2, gates * 8))
    return Case(name, (*weights, *more), {"hidden_size": 4, "direction": "bidirectional", **attributes}, outputs=2)


OPERATORS = (
    Operator("GRU", _lower, upgrade=_upgrade, cases=(_case(3, "both"), _case(3, "reset later", linear_before_reset=1))),
    Operator("LSTM", _lower, upgrade=_upgrade, cases=(_case(4, "both", None, _f(2, 2, 4), _f(2, 2, 4)),)),
    Operator("RNN", _lower, upgrade=_upgrade, cases=(_case(1, "both"),)),
)
