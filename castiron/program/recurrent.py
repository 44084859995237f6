"""What the recurrent kernels of kernels.py compute, in NumPy and float64: one direction of LSTM, GRU, RNN."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from castiron.program.kernels import PANEL

Array = np.ndarray[Any, np.dtype[Any]]
Activation = Callable[[Array], Array]


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(0, x))


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


# In the order of enum ci_activation: the function of (x, alpha, beta).
ACTIVATIONS: tuple[Callable[[Array, float, float], Array], ...] = (
    lambda x, a, b: _sigmoid(x),
    lambda x, a, b: np.tanh(x),
    lambda x, a, b: np.where(x < 0, 0, x),
    lambda x, a, b: a * x + b,
    lambda x, a, b: np.where(x < 0, a * x, x),
    lambda x, a, b: np.where(x < a, 0, x),
    lambda x, a, b: a * np.tanh(b * x),
    lambda x, a, b: np.clip(a * x + b, 0, 1),
    lambda x, a, b: np.where(x < 0, a * np.expm1(x), x),
    lambda x, a, b: x / (1 + np.abs(x)),
    lambda x, a, b: _softplus(x),
)


def run_recurrent(
    kernel: str, operands: Mapping[str, Array], outputs: Mapping[str, Array], params: Mapping[str, float]
) -> None:
    """Fills `outputs` (y, yh, yc) by the kernel's `operands`; all by field of ci_recurrent.

    `params` holds the numbers of ci_recurrent; keyed by its fields (`activations[0].alpha`).
    """
    steps, batch, hidden, direction = (int(params[n]) for n in ("steps", "batch", "hidden", "direction"))
    directions = int(params.get("directions", 1))
    gates = operands["gates"].astype(np.float64).reshape(steps, batch, -1)
    cell = _CELLS[kernel](operands, params, _weights(operands["recurrent"], hidden, gates.shape[2]))
    lengths = operands.get("lengths", np.full(batch, steps)).reshape(-1)
    state = {
        "h": _state(operands.get("h0"), direction, batch, hidden),
        "c": _state(operands.get("c0"), direction, batch, hidden),
    }
    y = np.zeros((steps, batch, hidden))
    for n in range(batch):
        length = int(np.clip(lengths[n], 0, steps))
        times = range(length - 1, -1, -1) if params.get("reverse") else range(length)
        for time in times:
            state["h"][n], state["c"][n] = cell(gates[time, n], state["h"][n], state["c"][n])
            y[time, n] = state["h"][n]
    if "y" in outputs:
        outputs["y"].reshape(steps, directions, batch, hidden)[:, direction] = y
    for field, name in (("yh", "h"), ("yc", "c")):
        if field in outputs:
            outputs[field].reshape(directions, batch, hidden)[direction] = state[name]


Cell = Callable[[Array, Array, Array], tuple[Array, Array]]


def _lstm(operands: Mapping[str, Array], params: Mapping[str, float], weights: Array) -> Cell:
    hidden = weights.shape[0]
    f, g, last = (_activation(params, i, kind) for i, kind in enumerate((0, 1, 1)))
    clip = _clip(params)
    peephole = operands.get("peephole", np.zeros(3 * hidden)).astype(np.float64).reshape(3, hidden)

    def cell(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        i, o, forget, new = (x + h @ weights).reshape(4, hidden)
        i = f(clip(i + peephole[0] * c))
        forget = 1 - i if params.get("input_forget") else f(clip(forget + peephole[2] * c))
        c = forget * c + i * g(clip(new))
        return f(clip(o + peephole[1] * c)) * last(c), c

    return cell


def _gru(operands: Mapping[str, Array], params: Mapping[str, float], weights: Array) -> Cell:
    hidden = weights.shape[0]
    f, g = (_activation(params, i, kind) for i, kind in enumerate((0, 1)))
    clip = _clip(params)
    bias = operands.get("recurrent_bias", np.zeros(hidden)).astype(np.float64).reshape(hidden)

    def cell(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        z, r = f(clip(x[: 2 * hidden] + h @ weights[:, : 2 * hidden])).reshape(2, hidden)
        last = weights[:, 2 * hidden :]
        part = r * (h @ last + bias) if params.get("linear_before_reset") else (r * h) @ last
        return (1 - z) * g(clip(x[2 * hidden :] + part)) + z * h, c

    return cell


def _rnn(operands: Mapping[str, Array], params: Mapping[str, float], weights: Array) -> Cell:
    f = _activation(params, 0, 1)
    clip = _clip(params)
    return lambda x, h, c: (f(clip(x + h @ weights)), c)


_CELLS = {"lstm": _lstm, "gru": _gru, "rnn": _rnn}


def _activation(params: Mapping[str, float], number: int, default: int) -> Activation:
    function = ACTIVATIONS[int(params.get(f"activations[{number}].kind", default))]
    alpha, beta = (params.get(f"activations[{number}].{field}", 0.0) for field in ("alpha", "beta"))
    return lambda x: function(x, alpha, beta)


def _clip(params: Mapping[str, float]) -> Activation:
    limit = params.get("clip", 0.0)
    return (lambda x: np.clip(x, -limit, limit)) if limit > 0 else (lambda x: x)


def _weights(panels: Array, hidden: int, columns: int) -> Array:
    """R^T, [hidden, columns], from panels [ceil(columns/16), hidden, 16]."""
    flat = panels.astype(np.float64).reshape(-1, hidden, PANEL)
    return flat.transpose(1, 0, 2).reshape(hidden, -1)[:, :columns]


def _state(given: Array | None, direction: int, batch: int, hidden: int) -> Array:
    if given is None:
        return np.zeros((batch, hidden))
    return np.array(given.reshape(-1, batch, hidden)[direction], np.float64)
