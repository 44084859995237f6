"""Builds the C drivers of the scalar tests for the instruction sets of the host and calls them with NumPy arrays."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
RUNTIME = HERE.parent / "castiron" / "runtime"
FLAGS = (
    "-std=c11",
    "-O3",
    "-g0",
    "-fPIC",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fwrapv",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fno-builtin",
)  # without the last a loop that copies becomes memcpy
FLAGS_OF_LEVEL = {
    "x86_64_v2": {"sse4_1", "ssse3"},
    "x86_64_v3": {"avx2", "fma", "bmi2"},
    "x86_64_v4": {"avx512f", "avx512vl", "avx512dq"},
}


def levels() -> list[str]:
    """The instruction sets this machine runs, the plainest first; empty where it is not Linux on x86-64."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return []
    flags = set(Path("/proc/cpuinfo").read_text().split("flags", 1)[1].splitlines()[0].split())
    return ["x86_64", *(level for level, needed in FLAGS_OF_LEVEL.items() if needed <= flags)]


def compile_c(source: str, out: Path, target: str, *flags: str) -> None:
    """Compiles a driver. A shared library is linked to nothing, no libm and no libc: all symbols must be defined."""
    kind = () if {"-DCI_MAIN", "-S"} & set(flags) else ("-shared", "-nostdlib", "-Wl,-z,defs")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, *FLAGS, *kind, *flags, "-iquote", str(RUNTIME)]
    done = subprocess.run([*command, "-o", str(out), str(HERE / source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Driver:
    """A compiled driver; `call(name, out, *arrays)` runs `run_<name>` over equally long arrays."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))

    def call(self, name: str, out: np.dtype, *arrays: np.ndarray) -> np.ndarray:
        """An array of type `out`, element for element."""
        inputs = [np.ascontiguousarray(a) for a in arrays]
        result = np.empty(inputs[0].shape, out)
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (*inputs, result)]
        getattr(self.library, f"run_{name}")(*pointers, ctypes.c_int64(result.size))
        return result
