"""What became of a model: the graph from stage to stage, its steps, what was not done and why, and the memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from castiron.graph.nodes import operator_name
from castiron.program.cost import flops, known, nbytes, total_flops, traffic
from castiron.program.expr import Axis, Expr, constant, polynomial, substitute, text
from castiron.program.notes import Notes
from castiron.program.planned import Planned, Storage
from castiron.program.text import step_text
from castiron.program.types import Compute, Group, Kernel, Kind, Program, Step, View, read, written

Figure = int | str
"""A number, or where it depends on sizes known at run time the expression over these."""


@dataclass(frozen=True)
class Stage:
    """The graph after a pass. `change`: operator -> how many more nodes of it there are (negative: fewer)."""

    name: str
    nodes: int
    change: Mapping[str, int]


@dataclass(frozen=True)
class Row:
    """One step.

    what: its kind and choice; operators: the ONNX operators in it; nodes: their names; module: the path of the
    nn.Module they come from; flops, bytes: floating-point operations, and bytes of the memory it touches; flops_here,
    bytes_here: the same for the example's sizes."""

    name: str
    what: str
    operators: tuple[str, ...]
    nodes: tuple[str, ...]
    module: str
    result: str
    flops: Figure
    bytes: Figure
    flops_here: Figure
    bytes_here: Figure


@dataclass(frozen=True)
class Kept:
    """A buffer that lies in memory between two steps, and why."""

    buffer: str
    reason: str
    bytes: Figure


@dataclass(frozen=True)
class Slot:
    """A place in the arena.

    at: its offset in bytes, or its number where offsets are found at run time; first, last: the steps between which it
    is in use; shared: buffers that take the place of `buffer` in turn, or are views of it."""

    at: int
    bytes: Figure
    first: int
    last: int
    buffer: str
    shared: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """All of it. sizes: those of the example inputs, by the names that sizes known at run time have; declined: node -> why

    it is not computed the best way there is."""

    summary: Mapping[str, Figure]
    sizes: Mapping[str, int]
    stages: tuple[Stage, ...]
    prepare: tuple[Row, ...]
    forward: tuple[Row, ...]
    declined: Mapping[str, str]
    kept: tuple[Kept, ...]
    memory: tuple[Slot, ...]


@dataclass(frozen=True)
class Witness:
    """Collects what only the way through the passes shows."""

    stages: list[Stage] = field(default_factory=list)
    declined: dict[str, str] = field(default_factory=dict)
    buffers: dict[str, str] = field(default_factory=dict)
    _counts: list[Counter[str]] = field(default_factory=list)

    @property
    def notes(self) -> Notes:
        """To be given to the passes."""
        return Notes(self.declined.__setitem__, self.buffers.__setitem__)

    def watch(self, stage: str, content: ir.Model | Program) -> None:
        """To be given to Dump."""
        if isinstance(content, Program):
            return
        count = Counter(operator_name(node) for node in content.graph.all_nodes())
        before = self._counts[-1] if self._counts else count
        change = {name: count[name] - before[name] for name in (count | before) if count[name] != before[name]}
        self._counts.append(count)
        self.stages.append(Stage(stage.partition("-")[2], count.total(), change))


def explanation(
    graph: ir.Model,
    prepare: Planned,
    forward: Planned,
    blobs: Storage,
    witness: Witness,
    inputs: Mapping[str, np.ndarray] | None = None,
) -> Explanation:
    """What `castiron explain` shows of the last graph, the two programs with their memory, and what was witnessed.

    inputs: an example, whose sizes stand for those that are known at run time."""
    sizes = _sizes(forward.program, inputs or {})
    prepare_rows, forward_rows = _rows(prepare.program, {}), _rows(forward.program, sizes)
    memory = _memory(forward)
    return Explanation(
        summary={
            "nodes": len(tuple(graph.graph.all_nodes())),
            "steps at run time": len(forward_rows),
            "steps when weights arrive": len(prepare_rows),
            "FLOPs": figure(total_flops(forward.program)),
            **({"FLOPs on the example": figure(substitute(total_flops(forward.program), sizes))} if sizes else {}),
            "bytes of packed weights": blobs.packed_bytes,
            "bytes of constants": blobs.constant_bytes,
            "bytes of activations": "planned for each new size of the inputs"
            if forward.arena is None
            else forward.arena,
        },
        sizes={name: number for name, size in sizes.items() if (number := known(size)) is not None},
        stages=tuple(witness.stages),
        prepare=prepare_rows,
        forward=forward_rows,
        declined=witness.declined,
        kept=tuple(_kept(forward, {slot.buffer for slot in memory}, witness.buffers)),
        memory=memory,
    )


def figure(size: Expr) -> Figure:
    """A size as a number, else as text."""
    number = known(size)
    return spelled(size) if number is None else number


def spelled(size: Expr) -> str:
    """A size as a sum of products: `6240·batch·length + 64`."""
    terms = ["·".join([*([str(c)] if c != 1 or not m else []), *map(text, m)]) for m, c in polynomial(size).items()]
    return " + ".join(terms).replace("+ -", "− ") or "0"


def _sizes(program: Program, inputs: Mapping[str, np.ndarray]) -> dict[str, Expr]:
    """The program's sizes, as far as these inputs tell them."""
    sizes: dict[str, Expr] = {}
    for size in program.sizes:
        if size.value is not None:
            sizes[size.name] = substitute(size.value, sizes)
        elif size.input in inputs:
            sizes[size.name] = constant(inputs[size.input].shape[size.dim])
    return sizes


def _rows(program: Program, sizes: Mapping[str, Expr]) -> tuple[Row, ...]:
    """A row a step that runs; views are free."""
    return tuple(_row(step, program, sizes) for step in program.steps if not isinstance(step, View))


def _row(step: Step, program: Program, sizes: Mapping[str, Expr]) -> Row:
    shown = [program.buffers[step.out if isinstance(step, Kernel) else name] for name in written(step)[-1:]]
    return Row(
        step.name,
        _what(step),
        tuple(o.op for o in step.origins),
        tuple(o.node for o in step.origins),
        next((o.module for o in step.origins if o.module), ""),
        "".join(f"{out.type.numpy().name} [{', '.join(map(spelled, out.shape))}]" for out in shown),
        figure(flops(step)),
        figure(traffic(step, program)),
        figure(substitute(flops(step), sizes)),
        figure(substitute(traffic(step, program), sizes)),
    )


def _what(step: Step) -> str:
    if isinstance(step, Kernel):
        sizes, inner = (_extents(axes) for axes in (step.axes, step.inner))
        return f"{step.kernel} {sizes} over {inner or 1}" if step.axes else step.kernel
    if isinstance(step, Group):
        return f"{len(step.parts)} loops a row"
    return "loops" if isinstance(step, Compute) else step_text(step)[0]


def _extents(axes: Sequence[Axis]) -> str:
    return " × ".join(spelled(a.extent) for a in axes if known(a.extent) != 1)


def _kept(planned: Planned, placed: set[str], reasons: Mapping[str, str]) -> list[Kept]:
    """Every TEMP in memory, with the reason that fusion gave, else what its readers are."""
    program = planned.program
    readers: dict[str, list[Step]] = {}
    stored: set[str] = set()
    for step in program.steps:
        for name in read(step):
            readers.setdefault(name, []).append(step)
        if not isinstance(step, View):
            stored.update(written(step))
    return [
        Kept(name, reasons.get(name) or _by_readers(readers.get(name, [])), figure(nbytes(buffer)))
        for name, buffer in program.buffers.items()
        if buffer.kind == Kind.TEMP and name in stored and planned.roots.get(name) in placed
    ]


def _by_readers(steps: list[Step]) -> str:
    kernels = dict.fromkeys(s.kernel for s in steps if isinstance(s, Kernel))
    if kernels:
        return f"{' and '.join(kernels)} read{'s' if len(kernels) == 1 else ''} it from memory"
    if any(isinstance(s, View) for s in steps):
        return "it is seen under another shape"
    return "a step reads it row by row" if any(isinstance(s, Group) for s in steps) else "loops read it from memory"


def _memory(planned: Planned) -> tuple[Slot, ...]:
    """The memory plan of temporaries, in the order of use."""
    shared: dict[str, list[str]] = {}
    for buffer, root in planned.roots.items():
        shared.setdefault(root, []).append(buffer)
    lives: dict[str, list[int]] = {}
    for number, step in enumerate(planned.program.steps):
        for name in (*read(step), *written(step)):
            lives.setdefault(planned.roots.get(name, name), []).append(number)
    slots = [
        Slot(
            place.offset,
            figure(nbytes(planned.program.buffers[name])),
            min(lives[name]),
            max(lives[name]),
            name,
            tuple(b for b in shared.get(name, []) if b != name),
        )
        for name, place in planned.places.items()
        if place.kind == Kind.TEMP
    ]
    return tuple(sorted(slots, key=lambda slot: slot.first))
