"""Quantized weights: in the artifact once, as small as in the model, and the same results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper
from onnx_ir import DataType
from safetensors.numpy import save_file

import castiron
from castiron.dump import Dump
from castiron.frontend import source as frontend
from castiron.options import BuildOptions
from castiron.pipeline import compile_source
from castiron.program.cost import known, nbytes
from castiron.program.run import run as execute
from castiron.program.types import Kind, Program
from tests.artifacts.builds import run

_RANDOM = np.random.default_rng(5)


def integers(*shape: int, type: type = np.int8) -> np.ndarray:
    """Random of the whole type."""
    info = np.iinfo(type)
    return _RANDOM.integers(info.min, info.max + 1, shape).astype(type)


def model(text: str, folder: Path, **initializers: np.ndarray) -> Path:
    """A file with the graph of `text`."""
    parsed = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    parsed.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in initializers.items())
    path = folder / "model.onnx"
    onnx.save(parsed, path)
    return path


def programs(path: Path) -> tuple[Program, Program]:
    """prepare and forward."""
    compiled = compile_source(frontend.load(path), BuildOptions.of({}), Dump(None), lambda text: None)
    return compiled.prepare.program, compiled.forward.program


INTEGER = "g (float[N, 64] x) => (float[N, 48] y) {q, s, z = DynamicQuantizeLinear(x)  i = MatMulInteger(q, w, z)" \
    "  f = Cast<to = 1>(i)  t = Mul(s, scale)  y = Mul(f, t)}"  # fmt: skip


def test_what_is_made_of_constants_alone_is_made_at_build(tmp_path: Path) -> None:
    w = integers(64, 48)
    prepare, _ = programs(model(INTEGER, tmp_path, w=w, scale=np.array([0.01], np.float32)))
    assert not any(b.type == onnx.TensorProto.INT8 for b in prepare.of_kind(Kind.CONSTANT))
    assert [b.name for b in prepare.of_kind(Kind.WEIGHT)] == ["scale"]


def test_raw_weights_reach_a_model_whose_integers_are_fixed(tmp_path: Path) -> None:
    path = model(INTEGER, tmp_path, w=integers(64, 48), scale=np.array([0.01], np.float32))
    program = castiron.build(path, tmp_path / "q").path
    x = _RANDOM.standard_normal((3, 64)).astype(np.float32)
    with castiron.load(castiron.build(path, tmp_path / "q.so", form="shared").path) as one:
        before = one(x)["y"]
    raw = tmp_path / "raw.safetensors"
    save_file({"scale": np.array([0.02], np.float32)}, raw)
    done = run(program, x, "--weights", str(raw), "-o", str(tmp_path / "y.npy"))
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), before * 2)


@pytest.mark.parametrize("other", [False, True])
def test_packed_weights_of_other_integers_are_refused(tmp_path: Path, other: bool) -> None:
    built, first = [], integers(64, 48)
    for number, w in enumerate((first, integers(64, 48) if other else first)):
        path = model(INTEGER, tmp_path, w=w, scale=np.array([0.01], np.float32))
        built.append(castiron.build(path, tmp_path / f"q{number}", weights="file", verify=False).path)
    x = np.zeros((1, 64), np.float32)
    done = run(built[1], x, "--weights", f"{built[0]}.weights")
    assert done.returncode == (3 if other else 0), done.stderr


@pytest.mark.parametrize(
    "text, scale",
    [
        ("f = Cast<to = 1>(w)  t = Mul(f, scale)  y = Gather(t, i)", (40, 1)),
        ("t = DequantizeLinear<axis = 0>(w, scale)  y = Gather(t, i)", (40,)),
        ("t = DequantizeLinear(w, scale)  g = Gather(t, i)  y = Mul(g, g)", (1,)),
    ],
)
def test_a_table_that_is_picked_from_stays_integers(tmp_path: Path, text: str, scale: tuple[int, ...]) -> None:
    table, factors = integers(40, 64), _RANDOM.random(scale, np.float32)
    path = model(f"g (int64[N] i) => (float[N, 64] y) {{{text}}}", tmp_path, w=table, scale=factors)
    prepare, forward = programs(path)
    assert [b.type for b in forward.of_kind(Kind.CONSTANT) if b.name == "w"] == [onnx.TensorProto.INT8]
    assert all((known(nbytes(b)) or 0) <= factors.nbytes for b in forward.of_kind(Kind.PACKED))
    picked = np.array([3, -1, 39, 0])
    real = table.astype(np.float32) * (factors if factors.ndim == 2 else factors.reshape(-1, 1))
    (y,) = execute(forward, {"i": picked, **execute(prepare, {"scale": factors})}).values()
    np.testing.assert_array_equal(y, (real * real if "g, g" in text else real)[picked])


@pytest.mark.parametrize("rows", [16, 256])
def test_a_product_of_many_rows_dequantizes_its_weights_itself(tmp_path: Path, rows: int) -> None:
    weights, factors, x = integers(200, 128), _RANDOM.random(128, np.float32), _RANDOM.random((rows, 200), np.float32)
    text = f"g (float[{rows}, 200] x) => (float[{rows}, 128] y) {{t = DequantizeLinear(w, scale)  y = MatMul(x, t)}}"
    prepare, forward = programs(model(text, tmp_path, w=weights, scale=factors))
    stay = {b.type for b in (*forward.of_kind(Kind.CONSTANT), *forward.of_kind(Kind.PACKED)) if b.shape[1:]}
    assert stay == {DataType.INT8 if rows == 256 else DataType.FLOAT}
    (y,) = execute(forward, {"x": x, **execute(prepare, {"scale": factors})}).values()
    np.testing.assert_allclose(y, x @ (weights.astype(np.float32) * factors), rtol=1e-4, atol=1e-2)
