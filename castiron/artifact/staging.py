"""Output appears whole or not at all: a build works in a folder beside its target and moves at the end what it made."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from castiron.errors import InputError, ToolchainError
from castiron.options import Form

MARK = ".castiron"
"""A file in each source folder: what holds it may be replaced by a later build."""

_SUFFIXES = {Form.EXE: "", Form.SHARED: ".so", Form.STATIC: ".a", Form.SOURCE: ""}
_OF_THE_DISK = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}

_SCARCE = 4 << 20
"""Bytes free on a disk below which a failure of the compiler is the disk's."""


@dataclass(frozen=True)
class Staging:
    """Where a build writes: what lies beside `output` moves to its place in the end; `work` is for the way there."""

    output: Path
    work: Path

    @property
    def program(self) -> Path:
        """An executable of the same code, for artifacts that cannot be run themselves."""
        return self.work / "program"


def output_path(output: str | Path | None, name: str, form: Form) -> Path:
    """Where the artifact goes: as asked, else to `libNAME.so`, `libNAME.a` or NAME in the current folder."""
    if output is not None:
        return Path(output)
    prefix = "lib" if form in (Form.SHARED, Form.STATIC) else ""
    return Path(f"{prefix}{name}{_SUFFIXES[form]}")


@contextmanager
def staging(target: Path, form: Form) -> Iterator[Staging]:
    """A folder beside `target`; what its `out` holds moves to the target's folder when the block ends well.

    The target's own folder must be there. A killed build's folder goes with the next build of the same target."""
    _refuse_other_things(target, form)
    try:
        folder, lock = _prepared(target)
    except NotADirectoryError:
        raise InputError(f"{target.parent} is a file, not a folder; give another name with -o") from None
    except OSError as error:
        raise InputError(f"{target.parent} cannot be written to: {error.strerror}") from None
    try:
        yield Staging(folder / "out" / target.name, folder)
        # the artifact last: where it is, all that it needs is there
        for file in sorted((folder / "out").iterdir(), key=lambda f: f.name == target.name):
            _move(file, target.parent / file.name, folder)
    except OSError as error:
        if error.errno not in _OF_THE_DISK:
            raise
        raise InputError(f"{target} cannot be written: {error.strerror}") from None
    except ToolchainError as error:  # which does not say so itself, and may just abort
        if (free := shutil.disk_usage(folder).free) >= _SCARCE:
            raise
        raise InputError(f"{target} cannot be written: only {free >> 10} KiB of its disk are free ({error})") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _refuse_other_things(target: Path, form: Form) -> None:
    if not target.name:
        raise InputError(f"-o {target}: give the name of a file")
    if not os.path.lexists(target.parent):
        raise InputError(f"{target.parent} does not exist; make that folder, or give another name with -o")
    if form != Form.SOURCE and target.is_dir():
        raise InputError(f"{target} is a folder; give the name of a file with -o")
    if form == Form.SOURCE and target.exists():
        if not target.is_dir():
            raise InputError(f"{target} is a file; --as source makes a folder, give another name with -o")
        if not (target / MARK).exists() and any(target.iterdir()):
            raise InputError(f"{target} is a folder that castiron did not make; give another name with -o")


def _prepared(target: Path) -> tuple[Path, int]:
    """A new folder with `out` in it, and its lock, held while this process lives; removes what dead builds left."""
    prefix = f".{target.name}.castiron-"
    for left in [folder for folder in target.parent.iterdir() if folder.name.startswith(prefix)]:
        with suppress(OSError):
            lock = _lock(left)
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent.resolve()))
        with suppress(BlockingIOError, FileNotFoundError):  # another build took it for a dead one's, being quick
            lock = _lock(folder)
            (folder / "out").mkdir()
            return folder, lock


def _lock(folder: Path) -> int:
    """A descriptor that holds the folder's lock; BlockingIOError where another process has it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _move(made: Path, place: Path, aside: Path) -> None:
    """Replaces a file in one step. A folder cannot be: the old one, or one that another build has just put there, moves
    aside first."""
    for attempt in range(100):
        if made.is_dir() and place.is_dir():
            with suppress(FileNotFoundError):
                os.replace(place, aside / f"old-{attempt}")
        try:
            os.replace(made, place)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    raise InputError(f"{place} changes all the time; is another build writing to it?")
