"""`com.microsoft`: what onnxruntime's optimizer fuses (matrix products, convolutions, activations).

Specification: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from castiron.ops.body import Body, rank
from castiron.ops.registry import Expand, Operator

MICROSOFT = "com.microsoft"

Values = Sequence[ir.Value | None]


# Activations ----------------------------------------------------------------------------------------------------------


def _biased(body: Body) -> ir.Value:
    """The first input, plus the second where there is one."""
    x, bias = body.input(0), body.optional(1)
    return x if bias is None else body.op("Add", x, bias)


def _gelu(approximate: str) -> Expand:
    return lambda body: [body.op("Gelu", _biased(body), approximate=approximate)]


def _quick_gelu(body: Body) -> Values:
    """x * sigmoid(alpha * x)."""
    return [body.op("Swish", body.input(0), alpha=float(body.attribute("alpha", 1.702)))]


def _bias_add(body: Body) -> Values:
    """x + bias + skip."""
    return [body.op("Add", body.op("Add", body.input(0), body.input(1)), body.input(2))]


def _bias_split_gelu(body: Body) -> Values:
    """The first half of the last dimension times gelu of the second."""
    first, second = body.ops("Split", 2, _biased(body), axis=-1, num_outputs=2)
    return [body.op("Mul", first, body.op("Gelu", second))]


ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid", "Elu", "Softplus", "Gelu", "HardSwish")


def activated(body: Body, x: ir.Value, name: str | None, params: Sequence[float]) -> ir.Value:
    """`name` of x, with what the fused operators call its parameters; x where the name is empty."""
    if not name:
        return x
    if name not in ACTIVATIONS:
        body.fail(f"activation {name}")
    if name == "Clip":
        return body.op("Clip", x, *(body.constant(p) for p in params))
    names = {"LeakyRelu": ("alpha",), "Elu": ("alpha",), "HardSigmoid": ("alpha", "beta")}.get(name, ())
    given: dict[str, Any] = dict(zip(names, map(float, params), strict=False))
    return body.op(name, x, **given)


# Products -------------------------------------------------------------------------------------------------------------


def _transposed(body: Body, x: ir.Value, side: str) -> ir.Value:
    """x with its last two dimensions exchanged (`transA`), and its first one behind the others (`transBatchA`)."""
    across = bool(body.attribute(f"trans{side}", 0)) and rank(x) > 1
    batch = bool(body.attribute(f"transBatch{side}", 0)) and rank(x) > 2
    order = list(range(rank(x)))
    if batch:
        order = [*order[1:-1], 0, order[-1]]
    if across:
        order[-2:] = order[:-3:-1]
    return body.op("Transpose", x, perm=order) if across or batch else x


def _matmul(body: Body) -> Values:
    a, b = _transposed(body, body.input(0), "A"), _transposed(body, body.input(1), "B")
    product = body.op("MatMul", a, b)
    alpha = float(body.attribute("alpha", 1.0))
    return [product if alpha == 1.0 else body.op("Mul", product, alpha)]


def _gemm(body: Body) -> Values:
    """Activation(alpha * A * B + beta * C)."""
    attributes = {n: body.attribute(n) for n in ("alpha", "beta", "transA", "transB")}
    product = body.op("Gemm", *body.node.inputs, **attributes)
    params = [body.attribute(f"activation_{n}", 0.0) for n in ("alpha", "beta")]
    return [activated(body, product, body.attribute("activation"), params)]


def _conv(body: Body) -> Values:
    """Activation(conv(X, W) + B + Z)."""
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    y = body.op("Conv", *list(body.node.inputs)[:3], **{n: body.attribute(n) for n in names})
    added = body.optional(3)
    y = y if added is None else body.op("Add", y, added)
    return [activated(body, y, body.attribute("activation"), body.attribute("activation_params", ()))]


def _distances(body: Body) -> Values:
    """Euclidean distances, or their squares, of each row of A from each of B."""
    a, b = body.op("Unsqueeze", body.input(0), [1]), body.op("Unsqueeze", body.input(1), [0])
    squares = body.op("ReduceSumSquare", body.op("Sub", a, b), [2], keepdims=0)
    metric = body.attribute("metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        body.fail(f"metric {metric}")
    return [squares if metric == "sqeuclidean" else body.op("Sqrt", squares)]


OPERATORS = tuple(
    Operator(name, domain=MICROSOFT, expand=expand)
    for name, expand in {
        "BiasAdd": _bias_add,
        "BiasGelu": _gelu("none"),
        "BiasSplitGelu": _bias_split_gelu,
        "CDist": _distances,
        "FastGelu": _gelu("tanh"),
        "FusedConv": _conv,
        "FusedGemm": _gemm,
        "FusedMatMul": _matmul,
        "Gelu": _gelu("none"),
        "QuickGelu": _quick_gelu,
        "TransposeMatMul": _matmul,
    }.items()
)
