"""Steps of optimizers (`ai.onnx.preview.training`): each tensor's new value from its gradient and what is kept of the past.

Specification: https://onnx.ai/onnx/operators/index.html (ai.onnx.preview.training)
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from castiron.ops.body import Body
from castiron.ops.registry import Operator

DOMAIN = "ai.onnx.preview.training"
Values = Sequence[ir.Value | None]


def _sum(body: Body, *parts: ir.Value) -> ir.Value:
    total = parts[0]
    for part in parts[1:]:
        total = body.op("Add", total, part)
    return total


def _times(body: Body, *parts: ir.Value | float) -> ir.Value:
    total = parts[0]
    for part in parts[1:]:
        total = body.op("Mul", total, part)
    assert isinstance(total, ir.Value)
    return total


def _groups(body: Body, count: int) -> list[list[ir.Value]]:
    """Behind the rate and the number of the step: `count` tensors of each kind, in the order of kinds."""
    tensors = [body.input(n) for n in range(2, len(body.node.inputs))]
    each = len(tensors) // count
    body.type = tensors[0].dtype or body.type
    return [tensors[k * each : (k + 1) * each] for k in range(count)]


def _number(body: Body, name: str, default: float = 0.0) -> float:
    return float(body.attribute(name, default))


def _regularized(body: Body, gradient: ir.Value, x: ir.Value) -> ir.Value:
    """The gradient with that of norm_coefficient / 2 * |x|^2."""
    norm = _number(body, "norm_coefficient")
    return _sum(body, gradient, _times(body, x, norm)) if norm else gradient


def _adagrad(body: Body) -> Values:
    """H += g^2, X -= R * g / (sqrt(H) + epsilon), with a rate that decays."""
    xs, gradients, squares = _groups(body, 3)
    step = body.cast(body.input(1), body.type)
    decay = body.op("Add", _times(body, step, _number(body, "decay_factor")), 1.0)
    rate = body.op("Div", body.cast(body.input(0), body.type), decay)
    new, kept = [], []
    for x, gradient, square in zip(xs, gradients, squares, strict=True):
        g = _regularized(body, gradient, x)
        h = _sum(body, square, _times(body, g, g))
        root = body.op("Add", body.op("Sqrt", h), _number(body, "epsilon", 1e-6))
        new.append(body.op("Sub", x, body.op("Div", _times(body, rate, g), root)))
        kept.append(h)
    return [*new, *kept]


def _adam(body: Body) -> Values:
    """Running means of the gradient and its square; their bias is corrected from the second step on."""
    xs, gradients, means, squares = _groups(body, 4)
    alpha, beta = _number(body, "alpha", 0.9), _number(body, "beta", 0.999)
    step, rate = body.cast(body.input(1), body.type), body.cast(body.input(0), body.type)
    powers = [body.op("Pow", body.constant(base), step) for base in (alpha, beta)]
    first, second = (body.op("Sub", body.constant(1.0), p) for p in powers)
    corrected = body.op("Div", _times(body, rate, body.op("Sqrt", second)), first)
    rate = body.op("Where", body.op("Greater", step, body.constant(0)), corrected, rate)
    after = 1 - _number(body, "norm_coefficient_post")
    new, mean_of, square_of = [], [], []
    for x, gradient, mean, square in zip(xs, gradients, means, squares, strict=True):
        g = _regularized(body, gradient, x)
        v = _sum(body, _times(body, mean, alpha), _times(body, g, 1 - alpha))
        h = _sum(body, _times(body, square, beta), _times(body, g, g, 1 - beta))
        root = body.op("Add", body.op("Sqrt", h), _number(body, "epsilon", 1e-6))
        moved = body.op("Sub", x, body.op("Div", _times(body, rate, v), root))
        new.append(moved if after == 1 else _times(body, moved, after))
        mean_of.append(v)
        square_of.append(h)
    return [*new, *mean_of, *square_of]


def _momentum(body: Body) -> Values:
    """V = alpha * V + beta * g, X -= R * V; Nesterov's looks one step ahead. The first step takes g whole."""
    xs, gradients, speeds = _groups(body, 3)
    rate, step = body.cast(body.input(0), body.type), body.cast(body.input(1), body.type)
    alpha, beta = _number(body, "alpha"), _number(body, "beta")
    share = body.op("Where", body.op("Greater", step, body.constant(0)), beta, 1.0)
    new, kept = [], []
    for x, gradient, speed in zip(xs, gradients, speeds, strict=True):
        g = _regularized(body, gradient, x)
        v = _sum(body, _times(body, speed, alpha), _times(body, share, g))
        move = _sum(body, g, _times(body, v, alpha)) if body.attribute("mode") == "nesterov" else v
        new.append(body.op("Sub", x, _times(body, rate, move)))
        kept.append(v)
    return [*new, *kept]


OPERATORS = (
    Operator("Adagrad", domain=DOMAIN, expand=_adagrad),
    Operator("Adam", domain=DOMAIN, expand=_adam),
    Operator("Momentum", domain=DOMAIN, expand=_momentum),
)
