"""What programs require of sizes: nothing leaves a buffer or overflows, whatever sizes callers bring."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import castiron
from castiron.dump import Dump
from castiron.emit.largest import magnitude
from castiron.frontend import source as frontend
from castiron.graph.lower import lower
from castiron.pipeline import compile_graph, compile_programs
from castiron.program.bounds import _is_natural
from castiron.program.expr import Apply, Const, Expr, Var, apply, constant
from castiron.program.run import run
from castiron.program.types import Kind, Program
from tests.random_graph import graphs

FIT, MISFIT = True, False


def compiled(model: onnx.ModelProto, folder: Path) -> tuple[Program, dict[str, np.ndarray]]:
    """The forward program, and the packed weights that it reads."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    source = frontend.load(str(path), None, None)
    graph = compile_graph(source, {}, Dump())
    prepare, forward, _ = compile_programs(lower(graph, source.parameters), Dump())
    weights = {}
    for buffer in prepare.program.of_kind(Kind.WEIGHT):
        tensor = graph.graph.initializers[buffer.name].const_value
        assert tensor is not None
        weights[buffer.name] = tensor.numpy()
    return forward.program, run(prepare.program, weights) if prepare.program.steps else {}


def inputs_of(model: onnx.ModelProto, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Zeros: valid as indices too."""
    types = {v.name: v.type.tensor_type for v in model.graph.input}
    return {
        name: np.zeros(
            [sizes[d.dim_param] if d.dim_param else d.dim_value for d in type.shape.dim],
            onnx.helper.tensor_dtype_to_np_dtype(type.elem_type),
        )
        for name, type in types.items()
    }


# Sizes that meet in one operator, and whether these values of them fit.
CASES = {
    "Add a number": (
        "float[N] x, float[5] c",
        "y = Add(x, c)",
        [({"N": 5}, FIT), ({"N": 4}, MISFIT), ({"N": 6}, MISFIT)],
    ),
    "Add symbols": ("float[N] x, float[M] c", "y = Add(x, c)", [({"N": 3, "M": 3}, FIT), ({"N": 3, "M": 2}, MISFIT)]),
    "Add derived": (
        "float[1,1,T] x, float[1,1,S] c",
        "p = MaxPool<kernel_shape=[2],strides=[2]>(x) y = Add(p, c)",
        [({"T": 7, "S": 3}, FIT), ({"T": 7, "S": 2}, MISFIT), ({"T": 7, "S": 4}, MISFIT)],
    ),
    "Concat derived": (
        "float[1,2,T] x, float[1,3,S] c",
        "p = MaxPool<kernel_shape=[2],strides=[2]>(x) y = Concat<axis=1>(p, c)",
        [({"T": 6, "S": 3}, FIT), ({"T": 6, "S": 4}, MISFIT)],
    ),
    "Matmul": (
        "float[N,K] x, float[L,M] c",
        "y = MatMul(x, c)",
        [({"N": 2, "K": 3, "L": 3, "M": 4}, FIT), ({"N": 2, "K": 4, "L": 3, "M": 4}, MISFIT)],
    ),
    "Gemm": (
        "float[N,K] x, float[L,M] b, float[P] c",
        "y = Gemm(x, b, c)",
        [({"N": 2, "K": 3, "L": 3, "M": 4, "P": 4}, FIT), ({"N": 2, "K": 3, "L": 3, "M": 4, "P": 3}, MISFIT)],
    ),
    "Einsum": (
        "float[N,K] x, float[L,M] c",
        'y = Einsum<equation="ij,jk->ik">(x, c)',
        [({"N": 2, "K": 3, "L": 3, "M": 4}, FIT), ({"N": 2, "K": 4, "L": 3, "M": 4}, MISFIT)],
    ),
    "Channels": (
        "float[N,C,T] x, float[4,3,3] w",
        "y = Conv(x, w)",
        [({"N": 1, "C": 3, "T": 3}, FIT), ({"N": 1, "C": 2, "T": 3}, MISFIT), ({"N": 1, "C": 3, "T": 1}, MISFIT)],
    ),
    "Both sides shorter than the kernel": (
        "float[1,1,H,W] x, float[2,1,3,3] w",
        "p = Conv(x, w) y = ReduceSum(p)",
        [({"H": 3, "W": 3}, FIT), ({"H": 1, "W": 1}, MISFIT)],
    ),
    "Scale": (
        "float[N,C,T] x, float[3] w",
        "y = InstanceNormalization(x, w, w)",
        [({"N": 1, "C": 3, "T": 2}, FIT), ({"N": 1, "C": 4, "T": 2}, MISFIT)],
    ),
    "Lengths": (
        "float[S,N,4] x, float[1,8,4] w, float[1,8,2] r, float[1,16] b, int32[P] l, float[1,M,2] h",
        "y = LSTM<hidden_size=2>(x, w, r, b, l, h)",
        [({"S": 2, "N": 3, "P": 3, "M": 3}, FIT), ({"S": 2, "N": 3, "P": 2, "M": 3}, MISFIT),
         ({"S": 2, "N": 3, "P": 3, "M": 2}, MISFIT)],
    ),
    "Indices of more rows": (
        "float[N,T] x, int64[M,S] i",
        "y = GatherElements<axis=1>(x, i)",
        [({"N": 3, "T": 2, "M": 2, "S": 5}, FIT), ({"N": 3, "T": 2, "M": 4, "S": 5}, MISFIT),
         ({"N": 3, "T": 0, "M": 2, "S": 5}, MISFIT), ({"N": 3, "T": 0, "M": 2, "S": 0}, FIT)],
    ),
    "Updates": (
        "float[N,T] x, int64[M,1] i, float[K,U] u",
        "y = ScatterND(x, i, u)",
        [({"N": 3, "T": 2, "M": 1, "K": 1, "U": 2}, FIT), ({"N": 3, "T": 2, "M": 1, "K": 2, "U": 2}, MISFIT),
         ({"N": 3, "T": 2, "M": 1, "K": 1, "U": 1}, MISFIT)],
    ),
    "The edge of nothing": (
        "float[N,T] x",
        "p = Constant<value_ints=[0,1,0,1]>() y = Pad<mode=\"edge\">(x, p)",
        [({"N": 2, "T": 1}, FIT), ({"N": 2, "T": 0}, MISFIT), ({"N": 0, "T": 0}, FIT)],
    ),
    "The last rows": (
        "float[N,T] x",
        "b = Constant<value_ints=[-2]>() e = Constant<value_ints=[99]>() y = Slice(x, b, e)",
        [({"N": n, "T": 2}, FIT) for n in (1, 2, 3)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_meet(name: str, tmp_path: Path) -> None:
    inputs, body, tried = CASES[name]
    rank = {
        "Conv": "[A,B,C]",
        "Pool": "[A,B,C]",
        "Instance": "[A,B,C]",
        "LSTM": "[A,B,C,D]",
        "Add(x": "[A]",
        "Reduce": "[A,B,C,D]",
    }
    shape = next((s for op, s in reversed(rank.items()) if op in body), "[A,B]")
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 20]> g ({inputs}) => (float{shape} y) {{ {body} }}'
    )
    program, packed = compiled(model, tmp_path)
    for sizes, fits in tried:
        given = {**inputs_of(model, sizes), **packed}
        if fits:
            run(program, given)
        else:
            with pytest.raises(castiron.InputError):
                run(program, given)


@pytest.mark.parametrize("examples", [6, pytest.param(300, marks=pytest.mark.slow)])
def test_no_size_makes_a_load_leave_its_buffer(examples: int, tmp_path: Path) -> None:
    """The interpreter refuses such loads with an InternalError."""

    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(graphs(), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), min_size=4, max_size=4))
    def check(model: onnx.ModelProto, tried: list[tuple[int, int]]) -> None:
        program, packed = compiled(model, tmp_path)
        for n, t in tried:
            with suppress(castiron.InputError):
                run(program, {**inputs_of(model, {"N": n, "T": t}), **packed})

    check()


# Properties ----------------------------------------------------------------------------------------------------------

LEAVES = st.one_of(st.sampled_from(["N", "T"]).map(Var), st.integers(-4, 9).map(constant))


def _grown(parts: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    joined = st.builds(apply, st.sampled_from(["add", "sub", "mul", "min", "max"]), parts, parts)
    divided = st.builds(apply, st.sampled_from(["floordiv", "mod"]), parts, st.integers(1, 4).map(constant))
    return st.one_of(joined, divided)


EXPRESSIONS = st.recursive(LEAVES, _grown, max_leaves=8)
SIZES = st.fixed_dictionaries({"N": st.integers(0, 40), "T": st.integers(0, 40)})


def value(e: Expr, sizes: dict[str, int]) -> int:
    """By Python's unbounded integers."""
    if isinstance(e, Const):
        return int(e.value)
    if isinstance(e, Var):
        return sizes[e.name]
    assert isinstance(e, Apply)
    a, b = (value(x, sizes) for x in (e.args if len(e.args) == 2 else (constant(0), *e.args)))
    operations = {
        "add": a + b, "sub": a - b, "mul": a * b, "neg": -b, "min": min(a, b), "max": max(a, b),
        "floordiv": a // b if b else 0, "mod": a % b if b else 0,
    }  # fmt: skip
    return operations[e.op]


@settings(deadline=None)
@given(EXPRESSIONS, SIZES)
def test_what_is_held_for_natural_is_natural(e: Expr, sizes: dict[str, int]) -> None:
    assert not _is_natural(e) or value(e, sizes) >= 0


@settings(deadline=None)
@given(EXPRESSIONS, SIZES)
def test_magnitude_is_never_less(e: Expr, sizes: dict[str, int]) -> None:
    assert value(magnitude(e), sizes) >= abs(value(e, sizes))
