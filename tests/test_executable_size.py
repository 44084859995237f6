"""The executable of the MLP: small, static, hardened, and without traces of the machine that built it."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest

import castiron
from castiron.errors import ToolchainError
from castiron.options import environment
from castiron.toolchain.targets import host
from castiron.toolchain.zig import _linked

ROOT = Path(__file__).parent.parent
LIMIT = 64 * 1024
"""Bytes, with three instruction sets on x86-64."""

DYN = 3
LOAD, DYNAMIC, INTERP, STACK, RELRO = 1, 2, 3, 0x6474E551, 0x6474E552
EXECUTE, WRITE = 1, 2
NEEDED, TEXT_RELOCATIONS, FLAGS, FLAGS_1 = 1, 22, 30, 0x6FFFFFFB
BIND_NOW, NOW = 8, 1
SYMBOL_TABLE = 2


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("size") / "mlp"
    castiron.build(ROOT / "examples" / "mlp.onnx", path)
    return path.read_bytes()


def segments(elf: bytes) -> list[tuple[int, int, bytes]]:
    """(type, flags, contents) of each program header."""
    (table,) = struct.unpack_from("<Q", elf, 32)
    size, count = struct.unpack_from("<HH", elf, 54)
    rows = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    return [(kind, flags, elf[offset : offset + length]) for kind, flags, offset, _, _, length in rows]


def section_types(elf: bytes) -> list[int]:
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count = struct.unpack_from("<HH", elf, 58)
    return [struct.unpack_from("<I", elf, table + i * size + 4)[0] for i in range(count)]


def dynamic_entries(elf: bytes) -> list[tuple[int, int]]:
    (contents,) = [c for kind, _, c in segments(elf) if kind == DYNAMIC]
    return [(tag, value) for tag, value in struct.iter_unpack("<qQ", contents) if tag]


def test_is_small(mlp: bytes) -> None:
    assert len(mlp) <= LIMIT


def test_is_static_and_stripped(mlp: bytes) -> None:
    assert INTERP not in {kind for kind, _, _ in segments(mlp)}
    assert NEEDED not in dict(dynamic_entries(mlp))
    assert SYMBOL_TABLE not in section_types(mlp)


def test_is_hardened(mlp: bytes) -> None:
    (kind,) = struct.unpack_from("<H", mlp, 16)
    assert kind == DYN, "not position-independent"
    flags = {kind: flags for kind, flags, _ in segments(mlp) if kind in (STACK, RELRO)}
    assert RELRO in flags and not flags[STACK] & EXECUTE
    assert not any(f & WRITE and f & EXECUTE for kind, f, _ in segments(mlp) if kind == LOAD)
    entries = dict(dynamic_entries(mlp))
    assert entries.get(FLAGS, 0) & BIND_NOW and entries.get(FLAGS_1, 0) & NOW
    assert TEXT_RELOCATIONS not in entries


def test_tells_nothing_of_the_machine_that_built_it(mlp: bytes) -> None:
    cache = environment().cache
    for trace in (ROOT, Path.home(), tempfile.gettempdir(), cache, "/lib/zig", "site-packages", "clang version"):
        assert str(trace).encode() not in mlp, trace


@pytest.mark.skipif(host().arch != "x86_64", reason="counts the instruction sets of x86-64")
def test_has_every_instruction_set(mlp: bytes) -> None:
    for isa in host().isas:
        assert isa.name.encode() + b"\0" in mlp


def test_finds_the_libraries_in_folders_with_blanks(tmp_path: Path) -> None:
    folder = tmp_path / "my cache"
    folder.mkdir()
    start, first, second = (folder / name for name in ("rcrt1.o", "libc.a", "libcompiler_rt.a"))
    for file in (start, first, second):
        file.touch()
    told = f"ld.lld -O2 -m elf_x86_64 -static -pie -o  {start}  --as-needed -L/ {first} {second}\n"
    assert _linked(told, "the C library") == ["-m", "elf_x86_64", str(first), str(second)]
    with pytest.raises(ToolchainError, match="does not tell"):
        _linked("ld.lld -o out", "the C library")
