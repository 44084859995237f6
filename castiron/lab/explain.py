"""What became of a model: its steps as rows, with what was fused into each, sizes, operations, bytes and memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from castiron.program.cost import flops, known, nbytes, total_flops, traffic
from castiron.program.expr import Expr, text
from castiron.program.planned import Planned
from castiron.program.types import Compute, Group, Kernel, Kind, Program, Step, View, written


@dataclass(frozen=True)
class Row:
    """One step. `what`: its kind and choice; `fused`: the ONNX operators in it; numbers where sizes are known, else text."""

    name: str
    what: str
    fused: str
    shape: str
    flops: str
    bytes: str


def steps(program: Program) -> list[Row]:
    """A row a step that runs (views are free)."""
    return [_row(step, program) for step in program.steps if not isinstance(step, View)]


def _row(step: Step, program: Program) -> Row:
    out = program.buffers[written(step)[-1]]
    ops = " + ".join(dict.fromkeys(o.op for o in step.origins))
    shape = f"{out.type.name.lower()}[{', '.join(text(d) for d in out.shape)}]"
    return Row(step.name, _what(step), ops, shape, quantity(flops(step)), quantity(traffic(step, program)))


def _what(step: Step) -> str:
    if isinstance(step, Kernel):
        sizes = " × ".join(text(a.extent) for a in step.axes if known(a.extent) != 1)
        inner = " × ".join(text(a.extent) for a in step.inner if known(a.extent) != 1)
        return f"kernel {step.kernel}" + (f" {sizes} over {inner or 1}" if step.axes else "")
    if isinstance(step, Group):
        return f"{len(step.parts)} loops row by row"
    assert isinstance(step, Compute)
    return "loop nest"


def quantity(size: Expr) -> str:
    """A number with its thousands set apart, or the expression."""
    number = known(size)
    return text(size) if number is None else f"{number:,}"


def summary(
    prepare: Planned, forward: Planned, nodes_before: int, nodes_after: int, packed_bytes: int
) -> Mapping[str, str]:
    """The model in a few figures."""
    return {
        "nodes": f"{nodes_before} in the model, {nodes_after} after folding and expansion",
        "steps": f"{len(steps(forward.program))} at run time, {len(steps(prepare.program))} when weights arrive",
        "FLOPs": quantity(total_flops(forward.program)),
        "weights": f"{packed_bytes:,} bytes packed",
        "activations": "planned once per change of sizes" if forward.arena is None else f"{forward.arena:,} bytes",
    }


def memory(planned: Planned) -> list[dict[str, str]]:
    """The memory plan of temporaries: offset, bytes and which buffers share the place."""
    shared: dict[str, list[str]] = {}
    for buffer, root in planned.roots.items():
        shared.setdefault(root, []).append(buffer)
    rows = []
    for name, place in planned.places.items():
        if place.kind == Kind.TEMP:
            where = f"slot {place.offset}" if place.dynamic else f"{place.offset:,}"
            also = ", ".join(b for b in shared.get(name, []) if b != name)
            rows.append(
                {
                    "at": where,
                    "bytes": quantity(nbytes(planned.program.buffers[name])),
                    "buffer": name,
                    "also holds": also,
                }
            )
    return rows
