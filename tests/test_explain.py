"""`castiron explain`: what passes did, what they did not do and why, and that nothing is left out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from castiron.cli.explain import explain_command
from castiron.cli.show import Column, shortened, table
from castiron.dump import Dump
from castiron.frontend import load
from castiron.lab.explain import Explanation, Witness, explanation
from castiron.options import BuildOptions
from castiron.pipeline import compile_source

RANDOM = np.random.default_rng(3)


def model(
    nodes: Sequence[onnx.NodeProto],
    weights: dict[str, Any],
    shape: Sequence[int | str],
    outputs: Sequence[str] = ("y",),
) -> onnx.ModelProto:
    """A model of one input `x`."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    tensors = [numpy_helper.from_array(np.asarray(a, np.float32), n) for n, a in weights.items()]
    graph = helper.make_graph(list(nodes), "net", [x], ports, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def conv_net(groups: int = 1) -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu, Conv; the second convolution has `groups`."""
    norm = {n: np.linspace(0.5, 1.5, 8) for n in ("scale", "shift", "mean", "var")}
    weights = {"w": RANDOM.standard_normal((8, 3, 3, 3)), "v": RANDOM.standard_normal((8, 8 // groups, 3, 3)), **norm}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first", pads=[1] * 4),
        helper.make_node("BatchNormalization", ["a", *norm], ["b"], "norm"),
        helper.make_node("Relu", ["b"], ["c"], "relu"),
        helper.make_node("Conv", ["c", "v"], ["y"], "second", pads=[1] * 4, group=groups),
    ]
    return model(nodes, weights, [1, 3, 8, 8])


def explained(proto: onnx.ModelProto, folder: Path, dump: Dump | None = None) -> Explanation:
    """What explain shows of a model."""
    path, witness = folder / "net.onnx", Witness()
    onnx.save(proto, path)
    chosen = dump or Dump(None, witness.watch)
    made = compile_source(load(path), BuildOptions(), chosen, print, witness.notes)
    return explanation(made.graph, made.prepare, made.forward, made.storage, witness)


def test_folded_fused_and_kept(tmp_path: Path) -> None:
    found = explained(conv_net(), tmp_path)
    names = [s.name for s in found.stages]
    assert names[:4] == ["import", "upgrade", "sizes", "fold"] and names[-1] == "batchnorm"
    assert found.stages[-1].change["BatchNormalization"] == -1 and not found.declined
    first = next(row for row in found.forward if "Relu" in row.operators)
    assert first.what.startswith("conv 8 × 8 × 8 over 3 × 3 × 3") and first.result == "float32 [1, 10, 10, 8]"
    assert first.flops == 8 * 8 * 8 * (2 * 27 + 2)  # multiply and add, the bias, Relu
    reasons = {k.buffer: k.reason for k in found.kept}
    assert reasons == {
        "x.padded": "a padded copy: its source belongs to the caller",
        "c.padded": "conv reads it from memory",
    }
    assert {slot.buffer for slot in found.memory} == set(reasons)


def test_why_a_convolution_runs_as_loops(tmp_path: Path) -> None:
    found = explained(conv_net(groups=8), tmp_path)
    (reason,) = [r for node, r in found.declined.items() if node == "Conv second"]
    assert reason.startswith("loops, not the conv kernel: one input channel a group leaves it nothing to sum over")


def test_why_a_batch_norm_stays(tmp_path: Path) -> None:
    norm = {n: np.ones(3) for n in ("scale", "shift", "mean", "var")}
    nodes = [
        helper.make_node("BatchNormalization", ["x", *norm], ["a"], "early"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("BatchNormalization", ["b", *norm], ["y"], "late"),
    ]
    found = explained(model(nodes, norm, [1, 3, 4]), tmp_path)
    assert found.declined == {
        "BatchNormalization early": "not folded: the model's input is what it normalizes",
        "BatchNormalization late": "not folded: it follows a Relu, not a layer with weights",
    }


def test_why_an_array_is_not_fused(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("ReduceSum", ["e"], ["s"], keepdims=1),
        helper.make_node("Neg", ["e"], ["n"]),
        helper.make_node("Transpose", ["e"], ["y"], perm=[1, 0]),
    ]
    found = explained(model(nodes, {}, [64, 64], ["s", "n", "y"]), tmp_path)
    (kept,) = found.kept
    assert (
        kept.buffer == "e"
        and kept.reason == "several steps read it, and loading it is cheaper than computing it in each"
    )
    assert kept.bytes == 64 * 64 * 4


def test_sizes_known_at_run_time_are_expressions(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    found = explained(model(nodes, {"w": np.ones((4, 3))}, ["batch", 4]), tmp_path)
    (row,) = found.forward
    assert row.flops == "24·batch" and row.result == "float32 [batch, 3]"


def test_dump_writes_every_stage(tmp_path: Path) -> None:
    explained(conv_net(), tmp_path, Dump(tmp_path / "stages"))
    names = sorted(p.name for p in (tmp_path / "stages").iterdir())
    assert {"00-import.onnx", "20-sizes.onnx", "40-expand.onnx", "50-batchnorm.onnx"} < set(names)
    assert names[-3:] == ["60-lowered.txt", "70-prepare.txt", "71-forward.txt"]
    onnx.checker.check_model(onnx.load(tmp_path / "stages" / "50-batchnorm.onnx"))


def test_tables_are_aligned_and_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(conv_net(8), tmp_path / "net.onnx")
    explain_command(str(tmp_path / "net.onnx"), [], None, False)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) < 250
    forward = shown.split("At run time (forward)\n")[1].split("\n\n")[0].splitlines()
    column = forward[0].index("operators")
    assert all(line[column - 1] == " " and line[column] != " " for line in forward)


def test_json_is_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(conv_net(8), tmp_path / "net.onnx")
    explain_command(str(tmp_path / "net.onnx"), [], None, True)
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"summary", "sizes", "stages", "prepare", "forward", "declined", "kept", "memory"}
    assert {"first", "relu"} <= {n for row in found["forward"] for n in row["nodes"]}


def test_long_names_lose_their_middle() -> None:
    assert shortened("encoder.layers.11.attention.output", 20) == "encoder.la…on.output"
    assert shortened("short", 20) == "short"
    columns = (Column("name", limit=5), Column("n", right=True), Column("empty"))
    assert table(columns, [["abcdefgh", "1", ""], ["x", "10", ""]]) == "name    n\nab…gh   1\nx      10"
