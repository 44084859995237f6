"""(prepare, forward) -> the same with convolutions of 3 x 3 by Winograd's forms, where these are faster and allowed.

F(m x m) computes tiles of m x m outputs of (m + 2) x (m + 2) products instead of 9 m x m: 2.25 times fewer for m = 2, 4
times for m = 4. It is also less exact: of torch's own error a layer makes 1.7 to 1.8 times with F(2x2), 7 to 9 times
with F(4x4). The kernel needs its filter in another basis, which prepare computes in float64. Runs after layout and
fusion of forward, before those of prepare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from onnx_ir import DataType

from castiron.program.dead import dead
from castiron.program.edit import Names, is_one, static
from castiron.program.expr import Expr, Load, cast, constant, free_variables, linear, substitute
from castiron.program.kernels import PANEL, winograd_scratch
from castiron.program.notes import Note, silent
from castiron.program.types import Buffer, Compute, Kernel, Kind, Program, Step

FORMS = (4, 2)
"""m, the less exact first."""

BUDGETS = {2: 1.5, 4: 2.0}
"""The error budget from on which a form is tried. It holds for whole models, whose error is not that of one layer alone:
what is built is measured, and falls back where the budget does not cover it."""

POINTS = {2: (0.0, 1.0, -1.0), 4: (0.0, 5 / 8, -5 / 8, 3 / 2, -3 / 2)}
"""Where the polynomials behind F(m x m) are evaluated, besides infinity."""

# Measured on Zen 4, with tests/kernels/ladder.c and in ResNet-50; the unit is one multiply-add of a tile.
TRANSFORM = {2: 6.0, 4: 7.0}
"""What a value costs on its way into points, and as much on its way back."""
WEIGHT = 14.0
"""What a weight costs that comes from memory once a run."""
GAIN = 1.2
"""How much faster a form must be to be worth its larger filter."""
TYPICAL = 64
"""A size that is known at run time only."""


@dataclass(frozen=True)
class Limits:
    """The largest m allowed: `most`, and for the steps in `steps` what these say. 1: the plain form."""

    most: int = 1
    steps: Mapping[str, int] = field(default_factory=dict)

    def of(self, step: str) -> int:
        """The largest m for a step of forward."""
        return self.steps.get(step, self.most)


PLAIN = Limits()


def limits(budget: float) -> Limits:
    """What an error budget lets try."""
    return Limits(max([1, *(m for m in FORMS if BUDGETS[m] <= budget)]))


def form_of(step: Step) -> int:
    """m of a step; 1 of others."""
    is_form = isinstance(step, Kernel) and step.kernel.startswith("winograd")
    return int(step.kernel.removeprefix("winograd")) if is_form and isinstance(step, Kernel) else 1


def weaker(forward: Program, given: Limits) -> Limits | None:
    """Limits that make forward more exact: of the steps in the least exact form the half with the longest sums falls back
    to the next. None where nothing is left to give up."""
    forms = [(form_of(s), s) for s in forward.steps if form_of(s) > 1 and isinstance(s, Kernel)]
    if not forms:
        return None
    worst = max(m for m, _ in forms)
    steps = sorted((s for m, s in forms if m == worst), key=lambda s: -(static(s.inner[-1].extent) or 0))
    fallen = {s.name: worst // 2 for s in steps[: (len(steps) + 1) // 2]}
    return Limits(given.most, {**given.steps, **fallen})


def winograd(prepare: Program, forward: Program, allowed: Limits, note: Note = silent) -> tuple[Program, Program]:
    """`note` is told of convolutions why they do not have the fastest form."""
    names = Names(replace(prepare, buffers={**forward.buffers, **prepare.buffers}))
    filters: dict[tuple[str, int], tuple[Compute, ...]] = {}
    new: dict[str, Buffer] = {}
    steps: list[Step] = []
    for step in forward.steps:
        m = _chosen(step, forward, allowed, note)
        if isinstance(step, Kernel) and m > 1:
            panels = forward.buffers[_operand(step, "filter").buffer]
            if (panels.name, m) not in filters:
                filters[panels.name, m], buffers = _transform(panels, m, names)
                new |= buffers
            scratch = _scratch(step, m, names)
            new[scratch.name] = scratch
            step = _with_form(step, m, new[filters[panels.name, m][-1].out], scratch)
        steps.append(step)
    if not filters:
        return prepare, forward
    forward = dead(replace(forward, steps=tuple(steps), buffers={**forward.buffers, **new}))
    added = tuple(s for transform in filters.values() for s in transform)
    return _packed(
        replace(prepare, steps=(*prepare.steps, *added), buffers={**prepare.buffers, **new}), forward
    ), forward


def _packed(prepare: Program, forward: Program) -> Program:
    """prepare, handing on just the PACKED buffers that forward has."""
    buffers = {
        n: replace(b, kind=Kind.TEMP) if b.kind == Kind.PACKED and n not in forward.buffers else b
        for n, b in prepare.buffers.items()
    }
    return replace(prepare, buffers=buffers, outputs=tuple(n for n, b in buffers.items() if b.kind == Kind.PACKED))


# Choosing ---------------------------------------------------------------------------------------------


def _chosen(step: Step, program: Program, allowed: Limits, note: Note) -> int:
    """m for a step; 1 where it is no convolution of 3 x 3, or best as it is."""
    if not isinstance(step, Kernel) or not _is_3x3(step):
        return 1
    best = max(FORMS, key=lambda m: _gain(step, m))
    if _gain(step, best) < GAIN:
        return 1
    most, objection = allowed.of(step.name), _objection(step, program)
    m = 1 if objection else max((m for m in FORMS if m <= most and _gain(step, m) >= GAIN), default=1)
    if m < best:
        reason = objection or "beyond what the error budget allows"
        for origin in step.origins:
            if origin.op in ("Conv", "ConvTranspose", "FusedConv"):
                note(f"{origin.op} {origin.node}", f"{_spelled(m)}, not {_spelled(best)}: {reason}")
    return m


def _spelled(m: int) -> str:
    return "the plain form" if m == 1 else f"Winograd's F({m}x{m})"


def _operand(step: Kernel, name: str) -> Load:
    found = dict(step.operands)[name]
    assert isinstance(found, Load)
    return found


def _is_3x3(step: Kernel) -> bool:
    """Whether a step is a convolution by 3 x 3 taps, those of neighbouring outputs one step apart, in one group."""
    if step.kernel != "conv":
        return False
    (_, g, d, h, w, _), (kd, kh, kw, _) = step.axes, step.inner
    if not (all(map(is_one, (a.extent for a in (g, d, kd)))) and static(kh.extent) == static(kw.extent) == 3):
        return False
    strides = _strides(step)
    return all(i.get(h.name) is i.get(kh.name) and i.get(w.name) is i.get(kw.name) for i in strides)


def _strides(step: Kernel) -> list[dict[str, Expr]]:
    """For each dimension of x the coefficient of each axis."""
    names = frozenset(a.name for a in (*step.axes, *step.inner))
    forms = [linear(i, names) for i in _operand(step, "x").index]
    return [form[0] for form in forms if form is not None]


def _objection(step: Kernel, program: Program) -> str:
    """Why no form fits, or ""."""
    channel = step.inner[-1]
    *rest, last = _strides(step)
    if static(channel.extent) is None or static(step.axes[-1].extent) is None:
        return "the number of channels is known at run time only"
    if any(channel.name in i for i in rest) or not is_one(last.get(channel.name, constant(0))):
        return "its input is not stored channels last"
    panels = program.buffers[_operand(step, "filter").buffer]
    return "" if panels.kind == Kind.PACKED else "its filter is computed anew in each run"


def _gain(step: Kernel, m: int) -> float:
    """How many times faster F(m x m) is than the plain form."""
    n, _, _, h, w, o = (_typical(a.extent) for a in step.axes)
    c = _typical(step.inner[-1].extent)
    points, tiles = (m + 2) ** 2, n * -(-h // m) * -(-w // m)
    plain = 9 * c * o * (n * h * w + WEIGHT)
    return plain / (points * (tiles * (c * o + TRANSFORM[m] * (c + o)) + c * o * WEIGHT))


def _typical(size: Expr) -> int:
    known = static(substitute(size, {n: constant(TYPICAL) for n in free_variables(size)}))
    return TYPICAL if known is None else max(1, known)


# Making -----------------------------------------------------------------------------------------------


def to_points(m: int) -> np.ndarray:
    """[m + 2, 3]: what takes a line of three taps to its points (G in the literature)."""
    values = POINTS[m]
    rows = [
        [value**tap / prod(value - other for other in values if other != value) for tap in range(3)] for value in values
    ]
    signs = [-1.0, 1.0, 1.0] if m == 2 else [1.0] * len(values)
    return np.array([*([sign * x for x in row] for sign, row in zip(signs, rows, strict=True)), [0.0, 0.0, 1.0]])


def filter_of(points: np.ndarray) -> np.ndarray:
    """[3, 3, C, O] of what prepare made of it, in float64; O goes on to the end of the last panel."""
    back = np.linalg.pinv(to_points(points.shape[0] - 2))
    found: np.ndarray = np.einsum("ai,bj,ijpcl->abcpl", back, back, points.astype(np.float64))
    return found.reshape(*found.shape[:3], -1)


def _transform(panels: Buffer, m: int, names: Names) -> tuple[tuple[Compute, ...], dict[str, Buffer]]:
    """Steps that make [m + 2, m + 2, ceil(O/16), C, 16] of [1, ceil(O/16), 1, 3, 3, C, 16], and the buffers they need."""
    groups, channels = panels.shape[1], panels.shape[5]
    size, three = constant(m + 2), constant(3)
    matrix = Buffer(names.buffer("winograd"), DataType.DOUBLE, (size, three), Kind.CONSTANT, to_points(m))
    shape = (size, three, groups, channels, constant(PANEL))
    half = Buffer(names.buffer(f"{panels.name}.half"), DataType.DOUBLE, shape, Kind.TEMP)
    shape = (size, size, groups, channels, constant(PANEL))
    whole = Buffer(names.buffer(f"{panels.name}.points"), DataType.FLOAT, shape, Kind.PACKED)

    def weighted(row: Expr, element: Callable[[int], Expr]) -> Expr:
        terms = [Load(matrix.name, (row, constant(k)), matrix.type) * element(k) for k in range(3)]
        return terms[0] + terms[1] + terms[2]

    zero = constant(0)
    axes = names.axes(half.shape)
    i, kw, p, c, lane = (a.var for a in axes)
    tap = lambda k: cast(Load(panels.name, (zero, p, zero, constant(k), kw, c, lane), panels.type), half.type)  # noqa: E731
    first = Compute(names.step(half.name), half.name, axes, (i, kw, p, c, lane), weighted(i, tap))
    axes = names.axes(whole.shape)
    row, column, q, channel, place = (a.var for a in axes)
    line = lambda k: Load(half.name, (row, constant(k), q, channel, place), half.type)  # noqa: E731
    value = cast(weighted(column, line), whole.type)
    second = Compute(names.step(whole.name), whole.name, axes, (row, column, q, channel, place), value)
    return (first, second), {b.name: b for b in (matrix, half, whole)}


def _scratch(step: Kernel, m: int, names: Names) -> Buffer:
    floats = winograd_scratch(m, static(step.inner[-1].extent) or 0)
    return Buffer(names.buffer(f"{step.name}.scratch"), DataType.FLOAT, (constant(floats),), Kind.TEMP)


def _with_form(step: Kernel, m: int, points: Buffer, scratch: Buffer) -> Kernel:
    start = Load(points.name, tuple(constant(0) for _ in points.shape), points.type)
    operands = tuple((n, start if n == "filter" else o) for n, o in step.operands)
    return replace(step, kernel=f"winograd{m}", operands=operands, outputs=(*step.outputs, scratch.name))
