"""What a form ships, and whether it works where it is copied to."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

from castiron.lab.forms import elf
from castiron.lab.forms.agree import agreement
from castiron.lab.forms.process import Desk, Inputs, answer
from castiron.lab.forms.types import Failed, Moved, Produced, Ships
from castiron.lab.reference import Vectors

AWAY = ".out-of-reach"

NATIVE = re.compile(rb"-march=native\b|-mcpu=native\b|target-cpu=native\b")
COMMON = {"/", "/usr", "/usr/local", "/tmp", "/var", "/opt", "/home"}
"""Folders that are on every machine: a path that starts so tells nothing of this one."""


def ships(made: Produced, modules: Mapping[str, str | None]) -> Ships:
    """Bytes of all that must be on the machine that runs the form. Python itself is not counted. modules: of a form in

    Python, what it loads, with files."""
    files = [made.here / name for name in (*made.model, *made.program)]
    binaries = [file for file in files if elf.is_elf(file)]
    loaded = {name: path for file in binaries for name, path in elf.libraries(file).items()}
    own = {name: Path(path) for name, path in loaded.items() if path and _is_own(Path(path))}
    runtime = {name: path.resolve().stat().st_size for name, path in own.items()}
    runtime |= distributions(modules, made.here) if made.python else {}
    left = [name for data in _binaries(files) for name in elf.left_to_a_runtime(data)]
    return Ships(
        _bytes(made.here, made.model),
        _bytes(made.here, made.program),
        runtime,
        tuple(name if path else f"{name} (not found)" for name, path in loaded.items() if name not in own),
        elf.by_prefix(left),
    )


def _is_own(library: Path) -> bool:
    """Whether a shared library comes with the form, not with the system."""
    return not str(library).startswith(("/lib", "/usr/lib"))


def _bytes(here: Path, names: Sequence[str]) -> int:
    return sum((here / name).stat().st_size for name in names)


def _binaries(files: Iterable[Path]) -> Iterator[bytes]:
    """ELF files, and those in archives (a package of AOTInductor is one)."""
    for file in files:
        if elf.is_elf(file):
            yield file.read_bytes()
        elif _is_archive(file):
            with zipfile.ZipFile(file) as archive:
                members = (archive.read(name) for name in archive.namelist() if name.endswith(".so"))
                yield from (data for data in members if data.startswith(elf.MAGIC))


def _is_archive(file: Path) -> bool:
    """A program that can write archives holds their marks too: an archive also begins with one."""
    with file.open("rb") as stream:
        return stream.read(4) == b"PK\x03\x04" and zipfile.is_zipfile(file)


def distributions(modules: Mapping[str, str | None], here: Path) -> dict[str, int]:
    """Installed bytes of every distribution from which modules are imported; of those that came by PYTHONPATH, of their
    package. Modules in `here` ship with the form, those of the standard library with Python."""
    known, out = metadata.packages_distributions(), dict[str, int]()
    for module, file in modules.items():
        if not file or _is_within(file, str(here)) or _is_standard(file):
            continue
        top = module.partition(".")[0]
        names = known.get(top)
        if names:
            out |= {name: installed_bytes(name) for name in names}
        elif top not in out and Path(file).parent.name == top:
            out[top] = sum(f.stat().st_size for f in Path(file).parent.rglob("*") if f.is_file())
    return dict(sorted(out.items(), key=lambda item: -item[1]))


def _is_within(file: str, folder: str) -> bool:
    return os.path.realpath(file).startswith(os.path.realpath(folder) + os.sep)


def _is_standard(file: str) -> bool:
    paths = sysconfig.get_paths()
    return _is_within(file, paths["stdlib"]) and not any(_is_within(file, paths[k]) for k in ("purelib", "platlib"))


@cache
def installed_bytes(distribution: str) -> int:
    """Of all files that an installed distribution lists."""
    files = metadata.files(distribution) or []
    paths = [Path(str(file.locate())) for file in files]
    return sum(path.stat().st_size for path in paths if path.is_file())


def moved(desk: Desk, made: Produced, vectors: Vectors, needles: Sequence[str], folder: Path, agreed: bool) -> Moved:
    """Runs a copy of what ships, alone in an empty folder: from another current directory, with an empty environment,

    while `folder`, in which all was built and the tools have their caches, is renamed away. An answer that agreed where it

    was built must still agree."""
    files = [made.here / name for name in (*made.model, *made.program)]
    paths, native = absolute_paths(files, needles), built_for_here(files)
    with tempfile.TemporaryDirectory(prefix="castiron-ship-") as scratch:
        alone, elsewhere = Path(scratch) / "alone", Path(scratch) / "elsewhere"
        elsewhere.mkdir()
        for name in made.shipped:
            _copy(made.here / name, alone / name)
        inputs = Inputs.written(Path(scratch) / "inputs", vectors.inputs)
        away = folder.with_name(folder.name + AWAY)
        folder.rename(away)
        try:
            found = answer(Desk(desk.spawner, inputs, desk.threads), made, alone, elsewhere, {})
        except Failed as error:
            return Moved(f"works only where it was built: {error}", paths, native)
        finally:
            away.rename(folder)
    wrong = [a for a in agreement(found, vectors) if agreed and not a.ok]
    return Moved(f"computes something else when moved: {wrong[0].reason}" if wrong else "", paths, native)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy(source, target)


def places_of_this_machine(*more: Path) -> list[str]:
    """Folders that no file for other machines should name: home, the working folder, Python's environment, and `more`."""
    folders = [Path.home(), Path.cwd(), Path(sys.prefix), Path(sys.base_prefix), *(path.resolve() for path in more)]
    return [text for text in dict.fromkeys(map(str, folders)) if text not in COMMON]


def absolute_paths(files: Iterable[Path], needles: Sequence[str]) -> tuple[str, ...]:
    """Absolute paths in the bytes of these files that begin with one of `needles`, also inside compressed archives."""
    starts = b"|".join(re.escape(os.fsencode(needle)) for needle in sorted(needles, key=len, reverse=True))
    pattern = re.compile(rb"(?:" + starts + rb")/[^\x00-\x20\"'<>|:;,()\\\x7f-\xff]*")
    found: dict[str, None] = {}
    for data in _contents(files):
        for match in pattern.finditer(data):
            path = match.group().decode(errors="replace")
            found[path.removesuffix("q") if path.endswith(".pyq") else path] = None  # pickle puts a q behind a string
    return tuple(found)


def built_for_here(files: Iterable[Path]) -> tuple[str, ...]:
    """Flags in these files that say they were compiled for the processor at hand and no other."""
    return tuple(dict.fromkeys(m.group().decode() for data in _contents(files) for m in NATIVE.finditer(data)))


def _contents(files: Iterable[Path]) -> Iterator[bytes | mmap.mmap]:
    """The bytes of files, and of what is compressed in archives."""
    for file in files:
        if file.stat().st_size == 0:
            continue
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
        if _is_archive(file):
            with zipfile.ZipFile(file) as archive:
                for info in archive.infolist():
                    if info.compress_type != zipfile.ZIP_STORED:
                        yield archive.read(info)
