"""Winograd's forms of convolutions: the same sums, chosen where they pay, within the error budget, the same bits everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import castiron
from castiron.dump import Dump
from castiron.frontend import load
from castiron.graph.lower import lower
from castiron.lab.native import run_executable
from castiron.pipeline import compile_graph, compile_programs
from castiron.program.notes import Notes
from castiron.program.run import run
from castiron.program.types import Kernel, Program
from castiron.program.winograd import PLAIN, Limits, filter_of, form_of, limits, to_points, weaker
from tests.building import levels

RANDOM = np.random.default_rng(5)
SYMBOLIC = ("batch", 24, "height", "width")


def network(shape: Sequence[int | str], *channels: int, **attributes: object) -> onnx.ModelProto:
    """Convolutions of 3 x 3 with Relu between them."""
    nodes, weights, value = [], [], "x"
    for number, (c, o) in enumerate(pairwise(channels)):
        filter = RANDOM.standard_normal((o, c, 3, 3), np.float32) / np.float32(3 * c**0.5)
        weights.append(numpy_helper.from_array(filter, f"w{number}"))
        given = {"pads": [1, 1, 1, 1], **attributes}
        nodes.append(helper.make_node("Conv", [value, f"w{number}"], [f"c{number}"], f"conv{number}", **given))
        value = f"y{number}"
        nodes.append(helper.make_node("Relu", [f"c{number}"], [value], f"relu{number}"))
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), (value, None))]
    graph = helper.make_graph(nodes, "net", ports[:1], ports[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def saved(proto: onnx.ModelProto, folder: Path) -> Path:
    """The model as a file."""
    onnx.save(proto, folder / "net.onnx")
    return folder / "net.onnx"


def programs(path: Path, allowed: Limits, reasons: dict[str, str] | None = None) -> tuple[Program, Program]:
    """prepare and forward of a model."""
    source = load(str(path))
    lowered = lower(compile_graph(source, {}, Dump()), source.parameters)
    notes = Notes({}.__setitem__ if reasons is None else reasons.__setitem__)
    prepare, forward, _ = compile_programs(lowered, Dump(), notes, allowed)
    return prepare.program, forward.program


def forms(program: Program) -> list[int]:
    """m of each convolution."""
    return [form_of(s) for s in program.steps if isinstance(s, Kernel)]


def interpreted(path: Path, allowed: Limits, x: np.ndarray) -> np.ndarray:
    """The output by the interpreter."""
    prepare, forward = programs(path, allowed)
    weights = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    (y,) = run(forward, {"x": x, **run(prepare, weights)}).values()
    return y


@pytest.mark.parametrize("m", [2, 4])
def test_points_and_back(m: int) -> None:
    filter = RANDOM.standard_normal((3, 3, 5, 16))
    points = np.einsum("ia,jb,abcl->ijcl", to_points(m), to_points(m), filter)[:, :, None]
    assert np.allclose(filter_of(points), filter)


@pytest.mark.parametrize("m", [2, 4])
def test_programs_compute_the_same(m: int, tmp_path: Path) -> None:
    path = saved(network(SYMBOLIC, 24, 40, 33), tmp_path)
    x = RANDOM.standard_normal((2, 24, 11, 13), np.float32)
    assert forms(programs(path, Limits(m))[1]) == [m, m]
    assert np.allclose(interpreted(path, Limits(m), x), interpreted(path, PLAIN, x), atol=1e-4)


def test_each_refusal_has_its_reason(tmp_path: Path) -> None:
    cases = {
        "beyond what the error budget allows": network((1, 64, 56, 56), 64, 64),
        "channels last": network((1, 24, 30, 30), 24, 24, pads=[0, 0, 0, 0]),
    }
    for reason, proto in cases.items():
        reasons: dict[str, str] = {}
        _, forward = programs(saved(proto, tmp_path), Limits(1 if "budget" in reason else 4), reasons)
        assert forms(forward) == [1] and reason in reasons["Conv conv0"], reason


@pytest.mark.parametrize("attributes", [{"strides": [2, 2]}, {"dilations": [2, 2], "pads": [2] * 4}])
def test_other_convolutions_stay(attributes: dict[str, object], tmp_path: Path) -> None:
    _, forward = programs(saved(network((1, 64, 56, 56), 64, 64, **attributes), tmp_path), Limits(4))
    assert forms(forward) == [1]


def test_what_is_not_exact_enough_falls_back_in_halves(tmp_path: Path) -> None:
    path = saved(network((1, 64, 28, 28), 64, 64, 128, 128), tmp_path)
    allowed: Limits | None = limits(2)
    seen = []
    while allowed is not None:
        _, forward = programs(path, allowed)
        seen.append(forms(forward))
        allowed = weaker(forward, allowed)
    assert seen[:3] == [[4, 4, 4], [2, 4, 2], [2, 2, 2]] and seen[-1] == [1, 1, 1]
    assert limits(1) == PLAIN


def test_a_build_measures_and_keeps_to_the_budget(tmp_path: Path) -> None:
    said: list[str] = []
    path = saved(network(SYMBOLIC, 24, 200, 200), tmp_path)
    report = castiron.build(path, tmp_path / "net", progress=said.append, shapes={"x": (-1, -1, 20, 31)})
    assert all(v.ok for v in report.verdicts)
    assert any("become more exact" in line for line in said)


def test_bits_and_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(network(SYMBOLIC, 24, 40, 33), tmp_path)
    program = castiron.build(path, tmp_path / "net", error_budget=100).path
    given = onnx.load(path)
    weights = [numpy_helper.to_array(t).astype(np.float64) for t in given.graph.initializer]
    for shape in ((1, 24, 1, 1), (1, 24, 2, 9), (3, 24, 17, 23), (2, 24, 40, 5)):
        x = RANDOM.standard_normal(shape, np.float32)
        (y,) = run_executable(program, {"x": x}, ("--threads", "1")).values()
        exact = x.astype(np.float64)
        for w in weights:
            exact = np.maximum(convolved(exact, w), 0)
        assert np.abs(y - exact).max() < 1e-4
        for level in levels():
            monkeypatch.setenv("CASTIRON_CPU", level)
            (again,) = run_executable(program, {"x": x}, ("--threads", "2")).values()
            assert again.tobytes() == y.tobytes(), level
        monkeypatch.delenv("CASTIRON_CPU")
        (last,) = run_executable(program, {"x": x[-1:]}).values()
        assert last.tobytes() == y[-1:].tobytes()


def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """By 3 x 3 taps inside a border of one."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    seen = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.einsum("nchwab,ocab->nohw", seen, w, optimize=True)
