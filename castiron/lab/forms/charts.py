"""Charts of a page as data: bars and marks in percent of an axis, so that they are right at every width of a screen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from castiron.lab.figures import milliseconds, size
from castiron.lab.forms.types import Row


@dataclass(frozen=True)
class Bar:
    """A piece of a row: from `left`, `width` wide, both in percent; `kind` gives its color, `title` what it says."""

    kind: str
    left: float
    width: float
    title: str


@dataclass(frozen=True)
class Line:
    """A row of a chart: its label, pieces, and the figure at its end."""

    label: str
    bars: tuple[Bar, ...]
    value: str


@dataclass(frozen=True)
class Tick:
    """A mark of an axis at `left` percent."""

    left: float
    text: str


@dataclass(frozen=True)
class Chart:
    """`key`: what the colors mean, kind -> words."""

    title: str
    about: str
    lines: tuple[Line, ...]
    ticks: tuple[Tick, ...]
    key: Mapping[str, str]
    dots: bool = False


PHASES = {
    "rest": "process: start of the interpreter or loader, reading, writing, exit",
    "import": "import",
    "load": "load the model",
    "first": "first forward pass",
}


def start_up(rows: Sequence[Row]) -> Chart:
    """Stacked bars: how long a process takes, and with what."""
    known = [(row, row.start) for row in rows if row.start]
    most = max((start.median for _, start in known), default=1.0)
    ticks, end = _round_ticks(most)
    lines = []
    for row, start in known:
        parts = {phase: start.split[phase] for phase in ("import", "load", "first") if phase in start.split}
        parts = {"rest": max(0.0, start.median - sum(parts.values())), **parts}
        bars, left = [], 0.0
        for phase, spent in parts.items():
            width = 100 * spent / end
            bars.append(Bar(phase, left, max(width, 0.3), f"{PHASES[phase].partition(':')[0]}: {milliseconds(spent)}"))
            left += width
        modules = f", {start.modules[1] - start.modules[0]:,} modules" if start.modules else ""
        lines.append(Line(row.title, tuple(bars), f"{milliseconds(start.median)}{modules}"))
    about = "Median wall time of a whole process, from starting it to its exit. Modules: of Python, loaded on the way."
    marks = tuple(Tick(100 * value / end, _short(milliseconds(value)) if value else "0") for value in ticks)
    return Chart("Start-up", about, tuple(lines), marks, PHASES)


def _round_ticks(most: float) -> tuple[list[float], float]:
    """Four to six round values from 0 on, and the end of the axis."""
    raw = most / 5
    step = 10.0 ** math.floor(math.log10(raw))
    step *= next(factor for factor in (1, 2, 5, 10) if factor * step >= raw)
    count = math.ceil(most / step)
    return [step * i for i in range(count + 1)], step * count


def memory(rows: Sequence[Row]) -> Chart:
    """Peak resident memory, and what of it nobody else shares."""
    known = [(row, row.memory) for row in rows if row.memory]
    points = [
        (row.title, {"peak": float(used.peak), "private": float(used.private or 0)}, size(used.peak))
        for row, used in known
    ]
    key = {"private": "private to the process, at its exit", "peak": "peak resident"}
    about = "By the operating system's own account. The axis is logarithmic."
    return _dots("Memory", about, points, key, size)


def shipped(rows: Sequence[Row]) -> Chart:
    """Bytes of model, program and runtime."""
    known = [(row, row.ships) for row in rows if row.ships]
    points = [
        (
            row.title,
            {"model": float(s.model), "program": float(s.program), "runtime": float(s.runtime_bytes)},
            size(s.total),
        )
        for row, s in known
    ]
    key = {"model": "model file", "program": "program", "runtime": "runtime to install (without Python itself)"}
    about = "What must be on the machine that runs it; the figure is the sum. The axis is logarithmic."
    return _dots("What ships", about, points, key, size)


def latency(rows: Sequence[Row]) -> Chart:
    """A call in a resident process."""
    known = [(row, row.steady) for row in rows if row.steady]
    points = [(row.title, {"least": s.least, "median": s.median}, milliseconds(s.median)) for row, s in known]
    key = {"least": "least", "median": "median"}
    about = "A call in a process that stays, after a first one. The axis is logarithmic."
    return _dots("Steady state", about, points, key, milliseconds)


def _dots(
    title: str,
    about: str,
    points: Sequence[tuple[str, Mapping[str, float], str]],
    key: Mapping[str, str],
    text: Callable[[float], str],
) -> Chart:
    """Marks on a logarithmic axis; a value of 0 has no place on it and no mark."""
    values = [v for _, parts, _ in points for v in parts.values() if v > 0]
    low = math.floor(math.log10(min(values, default=1.0)))
    high = math.ceil(math.log10(max(values, default=10.0)))
    span = max(high - low, 1)

    def place(value: float) -> float:
        return 100 * (math.log10(value) - low) / span

    lines = tuple(
        Line(label, tuple(Bar(k, place(v), 0, f"{key[k]}: {text(v)}") for k, v in parts.items() if v > 0), value)
        for label, parts, value in points
    )
    step = max(1, math.ceil(span / 5))
    ticks = tuple(Tick(100 * (power - low) / span, _power(10.0**power, text)) for power in range(low, high + 1, step))
    return Chart(title, about, lines, ticks, key, dots=True)


def _power(value: float, text: Callable[[float], str]) -> str:
    """A power of ten: bytes as 1 kB, 10 MB; times as they read."""
    if text is not size:
        return _short(text(value))
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= scale:
            return f"{value / scale:.0f} {unit}"
    return f"{value:.0f} B"


def _short(figure: str) -> str:
    """A round figure without its zeros: 10 s."""
    return figure.replace(".00 ", " ").replace(".0 ", " ")
