"""Quantized operators of `com.microsoft`, natively, against onnxruntime: at most one quantization step apart."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from contrib.check import case, check

_RANDOM = np.random.default_rng(11)
FLOAT, UINT8, INT8 = 1, 2, 3


def q(type: type, *shape: int) -> np.ndarray:
    info = np.iinfo(type)
    return _RANDOM.integers(info.min, info.max + 1, shape).astype(type)


def s(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def z(value: int, type: type = np.uint8) -> np.ndarray:
    return np.array(value, type)


STEP = {"rtol": 0, "atol": 1}


def test_element_wise() -> None:
    def pair(type: type, n: int) -> list:
        a, b = q(type, n, 3, 5), q(type, 3, 1)
        return [a, s(0.02), z(5, type), b, s(0.03), z(-7 if type is np.int8 else 100, type), s(0.05), z(3, type)]

    def single(type: type, n: int) -> list:
        return [q(type, n, 3, 5), s(0.03), z(9, type), s(0.0041), z(1, type)]

    cases = []
    for name, type in (("u8", np.uint8), ("i8", np.int8)):
        sets, alone = [pair(type, n) for n in (1, 4)], [single(type, n) for n in (2, 3)]
        cases += [
            case(f"add_{name}", "QLinearAdd", sets, **STEP),
            case(f"mul_{name}", "QLinearMul", sets, **STEP),
            case(f"sigmoid_{name}", "QLinearSigmoid", alone, **STEP),
            case(f"leaky_{name}", "QLinearLeakyRelu", alone, alpha=0.2, **STEP),
            case(f"softmax_{name}", "QLinearSoftmax", alone, axis=-1, opset=13, **STEP),
            case(f"softmax_rows_{name}", "QLinearSoftmax", alone, axis=1, opset=11, **STEP),
        ]
    where = [
        np.array([[True], [False]]),
        q(np.uint8, 2, 3),
        s(0.1),
        z(3),
        q(np.uint8, 1, 3),
        s(0.2),
        z(5),
        s(0.25),
        z(9),
    ]
    concat = [s(0.05), z(4), q(np.uint8, 2, 3), s(0.02), z(7), q(np.uint8, 2, 1), s(0.1), z(0)]
    cases += [
        case("where", "QLinearWhere", [where], types=[UINT8], **STEP),
        case("concat", "QLinearConcat", [concat], axis=1, types=[UINT8], **STEP),
    ]
    check(cases)


def test_pools() -> None:
    def image(n: int, *shape: int) -> list:
        return [q(np.uint8, n, *shape), s(0.03), z(9), s(0.04), z(2)]

    first, last = [image(n, 3, 6, 7) for n in (1, 2)], [image(n, 6, 7, 3) for n in (1, 2)]
    window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    check(
        [
            case("average", "QLinearAveragePool", first, **window, **STEP),
            case("average_all", "QLinearAveragePool", first, count_include_pad=1, **window, **STEP),
            case("average_last", "QLinearAveragePool", last, channels_last=1, **window, **STEP),
            case("average_ceil", "QLinearAveragePool", first, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, **STEP),
            case("global", "QLinearGlobalAveragePool", first, **STEP),
            case("global_last", "QLinearGlobalAveragePool", last, channels_last=1, **STEP),
            case("nhwc_max", "NhwcMaxPool", [[i[0]] for i in last], **window),
        ]
    )


@pytest.mark.parametrize("columns", [False, True])
def test_products(columns: bool) -> None:
    scale = (_RANDOM.random(4) / 50).astype(np.float32) if columns else s(0.01)
    zero = q(np.int8, 4) if columns else z(3, np.int8)
    a, b = [q(np.uint8, n, 3, 8) for n in (1, 5)], q(np.int8, 8, 4)
    bias = _RANDOM.standard_normal(4).astype(np.float32)
    real = [_RANDOM.standard_normal((n, 3, 8)).astype(np.float32) for n in (1, 5)]
    near = {"rtol": 1e-4, "atol": 1e-4}
    check(
        [
            case(f"to_float_{columns}", "MatMulIntegerToFloat", [[x, b, s(0.02), scale, z(100), zero, bias] for x in a],
                 types=[FLOAT], **near),
            case(f"to_float_bare_{columns}", "MatMulIntegerToFloat", [[x, b, s(0.02), scale] for x in a], types=[FLOAT],
                 **near),
            case(f"dynamic_{columns}", "DynamicQuantizeMatMul", [[x, b, scale, zero, bias] for x in real], **near),
            case(f"dynamic_bare_{columns}", "DynamicQuantizeMatMul", [[x, b, scale] for x in real], **near),
        ]
    )  # fmt: skip


def test_gemm() -> None:
    a, b, c = q(np.uint8, 3, 8), q(np.int8, 4, 8), _RANDOM.integers(-9999, 9999, 4).astype(np.int32)
    begin = [a, s(0.02), z(7), b, s(0.01), z(3, np.int8), c]
    scales = (_RANDOM.random(4) / 50).astype(np.float32)
    columns = [a, s(0.02), z(7), np.ascontiguousarray(b.T), scales, q(np.int8, 4)]
    check(
        [
            case("gemm", "QGemm", [[*begin, s(0.5), z(128)]], transB=1, **STEP),
            case("gemm_float", "QGemm", [begin], transB=1, alpha=0.75, types=[FLOAT]),
            case("gemm_columns", "QGemm", [columns], types=[FLOAT]),
        ]
    )


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_conv(domain: str) -> None:
    w, many = q(np.int8, 6, 2, 3, 3), (_RANDOM.random(6) / 50 + 0.01).astype(np.float32)
    bias = _RANDOM.integers(-9999, 9999, 6).astype(np.int32)
    at = {"pads": [1, 1, 0, 1], "strides": [2, 1], "group": 2, "kernel_shape": [3, 3]}

    def inputs(n: int, scale: np.ndarray, zero: np.ndarray, last: bool = False) -> list:
        x = q(np.uint8, n, *((7, 6, 4) if last else (4, 7, 6)))
        return [x, s(0.02), z(120), w, scale, zero, s(0.7), z(128), bias]

    zeros = np.zeros(6, np.int8)
    cases = [
        case("conv", "QLinearConv", [inputs(n, s(0.03), z(0, np.int8)) for n in (1, 3)], domain=domain, **at, **STEP),
        case("conv_channels", "QLinearConv", [inputs(n, many, zeros) for n in (1, 3)], domain=domain, **at, **STEP),
    ]
    if domain:
        last = [inputs(n, many, zeros, last=True) for n in (1, 3)]
        cases.append(case("conv_last", "QLinearConv", last, domain=domain, channels_last=1, **at, **STEP))
    check(cases)


@pytest.mark.parametrize("columns", [False, True])
def test_lstm(columns: bool) -> None:
    """onnxruntime quantizes the state at each step, castiron does not: they differ by some steps of 1/127."""
    hidden, features, directions = 6, 5, 2
    shape = (directions, 4 * hidden) if columns else (directions,)
    held = {
        1: q(np.int8, directions, features, 4 * hidden),
        2: q(np.int8, directions, hidden, 4 * hidden),
        3: _RANDOM.standard_normal((directions, 8 * hidden)).astype(np.float32),
        **{n: (_RANDOM.random(shape) / 200 + 0.001).astype(np.float32) for n in (8, 10)},
        **{n: np.zeros(shape, np.int8) for n in (9, 11)},
    }
    sets = [[_RANDOM.standard_normal((t, b, features)).astype(np.float32), *[None] * 11] for t, b in ((4, 2), (7, 1))]
    at = {"hidden_size": hidden, "direction": "bidirectional", "outputs": ("y", "h", "c"), "rtol": 0.05, "atol": 0.05}
    check([case(f"lstm_{columns}", "DynamicQuantizeLSTM", sets, known=held, **at)])
