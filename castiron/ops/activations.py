"""Formulas of one real number: activations and elementary functions, a row each.

Specification: https://onnx.ai/onnx/operators/ (one page an operator, e.g. onnx__Gelu.html)
Opset history: `consumed_inputs` (opset 1) is dropped; the formulas have not changed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt

import numpy as np

from castiron.ops.common import compute_from, drop_consumed_inputs, fail, real
from castiron.ops.registry import Call, Case, Operator
from castiron.program.expr import Expr, apply, cast, select

Formula = Callable[[Expr], Expr]


def expm1(x: Expr) -> Expr:
    """exp(x) - 1 without cancellation near 0, for x <= 0 (or small): tanh(x/2) * (exp(x) + 1)."""
    return apply("tanh", x * 0.5) * (apply("exp", x) + 1)


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x)) = max(x, 0) + log1p(e) with e = exp(-|x|) <= 1.

    log1p adds what rounding 1 + e lost: log(u) + (e - (u - 1)) / u."""
    e = apply("exp", -apply("abs", x))
    u = e + 1
    return apply("max", x, 0) + (apply("log", u) + (e - (u - 1)) / u)


def _one_of(op: str) -> Callable[[Call], Formula]:
    return lambda call: lambda x: apply(op, x)


def _plain(formula: Formula) -> Callable[[Call], Formula]:
    return lambda call: formula


def _leaky_relu(call: Call) -> Formula:
    alpha = call.attribute("alpha", 0.01)
    return lambda x: select(x < 0, x * alpha, x)


def _elu(call: Call) -> Formula:
    alpha = call.attribute("alpha", 1.0)
    return lambda x: select(x < 0, expm1(x) * alpha, x)


def _selu(call: Call) -> Formula:
    alpha = call.attribute("alpha", 1.67326319217681884765625)
    gamma = call.attribute("gamma", 1.05070102214813232421875)
    return lambda x: select(x <= 0, expm1(x) * alpha, x) * gamma


def _celu(call: Call) -> Formula:
    alpha = call.attribute("alpha", 1.0)
    return lambda x: select(x < 0, expm1(x / alpha) * alpha, x)


def _thresholded_relu(call: Call) -> Formula:
    alpha = call.attribute("alpha", 1.0)
    return lambda x: select(x <= alpha, 0, x)


def _hard_sigmoid(call: Call) -> Formula:
    alpha, beta = call.attribute("alpha", 0.2), call.attribute("beta", 0.5)
    return lambda x: apply("max", apply("min", x * alpha + beta, 1), 0)


def _hard_swish(x: Expr) -> Expr:
    return x * apply("min", apply("max", x + 3, 0), 6) / 6


def _gelu(call: Call) -> Formula:
    if call.attribute("approximate", "none") == "tanh":
        return lambda x: x * 0.5 * (apply("tanh", (x + x * x * x * 0.044715) * sqrt(2 / pi)) + 1)
    return lambda x: x * 0.5 * (apply("erf", x * sqrt(0.5)) + 1)


def _swish(call: Call) -> Formula:
    alpha = call.attribute("alpha", 1.0)
    return lambda x: x * apply("sigmoid", x * alpha)


def _shrink(call: Call) -> Formula:
    bias, lambd = call.attribute("bias", 0.0), call.attribute("lambd", 0.5)
    return lambda x: select(x < -lambd, x + bias, select(x > lambd, x - bias, 0))


FORMULAS: dict[str, Callable[[Call], Formula]] = {
    "Acos": _one_of("acos"),
    "Acosh": _one_of("acosh"),
    "Asin": _one_of("asin"),
    "Asinh": _one_of("asinh"),
    "Atan": _one_of("atan"),
    "Atanh": _one_of("atanh"),
    "Celu": _celu,
    "Cos": _one_of("cos"),
    "Cosh": _one_of("cosh"),
    "Elu": _elu,
    "Erf": _one_of("erf"),
    "Exp": _one_of("exp"),
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _plain(_hard_swish),
    "LeakyRelu": _leaky_relu,
    "Log": _one_of("log"),
    "Mish": _plain(lambda x: x * apply("tanh", softplus(x))),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": _one_of("sigmoid"),
    "Sin": _one_of("sin"),
    "Sinh": _one_of("sinh"),
    "Softplus": _plain(softplus),
    "Softsign": _plain(lambda x: x / (apply("abs", x) + 1)),
    "Sqrt": _one_of("sqrt"),
    "Swish": _swish,
    "Tan": _one_of("tan"),
    "Tanh": _one_of("tanh"),
    "ThresholdedRelu": _thresholded_relu,
}


def _lower(call: Call) -> None:
    formula = FORMULAS[call.node.op_type](call)
    if len([t for t in call.inputs if t is not None]) != 1:
        fail(call, "one input expected")
    compute_from(call, lambda x: formula(cast(x, real(x.type))))


_X = np.array([-np.inf, -30, -1.5, -0.5, -1e-6, -0.0, 0, 1e-6, 0.25, 0.999, 2, 30, np.inf, np.nan], np.float32)

_CASES: dict[str, tuple[Case, ...]] = {
    "Elu": (Case("ends", (_X,), {"alpha": 0.7}),),
    "Softplus": (Case("ends", (_X,)),),
    "Selu": (Case("ends", (_X,)),),
    "Gelu": (Case("tanh", (_X[1:-2],), {"approximate": "tanh"}),),
    "HardSigmoid": (Case("ends", (_X,)),),
}

OPERATORS = tuple(
    Operator(name, _lower, upgrade=drop_consumed_inputs, cases=_CASES.get(name, ()), elementwise=True)
    for name in FORMULAS
)
