"""A model of more than 2 GB, its weights in a file beside it: mapped, never read as a whole, and packed in a stream."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

ROOT = Path(__file__).parent.parent
WIDTH, LAYERS, STEP = 7168, 11, 256
MATRIX = 4 * WIDTH * WIDTH


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = relu(… relu(x w0) … w10) with 2.2 GB of weights, in a sparse file: each has 28 elements on its diagonal."""
    folder = tmp_path_factory.mktemp("large")
    with (folder / "weights.data").open("wb") as file:
        for layer in range(LAYERS):
            for row in range(0, WIDTH, STEP):
                file.seek(layer * MATRIX + 4 * (row * WIDTH + row))
                file.write(np.float32(1 + layer / 8).tobytes())
        file.truncate(LAYERS * MATRIX)
    nodes, value = [], "x"
    for layer in range(LAYERS):
        out = "y" if layer == LAYERS - 1 else f"r{layer}"
        nodes.append(helper.make_node("MatMul", [value, f"w{layer}"], [f"m{layer}"]))
        nodes.append(helper.make_node("Relu", [f"m{layer}"], [out]))
        value = out
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", WIDTH]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "large", ports[:1], ports[1:], [_outside(layer) for layer in range(LAYERS)])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), folder / "large.onnx"
    )
    return folder / "large.onnx"


def _outside(layer: int) -> TensorProto:
    tensor = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT, dims=[WIDTH, WIDTH])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights.data"), ("offset", layer * MATRIX), ("length", MATRIX)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def castiron(*arguments: object) -> tuple[int, str, int]:
    """Status, what was said on standard error, and the most memory that the process had (MiB)."""
    # not ru_maxrss, which begins with what the process that started this one had
    code = "import re, sys; from castiron import cli; status = cli.status(); told = open('/proc/self/status').read()\n"
    code += "print(int(re.search(r'VmHWM:\\s+(\\d+)', told)[1]) // 1024, file=sys.stderr); sys.exit(status)"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    *said, peak = done.stderr.splitlines()
    return done.returncode, "\n".join(said), int(peak)


@pytest.mark.slow
def test_more_than_two_gigabytes(model: Path) -> None:
    status, _, peak = castiron("explain", model)
    assert status == 0 and peak < 500
    status, said, _ = castiron("build", model, "-o", model.with_suffix(""), "--cpu", "x86-64-v3", "-q", "--no-verify")
    assert status == 2 and "--weights file" in said
    options = ("--weights", "file", "--cpu", "x86-64-v3", "-q")
    status, said, _ = castiron("build", model, "-o", model.with_suffix(""), *options)
    assert (status, said) == (0, "")
    assert model.with_suffix("").stat().st_size < 1 << 20
    x = np.zeros((1, WIDTH), np.float32)
    x[0, : 4 * STEP : STEP] = [1, -1, 2, 3]
    np.save(model.parent / "x.npy", x)
    subprocess.run([model.with_suffix(""), "x.npy", "-o", "y.npy"], cwd=model.parent, check=True)
    y = np.load(model.parent / "y.npy")
    grown = np.prod([1 + layer / 8 for layer in range(LAYERS)])
    np.testing.assert_allclose(y[0, : 4 * STEP : STEP], grown * np.array([1, 0, 2, 3]), rtol=1e-6)
    assert np.count_nonzero(y) == 3
    for name in ("weights.data", "large.weights"):
        (model.parent / name).unlink()
