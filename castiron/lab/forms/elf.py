"""What an ELF file asks of the system it runs on: shared libraries, resolved recursively, and symbols left to others."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

MAGIC = b"\x7fELF"
SYSTEM = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
"""Where the loader looks in the end; with a folder of each for the processor (Debian's multiarch)."""

LEFT = 8
"""Characters at least of a prefix by which symbols are counted together."""


def is_elf(file: Path) -> bool:
    """Whether a file begins as an ELF file does."""
    with file.open("rb") as stream:
        return stream.read(4) == MAGIC


def libraries(file: Path) -> dict[str, str]:
    """Shared libraries that `file` loads at start, in turn with theirs: name -> path, "" where it is not found.

    As the loader resolves them: by RPATH or RUNPATH (`$ORIGIN` is the file's own folder), then in the system's folders."""
    found: dict[str, str] = {}
    waiting = [(file, name) for name in needed(file)[0]]
    while waiting:
        asker, name = waiting.pop(0)
        if name in found:
            continue
        path = _resolved(asker, name, file)
        found[name] = str(path) if path else ""
        if path:
            waiting += [(path, other) for other in needed(path)[0]]
    return found


def needed(file: Path) -> tuple[list[str], list[str]]:
    """The libraries that a file names, and the folders in which it asks the loader to look."""
    names: list[str] = []
    folders: list[str] = []
    with file.open("rb") as stream:
        try:
            segment = next((s for s in ELFFile(stream).iter_segments() if isinstance(s, DynamicSegment)), None)
            for tag in segment.iter_tags() if segment else ():
                if tag.entry.d_tag == "DT_NEEDED":
                    names.append(str(getattr(tag, "needed", "")))
                elif tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH"):
                    folders += str(getattr(tag, "rpath", None) or getattr(tag, "runpath", "")).split(":")
        except ELFError:
            return [], []
    return names, [folder for folder in folders if folder]


def _resolved(asker: Path, name: str, program: Path) -> Path | None:
    """Folders of the asker first, then those of the program (an RPATH reaches further), then the system's."""
    for owner in (asker, program):
        for folder in needed(owner)[1]:
            path = Path(folder.replace("$ORIGIN", str(owner.parent))) / name
            if path.exists():
                return path
    beside = asker.resolve().parent / name  # a wheel's libraries lie side by side
    if asker != program and beside.exists():
        return beside
    return next((path for folder in _system_folders() if (path := Path(folder) / name).exists()), None)


def _system_folders() -> Iterator[str]:
    for folder in SYSTEM:
        multiarch = f"{folder}/{os.uname().machine}-linux-gnu"
        if os.path.isdir(multiarch):
            yield multiarch
        yield folder


def left_to_a_runtime(data: bytes) -> list[str]:
    """Symbols that some library must give which is no library of the system: undefined, and without a version.

    The system's libraries version all they offer; what is weak may be missing."""
    try:
        elf = ELFFile(BytesIO(data))
        sections = list(elf.iter_sections())
    except ELFError:
        return []
    versions = next((s for s in sections if isinstance(s, GNUVerSymSection)), None)
    table = next((s for s in sections if isinstance(s, SymbolTableSection) and s["sh_type"] == "SHT_DYNSYM"), None)
    names = []
    for number, symbol in enumerate(table.iter_symbols() if table else ()):
        is_missing = symbol["st_shndx"] == "SHN_UNDEF" and symbol["st_info"]["bind"] == "STB_GLOBAL"
        version = versions.get_symbol(number)["ndx"] if versions is not None else "VER_NDX_GLOBAL"
        if symbol.name and is_missing and isinstance(version, str):
            names.append(symbol.name)
    return names


def by_prefix(names: Sequence[str]) -> dict[str, int]:
    """How many symbols share each prefix: `aoti_torch_*` 23. Names of C++ are counted as such."""
    return dict(Counter(_prefix(name) for name in names).most_common())


def _prefix(name: str) -> str:
    if name.startswith("_Z"):
        return "C++"
    parts = name.split("_")
    for count in range(1, len(parts)):
        start = "_".join(parts[:count]) + "_"
        if len(start) >= LEFT:
            return f"{start}*"
    return name
