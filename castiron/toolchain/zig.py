"""Runs the C compiler that the `ziglang` package carries."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from castiron.errors import ToolchainError
from castiron.options import environment

# -fno-math-errno: sqrt is an instruction. -ffp-contract=off: only an explicit fma is one (the law of bits).
# -fwrapv: ONNX integers wrap around.
COMMON = ("-std=c11", "-D_GNU_SOURCE", "-ffp-contract=off", "-fno-math-errno", "-fwrapv", "-fno-strict-aliasing", "-g0",
          "-ffunction-sections", "-fdata-sections", "-fvisibility=hidden", "-fPIC", "-fno-stack-protector",
          "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fomit-frame-pointer", "-Wall", "-Wextra",
          "-Werror=implicit-function-declaration")  # fmt: skip

# One optimization level for all links: zig builds a C library for each level it meets. -z noexecstack and relro are its
# defaults.
LINK = ("-Os", "-fPIC", "-s", "-Wl,--gc-sections", "-Wl,-z,relro,-z,now")
# Position-independent (zig takes -static-pie for -static unless -fPIE asks for it): addresses differ at each start.
EXECUTABLE = ("-static-pie", "-fPIE", f"-Wl,-T,{Path(__file__).with_name('executable.ld')}")

Progress = Callable[[str], None]
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Unit:
    """One file to compile: for `triple`, with `flags` beyond the common ones, headers found in `include`."""

    source: Path
    triple: str
    flags: tuple[str, ...]
    include: tuple[Path, ...] = ()


@cache
def compiler() -> tuple[str, ...]:
    """The command that starts the compiler."""
    try:
        import ziglang
    except ImportError as error:
        raise ToolchainError("the C compiler is not installed; run: pip install ziglang") from error
    return (os.path.join(os.path.dirname(ziglang.__file__), "zig"),)


@cache
def version() -> str:
    """Of the compiler; part of every cache key."""
    return metadata.version("ziglang")


def run(arguments: Sequence[str], what: str, cwd: Path | None = None) -> None:
    """Runs `zig ARGUMENTS`; a failure is a ToolchainError that says what was being made and shows the first errors."""
    command = [*compiler(), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=cwd)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower()] or done.stderr.splitlines()
        shown = "\n".join(["", *lines[:8]])
        message = f"the C compiler {how_it_ended(done.returncode)} on {what}{':' if lines else ''}{shown}"
        raise ToolchainError(message, command, done.stderr)


def how_it_ended(status: int) -> str:
    """A status of `subprocess` in words."""
    if status >= 0:
        return f"ended with status {status}"
    return f"was ended by signal {-status} ({signal.strsignal(-status) or 'unknown'})"


def compile_unit(unit: Unit, target: Path) -> None:
    """One object file, whole or not at all."""
    temporary = target.with_name(f".{target.stem}.{os.getpid()}.{threading.get_ident()}.o")
    flags = [*COMMON, *unit.flags, *(f"-iquote{folder}" for folder in unit.include)]
    try:
        run(["cc", "-target", unit.triple, *flags, "-c", str(unit.source), "-o", str(temporary)], unit.source.name)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def cached(unit: Unit, headers: bytes) -> Path:
    """The object of a unit that is the same for every model, compiled at its first use. headers: all it includes."""
    key = hashlib.sha256()
    for part in (version(), unit.triple, *COMMON, *unit.flags, unit.source.name):
        key.update(part.encode() + b"\0")
    key.update(headers)
    key.update(unit.source.read_bytes())
    folder = environment().cache / "objects"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{unit.source.stem}-{key.hexdigest()[:24]}.o"
    if not target.exists():
        compile_unit(unit, target)
    return target


def in_parallel(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """`function` of each item, as many at once as there are processors; results in order, the first failure raised."""
    with ThreadPoolExecutor(environment().jobs) as pool:
        return list(pool.map(function, items))


def libc_is_built(triple: str) -> bool:
    """Whether this user's cache has this triple's C library; the first use of one takes about half a minute."""
    return (environment().cache / "ready" / f"{triple}-{version()}").exists()


def build_libc(triple: str) -> None:
    """Compiles and links an empty program, so that the C library of `triple` is in the cache."""
    folder = environment().cache / "ready"
    folder.mkdir(parents=True, exist_ok=True)
    source, output = (folder / f"{triple}.{os.getpid()}.{suffix}" for suffix in ("c", "out"))
    source.write_text("int main(void) { return 0; }\n")
    form = ("-shared",) if "gnu" in triple else EXECUTABLE
    try:
        run(["cc", "-target", triple, *LINK, *form, str(source), "-o", str(output)], f"the C library of {triple}")
    finally:
        source.unlink(missing_ok=True)
        output.unlink(missing_ok=True)
    (folder / f"{triple}-{version()}").touch()
