"""Counts of n-grams of numbers. Strings are refused: what they stand for is given as numbers.

Specification: https://onnx.ai/onnx/operators/onnx__TfIdfVectorizer.html
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType

from castiron.ops.body import Body, rank
from castiron.ops.registry import Operator

FLOAT, INT64 = DataType.FLOAT, DataType.INT64


def _pools(body: Body) -> list[tuple[int, np.ndarray]]:
    """(n, the n-grams [count, n]) for each length that counts, with the place of the first in the whole pool."""
    if body.attribute("pool_strings"):
        body.fail("n-grams of strings; give the model the numbers of its words")
    pool = np.asarray(body.attribute("pool_int64s"), np.int64)
    starts = [*(int(s) for s in body.attribute("ngram_counts")), len(pool)]
    found, first = [], 0
    for n, (start, end) in enumerate(pairwise(starts), start=1):
        grams = pool[start:end].reshape(-1, n)
        found.append((first, grams))
        first += len(grams)
    return found


def _counts(body: Body, x: ir.Value, grams: np.ndarray, step: int) -> ir.Value:
    """How often each n-gram stands in the rows of x [B, L], its elements `step` apart: [B, grams]."""
    n, hits = grams.shape[1], None
    for k in range(n):
        behind = (n - 1 - k) * step
        window = body.op("Slice", x, [k * step], [-behind if behind else np.iinfo(np.int64).max], [1])
        same = body.op("Equal", body.op("Unsqueeze", window, [2]), body.constant(grams[:, k], INT64))
        hits = same if hits is None else body.op("And", hits, same)
    assert hits is not None
    return body.op("ReduceSum", body.cast(hits, FLOAT), [1], keepdims=0)


def _expand(body: Body) -> Sequence[ir.Value]:
    x, single = body.cast(body.input(0), INT64), rank(body.input(0)) == 1
    x = body.op("Unsqueeze", x, [0]) if single else x
    least, most = int(body.attribute("min_gram_length")), int(body.attribute("max_gram_length"))
    places = [int(i) for i in body.attribute("ngram_indexes")]
    weights = np.asarray(body.attribute("weights") or np.ones(len(places)))
    total: ir.Value | None = None
    for first, grams in _pools(body):
        n = grams.shape[1]
        if not least <= n <= most or not len(grams):
            continue
        skips = int(body.attribute("max_skip_count")) if n > 1 else 0
        found = _counts(body, x, grams, 1)
        for skip in range(1, skips + 1):
            found = body.op("Add", found, _counts(body, x, grams, skip + 1))
        mode = str(body.attribute("mode"))
        if mode == "IDF":
            found = body.op("Min", found, body.constant(1, FLOAT))
        spread = np.zeros((len(grams), max(places) + 1))
        for row in range(len(grams)):
            spread[row, places[first + row]] = 1 if mode == "TF" else weights[first + row]
        part = body.op("MatMul", found, body.constant(spread, FLOAT))
        total = part if total is None else body.op("Add", total, part)
    if total is None:
        body.fail("no n-grams to count")
    return [body.op("Squeeze", total, [0]) if single else total]


OPERATORS = (Operator("TfIdfVectorizer", expand=_expand),)
