"""Model objects and runtime objects to files: executable, shared library, archive, folder of sources."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from castiron.artifact.files import whole
from castiron.errors import InputError
from castiron.toolchain import elf, runtime, zig
from castiron.toolchain.targets import InstructionSet, Target

MODEL_FLAGS = ("-O2",)


@dataclass(frozen=True)
class Code:
    """What a model compiles to: its C by file name (NAME.c, NAME_api.c, NAME.h) and the kernels it calls."""

    name: str
    files: Mapping[str, str]
    kernels: frozenset[str]


@dataclass(frozen=True)
class Job:
    """Where a build is going: `work` is a scratch folder that lives as long as the build."""

    code: Code
    target: Target
    isas: tuple[InstructionSet, ...]
    work: Path


def write_code(code: Code, folder: Path) -> None:
    """The model's C files in `folder`."""
    for name, text in code.files.items():
        (folder / name).write_text(text)


def objects(job: Job, triple: str, flags: Sequence[str] = ()) -> list[Path]:
    """The model's own objects: the steps once an instruction set (they call no C library, so they serve any), and the tables.

    What this build has compiled before is not compiled again."""
    code = job.code
    write_code(code, job.work)
    steps = [
        zig.Unit(job.work / f"{code.name}.c", job.target.static_triple, (*MODEL_FLAGS, *isa.flags, f"-DCI_ISA={isa.suffix}"), (runtime.FOLDER,))
        for isa in job.isas
    ]
    tables = zig.Unit(job.work / f"{code.name}_api.c", triple, ("-Os", *flags), (runtime.FOLDER, job.work))
    return zig.in_parallel(lambda unit: _compiled(unit, job.work), [*steps, tables])


def _compiled(unit: zig.Unit, folder: Path) -> Path:
    key = hashlib.sha256(repr((unit.triple, unit.flags)).encode() + unit.source.read_bytes()).hexdigest()[:16]
    target = folder / f"{unit.source.stem}.{key}.o"
    if not target.exists():
        zig.compile_unit(unit, target)
    return target


def blobs_object(job: Job, blobs: Sequence[elf.Blob]) -> list[Path]:
    """The object with weights, constants and self-test; nothing where there are none."""
    if not blobs:
        return []
    size = sum(blob.size for blob in blobs)
    if size > elf.LIMIT:
        raise InputError(
            f"{job.code.name}: {size:,} bytes of weights do not fit inside one file (the object format ends at about 2 GiB); "
            "build with --weights file, which has no such limit"
        )
    path = job.work / f"{job.code.name}_blobs.{job.target.arch}.o"
    elf.write_object(path, job.target.machine, blobs)
    return [path]


def executable(job: Job, blobs: Sequence[elf.Blob], output: Path) -> None:
    """A static, position-independent, stripped executable."""
    triple = job.target.static_triple
    parts = runtime.objects(runtime.units(job.target, job.isas, job.code.kernels, exe=True, shared=False))
    own = objects(job, triple, ("-DCI_MAIN",))
    with whole(output) as temporary:
        _link(triple, ["-static-pie"], [*own, *blobs_object(job, blobs), *parts], temporary)


def shared(job: Job, blobs: Sequence[elf.Blob], output: Path) -> None:
    """A shared library; only the symbols of its header are visible."""
    triple = job.target.shared_triple
    parts = runtime.objects(runtime.units(job.target, job.isas, job.code.kernels, exe=False, shared=True))
    own = objects(job, triple, ("-DCI_SHARED",))
    with whole(output) as temporary:
        _link(triple, ["-shared", f"-Wl,-soname,{output.name}"], [*own, *blobs_object(job, blobs), *parts], temporary)
    _write_header(job, output)


def static(job: Job, blobs: Sequence[elf.Blob], output: Path) -> None:
    """An archive with everything in it. Its objects use plain POSIX names, so musl's and glibc's linkers take it."""
    triple = job.target.static_triple
    parts = runtime.objects(runtime.units(job.target, job.isas, job.code.kernels, exe=False, shared=False))
    own = objects(job, triple)
    with whole(output) as temporary:
        members = [str(p) for p in (*own, *blobs_object(job, blobs), *parts)]
        zig.run(["ar", "rcs", str(temporary), *members], output.name)
    _write_header(job, output)


def _link(triple: str, flags: Sequence[str], objects: Sequence[Path], output: Path) -> None:
    zig.run(["cc", "-target", triple, *zig.LINK, *flags, *map(str, objects), "-o", str(output)], output.name)


def _write_header(job: Job, output: Path) -> None:
    name = f"{job.code.name}.h"
    with whole(output.parent / name) as temporary:
        temporary.write_text(job.code.files[name])


def source(job: Job, data: Mapping[str, bytes | Path], output: Path, readme: str) -> None:
    """A folder that any C11 compiler builds: the model's C, the runtime's C, and the blobs as files beside `blobs.S`."""
    with whole(output) as folder:
        folder.mkdir()
        write_code(job.code, folder)
        kernels = runtime.kernel_sources(job.code.kernels)
        for path in (*runtime.FOLDER.rglob("*.h"), *runtime.files("core"), *runtime.files("exe"), *kernels):
            target = folder / "runtime" / path.relative_to(runtime.FOLDER)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        (folder / "README.md").write_text(readme)
        for name, content in data.items():
            if isinstance(content, Path):
                shutil.copy(content, folder / name)
            else:
                (folder / name).write_bytes(content)
