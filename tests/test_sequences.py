"""Lists of tensors dissolve, and the graph computes what it did."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from castiron.graph.sequences import dissolve_sequences
from castiron.graph.sizes import infer_sizes

X = np.random.default_rng(2).standard_normal((5, 3, 4)).astype(np.float32)
KNOWN = {
    "zero": np.int64(0), "one": np.int64(1), "last": np.int64(-1), "two": np.int64(2),
    "uneven": np.array([1, 3, 1], np.int64),
}  # fmt: skip


def model_of(*lines: tuple[str, str, str, dict[str, Any]]) -> ir.Model:
    """A graph from x to y: (operator, inputs, output, attributes) a node."""
    nodes = [
        helper.make_node(op, inputs.split(), [out], name=f"n{i}", **attributes)
        for i, (op, inputs, out, attributes) in enumerate(lines)
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)
    kind = TensorProto.INT64 if lines[-1][0] == "SequenceLength" else TensorProto.FLOAT
    known = [numpy_helper.from_array(np.asarray(a), n) for n, a in KNOWN.items()]
    graph = helper.make_graph(nodes, "g", [x], [helper.make_tensor_value_info("y", kind, None)], known)
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))


SPLIT = ("SplitToSequence", "x", "s", {})
TURN = helper.make_graph(
    [helper.make_node("Neg", ["i"], ["n"]), helper.make_node("Mul", ["n", "i"], ["o"])],
    "turn",
    [helper.make_tensor_value_info("i", TensorProto.FLOAT, None)],
    [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)],
)
CASES = {
    "unbind": [("SplitToSequence", "x", "s", {"axis": 1, "keepdims": 0}), ("SequenceAt", "s last", "y", {})],
    "chunks": [("SplitToSequence", "x two", "s", {"axis": 0}), ("SequenceAt", "s two", "y", {})],
    "sizes": [("SplitToSequence", "x uneven", "s", {"keepdims": 0}), ("SequenceAt", "s one", "y", {})],
    "back again": [SPLIT, ("ConcatFromSequence", "s", "y", {"axis": 2})],
    "stack": [SPLIT, ("ConcatFromSequence", "s", "y", {"axis": -1, "new_axis": 1})],
    "length": [SPLIT, ("SequenceLength", "s", "y", {})],
    "map": [SPLIT, ("SequenceMap", "s", "t", {"body": TURN}), ("ConcatFromSequence", "t", "y", {"axis": 0})],
    "list": [
        ("Neg", "x", "n", {}),
        ("SequenceConstruct", "x n", "s", {}),
        ("SequenceInsert", "s x one", "t", {}),
        ("SequenceErase", "t zero", "u", {}),
        ("ConcatFromSequence", "u", "y", {"axis": 0}),
    ],
    "grown": [
        ("SequenceEmpty", "", "s", {}),
        ("SequenceInsert", "s x", "t", {}),
        ("Neg", "x", "n", {}),
        ("SequenceInsert", "t n zero", "u", {}),
        ("SequenceErase", "u", "v", {}),
        ("SequenceAt", "v zero", "y", {}),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_known_lists_dissolve(name: str) -> None:
    (expected,) = ReferenceEvaluator(ir.to_proto(model_of(*CASES[name]))).run(None, {"x": X})
    model = infer_sizes(dissolve_sequences(infer_sizes(model_of(*CASES[name]))))
    assert not [n.op_type for n in model.graph if "Sequence" in n.op_type]
    onnx.checker.check_model(ir.to_proto(model))
    (found,) = ReferenceEvaluator(ir.to_proto(model)).run(None, {"x": X})
    np.testing.assert_array_equal(found, expected)


def test_a_position_that_only_data_tells_stays() -> None:
    lines = [("ReduceMax", "x", "m", {"keepdims": 0}), ("Cast", "m", "i", {"to": TensorProto.INT64}), SPLIT]
    model = dissolve_sequences(infer_sizes(model_of(*lines, ("SequenceAt", "s i", "y", {}))))
    assert [n.op_type for n in model.graph if "Sequence" in n.op_type] == ["SplitToSequence", "SequenceAt"]
