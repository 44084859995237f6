"""Random graphs through the whole line: as onnxruntime computes them, and with the same bits on every instruction set
and with any number of threads."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings

import castiron
from tests.random_graph import ASSIGNMENTS, graphs

LEVELS = ("v4", "v3") if platform.machine() == "x86_64" else None
HAS_AVX512 = Path("/proc/cpuinfo").exists() and " avx512vl " in Path("/proc/cpuinfo").read_text()
Arrays = dict[str, np.ndarray]


@contextmanager
def instruction_set(name: str) -> Iterator[None]:
    """Libraries loaded meanwhile use it."""
    os.environ["CASTIRON_CPU"] = name
    try:
        yield
    finally:
        del os.environ["CASTIRON_CPU"]


def reference(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def inputs_of(model: onnx.ModelProto, sizes: dict[str, int]) -> Arrays:
    random = np.random.default_rng(sum(sizes.values()))
    shapes = {
        i.name: [sizes.get(d.dim_param, d.dim_value) for d in i.type.tensor_type.shape.dim] for i in model.graph.input
    }
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def close(found: np.ndarray, expected: np.ndarray) -> bool:
    scale = float(np.abs(expected).max(initial=1))
    return found.shape == expected.shape and bool(np.allclose(found, expected, rtol=1e-4, atol=2e-5 * scale))


def check(model: onnx.ModelProto) -> None:
    note(onnx.printer.to_text(model.graph))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.onnx"
        onnx.save(model, path)
        library = castiron.build(str(path), Path(folder) / "random.so", form="shared", cpu=LEVELS, verify=False).path
        runs = [castiron.load(library, threads=1), castiron.load(library, threads=3)]
        if HAS_AVX512:
            with instruction_set("x86-64-v3"):
                runs.append(castiron.load(library, threads=2))
        session = reference(path)
        for sizes in ASSIGNMENTS:
            given = inputs_of(model, sizes)
            names = [o.name for o in session.get_outputs()]
            expected = dict(zip(names, session.run(None, given)))
            try:
                found = [run(**given) for run in runs]
            except castiron.InputError:
                assert 0 in sizes.values()  # sizes are inferred for dimensions that are not empty
                continue
            for name in names:
                assert close(found[0][name], expected[name]), (name, sizes, found[0][name], expected[name])
                assert all(f[name].tobytes() == found[0][name].tobytes() for f in found), (name, sizes)


# A build takes seconds: failures are shown as they are found, not made smaller first.
FOUND = settings(
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@settings(FOUND, max_examples=12, derandomize=True)
@given(graphs())
def test_random_graphs(model: onnx.ModelProto) -> None:
    check(model)


@pytest.mark.slow
@settings(FOUND, max_examples=300)
@given(graphs())
def test_many_random_graphs(model: onnx.ModelProto) -> None:
    check(model)
