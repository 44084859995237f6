"""Program -> str: the listing that dumps and error messages show."""

from __future__ import annotations

from collections.abc import Iterable

from castiron.program.expr import Axis, Expr
from castiron.program.expr import text as spelled
from castiron.program.types import Buffer, Compute, Group, Kernel, Program, Size, Step, View


def text(program: Program) -> str:
    """The program for a reader: sizes, buffers, then a line a step (the parts of a Group indented below it)."""
    lines = [f"program {program.name}({', '.join(program.inputs)}) -> ({', '.join(program.outputs)})"]
    lines += [f"  size {_size(s)}" for s in program.sizes]
    lines += [f"  require {spelled(e.left)} == {spelled(e.right)}" for e in program.requires]
    lines += [f"  {b.kind.value:8} {buffer_text(b)}" for b in program.buffers.values()]
    for number, step in enumerate(program.steps):
        lines += [f"  {line}" for line in _numbered(number, step)]
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
    return [_kernel(step)]


def _numbered(number: int, step: Step) -> list[str]:
    first, *rest = step_text(step)
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
    source = f"{size.input}.shape[{size.dim}]" if size.value is None else spelled(size.value)
    return f"{size.name} = {source}"


def _axes(axes: Iterable[Axis]) -> str:
    return ", ".join(f"{a.name}<{spelled(a.extent)}" for a in axes)


def _list(expressions: Iterable[Expr]) -> str:
    return ", ".join(spelled(e) for e in expressions)
