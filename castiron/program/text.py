"""Program -> str: the listing that dumps and error messages show."""

from __future__ import annotations

from collections.abc import Iterable

from castiron.program.expr import Axis, Expr
from castiron.program.expr import text as spelled
from castiron.program.types import (
    Assign,
    Buffer,
    Compute,
    Control,
    Flow,
    Group,
    Kernel,
    Program,
    Require,
    Size,
    Step,
    View,
)


def text(program: Program) -> str:
    """The program for a reader: sizes, buffers, then a line a step (the parts of a Group indented below it)."""
    lines = [f"program {program.name}({', '.join(program.inputs)}) -> ({', '.join(program.outputs)})"]
    lines += [f"  size {_size(s)}" for s in program.sizes]
    lines += [f"  require {spelled(e.left)} == {spelled(e.right)}" for e in program.requires]
    lines += [f"  {b.kind.value:8} {buffer_text(b)}" for b in program.buffers.values()]
    depth = 0
    for number, step in enumerate(program.steps):
        depth -= isinstance(step, Control) and step.flow in (Flow.ELSE, Flow.END)
        lines += [f"  {line}" for line in _numbered(number, step, depth)]
        depth += isinstance(step, Control) and step.flow != Flow.END
    return "\n".join(lines) + "\n"


def buffer_text(buffer: Buffer) -> str:
    """`name: float[N, 3]`."""
    return f"{buffer.name}: {buffer.type.name.lower()}[{_list(buffer.shape)}]"


def step_text(step: Step) -> list[str]:
    """The lines of one step."""
    if isinstance(step, View):
        return [f"{step.out} = view {step.of}"]
    if isinstance(step, Compute):
        return [f"for {_axes(step.axes)}: {step.out}[{_list(step.index)}] = {spelled(step.value)}"]
    if isinstance(step, Group):
        return [f"for {_axes(step.axes)}:", *(f"  {line}" for part in step.parts for line in step_text(part))]
    if isinstance(step, Kernel):
        return [_kernel(step)]
    return _data_decides(step)


def _data_decides(step: Assign | Require | Control) -> list[str]:
    if isinstance(step, Control):
        return [step.flow.value + (f" {spelled(step.condition)}" if step.condition is not None else "")]
    if isinstance(step, Require):
        return [f"require {spelled(step.equal.left)} == {spelled(step.equal.right)}"]
    sizes = [f"{name} := {spelled(value)}" for name, value in step.sizes]
    moves = [f"{state} := {source}" for state, source in step.moves]
    return [", ".join([*sizes, *moves, *(f"{state} gets row {source}" for state, source in step.appends)]) or "nothing"]


def _numbered(number: int, step: Step, depth: int) -> list[str]:
    first, *rest = ("  " * max(0, depth) + line for line in step_text(step))
    label = f"{number:4} "
    return [label + first, *(" " * len(label) + line for line in rest)]


def _kernel(step: Kernel) -> str:
    operands = ", ".join(f"{n}={o if isinstance(o, str) else spelled(o)}" for n, o in step.operands)
    params = "".join(f", {n}={spelled(v)}" for n, v in step.params)
    call = f"{step.kernel}({operands}{params})"
    if step.value is None:
        fields = step.fields or ("",) * len(step.outputs)
        return ", ".join(f"{f}={o}" if f else o for f, o in zip(fields, step.outputs)) + f" = {call}"
    loops = f"for {_axes(step.axes)} sum {_axes(step.inner)}: acc = {call}; "
    return loops + f"{step.out}[{_list(step.index)}] = {spelled(step.value)}"


def _size(size: Size) -> str:
    if size.late:
        return f"{size.name} by data"
    source = f"{size.input}.shape[{size.dim}]" if size.value is None else spelled(size.value)
    return f"{size.name} = {source}"


def _axes(axes: Iterable[Axis]) -> str:
    return ", ".join(f"{a.name}<{spelled(a.extent)}" for a in axes)


def _list(expressions: Iterable[Expr]) -> str:
    return ", ".join(spelled(e) for e in expressions)
