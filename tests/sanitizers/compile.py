"""A model's C, the runtime's core and driver.c compiled to one program: with a sanitizer, or as it ships."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
SHIPPED = ["-std=gnu11", "-D_GNU_SOURCE", "-ffp-contract=off", "-fno-math-errno", "-fwrapv", "-fno-strict-aliasing"]


@dataclass(frozen=True)
class Compiler:
    """`sanitizer` "" is an ordinary build; `march` chooses the instruction set that the one build is for."""

    command: tuple[str, ...]
    sanitizer: str = ""
    march: str = "x86-64-v3"

    @property
    def missing(self) -> bool:
        return shutil.which(self.command[0]) is None

    def flags(self) -> list[str]:
        """For all files."""
        sanitize = [f"-fsanitize={self.sanitizer}", "-fno-sanitize-recover=all"] if self.sanitizer else []
        # zig wants names with underscores
        march = f"-mcpu={self.march.replace('-', '_')}" if "ziglang" in self.command else f"-march={self.march}"
        return [*SHIPPED, "-O1", "-g", "-w", march, "-DCI_MAIN", "-DCI_ISA=generic", *sanitize]


GCC_ADDRESS = Compiler(("gcc",), "address,undefined")
CLANG_ADDRESS_V2 = Compiler(("clang",), "address,undefined,float-cast-overflow", "x86-64-v2")
CLANG_ADDRESS_V4 = Compiler(("clang",), "address,undefined", "x86-64-v4")
CLANG_VALUES = Compiler(("clang",), "memory")
GCC_THREADS = Compiler(("gcc",), "thread")
PLAIN = Compiler((sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-musl"))


def program(source: Path, compiler: Compiler, folder: Path) -> Path:
    """The driver of the model whose C is in `source`."""
    files = [*source.glob("*.c"), *source.glob("runtime/core/*.c"), *source.glob("runtime/kernels/*.c")]
    files += [source / "blobs.S", FOLDER / "driver.c", *([FOLDER / "watch.c"] if compiler.sanitizer else [])]
    include = [f"-iquote{f}" for f in (source, source / "runtime", FOLDER)]

    def compiled(number: int) -> str:
        target = folder / f"{number}.o"
        flags = [*compiler.flags(), *include, *(_watched(files[number]) if compiler.sanitizer else [])]
        _run([*compiler.command, *flags, "-c", str(files[number]), "-o", str(target)], source)
        return str(target)

    folder.mkdir()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, range(len(files))))
    sanitize = [f"-fsanitize={compiler.sanitizer}"] if compiler.sanitizer else ["-O1"]
    _run([*compiler.command, *sanitize, *objects, "-lpthread", "-lm", "-o", str(folder / "program")], source)
    return folder / "program"


def _watched(file: Path) -> list[str]:
    """What makes a file of the core go through watch.c; the functions that it stands for stay themselves."""
    if "core" not in file.parts and not file.name.endswith("_api.c"):
        return []
    if file.name in ("plan.c", "steps.c"):
        return []
    return ["-include", str(FOLDER / "watch.h"), *(["-DWATCH_STEPS"] if file.name == "session.c" else [])]


def _run(command: list[str], cwd: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-4000:]}")
