"""Loops of known turns: what is unrolled gives what the loop gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from castiron.graph.fold import fold
from castiron.graph.sizes import infer_sizes
from castiron.graph.unroll import unroll
from castiron.graph.upgrade import upgrade

Results = list[np.ndarray]

SCAN = """
    g (float[2] s, float[2, 5] x) => (float[2] last, float[2, 5] all) {
        last, all = Scan <num_scan_inputs: int = 1, scan_input_axes: ints = [1], scan_output_axes: ints = [1],
            scan_input_directions: ints = [1], body: graph = b (float[2] a, float[2] r)
            => (float[2] c, float[2] d) { c = Add(a, r) d = Mul(c, c) }> (s, x)
    }"""
LOOP = """
    g (float[3] s) => (float[3] last, float[4, 3] all) <int64 n = {4}> {
        last, all = Loop <body: graph = b (int64 i, bool go, float[3] a) => (bool on, float[3] c, float[3] d)
            { CONDITION f = Cast <to: int = 1> (i) c = Add(a, f) d = Neg(c) }> (n, , s)
    }"""
OUTER = """
    g (float[3] s, float[3] w) => (float[3] last) <int64 n = {3}> {
        last = Loop <body: graph = b (int64 i, bool go, float[3] a) => (bool go, float[3] c) { c = Mul(a, w) }> (n, , s)
    }"""


def scanned(s: np.ndarray, x: np.ndarray) -> Results:
    sums = [s + x[:, :k:-1].sum(1) for k in range(3, -2, -1)]
    sums[-1] = s + x.sum(1)
    return [sums[-1], np.stack(sums, 1) ** 2]


def looped(s: np.ndarray) -> Results:
    sums = [s, s + 1, s + 3, s + 6]
    return [sums[-1], -np.stack(sums)]


def parsed(text: str) -> ir.Model:
    model = upgrade(ir.from_proto(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 23]>{text}')))
    return infer_sizes(fold(infer_sizes(model), frozenset()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(SCAN, scanned, id="scan"),
        pytest.param(LOOP.replace("CONDITION", "on = Identity(go)"), looped, id="loop"),
        pytest.param(OUTER, lambda s, w: [s * w**3], id="outer value"),
    ],
)
def test_same_results(text: str, expected: Callable[..., Results]) -> None:
    model = parsed(text)
    random = np.random.default_rng(0)
    given = {v.name: random.normal(size=v.shape.numpy()).astype(np.float32) for v in model.graph.inputs}
    names = [v.name for v in model.graph.outputs]
    unrolled = infer_sizes(unroll(model))
    assert not [node for node in unrolled.graph if node.op_type in ("Scan", "Loop")]
    assert [v.name for v in unrolled.graph.outputs] == names
    got = ReferenceEvaluator(ir.to_proto(unrolled)).run(None, given)
    for a, b in zip(got, expected(*given.values()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_data_decide() -> None:
    """A condition that depends on the state is no known number of turns."""
    stop = "m = ReduceMax <keepdims: int = 0> (a) z = Constant <value: tensor = float {0}> () on = Less(m, z)"
    assert [node for node in unroll(parsed(LOOP.replace("CONDITION", stop))).graph if node.op_type == "Loop"]
