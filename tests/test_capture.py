"""Capture: a module's forward pass as a graph file, printed, compared, run back and compiled."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import castiron
from castiron import cli
from castiron.graph.listing import listing, prints

ROOT = Path(__file__).parent.parent
MODULE = "examples/mlp.py:mlp"
PAGE = ROOT / "docs" / "capture.md"

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `castiron ARGUMENTS` in the repository's folder; its status and all it printed."""
    monkeypatch.chdir(ROOT)

    def run(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["castiron", *map(str, arguments)])
        status = cli.status()
        return status, "".join(capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The captured MLP."""
    pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("captured") / "graph.onnx"
    sys.path.insert(0, str(ROOT))
    from examples.mlp import mlp

    module, inputs, shapes = mlp()
    model = castiron.capture(module, inputs, path, dynamic_shapes=shapes)
    assert isinstance(model, ir.Model)
    return path


def test_the_file_is_onnx_with_parameters_by_name(graph: Path) -> None:
    model = onnx.load(graph)
    onnx.checker.check_model(model, full_check=True)
    assert [t.name for t in model.graph.initializer] == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    assert str(ROOT).encode() not in graph.read_bytes()
    assert b"site-packages" not in graph.read_bytes()


def test_printed_compared_run_back_and_compiled(command: Command, graph: Path, tmp_path: Path) -> None:
    assert command("compare", graph, MODULE) == (
        0,
        "the same operators on the same values\n4 parameters with the same values\nOK\n",
    )
    x = (0.1 * np.arange(12) - 0.5).astype(np.float32).reshape(3, 4)
    np.save(tmp_path / "x.npy", x)
    assert command("run", graph, tmp_path / "x.npy", "-o", tmp_path / "a.npy", "--reference")[0] == 0
    assert command("run", MODULE, tmp_path / "x.npy", "-o", tmp_path / "b.npy")[0] == 0
    assert command("compare", tmp_path / "a.npy", tmp_path / "b.npy")[0] == 0
    castiron.build(graph, tmp_path / "mlp", cpu=("x86-64-v3",))
    assert (tmp_path / "mlp").exists()


def test_the_command_writes_the_file(command: Command, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    status, said = command("capture", MODULE, "-o", tmp_path / "mlp.onnx")
    assert (status, said) == (0, f"{tmp_path / 'mlp.onnx'}  3 nodes, 4 parameters (268 B)\n")
    for arguments, says in (
        (("capture", tmp_path / "mlp.onnx", "-o", tmp_path / "b.onnx"), "is a graph already"),
        (("capture", MODULE, "-o", tmp_path / "b.pt2"), "a graph file is ONNX"),
        (("show", tmp_path / "mlp.onnx", "--aten"), "only modules and .pt2 files"),
    ):
        status, said = command(*arguments)
        assert status == 2 and says in said
    assert [f.name for f in tmp_path.iterdir()] == ["mlp.onnx"]


def test_large_parameters_lie_beside(
    command: Command, graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("castiron.lab.capture._LARGE", 100)
    assert command("capture", MODULE, "-o", tmp_path / "mlp.onnx")[0] == 0
    assert sorted(f.name for f in tmp_path.iterdir()) == ["mlp.onnx", "mlp.onnx.data"]
    assert command("compare", graph, tmp_path / "mlp.onnx")[0] == 0


def test_the_listings_of_the_page_are_what_the_commands_print(command: Command) -> None:
    """Each `$ castiron …` of docs/capture.md with what it shows below it."""
    torch = pytest.importorskip("torch")
    if not torch.__version__.startswith("2.13."):
        pytest.skip("the listings are of torch 2.13")
    blocks = re.findall(r"```text\n\$ castiron ([^\n]*)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 2
    for line, shown in blocks:
        assert command(*line.split())[1] == shown


# Differences ---------------------------------------------------------------------------------------------------------


def changed(graph: Path, path: Path, change: Callable[[onnx.ModelProto], Any]) -> Path:
    """A copy with a change."""
    model = onnx.load(graph)
    change(model)
    onnx.save(model, path)
    return path


def test_a_capture_equals_the_module_that_it_was_made_from(tmp_path: Path, command: Command) -> None:
    """Floats of attributes are 32 bits in a file."""
    pytest.importorskip("torch")
    code = """
import torch
def net():
    torch.manual_seed(0)
    layers = torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.LeakyReLU(0.2), torch.nn.LayerNorm(6, eps=1e-3)
    return torch.nn.Sequential(*layers).eval(), (torch.randn(2, 4),)
"""
    (tmp_path / "net.py").write_text(code)
    assert command("capture", f"{tmp_path}/net.py:net", "-o", tmp_path / "net.onnx")[0] == 0
    assert command("compare", tmp_path / "net.onnx", f"{tmp_path}/net.py:net")[0] == 0


def test_names_and_order_make_no_difference(graph: Path, tmp_path: Path, command: Command) -> None:
    def rename(model: onnx.ModelProto) -> None:
        first, second = model.graph.node[:2]
        first.output[0] = second.input[0] = "hidden"
        del model.graph.value_info[:]

    assert command("compare", graph, changed(graph, tmp_path / "b.onnx", rename))[0] == 0


def test_what_differs_is_shown(graph: Path, tmp_path: Path, command: Command) -> None:
    def tanh(model: onnx.ModelProto) -> None:
        model.graph.node[1].op_type = "Tanh"

    def nudge(model: onnx.ModelProto) -> None:
        bias = np.frombuffer(model.graph.initializer[1].raw_data, "<f4").copy()
        bias[3] += 1
        model.graph.initializer[1].raw_data = bias.tobytes()

    def rename(model: onnx.ModelProto) -> None:
        model.graph.initializer[3].name = model.graph.node[2].input[2] = "bias"

    status, said = command("compare", graph, changed(graph, tmp_path / "b.onnx", tanh))
    assert status == 1
    assert "-     relu: f32[batch, 8] = Relu(linear)\n+     relu: f32[batch, 8] = Tanh(linear)\n" in said
    status, said = command("compare", graph, changed(graph, tmp_path / "b.onnx", nudge), "--json")
    found = json.loads(said)
    assert (status, [o["name"] for o in found["outputs"] if not o["ok"]]) == (1, ["fc1.bias"])
    status, said = command("compare", graph, changed(graph, tmp_path / "b.onnx", rename))
    assert status == 1 and "only in the first file" in said and "only in the second file" in said


# Listings ------------------------------------------------------------------------------------------------------------


def test_a_listing_of_everything() -> None:
    """Sub-graphs, functions, constants short and long, attributes of each kind, values of no known type, sequences."""
    tensor = helper.make_tensor_value_info
    then = helper.make_graph([helper.make_node("Neg", ["x"], ["t"])], "then", [], [tensor("t", 1, [2])])
    other = helper.make_graph(
        [helper.make_node("Twice", ["x"], ["e"], domain="own")], "else", [], [tensor("e", 1, [2])]
    )
    nodes = [
        helper.make_node("Constant", [], ["k"], value_ints=[1, 2]),
        helper.make_node("Constant", [], ["long"], value=helper.make_tensor("", 7, [20], range(20))),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        helper.make_node("Concat", ["y", "y"], ["z"], axis=0),
        helper.make_node("SplitToSequence", ["z"], ["s"], keepdims=0),
        helper.make_node("Clip", ["z", "", "k"], ["free"]),
    ]
    ports = [tensor("x", 1, [2]), tensor("c", 9, [])], [tensor("z", 10, ["n", None])]
    ports[1].append(helper.make_tensor_sequence_value_info("s", 11, [2]))
    twice = helper.make_function(
        "own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 20)]
    )
    model = helper.make_model(
        helper.make_graph(nodes, "g", *ports),
        functions=[twice],
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("own", 1)],
    )
    assert listing(ir.from_proto(model), "everything") == (
        "everything(x: f32[2], c: bool[]) -> (z: f16[n, ?], s: seq(f64[2])):\n"
        "    k = [1, 2]\n"
        "    long = constant\n"
        "    y = If(c)\n"
        "        else_branch() -> (e: f32[2]):\n"
        "            e: f32[2] = own::Twice(x)\n"
        "            return e\n"
        "        then_branch() -> (t: f32[2]):\n"
        "            t: f32[2] = Neg(x)\n"
        "            return t\n"
        "    z: f16[n, ?] = Concat(y, y, axis=0)\n"
        "    s: seq(f64[2]) = SplitToSequence(z, keepdims=0)\n"
        "    free = Clip(z, None, k)\n"
        "    return z, s\n"
        "\n"
        "own::Twice(a) -> (b):\n"
        "    b = Add(a, a)\n"
        "    return b\n"
    )


def test_prints_tell_graphs_apart() -> None:
    def made(**options: Any) -> Any:
        node = helper.make_node("Gemm", ["x", "w"], ["y"], **options)
        ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 2]) for n in ("x", "w", "y")]
        return prints(ir.from_proto(helper.make_graph([node], "g", ports[:2], ports[2:])))

    assert made() == made(alpha=1.0, transA=0)
    assert made() != made(transA=1)
