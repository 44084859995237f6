"""The runtime's objects: which files an artifact links, compiled once a target and kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import castiron
from castiron.options import Form
from castiron.toolchain.targets import InstructionSet, Target
from castiron.toolchain.zig import Unit, cached, in_parallel

FOLDER = Path(castiron.__file__).parent / "runtime"

KERNEL_FLAGS = ("-O3",)
SMALL_FLAGS = ("-Os",)
TINY_FLAGS = ("-Os", "-Xclang", "-Oz", "-fno-jump-tables")  # zig takes -Oz for -Os

# A convolution of one tap is printed as a matmul; the linker drops what nobody calls.
_KERNEL_FILES = {
    "matmul": ("matmul.c",),
    "matmul_integer": ("matmul_integer.c", "integer_tiles.c"),
    "conv": ("conv.c", "matmul.c"),
    "winograd2": ("winograd.c",),
    "winograd4": ("winograd.c",),
    "lstm": ("lstm.c",),
    "gru": ("gru.c",),
    "rnn": ("rnn.c",),
    "trees": ("trees.c",),
    "select": ("select.c",),
    "nms_run": ("nms.c",),
}
_TILED = ("matmul", "conv", "winograd2", "winograd4", "lstm", "gru", "rnn")
_TILE_FILES = ("sweep.c", "tiles.c")
# Compiled once an instruction set, and how: tiles.c is straight code in one loop, -O3 finds nothing more to do there.
_VECTOR_FILES = dict.fromkeys(("tiles.c", "integer_tiles.c"), SMALL_FLAGS)
_VECTOR_FILES |= dict.fromkeys(("winograd.c", "lstm.c", "gru.c", "rnn.c"), KERNEL_FLAGS)


def files(part: str) -> list[Path]:
    """The C files of `core`, `exe`, `static` or `kernels`, sorted."""
    return sorted((FOLDER / part).glob("*.c"))


@cache
def headers() -> bytes:
    """All headers in one, for cache keys: any change of one recompiles the runtime."""
    return b"".join(p.name.encode() + p.read_bytes() for p in sorted(FOLDER.rglob("*.h")))


def kernel_sources(kernels: Iterable[str]) -> list[Path]:
    """The files that hold these kernels."""
    names = {f for k in kernels for f in (*_KERNEL_FILES[k], *(_TILE_FILES if k in _TILED else ()))}
    return [FOLDER / "kernels" / name for name in sorted(names)]


def triple_of(target: Target, form: Form) -> str:
    """What the parts of an artifact that call the C library are compiled for.

    Archives go through the headers of glibc: its types (pthread_attr_t on arm64) are never smaller than those of musl,
    and the functions have the same names, so both linkers take them."""
    return target.static_triple if form == Form.EXE else target.shared_triple


def units(target: Target, isas: Sequence[InstructionSet], kernels: Iterable[str], form: Form) -> list[Unit]:
    """What an artifact needs of the runtime: the kernels in use, core, and for a program main.

    What computes is there once an instruction set. Kernels call no C library: the same objects serve every form."""
    flags = (*TINY_FLAGS, *(("-DCI_SHARED",) if form == Form.SHARED else ()))
    out = []
    for source in kernel_sources(kernels):
        vector = _VECTOR_FILES.get(source.name)
        variants = [(*vector, *isa.flags, f"-DCI_ISA={isa.suffix}") for isa in isas] if vector else [SMALL_FLAGS]
        out += [Unit(source, target.static_triple, variant, (FOLDER,)) for variant in variants]
    parts = [*files("core"), *([*files("exe"), *files("static")] if form == Form.EXE else [])]
    return [*out, *(Unit(source, triple_of(target, form), flags, (FOLDER,)) for source in parts)]


def objects(wanted: Sequence[Unit]) -> list[Path]:
    """Their objects, from the cache where they have been compiled before."""
    return in_parallel(lambda unit: cached(unit, headers()), wanted)
