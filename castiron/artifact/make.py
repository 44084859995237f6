"""From compiled code and raw weights to the file a user holds: pack the weights on this machine, then link.

Packing runs the artifact's own `prepare`: a small executable without weights is linked for this machine, reads the raw
weights and saves them packed. So weights embedded at build, packed in a file, or read raw at run time go through the
same machine code and give the same bits.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from castiron.artifact import link
from castiron.artifact.files import PACKED_HEADER, write_safetensors
from castiron.artifact.process import call
from castiron.artifact.readme import source_readme
from castiron.artifact.staging import MARK, Staging
from castiron.errors import InputError
from castiron.options import BuildOptions, Form, Weights
from castiron.toolchain import elf, targets, zig
from castiron.toolchain.elf import Blob


@dataclass(frozen=True)
class Parts:
    """What a model compiles to. `code(isas, embedded, selftest)`: its C for these instruction sets, with weights inside
    or not, and a self-test record of so many bytes; `constants`: their bytes; `weights`: raw tensors by the user's
    name; `packed_bytes`: the size of what `prepare` makes of them; `weights_file`: what they are called where they are
    not embedded."""

    name: str
    code: Callable[[Sequence[targets.InstructionSet], bool, int], link.Code]
    constants: bytes
    weights: Mapping[str, ir.TensorProtocol]
    packed_bytes: int
    weights_file: str


def weights_file(target: Path) -> str:
    """The name of the weights beside an artifact: after the artifact, so that two never take each other's."""
    return f"{link.stem(target)}.weights"


def refuse_misfits(parts: Parts, options: BuildOptions, target: Path) -> None:
    """Raises InputError, before anything takes long, where weights to embed are too many, or their file is `target`."""
    if options.weights == Weights.EMBED and parts.packed_bytes > elf.LIMIT:
        raise InputError(
            f"{parts.name}: {parts.packed_bytes:,} bytes of weights do not fit inside one file (the object format ends "
            "at about 2 GiB); build with --weights file, which has no such limit"
        )
    if options.weights == Weights.FILE and target.name == parts.weights_file:
        raise InputError(f"{target.name} is the name of the weights file; give another one with -o")


def pack(parts: Parts, options: BuildOptions, work: Path, say: zig.Progress) -> Path | None:
    """The packed weights file, made in `work` by the model's own `prepare`; None where there is nothing to pack."""
    if not parts.packed_bytes:
        return None
    host = targets.host()
    zig.ready(host.static_triple, say)
    say("packing the weights")
    same = targets.find(options.target).name == host.name
    isas = targets.chosen(host, options.cpu) if same else host.isas
    packer, raw, packed = work / "packer", work / "raw.safetensors", work / parts.weights_file
    link.executable(link.Job(parts.code(isas, False, 0), host, isas, work), _blobs(parts, None, b""), packer)
    write_safetensors(raw, parts.weights)
    call([str(packer), "--weights", str(raw), "--save-weights", str(packed)])
    raw.unlink()
    return packed


def make(
    parts: Parts, packed: Path | None, selftest: bytes, options: BuildOptions, place: Staging, say: zig.Progress
) -> None:
    """Writes the artifact, its header, and its weights file beside it where weights are not embedded.

    What cannot be run itself gets an executable of the same code at `place.program`, if it is to be verified."""
    target = targets.find(options.target)
    isas = targets.chosen(target, options.cpu)
    embedded = options.weights == Weights.EMBED
    job = link.Job(parts.code(isas, embedded, len(selftest)), target, isas, place.work)
    say(f"compiling {parts.name} for {', '.join(isa.name for isa in isas)}")
    blobs = _blobs(parts, packed if embedded else None, selftest)
    if options.form == Form.SOURCE:
        beside = "" if embedded or packed is None else parts.weights_file
        texts = {MARK: _MADE, "README.md": source_readme(job.code, [b.symbol for b in blobs], beside)}
        link.source(job, blobs, texts, place.output)
    else:
        _link(job, blobs, options.form, place.output, say)
    if options.verify and needs_program(options.form, target) and target.emulator is not None:
        _link(job, blobs, Form.EXE, place.program, say)
    if packed is not None and not embedded:
        folder = place.output if options.form == Form.SOURCE else place.output.parent
        shutil.copyfile(packed, folder / parts.weights_file)


def needs_program(form: Form, target: targets.Target) -> bool:
    """Whether an artifact can only be tried by an executable of the same code."""
    return form in (Form.STATIC, Form.SOURCE) or (form == Form.SHARED and target.emulator != "")


def _link(job: link.Job, blobs: list[Blob], form: Form, output: Path, say: zig.Progress) -> None:
    if form != Form.STATIC:  # an archive takes nothing from the C library yet
        zig.ready(job.target.static_triple if form == Form.EXE else job.target.shared_triple, say)
    {Form.EXE: link.executable, Form.SHARED: link.shared, Form.STATIC: link.static}[form](job, blobs, output)


_MADE = "made by castiron build --as source; may be replaced by it\n"


def _blobs(parts: Parts, packed: Path | None, selftest: bytes) -> list[Blob]:
    blobs = []
    if packed is not None:
        blobs.append(Blob(f"{parts.name}_packed", packed, PACKED_HEADER.size))
    if parts.constants:
        blobs.append(Blob(f"{parts.name}_constants", parts.constants))
    if selftest:
        blobs.append(Blob(f"{parts.name}_selftest", selftest))
    return blobs
