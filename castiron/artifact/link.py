"""Model objects and runtime objects to files: executable, shared library, archive, folder of sources.

`output` is always in the staging folder: what is half written there never reaches the user."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from castiron.options import Form
from castiron.toolchain import elf, runtime, zig
from castiron.toolchain.targets import InstructionSet, Target

MODEL_FLAGS = ("-O2",)
_TABLE_FLAGS: Mapping[Form, tuple[str, ...]] = {
    Form.EXE: ("-Os", "-DCI_MAIN"),
    Form.SHARED: ("-Os", "-DCI_SHARED"),
    Form.STATIC: ("-Os",),
}


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


def objects(job: Job, form: Form) -> list[Path]:
    """All objects of an artifact but its blobs: the model's steps once an instruction set, its tables, and the runtime.

    What this build has compiled before is not compiled again; the runtime's objects come from the cache."""
    code, target = job.code, job.target
    write_code(code, job.work)
    steps = [
        zig.Unit(
            job.work / f"{code.name}.c",
            target.static_triple,  # they call no C library, so they serve any
            (*MODEL_FLAGS, *isa.flags, f"-DCI_ISA={isa.suffix}"),
            (runtime.FOLDER,),
        )
        for isa in job.isas
    ]
    triple = runtime.triple_of(target, form)
    tables = zig.Unit(job.work / f"{code.name}_api.c", triple, _TABLE_FLAGS[form], (runtime.FOLDER, job.work))
    own = zig.in_parallel(lambda unit: _compiled(unit, job.work), [*steps, tables])
    return [*own, *runtime.objects(runtime.units(target, job.isas, code.kernels, form))]


def _compiled(unit: zig.Unit, folder: Path) -> Path:
    key = hashlib.sha256(repr((unit.triple, unit.flags)).encode() + unit.source.read_bytes()).hexdigest()[:16]
    target = folder / f"{unit.source.stem}.{key}.o"
    if not target.exists():
        zig.compile_unit(unit, target)
    return target


def _with_blobs(job: Job, form: Form, blobs: Sequence[elf.Blob]) -> list[Path]:
    made = objects(job, form)
    if not blobs:
        return made
    path = job.work / f"{job.code.name}_blobs.{job.target.arch}.o"
    elf.write_object(path, job.target.machine, blobs)
    return [*made, path]


def executable(job: Job, blobs: Sequence[elf.Blob], output: Path) -> None:
    """A static, position-independent, stripped executable."""
    library = zig.libc_files(job.target.static_triple)
    objects = map(str, _with_blobs(job, Form.EXE, blobs))
    zig.run([*zig.EXECUTABLE_LINK, *objects, *library, "-o", str(output)], output.name)
    elf.trim(output)


def shared(job: Job, blobs: Sequence[elf.Blob], output: Path) -> None:
    """A shared library and its header; only the symbols of the header are visible."""
    flags = [*zig.LINK, "-shared", "-Xlinker", "-soname", "-Xlinker", output.name]
    objects = map(str, _with_blobs(job, Form.SHARED, blobs))
    zig.run(["cc", "-target", job.target.shared_triple, *flags, *objects, "-o", str(output)], output.name)
    _write_header(job, output)


def static(job: Job, blobs: Sequence[elf.Blob], output: Path) -> None:
    """An archive with everything in it, and its header."""
    members = _with_blobs(job, Form.STATIC, blobs)
    zig.run(["ar", "rcs", str(output), *map(str, members)], output.name)
    _write_header(job, output)


def _write_header(job: Job, output: Path) -> None:
    """Named after the library (libnet.so: net.h), so that those of models of one name can lie in one folder."""
    file = output.with_name(f"{stem(output).removeprefix('lib')}.h")
    file.write_text(job.code.files[f"{job.code.name}.h"])


def stem(artifact: Path) -> str:
    """What files beside an artifact are named after."""
    return artifact.name.removesuffix(".so").removesuffix(".a")


def source(job: Job, blobs: Sequence[elf.Blob], texts: Mapping[str, str], output: Path) -> None:
    """A folder that any C11 compiler builds: the C of model and runtime, and the blobs as files beside `blobs.S`."""
    output.mkdir()
    write_code(job.code, output)
    kernels = runtime.kernel_sources(job.code.kernels)
    for path in (*runtime.FOLDER.rglob("*.h"), *runtime.files("core"), *runtime.files("exe"), *kernels):
        target = output / "runtime" / path.relative_to(runtime.FOLDER)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    for name, text in texts.items():
        (output / name).write_text(text)
    for blob in blobs:
        with (output / f"{blob.symbol}.bin").open("wb") as file:
            blob.copy(file)
    if blobs:
        (output / "blobs.S").write_text(_assembly([blob.symbol for blob in blobs]))


def _assembly(symbols: Sequence[str]) -> str:
    """Assembly (of any ELF assembler) that takes each `SYMBOL.bin` into read-only data under its symbol."""
    lines = ['    .section .rodata,"a"']
    for symbol in symbols:
        lines += [f"    .globl {symbol}", f"    .hidden {symbol}", "    .balign 64", f"{symbol}:"]
        lines += [f'    .incbin "{symbol}.bin"']
    return "\n".join([*lines, '    .section .note.GNU-stack,"",%progbits', ""])
