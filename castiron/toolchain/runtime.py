"""The runtime's objects: which files an artifact links, compiled once a target and kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import castiron
from castiron.toolchain.targets import InstructionSet, Target
from castiron.toolchain.zig import Unit, cached, in_parallel

FOLDER = Path(castiron.__file__).parent / "runtime"

KERNEL_FLAGS = ("-O3",)
SMALL_FLAGS = ("-Os",)

# A convolution of one tap is printed as a matmul; the linker drops what nobody calls.
_KERNEL_FILES = {"matmul": ("matmul.c",), "conv": ("conv.c", "matmul.c"), "lstm": ("lstm.c",), "gru": ("gru.c",), "rnn": ("rnn.c",)}


def files(part: str) -> list[Path]:
    """The C files of `core`, `exe` or `kernels`, sorted."""
    return sorted((FOLDER / part).glob("*.c"))


@cache
def headers() -> bytes:
    """All headers in one, for cache keys: any change of one recompiles the runtime."""
    return b"".join(p.name.encode() + p.read_bytes() for p in sorted(FOLDER.rglob("*.h")))


def kernel_sources(kernels: Iterable[str]) -> list[Path]:
    """The files that hold these kernels."""
    return [FOLDER / "kernels" / name for name in sorted({f for k in kernels for f in _KERNEL_FILES[k]})]


def units(target: Target, isas: Sequence[InstructionSet], kernels: Iterable[str], exe: bool, shared: bool) -> list[Unit]:
    """What an artifact needs of the runtime: the kernels in use once an instruction set, core, and for a program main.

    Kernels call no C library, so those of static files serve libraries too."""
    flags = (*SMALL_FLAGS, *(("-DCI_SHARED",) if shared else ()))
    triple = target.shared_triple if shared else target.static_triple
    out = [
        Unit(source, target.static_triple, (*KERNEL_FLAGS, *isa.flags, f"-DCI_ISA={isa.suffix}"), (FOLDER,))
        for source in kernel_sources(kernels)
        for isa in isas
    ]
    out += [Unit(source, triple, flags, (FOLDER,)) for source in files("core")]
    if exe:
        out += [Unit(source, triple, flags, (FOLDER,)) for source in files("exe")]
    return out


def objects(wanted: Sequence[Unit]) -> list[Path]:
    """Their objects, from the cache where they have been compiled before."""
    return in_parallel(lambda unit: cached(unit, headers()), wanted)
