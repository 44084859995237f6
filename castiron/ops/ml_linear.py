"""`ai.onnx.ml`: linear models and support vector machines, written as products of matrices.

Specification: https://onnx.ai/onnx/operators/index.html (ai.onnx.ml)
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import onnx_ir as ir

from castiron.ops.body import Body, size
from castiron.ops.ml_classes import (
    DOMAIN,
    FLOAT,
    Values,
    floats,
    labels_of,
    likeliest,
    one_of_two,
    pair,
    real_input,
    transformed,
)
from castiron.ops.registry import Operator


def _transform(body: Body) -> str:
    return str(body.attribute("post_transform", "NONE"))


def _scores(body: Body, outputs: int) -> ir.Value:
    """X times the transpose of the coefficients [outputs, features], plus the intercepts: [N, outputs]."""
    coefficients = np.asarray(floats(body, "coefficients")).reshape(outputs, -1).T
    product = body.op("MatMul", real_input(body), body.constant(coefficients, FLOAT))
    intercepts = floats(body, "intercepts")
    return body.op("Add", product, body.constant(intercepts, FLOAT)) if intercepts else product


def _linear_regressor(body: Body) -> Values:
    return [transformed(body, _scores(body, int(body.attribute("targets", 1))), _transform(body))]


def _linear_classifier(body: Body) -> Values:
    labels, transform = labels_of(body, "classlabels_ints"), _transform(body)
    features = size(body.input(0), -1)
    if not features:
        body.fail("the number of features must be known at build")
    count = len(floats(body, "coefficients")) // features
    scores = _scores(body, count)
    if count > 1:
        return [likeliest(body, scores, labels), transformed(body, scores, transform)]
    if len(labels) != 2:
        body.fail(f"one score for {len(labels)} classes")
    return [one_of_two(body, scores, 0.0, labels), pair(body, scores, True, transform)]


# Support vectors ------------------------------------------------------------------------------------------------------


def _kernel(body: Body, vectors: np.ndarray) -> ir.Value:
    """The kernel of each row with each of the vectors [V, features]: [N, V]."""
    x, kind = real_input(body), str(body.attribute("kernel_type", "LINEAR"))
    gamma, coef0, degree = [*floats(body, "kernel_params"), 0.0, 0.0, 0.0][:3]
    if kind == "RBF":
        away = body.op("Sub", body.op("Unsqueeze", x, [1]), body.constant(vectors[None], FLOAT))
        squares = body.op("ReduceSumSquare", away, [2], keepdims=0)
        return body.op("Exp", body.op("Mul", squares, body.constant(-gamma, FLOAT)))
    product = body.op("MatMul", x, body.constant(vectors.T, FLOAT))
    if kind == "LINEAR":
        return product
    moved = body.op("Add", body.op("Mul", product, body.constant(gamma, FLOAT)), body.constant(coef0, FLOAT))
    if kind == "POLY":
        return body.op("Pow", moved, body.constant(degree, FLOAT))
    if kind != "SIGMOID":
        body.fail(f"kernel_type {kind}")
    return body.op("Tanh", moved)


def _svm_regressor(body: Body) -> Values:
    coefficients, rho, count = (
        np.asarray(floats(body, "coefficients")),
        floats(body, "rho"),
        int(body.attribute("n_supports", 0)),
    )
    if count:
        kernel = _kernel(body, np.asarray(floats(body, "support_vectors")).reshape(count, -1))
        total = body.op("MatMul", kernel, body.constant(coefficients.reshape(-1, 1), FLOAT))
    else:
        total = _kernel(body, coefficients.reshape(1, -1))
    total = body.op("Add", total, body.constant(rho[:1], FLOAT))
    if int(body.attribute("one_class", 0)):
        zero = body.constant(0, FLOAT)
        total = body.op("Where", body.op("Greater", total, zero), 1.0, -1.0)
    return [transformed(body, total, _transform(body))]


def _svm_classifier(body: Body) -> Values:
    labels, transform = labels_of(body, "classlabels_ints"), _transform(body)
    if floats(body, "prob_a"):
        body.fail("probabilities by pairs of classes; convert the model without them")
    sizes = [int(n) for n in body.attribute("vectors_per_class", ())]
    if not sizes:
        return _svm_linear(body, labels, transform)
    scores, votes = _pairs(body, sizes)
    if len(labels) == 2:
        positive = all(c >= 0 for c in floats(body, "coefficients"))
        return [likeliest(body, votes, labels), pair(body, scores, positive, transform)]
    return [likeliest(body, votes, labels), transformed(body, scores, transform)]


def _svm_linear(body: Body, labels: list[int], transform: str) -> Values:
    """A hyperplane a class."""
    coefficients = np.asarray(floats(body, "coefficients")).reshape(len(labels), -1)
    scores = body.op("Add", _kernel(body, coefficients), body.constant(floats(body, "rho")[0], FLOAT))
    return [likeliest(body, scores, labels), transformed(body, scores, transform)]


def _pairs(body: Body, sizes: list[int]) -> tuple[ir.Value, ir.Value]:
    """The score of each pair of classes [N, pairs], and the votes of the pairs for each class [N, classes].

    All scores are one product: a pair takes the vectors of its two classes."""
    count, starts = sum(sizes), np.concatenate([[0], np.cumsum(sizes)])
    given = np.asarray(floats(body, "coefficients")).reshape(-1, count)
    kernel = _kernel(body, np.asarray(floats(body, "support_vectors")).reshape(count, -1))
    pairs = list(combinations(range(len(sizes)), 2))
    weights = np.zeros((count, len(pairs)))
    first, second = np.zeros((len(pairs), len(sizes))), np.zeros((len(pairs), len(sizes)))
    for number, (i, j) in enumerate(pairs):
        of_i, of_j = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
        weights[of_i, number], weights[of_j, number] = given[j - 1, of_i], given[i, of_j]
        first[number, i] = second[number, j] = 1
    product = body.op("MatMul", kernel, body.constant(weights, FLOAT))
    scores = body.op("Add", product, body.constant(floats(body, "rho"), FLOAT))
    won = body.cast(body.op("Greater", scores, body.constant(0, FLOAT)), FLOAT)
    lost = body.op("Sub", body.constant(1, FLOAT), won)
    votes = body.op(
        "Add",
        body.op("MatMul", won, body.constant(first, FLOAT)),
        body.op("MatMul", lost, body.constant(second, FLOAT)),
    )
    return scores, votes


OPERATORS = (
    Operator("LinearClassifier", domain=DOMAIN, expand=_linear_classifier),
    Operator("LinearRegressor", domain=DOMAIN, expand=_linear_regressor),
    Operator("SVMClassifier", domain=DOMAIN, expand=_svm_classifier),
    Operator("SVMRegressor", domain=DOMAIN, expand=_svm_regressor),
)
