"""The matmul of bytes: exact on every instruction set. `tests/kernels/integer.c` holds the cases; it also times."""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.test_kernels import FLAGS, ROOT, TARGETS, _runner

SOURCES = [ROOT / "castiron" / "runtime" / "kernels" / name for name in ("matmul_integer.c", "integer_tiles.c")]


@functools.cache
def _answer(isa: str) -> subprocess.CompletedProcess[str]:
    runner = _runner(isa)
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "integer"
        compiler = [sys.executable, "-m", "ziglang", "cc", *TARGETS[isa].split(), *FLAGS.split(), f"-DCI_ISA={isa}"]
        sources = map(str, [*SOURCES, ROOT / "tests" / "kernels" / "integer.c"])
        subprocess.run([*compiler, *sources, "-o", str(program)], check=True)
        return subprocess.run([*runner, str(program)], capture_output=True, text=True)


@pytest.mark.parametrize("isa", TARGETS)
def test_sums_are_exact(isa: str) -> None:
    result = _answer(isa)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout == _answer("generic").stdout
