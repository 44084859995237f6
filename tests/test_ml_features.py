"""Preparation of features of `ai.onnx.ml`, natively, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from contrib.check import case, check
from node_suite.cases import Case

_RANDOM = np.random.default_rng(29)
ML, FLOAT, INT64 = "ai.onnx.ml", 1, 7


def rows(n: int, type: type = np.float32) -> np.ndarray:
    found = (_RANDOM.standard_normal((n, 4)) * 3).round(1).astype(type)
    found[0] = 0
    return found


def each(name: str, op_type: str, *, kinds: tuple[type, ...] = (np.float32,), **attributes: object) -> list[Case]:
    return [
        case(f"{name}_{np.dtype(k).name}", op_type, [[rows(2, k)], [rows(7, k)]], domain=ML, **attributes)
        for k in kinds
    ]


def test_numbers() -> None:
    every = (np.float32, np.float64, np.int64, np.int32)
    to_float = {"types": [FLOAT], "kinds": every}
    check(
        [
            *each("binarizer", "Binarizer", kinds=(np.float32,), threshold=0.5),
            *each("scaler", "Scaler", offset=[1.0, 2.0, 0.5, -1.0], scale=[2.0, 0.5, 1.0, 3.0], **to_float),
            *each("scaler_one", "Scaler", offset=[1.5], scale=[0.25], **to_float),
            *each("normalizer_max", "Normalizer", norm="MAX", **to_float),
            *each("normalizer_l1", "Normalizer", norm="L1", **to_float),
            *each("normalizer_l2", "Normalizer", norm="L2", **to_float),
            *each("one_hot", "OneHotEncoder", kinds=every[:3], cats_int64s=[0, 2, -1], types=[FLOAT]),
            *each("imputer_zero", "Imputer", imputed_value_floats=[9.0], replaced_value_float=0.0),
            *each(
                "imputer_whole", "Imputer", kinds=(np.int64,), imputed_value_int64s=[9, 8, 7, 6], replaced_value_int64=0
            ),
        ]
    )


def test_missing() -> None:
    x = rows(5)
    x[1, 2] = x[3, 0] = np.nan
    check([case("imputer_nan", "Imputer", [[x]], domain=ML, imputed_value_floats=[1.0, 2.0, 3.0, 4.0],
                replaced_value_float=float("nan"))])  # fmt: skip


def test_columns() -> None:
    x, whole = [rows(n) for n in (2, 5)], [rows(n, np.int64) for n in (2, 5)]
    chosen = np.array([[3, 0, 3]])
    check(
        [
            case("extract", "ArrayFeatureExtractor", [[a, chosen] for a in x], domain=ML),
            case("extract_whole", "ArrayFeatureExtractor", [[a, chosen[0]] for a in whole], domain=ML),
            case("extract_vector", "ArrayFeatureExtractor", [[x[0][1], chosen[0]]], domain=ML),
            case("vectorize", "FeatureVectorizer", [[a, a[:, :1], a[:, 1:3]] for a in x], domain=ML,
                 inputdimensions=[4, 1, 2]),
        ]
    )  # fmt: skip


def test_labels() -> None:
    x, whole = [rows(n) for n in (2, 5)], [rows(n, np.int64) for n in (2, 5)]
    x[1][2, 2] = np.nan
    keys = [float(v) for v in dict.fromkeys(x[1][np.isfinite(x[1])].tolist())][:6]
    check(
        [
            case("to_float", "LabelEncoder", [[a] for a in whole], domain=ML, types=[FLOAT], keys_int64s=[0, 1, -2, 5],
                 values_floats=[0.5, 1.5, 2.5, 3.5], default_float=-9.0),
            case("to_whole", "LabelEncoder", [[a] for a in x], domain=ML, types=[INT64], keys_floats=[*keys, float("nan")],
                 values_int64s=list(range(len(keys) + 1)), default_int64=77, ml=4),
            case("same", "LabelEncoder", [[a] for a in whole], domain=ML, keys_int64s=[0, 3], values_int64s=[5, 6]),
        ]
    )  # fmt: skip
