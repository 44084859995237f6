"""Runs printed C without the rest of the runtime: a plain memory plan, one shared library, ctypes."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from castiron.emit import ModelInfo, Port, print_steps, print_tables
from castiron.program.expr import Const, Expr, constant, substitute
from castiron.program.planned import Place, Planned
from castiron.program.types import Kind, Program, View
from castiron.toolchain import targets

RUNTIME = Path(__file__).parents[2] / "castiron" / "runtime"
TRIPLE = targets.host().shared_triple
FLAGS = [
    "-O2",
    "-std=c11",
    "-D_GNU_SOURCE",
    "-fPIC",
    "-shared",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-DCI_ISA=generic",
]
EMPTY = Planned(Program("prepare", (), {}, (), (), ()), {}, {}, (), 0)

STUB = """
#include "castiron.h"
int64_t ci_index(const ci_run *run, int64_t index, int64_t extent) {
    if (index < -extent || index >= extent) { run->fault->extent = extent; return 0; }
    return index < 0 ? index + extent : index;
}
void ci_parallel(const ci_run *run, ci_range *range, const void *argument, int64_t count, int64_t work) {
    (void)work;
    int64_t cut = count / 3;
    range(run, argument, 0, cut);
    range(run, argument, cut, count);
}
"""


class Run(ctypes.Structure):
    _fields_ = [
        (n, ctypes.c_void_p)
        for n in (
            *("sizes", "arena", "offsets", "inputs", "outputs", "arenas", "states", "results"),
            *("constants", "packed", "pool", "fault"),
        )
    ]


class Step(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("op", ctypes.c_char_p),
        ("run", ctypes.CFUNCTYPE(None, ctypes.POINTER(Run))),
        ("test", ctypes.c_void_p),
        ("jump", ctypes.c_int32),
    ]


class Code(ctypes.Structure):
    _fields_ = [
        ("isa", ctypes.c_char_p),
        ("prepare", ctypes.POINTER(Step)),
        ("forward", ctypes.POINTER(Step)),
        ("prepare_count", ctypes.c_int32),
        ("forward_count", ctypes.c_int32),
    ]


def number(e: Expr, sizes: Mapping[str, int]) -> int:
    """The value of a size expression."""
    known = substitute(e, {name: constant(value) for name, value in sizes.items()})
    assert isinstance(known, Const)
    return int(known.value)


def placed(program: Program, same: Mapping[str, str] | None = None, local: Sequence[str] = ()) -> Planned:
    """Every buffer at a place of its own, except views, those in `same` (in place of another), and `local` ones."""
    roots = {n: n for n in program.buffers} | dict(same or {})
    roots |= {s.out: s.of for s in program.steps if isinstance(s, View)}
    own = [b for b in program.buffers.values() if roots[b.name] == b.name and b.name not in local]
    temps = [b for b in own if b.kind == Kind.TEMP]
    dynamic = any(not isinstance(d, Const) for b in temps for d in b.shape)
    places, at = {}, {Kind.TEMP: 0, Kind.CONSTANT: 0, Kind.PACKED: 0}
    for b in own:
        if b.kind in (Kind.INPUT, Kind.OUTPUT):
            ports = program.inputs if b.kind == Kind.INPUT else program.outputs
            places[b.name] = Place(b.kind, ports.index(b.name))
        elif b.kind == Kind.TEMP and dynamic:
            places[b.name] = Place(b.kind, temps.index(b), True)
        else:
            places[b.name] = Place(b.kind, at[b.kind])
            count = int(np.prod([d.value for d in b.shape], dtype=int))
            at[b.kind] += -(-count * max(1, b.type.bitwidth // 8) // 64) * 64
    lives = tuple((b.name, 0, len(program.steps)) for b in temps) if dynamic else ()
    return Planned(program, places, roots, lives, None if dynamic else at[Kind.TEMP])


def printed(name: str, planned: Planned) -> dict[str, str]:
    program = planned.program
    inputs = tuple(Port(n, program.buffers[n]) for n in program.inputs)
    outputs = tuple(Port(n, program.buffers[n]) for n in program.outputs)
    constants = sum(b.kind == Kind.CONSTANT for b in program.buffers.values())
    info = ModelInfo("0" * 64, "0.1", inputs, outputs, (), 0, constants, False, ("generic",))
    return {**print_steps(name, EMPTY, planned, info), **print_tables(name, EMPTY, planned, info)}


def build(
    models: Mapping[str, Planned], folder: Path, kernels: Sequence[str] = (), flags: Sequence[str] = ()
) -> ctypes.CDLL:
    """All models as one library."""
    sources = [folder / "stub.c"]
    sources[0].write_text(STUB)
    for name, planned in models.items():
        for file, text in printed(name, planned).items():
            (folder / file).write_text(text)
        sources.append(folder / f"{name}.c")
    sources += [RUNTIME / "kernels" / f"{k}.c" for k in kernels]
    library = folder / "models.so"
    command = [sys.executable, "-m", "ziglang", "cc", "-target", TRIPLE, *FLAGS, *flags, f"-I{RUNTIME}", f"-I{folder}"]
    done = subprocess.run([*command, *map(str, sources), "-o", str(library)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(library))


def run(library: ctypes.CDLL, name: str, planned: Planned, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a model; raises IndexError where a step met an index it must refuse."""
    program = planned.program
    sizes: dict[str, int] = {}
    for size in program.sizes:
        sizes[size.name] = inputs[size.input].shape[size.dim] if size.value is None else number(size.value, sizes)
    outputs = {n: _array(program, n, sizes) for n in program.outputs}
    slots, arena = [], planned.arena or 0
    for life, _, _ in planned.lives:
        slots.append(arena)
        arena += -(-_array(program, life, sizes).nbytes // 64) * 64
    memory = np.full(arena + 128, 0xAB, np.uint8)
    blob = bytearray(1 << 16)
    for place_name, place in planned.places.items():
        if place.kind == Kind.CONSTANT:
            data = np.ascontiguousarray(program.buffers[place_name].value).tobytes()
            blob[place.offset : place.offset + len(data)] = data
    arrays = [np.ascontiguousarray(inputs[n]) for n in program.inputs]
    fault = (ctypes.c_int64 * 3)()
    keep = [
        (ctypes.c_int64 * max(1, len(sizes)))(*sizes.values()),
        ctypes.c_void_p(memory.ctypes.data),
        (ctypes.c_int64 * max(1, len(slots)))(*slots),
        (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays)),
        (ctypes.c_void_p * len(outputs))(*(a.ctypes.data for a in outputs.values())),
        *(None, None, None),
        (ctypes.c_char * len(blob)).from_buffer(blob),
        None,
        None,
        fault,
    ]
    state = Run(*(k if k is None or isinstance(k, ctypes.c_void_p) else ctypes.cast(k, ctypes.c_void_p) for k in keep))
    code = Code.in_dll(library, f"{name}_code_generic")
    for i in range(code.forward_count):
        code.forward[i].run(ctypes.byref(state))
        if fault[1]:
            raise IndexError(f"step {code.forward[i].name.decode()}")
    return outputs


def _array(program: Program, name: str, sizes: Mapping[str, int]) -> np.ndarray:
    buffer = program.buffers[name]
    return np.full([number(d, sizes) for d in buffer.shape], 77).astype(buffer.type.numpy())
