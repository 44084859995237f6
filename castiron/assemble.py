"""Compiled programs, weights and reference vectors put together for the printer and the linker."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import onnx_ir as ir

from castiron import __version__
from castiron.artifact.files import Recorded, selftest_record
from castiron.artifact.link import Code
from castiron.artifact.make import Parts
from castiron.emit import Files, ModelInfo, Port, print_steps, print_tables
from castiron.errors import InputError, Unsupported
from castiron.lab.reference import Vectors
from castiron.lab.verify import tolerance
from castiron.options import BuildOptions, Form
from castiron.program.plan import constants
from castiron.program.planned import Planned, Storage
from castiron.program.scalar import SMALL_FLOATS, SMALL_INTEGERS
from castiron.program.text import text
from castiron.program.types import Kernel, Kind, Program
from castiron.toolchain import targets


@dataclass(frozen=True)
class Compiled:
    """A model on its way to C: its last graph, its two programs with memory placed, and where the blobs' parts lie.

    hash: 64 hex digits over the programs, the constants and the layout of the packed weights, not the weights' values."""

    name: str
    graph: ir.Model
    prepare: Planned
    forward: Planned
    storage: Storage
    hash: str


def digest(prepare: Planned, forward: Planned, places: Storage) -> str:
    """The hash of `Compiled`."""
    texts = "\n".join((text(prepare.program), text(forward.program), repr(places)))
    return hashlib.sha256(texts.encode() + constants(prepare, forward, places)).hexdigest()


def assemble(compiled: Compiled, options: BuildOptions, weights_file: str) -> Parts:
    """What `make` needs. Weights keep the names that the user knows; `weights_file` is where they are if not embedded."""
    _check_ports(compiled.forward.program, options.form)
    weights = {b.name: _tensor(compiled.graph, b.name) for b in compiled.prepare.program.of_kind(Kind.WEIGHT)}

    programs = compiled.name, compiled.prepare, compiled.forward

    @cache
    def steps() -> Files:
        return print_steps(*programs, _info(compiled, options, weights_file, (), False, 0))

    def code(isas: Sequence[targets.InstructionSet], embedded: bool, selftest: int) -> Code:
        info = _info(compiled, options, weights_file, isas, embedded, selftest)
        called = (*compiled.prepare.program.steps, *compiled.forward.program.steps)
        kernels = frozenset(s.kernel for s in called if isinstance(s, Kernel))
        return Code(compiled.name, {**steps(), **print_tables(*programs, info)}, kernels)

    return Parts(
        compiled.name,
        code,
        constants(compiled.prepare, compiled.forward, compiled.storage),
        weights,
        compiled.storage.packed_bytes,
        weights_file,
    )


def _check_ports(program: Program, form: Form) -> None:
    """Executables (which also verify archives and sources) have no form in files for types of 8 bits and fewer."""
    for name in (*program.inputs, *program.outputs):
        type = program.buffers[name].type
        if form != Form.SHARED and type in SMALL_FLOATS | SMALL_INTEGERS:
            raise Unsupported(
                f"{name!r} is {type.name}: only a shared library passes such arrays; build --as shared, or cast it in "
                "the model"
            )


def _tensor(graph: ir.Model, name: str) -> ir.TensorProtocol:
    tensor = graph.graph.initializers[name].const_value
    if tensor is None:
        raise InputError(f"weight {name!r} has no value in the model")
    return tensor


def _info(
    compiled: Compiled,
    options: BuildOptions,
    weights_file: str,
    isas: Sequence[targets.InstructionSet],
    embedded: bool,
    selftest: int,
) -> ModelInfo:
    forward, buffers = compiled.forward.program, compiled.forward.program.buffers
    extra = {"activation_bytes": compiled.forward.arena, "source": compiled.graph.producer_name or ""}
    return ModelInfo(
        hash=compiled.hash,
        version=__version__,
        inputs=tuple(Port(n, buffers[n]) for n in forward.inputs),
        outputs=tuple(Port(n, buffers[n]) for n in forward.outputs),
        weights=tuple(Port(b.name, b) for b in compiled.prepare.program.of_kind(Kind.WEIGHT)),
        packed_bytes=compiled.storage.packed_bytes,
        constant_bytes=compiled.storage.constant_bytes,
        embedded=embedded and compiled.storage.packed_bytes > 0,
        isas=tuple(isa.suffix for isa in isas),
        weights_file=weights_file,
        selftest_bytes=selftest,
        info=json.dumps(extra)[1:-1],
        options=f"--as {options.form} --weights {options.weights}"
        + "".join(f" --shape {name}={','.join(map(str, sizes))}" for name, sizes in options.shapes.items()),
    )


def selftest(compiled: Compiled, references: Vectors, budget: float) -> bytes:
    """The record of `--selftest`: the inputs, the source framework's outputs, and the difference that is allowed."""
    program = compiled.forward.program
    if (
        references.missing
        or set(program.inputs) - set(references.inputs)
        or set(program.outputs) - set(references.outputs)
    ):
        return b""
    arrays = [
        Recorded("input", port, program.buffers[name].type, references.inputs[name])
        for port, name in enumerate(program.inputs)
    ]
    for port, name in enumerate(program.outputs):
        exact = None if references.exact is None else references.exact.get(name)
        # twice: it is there to notice what is broken, and the source's error on one input is luck
        allowed = 2 * tolerance(references.outputs[name], exact, budget, references.own.get(name, 0.0))
        arrays.append(Recorded("output", port, program.buffers[name].type, references.outputs[name], allowed))
    return selftest_record(arrays)
