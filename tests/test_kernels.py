"""The runtime's kernels: right against their plain forms in double, the same bits wherever multiply-add is fused.

`tests/kernels/ladder.c` holds the cases; it also times: see its first lines.
"""

from __future__ import annotations

import functools
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "castiron" / "runtime" / "kernels").glob("*.c"))
FLAGS = "-O3 -std=gnu11 -Wall -Wextra -Werror -ffp-contract=off -fno-math-errno -fwrapv -ffunction-sections -DCI_LADDER"
X86 = "-target x86_64-linux-musl -mcpu="
TARGETS = {
    "generic": f"{X86}x86_64",
    "x86_64_v2": f"{X86}x86_64_v2",
    "x86_64_v3": f"{X86}x86_64_v3",
    "x86_64_v4": f"{X86}x86_64_v4 -mprefer-vector-width=512",
    "arm64": "-target aarch64-linux-musl",
}
NEEDS = {"x86_64_v3": "avx2", "x86_64_v4": "avx512vl"}


def _runner(isa: str) -> list[str]:
    """What runs a program of `isa` here; skips the test where nothing does."""
    arm = platform.machine() in ("aarch64", "arm64")
    if (isa == "arm64") == arm:
        info = Path("/proc/cpuinfo")
        if isa in NEEDS and not (info.exists() and NEEDS[isa] in info.read_text().split()):
            pytest.skip(f"this processor has no {NEEDS[isa]}")
        return []
    emulator = shutil.which("qemu-aarch64" if isa == "arm64" else "qemu-x86_64")
    if emulator is None:
        pytest.skip(f"nothing here runs {isa}")
    return [emulator]


@functools.cache
def _ladder(isa: str) -> subprocess.CompletedProcess[str]:
    """The ladder's answer on `isa`: a line a kernel, its name and the hash of all bits so far."""
    runner = _runner(isa)
    sources = [*SOURCES, ROOT / "tests" / "kernels" / "ladder.c"]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "ladder"
        compiler = [sys.executable, "-m", "ziglang", "cc", *TARGETS[isa].split(), *FLAGS.split(), f"-DCI_ISA={isa}"]
        subprocess.run([*compiler, *map(str, sources), "-o", str(program), "-lm"], check=True)
        return subprocess.run([*runner, str(program)], capture_output=True, text=True)


@pytest.mark.parametrize("isa", TARGETS)
def test_kernels_agree_with_their_plain_forms(isa: str) -> None:
    result = _ladder(isa)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("isa, other", [("x86_64_v4", "x86_64_v3"), ("arm64", "x86_64_v3"), ("x86_64_v2", "generic")])
def test_bits_are_the_same_with_fused_multiply_add_and_the_same_without(isa: str, other: str) -> None:
    assert _ladder(isa).stdout == _ladder(other).stdout


@pytest.mark.skipif(shutil.which("gcc") is None or platform.machine() != "x86_64", reason="needs gcc for x86-64")
@pytest.mark.parametrize("isa, cpu", [("generic", "x86-64"), ("x86_64_v3", "x86-64-v3")])
def test_kernels_compile_with_gcc(isa: str, cpu: str, tmp_path: Path) -> None:
    for source in SOURCES:
        command = ["gcc", f"-march={cpu}", *FLAGS.split(), f"-DCI_ISA={isa}", "-c", str(source)]
        subprocess.run([*command, "-o", str(tmp_path / source.stem)], check=True)
