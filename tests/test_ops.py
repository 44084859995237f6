"""Operators against the official ONNX node tests, and the cases of their own files against onnx.reference."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from functools import cache

import numpy as np
import onnx
import onnx.reference
import pytest
from lowering_helper import lower_and_run

from castiron.errors import Unsupported
from castiron.ops.registry import Case, operators

# Official tests that are valid and not compiled, by operator, with the reason.
UNSUPPORTED = {
    "Cast": "FLOAT8E8M0",
    "Equal": "strings",
}
DIFFERENT = {
    # with a scale of 0.6 along 4 elements, onnx.reference aligns the corners with the unrounded output length, 2.4
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
    # random numbers of other generators
    *(f"test_training_dropout{kind}" for kind in ("", "_default", "_mask", "_default_mask")),
    # rounding errors of more than the absolute tolerance where the exact result is 0
    "test_dft_inverse",
}
OLD = "_opset19"
"""Of DFT before 20: they need `upgrade`, which tests/node_suite runs."""


@cache
def official() -> dict[str, list[onnx.backend.test.case.test_case.TestCase]]:
    """Tests of one node, by operator."""
    from onnx.backend.test.case.node import collect_testcases

    found: dict[str, list] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        for test in collect_testcases():
            nodes = test.model.graph.node
            if len(nodes) == 1 and (nodes[0].domain.replace("ai.onnx", ""), nodes[0].op_type) in operators():
                found.setdefault(nodes[0].op_type, []).append(test)
        logging.disable(logging.NOTSET)
    return found


def _array(value: object) -> np.ndarray:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def _run(node: onnx.NodeProto, inputs: list, outputs: list) -> list:
    """With inputs that only the run knows where that is enough, else with small inputs known at build."""
    if any(a is not None and a.dtype.kind in "OUS" for a in (*inputs, *outputs)):
        raise Unsupported("strings")
    try:
        return lower_and_run(node, inputs, outputs)
    except Unsupported:
        return lower_and_run(node, inputs, outputs, known=True)


def _arrays(test: onnx.backend.test.case.test_case.TestCase) -> Iterator[tuple[list, list]]:
    node, graph = test.model.graph.node[0], test.model.graph
    for inputs, outputs in test.data_sets:
        given = {i.name: _array(a) for i, a in zip(graph.input, inputs)}
        wanted = {o.name: _array(a) for o, a in zip(graph.output, outputs)}
        yield [given[n] if n else None for n in node.input], [wanted[n] if n else None for n in node.output]


def _compare(name: str, got: list, wanted: list, rtol: float, atol: float) -> None:
    for a, b in zip(got, wanted, strict=True):
        if a is not None:
            assert a.dtype == b.dtype and a.shape == b.shape, name
            wide = np.float64 if a.dtype.kind in "fV" else a.dtype
            np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.parametrize("op_type", sorted(name for (_, name), row in operators().items() if row.lower is not None))
def test_official(op_type: str) -> None:
    refused = 0
    for test in official().get(op_type, []):
        for inputs, outputs in _arrays(test):
            if test.name in DIFFERENT or test.name.endswith(OLD):
                continue
            try:
                got = _run(test.model.graph.node[0], inputs, outputs)
            except Unsupported:
                refused += 1
                continue
            _compare(test.name, got, outputs, test.rtol, test.atol)
    assert bool(refused) == (op_type in UNSUPPORTED), f"{refused} refused"


def _cases() -> list[tuple[str, str, Case]]:
    return [(domain, name, case) for (domain, name), row in operators().items() for case in row.cases]


@pytest.mark.parametrize(("domain", "op_type", "case"), [pytest.param(*c, id=f"{c[1]}-{c[2].name}") for c in _cases()])
def test_case(domain: str, op_type: str, case: Case) -> None:
    names = ["" if a is None else f"x{i}" for i, a in enumerate(case.inputs)]
    results = [f"y{i}" for i in range(case.outputs)]
    node = onnx.helper.make_node(op_type, names, results, domain=domain, **case.attributes)
    given = {n: np.asarray(a) for n, a in zip(names, case.inputs) if a is not None}
    graph = onnx.helper.make_graph(
        [node],
        "case",
        [
            onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in given.items()
        ],
        [onnx.helper.make_empty_tensor_value_info(n) for n in results],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", onnx.defs.onnx_opset_version())])
    with np.errstate(all="ignore"):
        wanted = [np.asarray(a) for a in onnx.reference.ReferenceEvaluator(model).run(None, given)]
    inputs = [None if a is None else np.asarray(a) for a in case.inputs]
    _compare(case.name, _run(node, inputs, wanted), wanted, 1e-4, 1e-5)


def _one(op_type: str, inputs: list, wanted: np.ndarray, **attributes: object) -> None:
    names = [f"x{i}" for i in range(len(inputs))]
    node = onnx.helper.make_node(op_type, names, ["y"], **attributes)
    _compare(op_type, _run(node, inputs, [wanted]), [wanted], 1e-5, 1e-6)


def test_conv_transpose_groups() -> None:
    """A group is a convolution of its own (onnx.reference takes no strides with groups)."""
    random = np.random.default_rng(0)
    x, w = random.standard_normal((1, 4, 3, 4), np.float32), random.standard_normal((4, 3, 3, 3), np.float32)
    attributes = {"strides": [2, 1], "pads": [1, 1, 0, 1]}
    parts = []
    for g in (slice(0, 2), slice(2, 4)):
        node = onnx.helper.make_node("ConvTranspose", ["x0", "x1"], ["y"], **attributes)
        parts += lower_and_run(node, [x[:, g], w[g]], [np.zeros((1, 3, 6, 4), np.float32)])
    _one("ConvTranspose", [x, w], np.concatenate(parts, 1), group=2, **attributes)


def test_negative_pads_crop() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    _one("Pad", [x, np.array([-1, 2, 0, -3])], np.pad(x[1:, :1], [(0, 0), (2, 0)]))


def test_nan_wins() -> None:
    x = np.array([[[1, np.nan, 3, 2]]], np.float32)
    _one("MaxPool", [x], np.array([[[np.nan, 3]]], np.float32), kernel_shape=[2], strides=[2])
    _one("ArgMax", [x], np.array([[[1]]]), axis=2)


def test_large_values_do_not_overflow() -> None:
    x = np.array([[-1000, 0], [-np.inf, -np.inf]], np.float32)
    _one("LogSoftmax", [x[:1]], np.array([[-1000, 0]], np.float32))
    _one("ReduceLogSumExp", [x, np.array([1])], np.array([[0], [-np.inf]], np.float32))
    _one("Softplus", [np.array([-30, 100], np.float32)], np.array([np.exp(-30), 100], np.float32))
