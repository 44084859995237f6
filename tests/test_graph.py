"""The graph passes: each keeps what the model computes, and does what its first line says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from castiron.errors import InputError, ModelError, Unsupported
from castiron.frontend import load
from castiron.graph.batchnorm import fold_batchnorm
from castiron.graph.bound import bound_slices
from castiron.graph.expand import expand
from castiron.graph.fold import fold
from castiron.graph.inline import inline
from castiron.graph.lower import lower
from castiron.graph.names import clean_names
from castiron.graph.pin import pin
from castiron.graph.sizes import elements_of, infer_sizes, size_expr
from castiron.graph.unify import unify
from castiron.graph.upgrade import NEWEST, upgrade
from castiron.program.expr import Expr, Var, apply
from castiron.program.run import run
from castiron.program.types import Kind

Shape = Sequence[Any] | None
RANDOM = np.random.default_rng(7)


def _model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Shape],
    outputs: Sequence[str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = NEWEST,
    types: dict[str, int] | None = None,
) -> ir.Model:
    kinds = types or {}
    made = [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), s) for n, s in inputs.items()]
    results = [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), inputs.get(n)) for n in outputs]
    tensors = [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", made, results, tensors)
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10))


def _results(model: ir.Model, **inputs: np.ndarray) -> list[np.ndarray]:
    return [np.asarray(r) for r in ReferenceEvaluator(ir.to_proto(model)).run(None, inputs)]


def _operators(model: ir.Model) -> list[str]:
    return [n.op_type for n in model.graph]


def _f32(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


# names, pin -------------------------------------------------------------------------------------------------


def test_meaningless_dimensions_get_names() -> None:
    node = helper.make_node("Concat", ["a", "b:0"], ["y"], axis=1)
    shapes = {"a": ["unk__7", "?", "p2o.DynamicDimension.0"], "b:0": ["unk__7", "?", "max"]}
    before = _model([node], shapes, ["y"])
    model = clean_names(before)
    a, b = (v.shape for v in model.graph.inputs)
    assert a is not None and b is not None
    assert [str(d) for d in a] == ["a_0", "a_1", "a_2"]
    assert [str(d) for d in b] == ["a_0", "b_0_1", "max_2"]
    assert str(before.graph.inputs[0].shape) == "[unk__7,?,p2o.DynamicDimension.0]"  # a clone was cleaned


def test_initializers_are_no_inputs() -> None:
    model = _model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [2], "w": [2]}, ["y"], {"w": _f32(2)})
    assert [v.name for v in clean_names(model).graph.inputs] == ["x"]


def test_pin() -> None:
    def fresh() -> ir.Model:
        return _model([helper.make_node("Add", ["x", "z"], ["y"])], {"x": ["N", 3, "H"], "z": ["N", 3, "H"]}, ["y"])

    pinned = pin(fresh(), {"x": (1, 3, 8)})
    assert [str(v.shape) for v in pinned.graph.inputs] == ["[1,3,8]", "[1,3,8]"]
    assert str(pin(fresh(), {"x": (-1, 3, 8)}).graph.inputs[1].shape) == "[N,3,8]"
    for shapes, message in [
        ({"q": (1,)}, "no input 'q'"),
        ({"x": (1, 3)}, "3 dimensions"),
        ({"x": (1, 4, 8)}, "fixes this dimension"),
        ({"x": (1, 3, 8), "z": (2, 3, 8)}, "already 1"),
    ]:
        with pytest.raises(InputError, match=message):
            pin(fresh(), shapes)


# sizes ------------------------------------------------------------------------------------------------------


def _value(e: Expr, names: dict[str, int]) -> int:
    from castiron.program.expr import Const, constant, substitute

    found = substitute(e, {k: constant(v) for k, v in names.items()})
    assert isinstance(found, Const)
    return int(found.value)


_N, _T = (sympy.Symbol(n, integer=True, positive=True) for n in "NT")
_SIZES = st.recursive(
    st.sampled_from([_N, _T]) | st.integers(-3, 9).map(sympy.Integer),
    lambda e: st.one_of(
        st.tuples(e, e).map(lambda p: p[0] + p[1]),
        st.tuples(e, e).map(lambda p: p[0] * p[1]),
        st.tuples(e, st.integers(1, 5)).map(lambda p: sympy.floor(p[0] / p[1])),
        st.tuples(e, st.integers(1, 5)).map(lambda p: sympy.ceiling(p[0] / p[1])),
        st.tuples(e, e).map(lambda p: sympy.Max(*p)),
        st.tuples(e, e).map(lambda p: sympy.Min(*p)),
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(_SIZES, st.integers(1, 40), st.integers(1, 40))
def test_sizes_convert_exactly(size: sympy.Expr, n: int, t: int) -> None:
    found = size_expr(int(size) if size.is_Integer else ir.SymbolicDim(str(size)))
    assert _value(found, {"N": n, "T": t}) == int(size.subs({_N: n, _T: t}))


def test_elements_follow_through_shape_arithmetic() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["v"]),
        helper.make_node("Concat", ["v", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    weights = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([2, -1])}
    model = infer_sizes(_model(nodes, {"x": ["N", 8]}, ["y"], weights))
    assert str(model.graph.outputs[0].shape) == "[N,2,4]"
    target = next(v for n in model.graph for v in n.outputs if v.name == "target")
    elements = elements_of(target, frozenset({"N"}))
    assert elements is not None and elements[0] is Var("N")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 12])
@pytest.mark.parametrize(
    "bounds", [(0, 10**9, 1), (2, 5, 1), (1, -1, 2), (-3, 2**63 - 1, 1), (-1, -(2**63), -1), (-2, 0, -2)]
)
def test_slices_of_symbolic_sizes_are_exact(size: int, bounds: tuple[int, int, int]) -> None:
    start, end, step = bounds
    weights = {"starts": np.array([start]), "ends": np.array([end]), "axes": np.array([0]), "steps": np.array([step])}
    node = helper.make_node("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"])
    model = infer_sizes(_model([node], {"x": ["N"]}, ["y"], weights))
    (dim,) = model.graph.outputs[0].shape or ()
    assert _value(size_expr(dim), {"N": size}) == len(range(size)[start:end:step])


def test_ranks_that_depend_on_data_are_reported_at_once() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "to"], ["y"], "first"),
        helper.make_node("Expand", ["x", "to"], ["z"], "second"),
        helper.make_node("Relu", ["y"], ["after"], "third"),
    ]
    model = infer_sizes(_model(nodes, {"x": ["N"], "to": ["K"]}, ["z", "after"], types={"to": TensorProto.INT64}))
    with pytest.raises(
        Unsupported, match=r"(?s)'y' is of unknown .*'first'.*'z' is of unknown rank.*'second'"
    ) as caught:
        lower(model, frozenset())
    assert "third" not in str(caught.value)  # it is no cause


def test_sizes_that_do_not_fit() -> None:
    model = _model([helper.make_node("MatMul", ["x", "w"], ["y"], "product")], {"x": [2, 3]}, ["y"], {"w": _f32(4, 5)})
    with pytest.raises(ModelError, match="do not fit"):
        infer_sizes(model)


def test_unify_equal_batches() -> None:
    node = helper.make_node("Concat", ["a", "b"], ["y"], axis=1)
    model = unify(infer_sizes(_model([node], {"a": ["N", 3], "b": ["M", 4]}, ["y"])))
    assert [str(v.shape) for v in (*model.graph.inputs, *model.graph.outputs)] == ["[N,3]", "[N,4]", "[N,7]"]


def test_slices_of_tables_are_checked() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Slice", ["table", "zero", "s"], ["part"]),
        helper.make_node("Add", ["x", "part"], ["y"]),
    ]
    table = _f32(512)
    model = infer_sizes(_model(nodes, {"x": ["N"]}, ["y"], {"table": table, "zero": np.array([0])}))
    model = bound_slices(model)
    assert "Slice" not in _operators(model) and str(model.graph.outputs[0].shape) == "[N]"
    x = _f32(5)
    np.testing.assert_array_equal(_results(model, x=x)[0], x + table[:5])


# fold, expand, inline, upgrade ------------------------------------------------------------------------------


def test_fold_keeps_parameters_and_output_names() -> None:
    nodes = [
        helper.make_node("Identity", ["w"], ["w2"]),
        helper.make_node("Mul", ["two", "three"], ["six"]),
        helper.make_node("Mul", ["w2", "six"], ["scaled"]),
        helper.make_node("Dropout", ["x"], ["d"]),
        helper.make_node("Add", ["d", "scaled"], ["a"]),
        helper.make_node("Identity", ["a"], ["y"]),
        helper.make_node("Identity", ["x"], ["same"]),
    ]
    weights = {"w": _f32(4), "two": np.float32(2), "three": np.float32(3)}
    model = _model(nodes, {"x": ["N", 4]}, ["y", "same"], {k: np.asarray(v) for k, v in weights.items()})
    x = _f32(2, 4)
    before = _results(model, x=x)
    folded = fold(infer_sizes(clean_names(model)), frozenset({"w"}))
    assert sorted(_operators(folded)) == ["Add", "Identity", "Mul"]
    assert "w" in folded.graph.initializers and [v.name for v in folded.graph.outputs] == ["y", "same"]
    for a, b in zip(before, _results(folded, x=x), strict=True):
        np.testing.assert_array_equal(a, b)


def test_fold_chooses_a_known_branch() -> None:
    y = helper.make_tensor_value_info("t", TensorProto.FLOAT, None)
    branches = {
        name: helper.make_graph([helper.make_node(op, ["x"], ["t"])], name, [], [y])
        for name, op in (("then_branch", "Neg"), ("else_branch", "Abs"))
    }
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Size", ["s"], ["rank"]),
        helper.make_node("Equal", ["rank", "two"], ["flat"]),
        helper.make_node("If", ["flat"], ["y"], **branches),
    ]
    model = _model(nodes, {"x": ["N", 4]}, ["y"], {"two": np.array(2)})
    folded = fold(infer_sizes(clean_names(model)), frozenset())
    assert _operators(folded) == ["Neg"] and folded.graph.outputs[0].name == "y"


def test_expand_into_the_body() -> None:
    node = helper.make_node("MeanVarianceNormalization", ["x"], ["y"], axes=[0, 2, 3])
    model = _model([node], {"x": [2, 3, 4, 5]}, ["y"])
    x = _f32(2, 3, 4, 5)
    before = _results(model, x=x)[0]
    expanded = expand(infer_sizes(clean_names(model)))
    assert expanded.graph.outputs[0].name == "y"
    np.testing.assert_allclose(_results(expanded, x=x)[0], before, atol=1e-5)


def test_all_that_is_unsupported_is_listed_together() -> None:
    y = helper.make_tensor_value_info("t", TensorProto.FLOAT, None)
    branch = helper.make_graph([helper.make_node("Neg", ["x"], ["t"])], "b", [], [y])
    nodes = [
        helper.make_node("Foo", ["x"], ["a"], "first", domain="my.domain"),
        helper.make_node("Foo", ["a"], ["b"], "second", domain="my.domain"),
        helper.make_node("Bar", ["b"], ["bar"], "/layers/0/bar", domain="my.domain"),
        helper.make_node("If", ["c"], ["if"], "choice", then_branch=branch, else_branch=branch),
        helper.make_node("Pad", ["x", "pads"], ["pad"], "border"),
        helper.make_node("Relu", ["x"], ["fine"], "fine"),
    ]
    nodes[0].metadata_props.add(key="pkg.torch.onnx.stack_trace", value='File "net.py", line 12, in forward')
    inputs: dict[str, Shape] = {"x": [2], "c": [], "pads": [2]}
    types = {"c": TensorProto.BOOL, "pads": TensorProto.INT64}
    model = _model(nodes, inputs, ["bar", "if", "pad", "fine"], types=types)
    with pytest.raises(Unsupported) as caught:
        lower(infer_sizes(expand(clean_names(model))), frozenset())
    lines = str(caught.value).splitlines()
    assert lines[0] == "3 nodes of this model cannot be compiled:"
    assert lines[1:3] == [
        "  my.domain::Foo, 2 times: there is no lowering for this operator",
        "    'first' (net.py:12), 'second'",
    ]
    assert "    '/layers/0/bar' (layers.0)" in lines
    assert not any(f"'{name}'" in line for line in lines for name in ("choice", "border", "fine"))


def test_inline_after_upgrade() -> None:
    body = [helper.make_node("Softmax", ["a"], ["b"], axis=-1), helper.make_node("Neg", ["b"], ["c"])]
    function = helper.make_function("local", "F", ["a"], ["c"], body, [helper.make_opsetid("", 18)])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("F", ["x"], ["y"], domain="local")], "g", [x], [y])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    model = ir.from_proto(helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=10))
    data = _f32(2, 3)
    before = _results(model, x=data)[0]
    flat = inline(upgrade(clean_names(model)))
    assert _operators(flat) == ["Softmax", "Neg"] and not flat.functions
    np.testing.assert_allclose(_results(flat, x=data)[0], before, rtol=1e-6)


def test_upgrade_from_an_old_opset() -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["x"], ["u"], axes=[0]),
        helper.make_node("Clip", ["u"], ["c"], min=-0.5, max=0.5),
        helper.make_node("Softmax", ["c"], ["y"], axis=1),
    ]
    model = _model(nodes, {"x": [2, 3]}, ["y"], opset=9)
    model.ir_version = 4
    x = _f32(2, 3)
    clipped = np.exp(x.clip(-0.5, 0.5))
    new = upgrade(clean_names(model))
    assert new.opset_imports[""] == NEWEST and new.graph.outputs[0].name == "y"
    onnx.checker.check_model(ir.to_proto(infer_sizes(new)))
    np.testing.assert_allclose(_results(new, x=x)[0][0], clipped / clipped.sum(), rtol=1e-5)


# batch-norm -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("layer", ["Conv", "ConvTranspose", "Gemm", "GemmTransposed"])
def test_batchnorm_folds(layer: str, bias: bool) -> None:
    weight = {"Conv": (5, 3, 3, 3), "ConvTranspose": (3, 5, 3, 3), "Gemm": (3, 5), "GemmTransposed": (5, 3)}[layer]
    attributes = {"transB": 1} if layer == "GemmTransposed" else {}
    weights = {"w": _f32(*weight), "scale": _f32(5), "shift": _f32(5), "mean": _f32(5), "var": np.abs(_f32(5)) + 0.5}
    inputs = ["x", "w", "b"] if bias else ["x", "w"]
    weights.update({"b": _f32(5)} if bias else {})
    nodes = [
        helper.make_node(layer.removesuffix("Transposed"), inputs, ["h"], "layer", **attributes),
        helper.make_node("BatchNormalization", ["h", "scale", "shift", "mean", "var"], ["y"], "norm"),
    ]
    shape = [2, 3] if layer.startswith("Gemm") else [2, 3, 6, 6]
    model = _model(nodes, {"x": shape}, ["y"], weights)
    x = _f32(*shape)
    before = _results(model, x=x)[0]
    folded = infer_sizes(fold_batchnorm(infer_sizes(clean_names(model))))
    assert "BatchNormalization" not in _operators(folded) and weights.keys() <= folded.graph.initializers.keys()
    np.testing.assert_allclose(_results(folded, x=x)[0], before, rtol=1e-4, atol=1e-5)


def test_batchnorm_stays_where_others_read_the_layer() -> None:
    weights = {
        "w": _f32(5, 3, 1, 1),
        "scale": _f32(5),
        "shift": _f32(5),
        "mean": _f32(5),
        "var": np.ones(5, np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"]),
        helper.make_node("BatchNormalization", ["h", "scale", "shift", "mean", "var"], ["n"]),
        helper.make_node("Add", ["h", "n"], ["y"]),
    ]
    model = infer_sizes(clean_names(_model(nodes, {"x": [1, 3, 4, 4]}, ["y"], weights)))
    assert "BatchNormalization" in _operators(fold_batchnorm(model))


# lower ------------------------------------------------------------------------------------------------------


def test_lower_declares_buffers_by_their_names() -> None:
    nodes = [
        helper.make_node("Add", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
        helper.make_node("Neg", ["a"], ["z"]),
        helper.make_node("Shape", ["x"], ["s"]),
    ]
    weights = {"w": _f32(4), "unused": _f32(3)}
    outputs = ["a", "y", "z", "s", "x", "w", "y"]
    model = _model(nodes, {"x": ["N", 4]}, outputs, weights, types={"s": TensorProto.INT64})
    program = lower(infer_sizes(clean_names(model)), frozenset({"w", "unused"}))
    assert [(s.name, s.input, s.dim) for s in program.sizes] == [("N", "x", 0)]
    assert [b.name for b in program.of_kind(Kind.WEIGHT)] == ["w"]
    assert len(set(program.outputs)) == 7 and program.outputs[:4] == ("a", "y", "z", "s")
    x = _f32(3, 4)
    a = x + weights["w"]
    got = run(program, {"x": x, "w": weights["w"]})
    want = [a, np.maximum(a, 0), -a, np.array([3, 4]), x, weights["w"], np.maximum(a, 0)]
    for name, expected in zip(program.outputs, want, strict=True):
        np.testing.assert_array_equal(got[name], expected)


def test_origins_name_modules() -> None:
    pytest.importorskip("torch")
    from pathlib import Path

    source = load(f"{Path(__file__).parent / 'zoo.py'}:mlp")
    program = lower(infer_sizes(inline(upgrade(clean_names(source.model)))), source.parameters)
    modules = {o.module for step in program.steps for o in step.origins}
    assert {"fc1", "fc2"} <= modules
    assert source.inputs is not None and source.run is not None
    weights = {n: source.model.graph.initializers[n].const_value.numpy() for n in source.parameters}  # type: ignore[union-attr]
    got = run(program, {**source.inputs, **weights})
    for name, expected in source.run(source.inputs).items():
        np.testing.assert_allclose(got[name], expected, rtol=1e-5, atol=1e-6)


def test_size_arithmetic_rounds_up() -> None:
    half = size_expr(ir.SymbolicDim("ceiling(N/2)"))
    assert _value(half, {"N": 5}) == 3
    assert size_expr(ir.SymbolicDim("floor(N/2)")) is apply("floordiv", Var("N"), 2)


def test_reshape_that_fits_some_sizes_only() -> None:
    node = helper.make_node("Reshape", ["x", "to"], ["y"], "flatten")
    model = infer_sizes(_model([node], {"x": ["N", "H"]}, ["y"], {"to": np.array([0, 4])}))
    (asked,) = lower(model, frozenset()).requires
    assert "'flatten'" in asked.message and asked.left is not asked.right
