"""What a step costs: floating-point operations, and bytes of memory it must touch. Sizes may be symbolic."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np

from castiron.program import scalar
from castiron.program.expr import Apply, Axis, Const, Expr, Reduce, constant, nodes, substitute
from castiron.program.types import (
    Assign,
    Buffer,
    Compute,
    Control,
    Group,
    Kernel,
    Program,
    Require,
    Shape,
    Step,
    View,
    read,
    written,
)


def product(sizes: Shape | tuple[Expr, ...]) -> Expr:
    """The product of sizes; 1 of none."""
    return reduce(lambda a, b: a * b, sizes, constant(1))


def extent(axes: tuple[Axis, ...]) -> Expr:
    """How often the body of these loops runs."""
    return product(tuple(a.extent for a in axes))


def flops(step: Step) -> Expr:
    """Floating-point operations of a step; a kernel's multiply-add counts two, integer arithmetic none."""
    if isinstance(step, View | Assign | Require | Control):
        return constant(0)
    if isinstance(step, Group):
        return reduce(lambda a, b: a + b, (flops(p) for p in step.parts), constant(0))
    own = extent(step.axes) * (_operations(step.value) if step.value is not None else constant(0))
    if isinstance(step, Compute) or not step.axes:
        return own
    return own + extent(step.axes) * extent(step.inner) * 2


def _operations(value: Expr) -> Expr:
    total = constant(0)
    for node in nodes(value):
        if isinstance(node, Apply) and node.type in scalar.FLOATS and node.op not in ("select", "cast"):
            total = total + 1
        elif isinstance(node, Reduce) and node.type in scalar.FLOATS:
            # what is inside runs once a term; it has been counted once already
            total = total + extent(node.axes) * (_operations(node.value) + 1) - _operations(node.value)
    return total


def traffic(step: Step, program: Program) -> Expr:
    """Bytes of the buffers that a step reads, each counted once, and of the elements that it stores."""
    if isinstance(step, View | Require | Control):
        return constant(0)
    return reduce(lambda a, b: a + b, (nbytes(program.buffers[n]) for n in read(step)), _stored(step, program))


def _stored(step: Compute | Group | Kernel | Assign, program: Program) -> Expr:
    if isinstance(step, Group):
        return reduce(lambda a, b: a + b, (_stored(p, program) for p in step.parts), constant(0))
    if isinstance(step, Assign) or step.value is None:
        return reduce(lambda a, b: a + b, (nbytes(program.buffers[n]) for n in written(step)), constant(0))
    return extent(step.axes) * _width(program.buffers[step.out])


def nbytes(buffer: Buffer) -> Expr:
    """The size of a buffer."""
    return product(buffer.shape) * _width(buffer)


def _width(buffer: Buffer) -> int:
    return max(1, buffer.type.bitwidth // 8)


def known(size: Expr) -> int | None:
    """The number, where a size is one."""
    return int(size.value) if isinstance(size, Const) else None


def total_flops(program: Program) -> Expr:
    """Of all steps."""
    return reduce(lambda a, b: a + b, (flops(s) for s in program.steps), constant(0))


def flops_on(program: Program, inputs: Mapping[str, np.ndarray]) -> int:
    """Of all steps, with the sizes that these inputs give; sizes that only data tell count as 1."""
    sizes: dict[str, Expr] = {}
    for size in program.sizes:
        if size.late:
            sizes[size.name] = constant(1)
            continue
        value = size.value if size.value is not None else constant(inputs[size.input].shape[size.dim])
        sizes[size.name] = substitute(value, sizes)
    return known(substitute(total_flops(program), sizes)) or 0
