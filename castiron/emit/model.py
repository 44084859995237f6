"""NAME.c: the memory map, a function a step, the tables of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from castiron.emit.access import product
from castiron.emit.decide import jumps, print_assign, print_condition, print_require
from castiron.emit.kernel import print_kernel
from castiron.emit.memory import Memory
from castiron.emit.names import Namer
from castiron.emit.nest import nest_of, print_nest
from castiron.emit.types import ModelInfo
from castiron.emit.writer import comment, indented, quoted
from castiron.errors import CastironError, InternalError
from castiron.program.expr import Const, text
from castiron.program.flow import nesting
from castiron.program.planned import Place, Planned
from castiron.program.text import step_text
from castiron.program.types import Assign, Buffer, Control, Kernel, Kind, Require, Step, View, read, written

SHOWN_OPS = 6
"""ONNX operators that a step's comment and profile name at most."""

_HEAD = [
    '#include "castiron.h"',
    '#include "scalar.h"',
    '#include "math.h"',
    '#include "reduce.h"',
    "",
    "/* Before loops whose iterations are independent: temporaries never overlap, except element on element.",
    "   Rows of tiles are short: several vectors a turn would leave nothing but remainders. A loop of few turns known",
    "   here would be written out, eightfold code, before it becomes vectors. */",
    "#if defined(__clang__)",
    '#define CI_SIMD _Pragma("clang loop vectorize(assume_safety)")',
    '#define CI_TILE_SIMD _Pragma("clang loop vectorize(assume_safety) interleave_count(1)")',
    '#define CI_SHORT_SIMD CI_TILE_SIMD _Pragma("clang loop unroll(disable)")',
    "#elif defined(__GNUC__)",
    '#define CI_SIMD _Pragma("GCC ivdep")',
    "#define CI_TILE_SIMD CI_SIMD",
    "#define CI_SHORT_SIMD CI_SIMD",
    "#else",
    "#define CI_SIMD",
    "#define CI_TILE_SIMD",
    "#define CI_SHORT_SIMD",
    "#endif",
    "#if defined(__clang__)",
    '#pragma clang diagnostic ignored "-Wpass-failed"',
    "#endif",
    "#if defined(__GNUC__)",
    '#pragma GCC diagnostic ignored "-Wunused-parameter"',
    '#pragma GCC diagnostic ignored "-Wtautological-compare"',
    "#endif",
]

# Weights are prepared once, at build or at load: that code need not be fast, and most of it would be copies of loops.
_SMALL_BEGIN = [
    "#if defined(__clang__)",
    "#pragma clang attribute push(__attribute__((minsize)), apply_to = function)",
    "#endif",
]
_SMALL_END = ["#if defined(__clang__)", "#pragma clang attribute pop", "#endif"]

ISA_NAMES = {
    "x86_64_v2": "x86-64-v2",
    "x86_64_v3": "x86-64-v3",
    "x86_64_v4": "x86-64-v4",
    "arm64": "arm64",
    "generic": "generic",
}


def code_file(name: str, prepare: Planned, forward: Planned, model: ModelInfo, numbers: Mapping[str, int]) -> str:
    """The text of NAME.c. `numbers`: each size's place in run->sizes."""
    lines = [*_title(name, model), "", *comment("\n".join(_memory_map(prepare) + _memory_map(forward))), *_HEAD]
    namer = Namer()
    prepare_lines, prepare_rows = _steps(prepare, numbers, namer)
    forward_lines, forward_rows = _steps(forward, numbers, namer)
    if prepare_lines:
        lines += ["", *_SMALL_BEGIN, *prepare_lines, "", *_SMALL_END]
    return indented([*lines, *forward_lines, "", *_tables(name, prepare_rows, forward_rows)])


def _steps(planned: Planned, numbers: Mapping[str, int], namer: Namer) -> tuple[list[str], list[str]]:
    """The functions of a program's steps, and the rows of its table."""
    memory = Memory(planned, numbers)
    lines, rows = [], []
    nest = nesting(planned.program.steps)
    jump = jumps(planned.program.steps, nest.ends, nest.loops)
    for number, step in enumerate(planned.program.steps):
        row = [quoted(step.name), quoted(_operators(step))]
        if isinstance(step, View) or (isinstance(step, Control) and number not in jump):
            continue
        if isinstance(step, Control) and step.condition is None:
            rows.append(f"{{{', '.join([*row, 'NULL', 'NULL', str(jump[number])])}}},")
            continue
        function = namer(f"{planned.program.name}_{step.name}")
        lines += ["", *comment(describe(step, planned)), *_printed(function, step, memory)]
        decides = ["NULL", function, str(jump[number])] if isinstance(step, Control) else [function, "NULL", "0"]
        rows.append(f"{{{', '.join([*row, *decides])}}},")
    return lines, rows


def _title(name: str, model: ModelInfo) -> list[str]:
    lines = [f"{name}: made by castiron {model.version}", f"model {model.hash}"]
    return comment("\n".join([*lines, *([f"options {model.options}"] if model.options else [])]))


def _printed(function: str, step: Step, memory: Memory) -> list[str]:
    try:
        if isinstance(step, Kernel):
            return print_kernel(function, step, memory)
        if isinstance(step, Assign):
            return print_assign(function, step, memory)
        if isinstance(step, Require):
            return print_require(function, step, memory)
        if isinstance(step, Control):
            return print_condition(function, step, memory)
        assert not isinstance(step, View)
        return print_nest(function, nest_of(step, memory), memory)
    except CastironError:
        raise
    except (AssertionError, KeyError, ValueError, RecursionError) as error:
        raise InternalError(
            f"step {step.name!r} cannot be printed: {error!r}", describe(step, memory.planned)
        ) from error


def _tables(name: str, prepare: list[str], forward: list[str]) -> list[str]:
    lines = []
    for title, rows in (("prepare", prepare), ("forward", forward)):
        if rows:
            lines += [f"static const ci_step {title}_steps[] = {{", *rows, "};", ""]
    for suffix, isa in ISA_NAMES.items():
        lines.append(f"#define CI_NAME_{suffix} {quoted(isa)}")
    tables = [f"{title}_steps" if rows else "NULL" for title, rows in (("prepare", prepare), ("forward", forward))]
    code = f"CI_PASTE({name}_code, CI_ISA)"
    return [
        *lines,
        "",
        f"extern const ci_code {code};",
        f"const ci_code {code} = {{",
        f".isa = CI_PASTE(CI_NAME, CI_ISA), .prepare = {tables[0]}, .forward = {tables[1]},",
        f".prepare_count = {len(prepare)}, .forward_count = {len(forward)},",
        "};",
    ]


# Comments --------------------------------------------------------------------------------------------


def describe(step: Step, planned: Planned) -> str:
    """What a step is, for a reader: its outputs, the nodes it comes from."""
    if isinstance(step, Assign | Require | Control):
        return "\n".join(step_text(step))
    outputs = list(dict.fromkeys(written(step)))
    what = f"{step.kernel}: " if isinstance(step, Kernel) else ""
    lines = [what + ", ".join(_shaped(planned.program.buffers[o]) for o in outputs)]
    origins = [f"{o.op} {o.node}{f' in {o.module}' if o.module else ''}".strip() for o in step.origins]
    shown = origins[:SHOWN_OPS] + ([f"and {len(origins) - SHOWN_OPS} more"] if len(origins) > SHOWN_OPS else [])
    return "\n".join([*lines, *([f"from {', '.join(shown)}"] if shown else [])])


def _operators(step: Step) -> str:
    ops = list(dict.fromkeys(o.op for o in step.origins))
    return "+".join(ops[:SHOWN_OPS]) + ("+…" if len(ops) > SHOWN_OPS else "")


def _shaped(buffer: Buffer) -> str:
    return f"{buffer.name} [{', '.join(text(d) for d in buffer.shape)}] {buffer.type.name.lower()}"


def _memory_map(planned: Planned) -> list[str]:
    """A line a buffer: kind, place, life, name and shape."""
    if not planned.places:
        return []
    lives = _lives(planned)
    arena = "sizes known at run time" if planned.arena is None else f"{planned.arena} bytes of temporaries"
    lines = [f"Memory of {planned.program.name}: {arena}", "  kind      place       steps    bytes      name"]
    for name, place in sorted(planned.places.items(), key=lambda item: _order(item[1])):
        buffer = planned.program.buffers[name]
        life = "-".join(map(str, lives[name])) if name in lives and place.kind == Kind.TEMP else ""
        where = f"slot {place.offset}" if place.dynamic else str(place.offset)
        lines.append(f"  {place.kind:<9} {where:<11} {life:<8} {_bytes(buffer):<10} {_shaped(buffer)}")
    return [*lines, ""]


def _order(place: Place) -> tuple[int, int]:
    return list(Kind).index(place.kind), place.offset


def _bytes(buffer: Buffer) -> str:
    size = product(buffer.shape) * (max(8, buffer.type.bitwidth) // 8)
    return str(size.value) if isinstance(size, Const) else "?"


def _lives(planned: Planned) -> dict[str, tuple[int, int]]:
    """First and last step that touch each root."""
    if planned.lives:
        return {name: (first, last) for lives in (planned.lives, *planned.later) for name, first, last in lives}

    found: dict[str, tuple[int, int]] = {}
    for number, step in enumerate(planned.program.steps):
        names: Sequence[str] = (*read(step), *written(step))
        for name in names:
            root = planned.roots.get(name, name)
            found[root] = (found.get(root, (number, number))[0], number)
    return found
