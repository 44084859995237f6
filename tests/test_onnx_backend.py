"""castiron driven as a backend of ONNX, by onnx's own harness and by hand."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import helper

from castiron import onnx_backend
from castiron.errors import InputError, Unsupported

SAMPLE = r"^test_(add|gemm_all_attributes|softmax_axis_1_expanded|split_equal_parts_1d_opset18|max_int8|AvgPool1d)_(cpu|cuda)$"


def scalar_model() -> onnx.ModelProto:
    """y = clip(x, max=s): an input without a dimension."""
    ports = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", ["n"]), ("s", []), ("y", ["n"]))]
    nodes = [helper.make_node("Clip", ["x", "", "s"], ["y"])]
    return helper.make_model(
        helper.make_graph(nodes, "g", ports[:2], ports[2:]), opset_imports=[helper.make_opsetid("", 20)]
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_harness_of_onnx() -> None:
    """Node tests of one input and many outputs, of a function body, and a converted PyTorch model; none for a GPU."""
    harness = onnx.backend.test.BackendTest(onnx_backend, __name__).include(SAMPLE)
    result = unittest.TestResult()
    harness.test_suite.run(result)
    assert not result.failures and not result.errors
    names = {case._testMethodName for case, why in result.skipped if why == "Backend doesn't support device CUDA"}
    assert len(names & set(dir(harness.tests))) == len(names) == 6
    ran = result.testsRun - len(result.skipped)
    assert ran == 6


def test_a_model() -> None:
    x, s = np.arange(4, dtype=np.float32), np.float32(2)
    ready = onnx_backend.prepare(scalar_model())
    for inputs in ([x, s], {"s": s, "x": x}):
        outputs = ready.run(inputs)
        assert outputs.y.tolist() == outputs["y"].tolist() == outputs[0].tolist() == [0, 1, 2, 2]  # type: ignore[attr-defined, call-overload]
    assert len(onnx_backend.run_model(scalar_model(), [x[:0], s])[0]) == 0
    with pytest.raises(InputError, match="'x'"):
        ready.run([x.astype(np.float64), s])


def test_a_node() -> None:
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    found = onnx_backend.run_node(node, [np.arange(6.0), np.array([3, -1])])
    assert found[0].tolist() == [[0, 1], [2, 3], [4, 5]]
    add = helper.make_node("Add", ["x", "x"], ["y"])
    assert onnx_backend.run_node(add, [np.ones(2, np.int8)])[0].tolist() == [2, 2]
    old = helper.make_node("Squeeze", ["x"], ["y"], axes=[1])
    assert onnx_backend.run_node(old, [np.ones((2, 1), np.float32)], opset_version=11)[0].shape == (2,)
    with pytest.raises(InputError, match="1 inputs given, the node reads x, shape"):
        onnx_backend.run_node(node, [np.arange(6.0)])
    with pytest.raises(onnx.checker.ValidationError):
        onnx_backend.run_node(helper.make_node("NoSuch", ["x"], ["y"]), [np.ones(2)])


@pytest.mark.parametrize(
    ("operator", "shapes", "attributes"),
    [
        ("MaxPool", [(1, 2, 4, 6)], {"kernel_shape": [2, 3]}),
        ("LayerNormalization", [(2, 3, 4), (4,)], {}),
        ("Dropout", [(2, 3)], {}),
    ],
)
def test_a_node_whose_first_output_nothing_wants(operator: str, shapes: Any, attributes: Any) -> None:
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape, np.float32) for shape in shapes]
    names = [f"i{k}" for k in range(len(arrays))]
    node = helper.make_node(operator, names, ["first", "second"], **attributes)
    ports = [helper.make_tensor_value_info(n, 1, a.shape) for n, a in zip(names, arrays)]
    graph = helper.make_graph([node], "g", ports, [onnx.ValueInfoProto(name="second")])
    model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))
    (found,) = onnx_backend.run_model(model, arrays)
    expected = onnx_backend.run_node(node, arrays)[1]
    assert np.array_equal(found, expected) and found.dtype == expected.dtype


def test_devices_and_refusals() -> None:
    assert [onnx_backend.supports_device(d) for d in ("CPU", "CPU:0", "CUDA", "TPU")] == [True, True, False, False]
    with pytest.raises(InputError, match="'CUDA'"):
        onnx_backend.prepare(scalar_model(), "CUDA")
    decoder = helper.make_node("ImageDecoder", ["x"], ["y"])
    with pytest.raises(Unsupported, match="ImageDecoder"):
        onnx_backend.run_node(decoder, [np.zeros(4, np.uint8)])
