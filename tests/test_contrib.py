"""`com.microsoft`, natively, against onnxruntime: attributes and sizes at random."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

pytest.importorskip("onnxruntime")

from contrib.check import case, check

from castiron.graph.standard import in_standard

_RANDOM = np.random.default_rng(7)


def f(*shape: int) -> np.ndarray:
    return _RANDOM.standard_normal(shape, np.float32)


def test_activations() -> None:
    def rows(*sizes: int) -> list:
        return [[f(n, 3, 7), f(7)] for n in sizes]

    alone = [[s[0]] for s in rows(2, 5)]
    check(
        [
            case("gelu", "Gelu", alone),
            case("fast_gelu", "FastGelu", alone),
            case("fast_gelu_bias", "FastGelu", rows(1, 4)),
            case("bias_gelu", "BiasGelu", rows(1, 3)),
            case("quick_gelu", "QuickGelu", alone),
            case("quick_gelu_alpha", "QuickGelu", alone, alpha=0.7),
        ]
    )


def test_products() -> None:
    def shapes(a: str, b: str, *sizes: int) -> list:
        return [[f(*(eval(d, {"n": n}) for d in s.split())) for s in (a, b)] for n in sizes]

    cases = [
        case("matmul", "FusedMatMul", shapes("2 n 4", "2 4 5", 3, 6), alpha=0.5),
        case("matmul_a", "FusedMatMul", shapes("2 4 n", "2 4 5", 3, 6), transA=1),
        case("matmul_b", "FusedMatMul", shapes("3 4", "n 4", 1, 6), transB=1),
        case("matmul_ab", "FusedMatMul", shapes("1 4 n", "2 n 4", 4, 4), transA=1, transB=1, alpha=-2.0),
        case("matmul_vector", "FusedMatMul", shapes("4", "n 4 5", 2, 3), transA=1),
        case("matmul_batch", "FusedMatMul", shapes("n 2 3 4", "2 3 4 5", 2, 7), transBatchA=1),
        case("matmul_batch_a", "FusedMatMul", shapes("4 2 3 n", "2 3 4 5", 2, 7), transBatchA=1, transA=1),
        case("matmul_batch_b", "FusedMatMul", shapes("2 3 4", "4 2 n", 2, 7), transBatchB=1),
        case("matmul_batch_both", "FusedMatMul", shapes("2 3 4", "n 2 4", 2, 7), transBatchB=1, transB=1),
        case("transpose_matmul", "TransposeMatMul", shapes("4 3", "4 n", 1, 2), transA=1),
        case("cdist", "CDist", shapes("n 4", "3 4", 1, 5), metric="euclidean"),
        case("cdist_squared", "CDist", shapes("n 4", "3 4", 1, 5), metric="sqeuclidean"),
        case("gemm", "FusedGemm", [[f(3, 4), f(4, 5), f(5)]], activation="Relu", alpha=0.5, beta=2.0),
        case("gemm_leaky", "FusedGemm", [[f(4, 3), f(5, 4)]], activation="LeakyRelu", activation_alpha=0.2,
             transA=1, transB=1),
    ]  # fmt: skip
    check(cases)


@pytest.mark.parametrize("z", [False, True])
def test_fused_conv(z: bool) -> None:
    def inputs(n: int) -> list:
        return [f(n, 4, 9, 8), f(6, 2, 3, 3), f(6), *([f(n, 6, 5, 4)] if z else [])]

    at = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2], "group": 2}
    acts = {"Relu": [], "Tanh": [], "Sigmoid": [], "LeakyRelu": [0.3], "Clip": [-0.5, 0.75], "HardSigmoid": [0.3, 0.4]}
    check(
        [
            case(f"conv_{name}_{z}", "FusedConv", [inputs(1), inputs(3)], activation=name,
                 **({"activation_params": params} if params else {}), **at)
            for name, params in acts.items()
        ]
    )  # fmt: skip


def test_plain() -> None:
    x = [[f(n, 4, 5)] for n in (2, 3)]
    i = np.int32
    check(
        [
            case("expand_dims", "ExpandDims", [[a[0], None] for a in x], known={1: np.array(1, i)}),
            case("pad", "Pad", [[a[0], None, None] for a in x],
                 known={1: np.array([0, 1, 2, 0, 0, 1]), 2: np.array([0.5], np.float32)}),
            case("trilu", "Trilu", [[a[0], None] for a in x], known={1: np.array([1])}, upper=0),
            case("gather_nd", "GatherND", [[a[0], np.array([[0, 1], [1, 3]])] for a in x]),
            case("range", "Range", [[None, None]], known={0: np.array(1.0, np.float32), 1: np.array(4.5, np.float32)}),
            case("conv_transpose", "ConvTransposeWithDynamicPads",
                 [[f(n, 2, 5, 6), f(2, 3, 3, 3), None, f(3)] for n in (1, 2)], known={2: np.array([1, 0, 1, 1])},
                 strides=[2, 2], kernel_shape=[3, 3], output_padding=[1, 0]),
            case("rms", "SimplifiedLayerNormalization", [[a[0], f(5)] for a in x], domain="", epsilon=1e-3),
            case("rms_outputs", "SimplifiedLayerNormalization", [[a[0], f(4, 5)] for a in x], domain="", axis=1,
                 outputs=("y", "inverse")),
            case("quantize", "QuantizeLinear", [[a[0], np.array(0.1, np.float32), np.array(3, np.uint8)] for a in x], types=[2]),
            case("dequantize", "DequantizeLinear", [[np.arange(-6, 6, dtype=np.int8).reshape(3, 4), f(3), np.int8([1, 0, 2])]],
                 types=[1], axis=0),
        ]
    )  # fmt: skip


def test_inverse() -> None:
    def wild(*shape: int) -> np.ndarray:
        """Without a large diagonal, so that rows are exchanged."""
        return f(*shape) * (1 - np.eye(shape[-1], dtype=np.float32)) + f(*shape) / 10

    near = {"rtol": 1e-3, "atol": 1e-3}
    cases = [case(f"inverse_{n}", "Inverse", [[wild(b, n, n)] for b in (1, 3)], **near) for n in (1, 2, 5, 9)]
    check(cases)


def test_determinant() -> None:
    """onnxruntime computes none on bare matrices of rank 2 with symbols; sizes vary in front."""
    cases = [case(f"det_{n}", "Det", [[f(b, n, n)] for b in (1, 3)], domain="", rtol=1e-3) for n in (1, 2, 4, 7)]
    singular = np.zeros((2, 3, 3), np.float32)
    singular[1] = 1
    check([*cases, case("det_singular", "Det", [[singular]], domain="")])


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_ngrams(mode: str) -> None:
    pool = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 5, 5, 6]
    at = {"ngram_counts": [0, 4, 10], "ngram_indexes": [0, 2, 1, 3, 4, 5, 6, 7], "pool_int64s": pool, "mode": mode}
    rows = [[_RANDOM.integers(4, 9, (b, n))] for b, n in ((2, 12), (3, 30), (1, 2))]
    weights = [0.5 * (i + 1) for i in range(8)]
    check(
        [
            case(f"ngrams_{mode}_{skip}", "TfIdfVectorizer", rows, domain="", types=[1], max_skip_count=skip, weights=weights,
                 min_gram_length=1, max_gram_length=3, **at)
            for skip in (0, 3)
        ]
    )  # fmt: skip


def test_written_in_standard_operators() -> None:
    """What any runtime can run: onnx.reference, in float64, judges rounding errors of contributed operators by it."""
    made = case(
        "standard", "FusedGemm", [[f(3, 4), f(4, 5), f(5)]], activation="LeakyRelu", activation_alpha=0.3, alpha=0.5
    )
    model = ir.to_proto(in_standard(ir.serde.deserialize_model(made.model)))
    assert {node.domain for node in model.graph.node} == {""}
    names = [port.name for port in model.graph.input]
    (given, wanted), *_ = made.data
    found = ReferenceEvaluator(model).run(None, dict(zip(names, given, strict=True)))
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
