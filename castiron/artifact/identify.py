"""What an artifact is, told from its bytes without running it."""

from __future__ import annotations

import mmap
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from castiron.artifact.staging import MARK
from castiron.errors import InputError
from castiron.options import Form
from castiron.toolchain import targets

_ELF, _ARCHIVE = b"\x7fELF", b"!<arch>\n"

# Of an ELF file: where segments and sections are, sizes and numbers of their entries; of a segment: offset, bytes.
_HEADER, _SEGMENT = struct.Struct("<32xQQ6xHHHH2x"), struct.Struct("<8xQ16xQ")

# The runtime reads this variable in every form; libraries have this function, archives a name that ends so.
_MARK, _SHARED_MARK, _STATIC_MARK = b"CASTIRON_CPU", b"castiron_name\0", re.compile(rb"(\w+)_session_run\b")


@dataclass(frozen=True)
class Artifact:
    """A file that castiron built: its form, the target it is for, and the model's name where the file tells it."""

    form: Form
    target: str
    name: str = ""

    @staticmethod
    def of(file: Path) -> Artifact:
        """InputError where `file` is missing, no ELF file or archive, or not castiron's."""
        if file.is_dir():
            raise InputError(f"{file} is a folder{what_folder(file)}")
        try:
            with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _identified(file, data)
        except FileNotFoundError:
            raise InputError(f"{file} does not exist") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{file} cannot be read: {error}") from None

    @staticmethod
    def is_binary(start: bytes) -> bool:
        """Whether a file that begins so is an ELF file or an archive."""
        return start.startswith((_ELF, _ARCHIVE))


def what_folder(folder: Path) -> str:
    """What to do with a folder where a file was asked for."""
    if (folder / MARK).is_file():
        return " of C; build the executable as its README.md says, and name that"
    found = sorted(f.name for f in folder.iterdir() if f.suffix in (".so", ".a"))
    return "; name a file" + (f" in it, such as {found[0]}" if found else "")


def _identified(file: Path, data: mmap.mmap) -> Artifact:
    start = data.find(_ELF)
    if not Artifact.is_binary(data[:8]) or start < 0 or data.find(_MARK) < 0:
        raise InputError(f"{file} is not an artifact that castiron built")
    end = _elf_end(data) if start == 0 else _archive_end(data)
    if end > len(data):
        raise InputError(f"{file} is cut off: it has {len(data):,} bytes of {end:,}")
    (machine,) = struct.unpack_from("<H", data, start + 18)
    target = next((t.name for t in targets.TARGETS.values() if t.machine == machine), None)
    if target is None:
        raise InputError(f"{file} is for a machine that castiron does not know (ELF machine {machine})")
    if start == 0:
        return Artifact(Form.SHARED if data.find(_SHARED_MARK) >= 0 else Form.EXE, target)
    found = _STATIC_MARK.search(data)
    return Artifact(Form.STATIC, target, found[1].decode() if found else "")


def _elf_end(data: mmap.mmap) -> int:
    """Where the file ends by its own headers: after its last segment, and after its table of sections."""
    if len(data) < _HEADER.size:
        return _HEADER.size
    segments, sections, segment_size, segment_count, section_size, section_count = _HEADER.unpack_from(data)
    end = max(sections + section_size * section_count, segments + segment_size * segment_count)
    if segments + segment_size * segment_count <= len(data):
        for number in range(segment_count):
            offset, size = _SEGMENT.unpack_from(data, segments + number * segment_size)
            end = max(end, offset + size)
    return int(end)


def _archive_end(data: mmap.mmap) -> int:
    """Where the last member ends; members are padded to even bytes, the last one may lack that."""
    place = end = len(_ARCHIVE)
    while place + 60 <= len(data):
        size = data[place + 48 : place + 58].strip()
        end = place + 60 + (int(size) if size.isdigit() else 0)
        place = end + end % 2
    return end
