"""Sizes that only data tell, branches and loops: native code gives what onnxruntime gives, for several sizes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import castiron
from castiron.dump import Dump
from castiron.errors import InputError
from castiron.frontend.source import load
from castiron.graph.lower import lower
from castiron.lab.native import run_executable
from castiron.pipeline import compile_graph
from castiron.program.bounds import bounds
from castiron.program.run import run
from tests.node_suite.build import Built, compiled, library
from tests.node_suite.cases import Case
from tests.node_suite.execute import run_all
from tests.node_suite.outcome import Outcome, Status

Arrays = Sequence[np.ndarray]


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


TRUE, FALSE = np.array(True), np.array(False)
EMPTY = f32()

NON_ZERO = """g (float[N, M] x) => (int64[2, K] y) { y = NonZero(x) }"""
CHAIN = """g (float[N] x, float[N] w) => (float[K] y, float[1] total, float[K] z) <int64[1] zero = {0}, int64[2] two = {2, -1}> {
    at = NonZero(x)
    flat = Squeeze(at, zero)
    chosen = Gather(w, flat)
    e = Exp(chosen)
    total = ReduceSum<keepdims = 1>(e, zero)
    y = Div(e, total)
    twice = Concat<axis = 0>(y, y)
    rows = Reshape(twice, two)
    z = ReduceMax<keepdims = 0>(rows, zero)
}"""
COMPRESS = """g (float[N, M] x, bool[M] c) => (float[N, K] y) { a = Compress<axis = -1>(x, c) y = Neg(a) }"""
BRANCH = """g (bool c, float[N] x, float[M] w) => (float[K] y, float[N] z) {
    y, z = If(c) <then_branch = t () => (float[a] p, float[N] q) { p = Concat<axis = 0>(x, w) q = Exp(x) },
                  else_branch = e () => (float[b] r, float[N] s) { r = Neg(w) s = Neg(x) }>
}"""
NEEDS = """g (bool c, float[N] x, float[M] w) => (float[N] y) {
    y = If(c) <then_branch = t () => (float[a] p) { p = Add(x, w) }, else_branch = e () => (float[b] q) { q = Neg(x) }>
}"""
SQUEEZED = """g (float[B, N] x) => (float[B] y) <int64[1] one = {1}, int64 place = {1}, int64[1] last = {-1}> {
    sum = ReduceSum<keepdims = 1>(x, one)
    shape = Shape(x)
    size = Gather(shape, place)
    is = Equal(size, one)
    s = If(is) <then_branch = t () => (float[a] p) { p = Squeeze(x, one) },
                else_branch = e () => (float[b, c] q) { q = Identity(x) }>
    y = Neg(s)
}"""
FIBONACCI = """g (int64 n, int64[2] a, int64[2] b) => (int64[2] p, int64[2] q) {
    p, q = Loop<body = t (int64 i, bool go, int64[2] u, int64[2] v) => (bool on, int64[2] x, int64[2] y) {
        on = Identity(go) x = Identity(v) y = Add(u, v) }>(n, , a, b)
}"""
GROWING = """g (int64 n, float[N] x) => (float[K] y, int64[T, 1] sizes) {
    y, sizes = Loop<body = t (int64 i, bool go, float[L] u) => (bool on, float[J] v, int64[1] size) {
        on = Identity(go) v = Concat<axis = 0>(u, x) size = Shape(v) }>(n, , x)
}"""
BREAK = """g (int64 n, float[N] x) => (float[N] y, float[T, N] all) <float limit = {100.0}> {
    y, all = Loop<body = t (int64 i, bool go, float[N] u) => (bool on, float[N] v, float[N] row) {
        v = Add(u, x) row = Neg(v) top = ReduceMax<keepdims = 0>(v) on = Less(top, limit) }>(n, , x)
}"""
NESTED = (
    """g (int64 n, float[N] x, float[1] one) => (float[N] y, float[T, N] all) {
    y, all = Loop<body = t (int64 i, bool go, float[N] u) => (bool on, float[N] v, float[N] row) {
        on = Identity(go)
        v = Loop<body = s (int64 j, bool more, float[N] a) => (bool more2, float[N] b) {
            more2 = Identity(more)
            k = Cast<to = 1>(j)
            even = Mod(j, one_i)
            is = Equal(even, i0)
            b = If(is) <then_branch = p () => (float[N] c) { m = Mul(x, k) c = Add(a, m) },
                        else_branch = q () => (float[N] d) { d = Sub(a, u) }>
        }>(i, , u)
        row = Add(v, one)
    }>(n, , x)
}""".replace("one_i", "two")
    .replace("i0", "zero")
    .replace(
        "(float[N] y, float[T, N] all) {", "(float[N] y, float[T, N] all) <int64 two = {2}, int64 zero = {0}> {", 1
    )
)
INNER_SIZES = """g (int64 n, float[N] x) => (float y) <int64[1] axis = {0}, float start = {0.0}> {
    y = Loop<body = t (int64 i, bool go, float s) => (bool on, float r) {
        on = Identity(go)
        k = Cast<to = 1>(i)
        less = Less(x, k)
        some = Compress<axis = 0>(x, less)
        sum = ReduceSum<keepdims = 0>(some, axis)
        r = Add(s, sum) }>(n, , start)
}"""
SCAN = """g (float[B] s, float[B, N] x) => (float[B] last, float[B, N] all) {
    last, all = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1], scan_input_directions = [1],
        body = t (float[B] a, float[B] r) => (float[B] c, float[B] d) { c = Add(a, r) d = Mul(c, c) }>(s, x)
}"""
RESHAPED = """g (float[N] x, int64[2] to, int64 n) => (float[A, B] y, float[C] part, float[D, N] wide) <int64[1] one = {1}> {
    y = Reshape(x, to)
    end = Unsqueeze(n, zero)
    part = Slice(x, zero, end)
    shape = Concat<axis = 0>(end, one)
    wide = Expand(x, shape)
}""".replace("<int64[1] one", "<int64[1] zero = {0}, int64[1] one")
X = np.array([[0, 1, 0], [2, 0, 3]], np.float32)

MODELS: dict[str, tuple[str, Sequence[Arrays]]] = {
    "non_zero": (NON_ZERO, [[X], [X * 0], [np.ones((4, 5), np.float32)], [np.zeros((0, 3), np.float32)], [X]]),
    "chain": (
        CHAIN,
        [[f32(0, 1, 0, 2), f32(1, 2, 3, 4)], [f32(*range(70)), f32(*range(70)) / 9], [f32(1), f32(-2)]],
    ),
    "compress": (COMPRESS, [[X, np.array(c)] for c in ([True] * 3, [False] * 3, [True, False, True])]),
    "branch": (BRANCH, [[c, f32(1, 2), f32(*range(m))] for c in (TRUE, FALSE, TRUE) for m in (3, 1, 40)]),
    "needs": (NEEDS, [[TRUE, f32(1, 2), f32(3, 4)], [FALSE, f32(1, 2), f32(3, 4, 5)]]),
    "squeezed": (SQUEEZED, [[f32(1, 2, 3)[:, None]], [f32(4)[:, None]]]),
    "fibonacci": (FIBONACCI, [[np.array(n), i64(0, 1), i64(1, 3)] for n in (5, 0, 1, 30, -2)]),
    "growing": (GROWING, [[np.array(n), f32(*range(m))] for n, m in ((3, 2), (1, 1), (40, 30), (3, 0))]),
    "break": (BREAK, [[np.array(n), f32(1, 5)] for n in (3, 1000, 1, 21)]),
    "nested": (NESTED, [[np.array(n), f32(1, 2, 3), f32(1)] for n in (4, 1, 6)]),
    "inner_sizes": (INNER_SIZES, [[np.array(n), f32(0, 1, 1, 2, 5, 7)] for n in (0, 1, 9, 4)]),
    "scan": (SCAN, [[f32(1, 2), np.arange(2 * n, dtype=np.float32).reshape(2, n)] for n in (3, 1, 8)]),
    "reshaped": (
        RESHAPED,
        [[f32(*range(6)), i64(*to), np.array(n)] for to, n in (((2, 3), 2), ((-1, 2), 4), ((0, 1), 1))],
    ),
}


TOP = """g (float[B, N] x, int64[1] k) => (float[B, K] y, int64[B, K] at) { y, at = TopK(x, k) }"""
NMS = """g (float[B, N, 4] boxes, float[B, C, N] scores, int64 most, float overlap, float least) => (int64[K, L] y) {
    y = NonMaxSuppression(boxes, scores, most, overlap, least) }"""


def boxes(seed: int, most: int, least: float, n: int = 40) -> Arrays:
    random = np.random.default_rng(seed)
    corners = random.random((2, n, 4), np.float32)
    return [
        corners,
        random.random((2, 3, n), np.float32),
        np.array(most),
        np.array(0.3, np.float32),
        np.array(least, np.float32),
    ]


UNIQUE = """g (float[N] x) => (float[K] y, int64[K] first, int64[N] inverse, int64[K] counts) {
    y, first, inverse, counts = Unique(x) }"""
UNIQUE_ROWS = """g (float[N, M] x) => (float[K, M] y, int64[K] first, int64[N] inverse, int64[K] counts) {
    y, first, inverse, counts = Unique<axis = 0>(x) }"""
ROWS = np.array([[1, 0], [1, 0], [0, 5], [1, -1]], np.float32)

MODELS["unique"] = (UNIQUE, [[f32(2, 1, 1, 3, 2)], [f32(7, 7)], [f32(*range(9, 0, -1))]])
MODELS["unique_rows"] = (UNIQUE_ROWS, [[ROWS], [ROWS[:1]], [ROWS[[2, 0, 2, 2, 3, 1]]]])
MODELS["top"] = (TOP, [[X, i64(k)] for k in (2, 0, 3)])
MODELS["nms"] = (NMS, [boxes(0, 5, 0.2), boxes(1, 0, 0.2), boxes(2, 100, 0.0), boxes(3, 4, 2.0), boxes(4, 3, 0.5, 1)])


@pytest.mark.parametrize("name", MODELS)
def test_interpreted(name: str) -> None:
    """The reference of programs, and of the kernels that tell sizes, gives the same."""
    text, data = MODELS[name]
    model = compile_graph(load(ir.from_proto(parsed(text))), {}, Dump(None))
    program = bounds(lower(model, frozenset()))
    for given in data:
        got = run(program, dict(zip(program.inputs, given, strict=True)))
        for output, want in zip(program.outputs, answers(parsed(text), given), strict=True):
            np.testing.assert_allclose(got[output], want, rtol=1e-5, atol=1e-6)


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>{text}')


def answers(model: onnx.ModelProto, given: Arrays) -> list[np.ndarray]:
    """onnxruntime's."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(zip([i.name for i in model.graph.input], given, strict=True))))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """All models in one library."""
    built: list[Built] = []
    found: dict[str, Outcome] = {}
    for name, (text, data) in MODELS.items():
        model = parsed(text)
        sets = [(given, answers(model, given)) for given in data]
        made = compiled(Case(f"test_control_{name}", "control", model, sets, 1e-5, 1e-6))
        if isinstance(made, Built):
            built.append(made)
        else:
            found[name] = made
    path = library(built, tmp_path_factory.mktemp("control"))
    found |= {b.case.name.removeprefix("test_control_"): o for b, o in zip(built, run_all(built, path), strict=True)}
    return found


@pytest.mark.parametrize("name", MODELS)
def test_native(outcomes: dict[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    assert outcome.status == Status.PASSED, outcome.reason


def test_executable_and_library(tmp_path: Path) -> None:
    """Both tell the shapes; sizes that fit no memory or model end with a message."""
    model = tmp_path / "growing.onnx"
    onnx.save(parsed(GROWING), model)
    n, x = np.array(3), f32(1, 2)
    expected = answers(parsed(GROWING), [n, x])
    exe = castiron.build(model, tmp_path / "growing", verify=False).path
    shared = castiron.build(model, tmp_path / "growing.so", form="shared", verify=False).path
    with castiron.load(shared) as loaded:
        found = [run_executable(exe, {"n": n, "x": x}), loaded(n, x)]
        again = loaded(np.array(5), f32(1))
    assert again["y"].shape == (6,) and again["sizes"].tolist() == [[2], [3], [4], [5], [6]]
    for answer in found:
        for got, want in zip(answer.values(), expected, strict=True):
            np.testing.assert_array_equal(got, want)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    text = "g (float[N] x, float[M] w) => (float[K] y) { a = Compress(x, c) y = Add(a, w) }"
    text = text.replace("Compress(x, c)", "Compress(x, c)").replace("{ a", "{ c = Cast<to = 9>(x) a", 1)
    model = tmp_path / "misfit.onnx"
    onnx.save(parsed(text), model)
    shared = castiron.build(model, tmp_path / "misfit.so", form="shared", verify=False).path
    with castiron.load(shared) as loaded:
        np.testing.assert_array_equal(loaded(f32(0, 2, 3), f32(1, 1))["y"], f32(3, 4))
        with pytest.raises(InputError, match=r"Add .* needs"):
            loaded(f32(0, 2, 3), f32(1, 1, 1))


def test_the_result_of_a_branch_is_an_output_under_its_own_name(tmp_path: Path) -> None:
    model = parsed(
        """g (float[n] x, bool c) => (float[n] y, float[n] z) {
          y = If (c) <then_branch = a () => (float[n] p) { p = Abs (x) }, else_branch = b () => (float[n] q) { q = Neg (x) }>
          z = Relu (y)
        }"""
    )
    path = tmp_path / "branch.onnx"
    onnx.save(model, path)
    found = castiron.load(castiron.build(path, tmp_path / "branch,1.so", form="shared").path)
    assert list(found(f32(-1, 2), np.array(False))) == ["y", "z"]


def test_inputs_of_no_dimensions_are_generated(tmp_path: Path) -> None:
    model = parsed(
        """g (float a, float b, bool c) => (float y) {
          s = Add (a, b)  f = Cast <to = 1> (c)  y = Mul (s, f)
        }"""
    )
    path = tmp_path / "scalars.onnx"
    onnx.save(model, path)
    assert castiron.build(path, tmp_path / "scalars").verdicts[0].ok
