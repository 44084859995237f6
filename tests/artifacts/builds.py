"""Artifacts of small models, each made once a session, and ways to run them."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import ziglang
from onnx import TensorProto, helper, numpy_helper

import castiron

ROOT = Path(__file__).parent.parent.parent
MLP = ROOT / "examples" / "mlp.onnx"
RAW = ROOT / "examples" / "mlp.safetensors"
ZIG = str(Path(ziglang.__file__).parent / "zig")
QEMU = shutil.which("qemu-aarch64")

X = (0.1 * np.arange(20) - 0.7).astype(np.float32).reshape(5, 4)
"""An input of the MLP: [batch, 4]."""


@cache
def scratch() -> Path:
    """A folder of this session."""
    folder = Path(tempfile.mkdtemp(prefix="castiron-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def built(form: str = "exe", weights: str = "embed", target: str | None = None, model: str = "mlp") -> Path:
    """The artifact, alone in a folder with what belongs to it. model: `mlp`, `conv`."""
    return _built(form, weights, target, model)


@cache
def _built(form: str, weights: str, target: str | None, model: str) -> Path:
    folder = scratch() / f"{form}-{weights}-{target}-{model}"
    folder.mkdir()
    source = {"mlp": lambda: MLP, "conv": conv_model}[model]()
    name = {"exe": model, "shared": f"lib{model}.so", "static": f"lib{model}.a", "source": model}[form]
    return castiron.build(str(source), folder / name, form=form, weights=weights, target=target).path


@cache
def conv_model() -> Path:
    """conv.onnx: x[1,3,6,6] → 3 x 3 convolution, 4 filters → Relu → y[1,4,4,4]."""
    random = np.random.default_rng(3)
    weights = {"w": (4, 3, 3, 3), "b": (4,)}
    tensors = [numpy_helper.from_array(random.standard_normal(s).astype(np.float32), n) for n, s in weights.items()]
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"]), helper.make_node("Relu", ["c"], ["y"])]
    return save_model("conv", nodes, {"x": (1, 3, 6, 6)}, {"y": (1, 4, 4, 4)}, tensors)


def save_model(
    name: str,
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, tuple[int | str, ...]],
    outputs: Mapping[str, tuple[int | str, ...]],
    tensors: list[TensorProto],
) -> Path:
    """NAME.onnx of float32 inputs and outputs."""
    ports = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in p.items()] for p in (inputs, outputs)]
    graph = helper.make_graph(nodes, name, *ports, tensors)
    path = scratch() / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def run(
    program: Path, x: np.ndarray = X, *options: str, cpu: str = "", emulator: str | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """An executable on one input, with an environment that holds nothing but the instruction set asked for."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/x.npy", x)
        command = [*([emulator] if emulator else []), str(program), f"{folder}/x.npy", *options]
        environment = {"CASTIRON_CPU": cpu} if cpu else {}
        return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, timeout=120)


def outputs(
    program: Path, x: np.ndarray = X, *options: str, cpu: str = "", emulator: str | None = None, cwd: Path | None = None
) -> bytes:
    """The bytes of the output as .npy; the process must succeed."""
    done = run(program, x, "-o", "-", *options, cpu=cpu, emulator=emulator, cwd=cwd)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def command(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """`castiron ARGUMENTS` in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "castiron", *map(str, arguments)]
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300, **options)  # type: ignore[call-overload, no-any-return]


def left(folder: Path) -> list[str]:
    """Everything in a folder, hidden files too."""
    return sorted(os.listdir(folder))


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The message of a command that failed: one line, no traceback."""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("  ")]  # those are of progress
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("castiron: ")
    return lines[0]
