"""From compiled code and raw weights to the file a user holds: pack the weights on this machine, then link.

Packing runs the artifact's own `prepare`: a small executable without weights is linked for this machine, reads the raw
weights and saves them packed. So weights embedded at build, packed in a file, or read raw at run time go through the same
machine code and give the same bits.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from castiron.artifact import link
from castiron.artifact.files import PACKED_HEADER, write_safetensors
from castiron.artifact.process import call
from castiron.artifact.readme import source_readme
from castiron.errors import InputError
from castiron.options import BuildOptions, Form, Weights
from castiron.toolchain import targets, zig
from castiron.toolchain.elf import Blob

SUFFIXES = {Form.EXE: "", Form.SHARED: ".so", Form.STATIC: ".a", Form.SOURCE: ""}


@dataclass(frozen=True)
class Parts:
    """What a model compiles to. `code(embedded)`: its C with weights inside or not; the bytes of constants and self-test;
    `weights`: raw tensors by the user's name; `packed_bytes`: the size of what `prepare` makes of them."""

    name: str
    code: Callable[[bool], link.Code]
    constants: bytes
    selftest: bytes
    weights: Mapping[str, ir.TensorProtocol]
    packed_bytes: int


@dataclass(frozen=True)
class Staging:
    """Where a build writes: `output` will be moved to its place when all is well; `work` is for what is on the way there.

    `runnable`: what to start to try the artifact."""

    output: Path
    work: Path

    @property
    def runnable(self) -> Path:
        program = self.work / "program"
        return program if program.exists() else self.output


def output_path(output: str | Path | None, name: str, form: Form) -> Path:
    """Where the artifact goes: as asked; `libNAME.so`, `libNAME.a` or NAME in the current folder where nothing is asked."""
    if output is not None:
        return Path(output)
    prefix = "lib" if form in (Form.SHARED, Form.STATIC) else ""
    return Path(f"{prefix}{name}{SUFFIXES[form]}")


@contextmanager
def staging(target: Path) -> Iterator[Staging]:
    """A folder beside `target`; what is in its `out` moves to the target's folder when the block ends well."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise InputError(f"{target.parent} cannot be written to: {error.strerror}") from None
    if target.is_dir() and not (target / ".castiron").exists():
        shutil.rmtree(folder)
        raise InputError(f"{target} is a folder that castiron did not make; give another name with -o")
    try:
        (folder / "out").mkdir()
        yield Staging(folder / "out" / target.name, folder)
        for file in (folder / "out").iterdir():
            if (target.parent / file.name).is_dir():
                shutil.rmtree(target.parent / file.name)
            os.replace(file, target.parent / file.name)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make(parts: Parts, options: BuildOptions, place: Staging, say: zig.Progress) -> None:
    """Writes the artifact, its header, and NAME.weights beside it where weights are not embedded."""
    target = targets.find(options.target)
    isas = targets.chosen(target, options.cpu)
    _ready(target.shared_triple if options.form == Form.SHARED else target.static_triple, say)
    packed = _pack(parts, options, place.work, say) if parts.packed_bytes else None
    embedded = options.weights == Weights.EMBED
    job = link.Job(parts.code(embedded), target, isas, place.work)
    say(f"compiling {parts.name} for {', '.join(isa.name for isa in isas)}")
    blobs = _blobs(parts, packed if embedded else None)
    if packed is not None and not embedded:
        shutil.copyfile(packed, place.output.parent / f"{parts.name}.weights")
    if options.form == Form.SOURCE:
        _write_source(job, parts, packed, embedded, place.output)
    else:
        {Form.EXE: link.executable, Form.SHARED: link.shared, Form.STATIC: link.static}[options.form](job, blobs, place.output)
    if options.form in (Form.STATIC, Form.SOURCE):
        link.executable(job, blobs, place.work / "program")


def _pack(parts: Parts, options: BuildOptions, work: Path, say: zig.Progress) -> Path:
    """The packed weights file, made by the model's own `prepare` on this machine."""
    host = targets.host()
    _ready(host.static_triple, say)
    say("packing the weights")
    same = targets.find(options.target).name == host.name
    isas = targets.chosen(host, options.cpu) if same else host.isas
    packer, raw, packed = work / "packer", work / "raw.safetensors", work / f"{parts.name}.weights"
    link.executable(link.Job(parts.code(False), host, isas, work), _blobs(parts, None), packer)
    write_safetensors(raw, parts.weights)
    call([str(packer), "--weights", str(raw), "--save-weights", str(packed)])
    raw.unlink()
    return packed


def _blobs(parts: Parts, packed: Path | None) -> list[Blob]:
    blobs = []
    if packed is not None:
        blobs.append(Blob(f"{parts.name}_packed", packed, PACKED_HEADER.size))
    if parts.constants:
        blobs.append(Blob(f"{parts.name}_constants", parts.constants))
    if parts.selftest:
        blobs.append(Blob(f"{parts.name}_selftest", parts.selftest))
    return blobs


def _ready(triple: str, say: zig.Progress) -> None:
    if not zig.libc_is_built(triple):
        say(f"building the C library of {triple} (once on this machine, about half a minute)")
        zig.build_libc(triple)


def _write_source(job: link.Job, parts: Parts, packed: Path | None, embedded: bool, output: Path) -> None:
    data: dict[str, bytes | Path] = {}
    for blob in _blobs(parts, packed if embedded else None):
        data[f"{blob.symbol}.bin"] = blob.data if isinstance(blob.data, bytes) else blob.data.read_bytes()[blob.offset :]
    if packed is not None and not embedded:
        data[f"{parts.name}.weights"] = packed
    data[".castiron"] = b"made by castiron build --as source; may be replaced by it\n"
    data["blobs.S"] = _assembly([name.removesuffix(".bin") for name in data if name.endswith(".bin")]).encode()
    link.source(job, data, output, source_readme(parts.name, job.code.kernels))


def _assembly(symbols: list[str]) -> str:
    """Assembly (of any ELF assembler) that takes each `SYMBOL.bin` into read-only data under its symbol."""
    lines = ['    .section .rodata,"a"']
    for symbol in symbols:
        lines += [f"    .globl {symbol}", f"    .hidden {symbol}", "    .balign 64", f"{symbol}:", f'    .incbin "{symbol}.bin"']
    return "\n".join([*lines, '    .section .note.GNU-stack,"",%progbits', ""])

