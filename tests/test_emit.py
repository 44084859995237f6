"""The printer: hand-made programs, printed, compiled, run, against what the program means in NumPy (program/run.py)."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from castiron.emit.writer import comment, indented, quoted
from castiron.program.run import run as interpret
from castiron.program.types import Kernel
from tests.emit import harness, nests, steps
from tests.emit.case import CASES

assert nests and steps  # they fill CASES
KERNELS = ["matmul", "conv", "gru", "sweep", "tiles"]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    models = {_symbol(name): planned for name, (planned, _) in CASES.items()}
    return harness.build(models, tmp_path_factory.mktemp("emit"), KERNELS, ["-mcpu=baseline"])


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="compares instruction sets of x86-64")
def test_the_law_of_bits(library: ctypes.CDLL, tmp_path: Path) -> None:
    """Printed loops; kernels give other bits where nothing fuses multiply-add (test_kernels.py compares them)."""
    cases = {n: c for n, c in CASES.items() if not any(isinstance(s, Kernel) for s in c[0].program.steps)}
    models = {_symbol(name): planned for name, (planned, _) in cases.items()}
    wide = harness.build(models, tmp_path, KERNELS, ["-O3", "-mcpu=x86_64_v3"])
    for name, (planned, inputs) in cases.items():
        expected = harness.run(library, _symbol(name), planned, inputs)
        for output, found in harness.run(wide, _symbol(name), planned, inputs).items():
            assert found.tobytes() == expected[output].tobytes(), name


def _symbol(name: str) -> str:
    return "m_" + name.replace(" ", "_")


@pytest.mark.parametrize("name", CASES)
def test_printed_c_computes_what_the_program_means(library: ctypes.CDLL, name: str) -> None:
    planned, inputs = CASES[name]
    expected = interpret(planned.program, inputs)
    for output_name, found in harness.run(library, _symbol(name), planned, inputs).items():
        wanted = expected[output_name]
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        near = {"float32": 3e-5, "float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-12}.get(found.dtype.name, 0)
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=near, atol=near)


def test_an_index_out_of_range_is_refused(library: ctypes.CDLL) -> None:
    planned, inputs = CASES["gather_any"]
    with pytest.raises(IndexError):
        harness.run(library, _symbol("gather_any"), planned, inputs | {"at": np.array([100], np.int64)})


def test_the_same_program_prints_the_same_bytes() -> None:
    planned = CASES["softmax"][0]
    assert harness.printed("m", planned) == harness.printed("m", planned)


def test_rows_of_a_convolution_of_one_tap_are_merged() -> None:
    text = harness.printed("m", CASES["conv_1_1_1"][0])["m.c"]
    assert "ci_matmul kernel" in text and ".m = 200" in text


def test_tables_and_header_compile_as_c_and_cpp(tmp_path: Path) -> None:
    for file, text in harness.printed("m", CASES["symbolic"][0]).items():
        (tmp_path / file).write_text(text)
    (tmp_path / "user.cpp").write_text('#include "m.h"\nint main() { return m_input_name(0) ? M_OK : M_INPUT_X; }\n')
    base = [sys.executable, "-m", "ziglang"]
    flags = ["-target", harness.TRIPLE, "-O1", "-Wall", "-Wextra", "-Werror", f"-I{harness.RUNTIME}", "-c"]
    for compiler, file, *more in (("cc", "m_api.c", "-DCI_SHARED", "-DCI_MAIN"), ("c++", "user.cpp")):
        command = [*base, compiler, *flags, *more, str(tmp_path / file), "-o", str(tmp_path / f"{file}.o")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_writer() -> None:
    assert indented(["int f(void)", "{", "if (a) {", "b();", "}", "else {", "c();", "}", "}"]) == (
        "int f(void)\n{\n    if (a) {\n        b();\n    }\n    else {\n        c();\n    }\n}\n"
    )
    assert quoted('a"\\é?\n') == r'"a\"\\\303\251\?\012"'
    assert comment("a */ b") == ["/* a * / b */"]
