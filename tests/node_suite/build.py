"""Cases -> compiled programs, by castiron's own stages; many compiled programs -> one shared library."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir
from onnx import numpy_helper

from castiron.artifact.files import write_safetensors
from castiron.artifact.link import write_code
from castiron.artifact.make import Parts
from castiron.assemble import assemble
from castiron.dump import Dump
from castiron.errors import Unsupported
from castiron.frontend.source import Source, load
from castiron.options import BuildOptions, Form
from castiron.pipeline import compile_source
from castiron.toolchain import elf, runtime, targets, zig

from .cases import Case
from .outcome import Outcome, Status

BATCH = 150
"""Models a library: a library that crashes or does not compile costs a batch, not the suite."""

SCALED = {"Resize", "Upsample"}
"""Operators whose sizes follow from floating-point inputs."""


@dataclass(frozen=True)
class Built:
    """A compiled case. `fed`: positions of the inputs that are still inputs at run time."""

    case: Case
    parts: Parts
    fed: tuple[int, ...]

    @property
    def bound(self) -> bool:
        return len(self.fed) < len(self.case.model.graph.input)


def compiled(case: Case) -> Built | Outcome:
    """The case's program: with all inputs known at run time only, or, where castiron refuses that, with small inputs

    known at build; or why there is none."""
    everything = tuple(range(len(case.model.graph.input)))
    try:
        return compile_case(case, _source(case.model), everything)
    except Unsupported as refusal:
        bound, fed = _bound(case)
        if fed != everything:
            try:
                return compile_case(case, _source(bound), fed)
            except Unsupported:
                pass
            except Exception as error:
                return broken(error)
        return Outcome(Status.UNSUPPORTED, str(refusal))
    except Exception as error:
        return broken(error)


def broken(error: Exception) -> Outcome:
    """What a fault of castiron's own is."""
    return Outcome(Status.FAILED, f"{type(error).__name__}: {error}")


def _source(model: onnx.ModelProto) -> Source:
    return load(ir.serde.deserialize_model(model))


def compile_case(case: Case, source: Source, fed: tuple[int, ...]) -> Built:
    """The program of `source`, which stands for the case; `fed`: see `Built`. Raises what a build raises."""
    options = BuildOptions(form=Form.SHARED, name=case.name.replace("test_", "node_", 1), cpu=(_isa().name,))
    logging.disable(logging.WARNING)
    try:
        made = compile_source(source, options, Dump(None), lambda text: None)
        parts = assemble(made, options, "")
        parts.code([_isa()], False, 0)  # what cannot be printed is known here
        return Built(case, parts, fed)
    finally:
        logging.disable(logging.NOTSET)


def _bound(case: Case) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """The model with small integer inputs but the first as initializers, and the positions of the inputs that are left.

    A case of several data sets stays as it is: its inputs do vary."""
    graph = case.model.graph
    if len(case.data) != 1:
        return case.model, tuple(range(len(graph.input)))
    values = case.data[0][0]
    kinds = "iubf" if case.operator in SCALED else "iub"
    known = [i for i, v in enumerate(values) if i and getattr(v, "ndim", 9) <= 1 and v.dtype.kind in kinds]
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for position in reversed(known):
        model.graph.initializer.append(numpy_helper.from_array(values[position], graph.input[position].name))
        del model.graph.input[position]
    return model, tuple(i for i in range(len(values)) if i not in known)


def _isa() -> targets.InstructionSet:
    """The level most processors have: the kernels of all levels give the same bits."""
    host = targets.host()
    return next((isa for isa in host.isas if isa.name == "x86-64-v3"), host.isas[0])


def library(models: Sequence[Built], folder: Path) -> Path:
    """One shared library of all models, and a raw weights file for each that has weights. Raises ToolchainError."""
    host, isa = targets.host(), _isa()
    codes = [m.parts.code([isa], False, 0) for m in models]
    units = []
    for code in codes:
        write_code(code, folder)
        both = folder / f"{code.name}_all.c"
        both.write_text(f'#include "{code.name}.c"\n#include "{code.name}_api.c"\n')
        # the tables show the symbols of the header; CI_SHARED would define castiron_name once a model
        flags = ("-O1", *isa.flags, f"-DCI_ISA={isa.suffix}", "-Werror")
        units.append(zig.Unit(both, host.shared_triple, flags, (runtime.FOLDER, folder)))
    made = zig.in_parallel(_object, units)
    kernels = frozenset(k for code in codes for k in code.kernels)
    made += runtime.objects(runtime.units(host, [isa], kernels, Form.SHARED))
    blobs = [elf.Blob(f"{m.parts.name}_constants", m.parts.constants) for m in models if m.parts.constants]
    if blobs:
        made.append(folder / "constants.o")
        elf.write_object(made[-1], host.machine, blobs)
    for m in models:
        if m.parts.packed_bytes:
            write_safetensors(folder / f"{m.parts.name}.safetensors", m.parts.weights)
    output = folder / "library.so"
    response = folder / "objects.txt"
    response.write_text("\n".join(map(str, made)))
    zig.run(["cc", "-target", host.shared_triple, *zig.LINK, "-shared", f"@{response}", "-o", str(output)], output.name)
    return output


def _object(unit: zig.Unit) -> Path:
    target = unit.source.with_suffix(".o")
    zig.compile_unit(unit, target)
    return target
