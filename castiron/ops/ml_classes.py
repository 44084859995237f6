"""`ai.onnx.ml`: what classifiers share, from scores to labels and probabilities. No operators of its own.

Specification: https://onnx.ai/onnx/operators/index.html (ai.onnx.ml); where it is silent, onnxruntime decides.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir import DataType

from castiron.ops.body import Body

DOMAIN = "ai.onnx.ml"
Values = Sequence[ir.Value | None]
FLOAT, INT64 = DataType.FLOAT, DataType.INT64


def real_input(body: Body, number: int = 0) -> ir.Value:
    """An input as FLOAT."""
    x = body.input(number)
    return x if x.dtype == FLOAT else body.cast(x, FLOAT)


def floats(body: Body, name: str) -> list[float]:
    """An attribute of several numbers, or of a tensor under the name with `_as_tensor` behind."""
    held = body.attribute(f"{name}_as_tensor")
    return [float(v) for v in (body.attribute(name, ()) if held is None else held.numpy().reshape(-1))]


def labels_of(body: Body, integers: str) -> list[int]:
    """The classes' labels."""
    if body.attribute("classlabels_strings"):
        body.fail("labels that are strings; convert the model with the numbers of the classes as labels")
    return [int(v) for v in body.attribute(integers, ())]


def labelled(body: Body, number: ir.Value, labels: Sequence[int]) -> ir.Value:
    """The labels of classes by their numbers."""
    if list(labels) == list(range(len(labels))):
        return number
    return body.op("Gather", body.constant(list(labels), INT64), number)


def likeliest(body: Body, scores: ir.Value, labels: Sequence[int]) -> ir.Value:
    """The label of the first largest of the scores [N, C]."""
    return labelled(body, body.op("ArgMax", scores, axis=1, keepdims=0), labels)


def one_of_two(body: Body, score: ir.Value, threshold: float, labels: Sequence[int]) -> ir.Value:
    """The second label where the score [N, 1] is above the threshold, else the first."""
    above = body.op("Squeeze", body.op("Greater", score, body.constant(threshold, FLOAT)), [1])
    return labelled(body, body.cast(above, INT64), labels)


def transformed(body: Body, scores: ir.Value, name: str) -> ir.Value:
    """Scores [N, C] after `post_transform`."""
    if name == "SOFTMAX":
        return body.op("Softmax", scores, axis=1)
    if name == "LOGISTIC":
        return body.op("Sigmoid", scores)
    if name == "SOFTMAX_ZERO":
        return _softmax_of_others(body, scores)
    if name == "PROBIT":
        return _probit(body, scores)
    if name != "NONE":
        body.fail(f"post_transform {name}")
    return scores


def pair(body: Body, score: ir.Value, complement: bool, transform: str) -> ir.Value:
    """The scores of two classes of which [N, 1] belongs to the second one: 1 - s and s, or -s and s.

    Of the transforms, onnxruntime applies LOGISTIC alone to a pair, to -s and s."""
    if transform == "LOGISTIC":
        return body.op("Sigmoid", body.op("Concat", body.op("Neg", score), score, axis=1))
    if transform == "PROBIT":
        body.fail("PROBIT of one score")
    first = body.op("Sub", body.constant(1.0, FLOAT), score) if complement else body.op("Neg", score)
    return body.op("Concat", first, score, axis=1)


def _softmax_of_others(body: Body, x: ir.Value) -> ir.Value:
    """Softmax over the elements that are not 0; those stay (next to) 0."""
    top = body.op("ReduceMax", x, [1], keepdims=1)
    zero = body.op("LessOrEqual", body.op("Abs", x), body.constant(1e-7, FLOAT))
    powers = body.op("Exp", body.op("Sub", x, top))
    total = body.op("ReduceSum", body.op("Where", zero, body.constant(0, FLOAT), powers), [1], keepdims=1)
    left = body.op("Where", zero, body.op("Mul", x, body.op("Exp", body.op("Neg", top))), powers)
    return body.op("Div", left, body.op("Where", body.op("Equal", total, body.constant(0, FLOAT)), 1.0, total))


def _probit(body: Body, p: ir.Value) -> ir.Value:
    """sqrt(2) * erfinv(2p - 1), by Winitzki's formula as onnxruntime has it."""

    def number(value: float) -> ir.Value:
        return body.constant(value, FLOAT)

    x = body.op("Sub", body.op("Mul", p, number(2)), number(1))
    logarithm = body.op("Log", body.op("Mul", body.op("Sub", number(1), x), body.op("Add", number(1), x)))
    half = body.op("Add", number(2 / (3.14159 * 0.147)), body.op("Mul", logarithm, number(0.5)))
    root = body.op("Sqrt", body.op("Sub", body.op("Mul", half, half), body.op("Mul", logarithm, number(1 / 0.147))))
    size = body.op("Sqrt", body.op("Sub", root, half))
    return body.op("Mul", body.op("Mul", size, body.op("Sign", x)), number(1.41421356))
