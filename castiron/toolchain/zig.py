"""Runs the C compiler that the `ziglang` package carries."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
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
EXECUTABLE = ("-static-pie", "-fPIE")
# The same for the linker itself, with what `zig cc` does not take: relocations as bitmaps, equal functions once, no
# table of sections (nothing that runs the program reads it).
EXECUTABLE_LINK = ("ld.lld", "-static", "-pie", "-s", "-O2", "--gc-sections", "--icf=all", "--build-id=none",
                   "-z", "now", "-z", "nosectionheader", "--pack-dyn-relocs=relr", "--hash-style=gnu",
                   "-T", str(Path(__file__).with_name("executable.ld")))  # fmt: skip

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


def run(arguments: Sequence[str], what: str, extra: Mapping[str, str] | None = None) -> str:
    """Runs `zig ARGUMENTS`, gives what it wrote to standard error.

    A failure is a ToolchainError that says what was being made and shows the first errors. extra: environment."""
    command = [*compiler(), *arguments]
    variables = {**os.environ, **(extra or {})}
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=variables)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower()] or done.stderr.splitlines()
        shown = "\n".join(["", *lines[:8]])
        message = f"the C compiler {how_it_ended(done.returncode)} on {what}{':' if lines else ''}{shown}"
        raise ToolchainError(message, command, done.stderr)
    return done.stderr


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
    found = _ready(triple) or []
    return bool(found) and all(Path(word).exists() for word in found if word.startswith("/"))


def ready(triple: str, say: Progress) -> None:
    """Builds this triple's C library where the cache has none, and says so: that takes long, once."""
    if not libc_is_built(triple):
        say(f"building the C library of {triple} (once on this machine, about half a minute)")
        build_libc(triple)


def libc_files(triple: str) -> list[str]:
    """What the linker of an executable takes beside its objects: the emulation and archives; built if they are not."""
    if not libc_is_built(triple):
        build_libc(triple)
    return _ready(triple) or []


def _ready_file(triple: str) -> Path:
    return environment().cache / "ready" / f"{triple}-{version()}.json"


def _ready(triple: str) -> list[str] | None:
    try:
        words = json.loads(_ready_file(triple).read_text())
    except (OSError, ValueError):
        return None
    return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else None


def build_libc(triple: str) -> None:
    """Compiles and links an empty program, so that the C library of `triple` is in the cache; keeps what was linked."""
    file = _ready_file(triple)
    file.parent.mkdir(parents=True, exist_ok=True)
    form = ("-shared",) if "gnu" in triple else EXECUTABLE
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        source, target, output, made = (Path(folder, name) for name in ("empty.c", "empty.o", "out", "ready"))
        source.write_text("int main(void) { return 0; }\n")
        what = f"the C library of {triple}"
        run(["cc", "-target", triple, "-Os", "-fPIC", "-c", str(source), "-o", str(target)], what)
        link = ["cc", "-target", triple, *LINK, *form, str(target), "-o", str(output)]
        told = run(link, what, {"ZIG_VERBOSE_LINK": "1"}).replace(str(target), "").replace(str(output), "")
        made.write_text(json.dumps(_linked(told, what)))
        os.replace(made, file)


def _linked(told: str, what: str) -> list[str]:
    """The emulation and archives of the linker's command line, without start files: an executable has its own.

    Folders may have blanks in their names."""
    emulation = re.search(r" -m (\S+)", told)
    words = re.findall(r"(?<= )/\S[^\n]*?\.(?:[oa]|so[.\d]*)(?=\s)", told)
    files = [word for word in words if word.endswith(".a")]
    if not emulation or not files or not all(Path(file).exists() for file in files):
        raise ToolchainError(f"ziglang {version()} does not tell which files {what} is made of", output=told)
    return ["-m", emulation[1], *files]
