"""Old spellings of operators: the upgraded graph under onnx.reference gives what the old specification says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnx_ir as ir
import pytest

from castiron.graph.upgrade import upgrade

X = np.arange(-6, 6, dtype=np.float32).reshape(2, 3, 2)
IMAGE = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)


@dataclass(frozen=True)
class Old:
    """A node of an old opset, its inputs, and its first output."""

    opset: int
    op_type: str
    inputs: tuple[np.ndarray, ...]
    wanted: np.ndarray
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1


def _softmax(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    e = np.exp(x - x.max(axes, keepdims=True))
    return e / e.sum(axes, keepdims=True)


OLD = [
    Old(1, "Relu", (X,), np.maximum(X, 0), {"consumed_inputs": [0]}),
    Old(6, "Add", (X, X[0, :, 0].copy()), X + X[0, :, :1], {"broadcast": 1, "axis": 1}),
    Old(6, "Mul", (X, X[1, 2].copy()), X * X[1, 2], {"broadcast": 1}),
    Old(6, "PRelu", (X, np.array([1, 2, 3], np.float32)), np.where(X < 0, X * [[1], [2], [3]], X).astype(np.float32)),
    Old(11, "Softmax", (X,), _softmax(X, (1, 2))),
    Old(11, "LogSoftmax", (X,), np.log(_softmax(X, (2,))), {"axis": 2}),
    Old(6, "Clip", (X,), np.clip(X, -2, 3), {"min": -2.0, "max": 3.0}),
    Old(6, "Clip", (X,), np.minimum(X, 3), {"max": 3.0}),
    Old(5, "Cast", (X,), X.astype(np.int64), {"to": "INT64"}),
    Old(11, "Squeeze", (IMAGE,), IMAGE[0, 0], {"axes": [0, 1]}),
    Old(11, "Unsqueeze", (X,), X[None], {"axes": [0]}),
    Old(11, "ReduceSum", (X,), X.sum(1), {"axes": [1], "keepdims": 0}),
    Old(13, "ReduceMean", (X,), X.mean((0, 2), keepdims=True), {"axes": [0, 2]}),
    Old(11, "Split", (X,), X[:, :1], {"axis": 1, "split": [1, 2]}, outputs=2),
    Old(13, "Split", (X,), X[:1], {}, outputs=2),
    Old(9, "Slice", (X,), X[:, 1:], {"starts": [1], "ends": [9], "axes": [1]}),
    Old(9, "Slice", (X,), X[:1], {"starts": [0], "ends": [1]}),
    Old(
        2,
        "Pad",
        (X,),
        np.pad(X, [(0, 1), (2, 0), (0, 0)], constant_values=5),
        {"pads": [0, 2, 0, 1, 0, 0], "value": 5.0},
    ),
    Old(1, "Reshape", (X,), X.reshape(3, 4), {"shape": [3, 4]}),
    Old(1, "Concat", (X, X), np.concatenate([X, X], 1)),
    Old(7, "Dropout", (X,), X, {"ratio": 0.5}),
    Old(
        6,
        "BatchNormalization",
        (X, *[np.ones(3, np.float32)] * 4),
        (X - 1) / np.sqrt(1 + 1e-5, dtype=np.float32) + 1,
        {"is_test": 1},
    ),
    Old(9, "TopK", (X,), X[:, :, ::-1][:, :, :1], {"k": 1}, outputs=2),
    Old(6, "Gemm", (X[0], X[0].T.copy(), np.ones(3, np.float32)), X[0] @ X[0].T + 1, {"broadcast": 1}),
    Old(7, "Upsample", (IMAGE,), IMAGE.repeat(2, 2).repeat(2, 3), {"scales": [1.0, 1.0, 2.0, 2.0]}),
    Old(9, "Upsample", (IMAGE, np.array([1, 1, 2, 3], np.float32)), IMAGE.repeat(2, 2).repeat(3, 3)),
    Old(10, "Resize", (IMAGE, np.array([1, 1, 0.5, 0.5], np.float32)), IMAGE[:, :, ::2, ::2], {"mode": "linear"}),
    Old(9, "Scatter", (X[0], np.array([[1, 0]]), X[1, :1]), np.array([[-6, 1], [0, -3], [-2, -1]], np.float32)),
]


@pytest.mark.parametrize("old", OLD, ids=lambda old: f"{old.op_type}-{old.opset}")
def test_upgrade(old: Old) -> None:
    names = [f"x{i}" for i in range(len(old.inputs))]
    results = [f"y{i}" for i in range(old.outputs)]
    given = dict(zip(names, old.inputs))
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(old.op_type, names, results, **old.attributes)],
        "old",
        [
            onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in given.items()
        ],
        [onnx.helper.make_empty_tensor_value_info(results[0])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", old.opset)])
    upgraded = ir.to_proto(upgrade(ir.from_proto(model)))
    assert upgraded.opset_import[0].version == onnx.defs.onnx_opset_version()
    (got,) = onnx.reference.ReferenceEvaluator(upgraded).run(None, given)
    np.testing.assert_allclose(got, old.wanted, rtol=1e-5, atol=1e-6)
