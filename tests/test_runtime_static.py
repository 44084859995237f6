"""What static executables have in place of the C library's functions (castiron/runtime/static)."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.skipif(sys.platform != "linux", reason="runs a Linux executable")
def test_allocations_fills_copies_and_searches(tmp_path: Path) -> None:
    parts = (ROOT / "castiron/runtime/static").glob("*.c")
    own_start = {"start.c"}  # needs the linker's flags of an executable; every artifact's test goes through it
    sources = [*(part for part in parts if part.name not in own_start), ROOT / "tests/runtime_static/driver.c"]
    target = f"{platform.machine()}-linux-musl"
    flags = ["-std=c11", "-Os", "-Wall", "-Wextra", "-Werror", "-fno-builtin"]
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, *flags, *map(str, sources)]
    subprocess.run([*command, "-o", str(tmp_path / "driver")], check=True)
    environment = {**os.environ, "SOMEWHERE": "x=y"}
    assert subprocess.run([str(tmp_path / "driver")], env=environment).returncode == 0
