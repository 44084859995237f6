"""Writes an ELF object that holds blobs of bytes in read-only pages, each under a symbol.

An assembler's `.incbin` reads the whole file into its memory and C arrays do not scale at all; this streams from file
to file, so a gigabyte of weights costs a copy and no memory. Layout: ELF header, the data, symbols, names, section
headers (System V ABI, chapters 4 and 5).
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

ALIGN = 64
LIMIT = (1 << 31) - (64 << 20)
"""Bytes of blobs that code of the small memory model can reach (32-bit relative addresses), less room for the code."""


@dataclass(frozen=True)
class Blob:
    """`size` bytes for `symbol`: `data` itself, or what the file `data` holds from `offset` on."""

    symbol: str
    data: bytes | Path
    offset: int = 0

    @property
    def size(self) -> int:
        return self.data.stat().st_size - self.offset if isinstance(self.data, Path) else len(self.data) - self.offset

    def copy(self, out: BinaryIO) -> None:
        """Writes the bytes to `out`."""
        if isinstance(self.data, bytes):
            out.write(memoryview(self.data)[self.offset :])
            return
        with self.data.open("rb") as file:
            file.seek(self.offset)
            shutil.copyfileobj(file, out, 1 << 20)


_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3
_ALLOC = 2
_GLOBAL_OBJECT = (1 << 4) | 1
_HIDDEN = 2


def write_object(target: Path, machine: int, blobs: Sequence[Blob]) -> None:
    """The object file `target` for ELF machine `machine` (62 x86-64, 183 AArch64)."""
    names = _Strings()
    symbols = BytesIO(_SYMBOL.pack(0, 0, 0, 0, 0, 0))
    symbols.seek(0, 2)
    with target.open("wb") as out:
        out.write(bytes(_HEADER.size))
        start = _pad(out)
        for blob in blobs:
            offset = _pad(out) - start
            symbols.write(_SYMBOL.pack(names.add(blob.symbol), _GLOBAL_OBJECT, _HIDDEN, 1, offset, blob.size))
            blob.copy(out)
        data_size = out.tell() - start
        _finish(out, machine, start, data_size, symbols.getvalue(), names)


def trim(path: Path) -> None:
    """Cuts off what stands behind the last segment of an executable: room that lld leaves for a table of sections."""
    with path.open("r+b") as file:
        header = _HEADER.unpack(file.read(_HEADER.size))
        table, size, count = header[5], header[9], header[10]
        file.seek(table)
        rows = [_SEGMENT.unpack(file.read(size)) for _ in range(count)]
        file.truncate(max(offset + length for _, _, offset, _, _, length, _, _ in rows))


def _finish(out: BinaryIO, machine: int, start: int, data_size: int, symbols: bytes, names: _Strings) -> None:
    titles = _Strings()
    symtab = _pad(out)
    out.write(symbols)
    strtab = out.tell()
    out.write(names.bytes)
    sections = [
        bytes(_SECTION.size),
        _SECTION.pack(titles.add(".rodata.castiron"), _PROGBITS, _ALLOC, 0, start, data_size, 0, 0, ALIGN, 0),
        _SECTION.pack(titles.add(".symtab"), _SYMTAB, 0, 0, symtab, len(symbols), 3, 1, 8, _SYMBOL.size),
        _SECTION.pack(titles.add(".strtab"), _STRTAB, 0, 0, strtab, len(names.bytes), 0, 0, 1, 0),
        # its presence says that the stack need not be executable
        _SECTION.pack(titles.add(".note.GNU-stack"), _PROGBITS, 0, 0, out.tell(), 0, 0, 0, 1, 0),
    ]
    title_name = titles.add(".shstrtab")
    sections.append(_SECTION.pack(title_name, _STRTAB, 0, 0, out.tell(), len(titles.bytes), 0, 0, 1, 0))
    out.write(titles.bytes)
    table = _pad(out)
    out.write(b"".join(sections))
    out.seek(0)
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)  # 64 bits, little-endian, version 1
    relocatable = 1
    place = (relocatable, machine, 1, 0, 0, table, 0)
    out.write(_HEADER.pack(ident, *place, _HEADER.size, 0, 0, _SECTION.size, len(sections), len(sections) - 1))


def _pad(out: BinaryIO) -> int:
    out.write(bytes(-out.tell() % ALIGN))
    return out.tell()


class _Strings:
    """A string table: names, each ended by a zero byte, the first one empty."""

    def __init__(self) -> None:
        self.bytes = b"\0"

    def add(self, name: str) -> int:
        """The offset at which `name` now stands."""
        offset = len(self.bytes)
        self.bytes += name.encode() + b"\0"
        return offset
