"""How figures read: sizes, milliseconds, small differences."""

from __future__ import annotations

import math


def size(count: float) -> str:
    """Bytes for a reader: 19.4 KiB."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def number(value: float | None) -> str:
    """A figure of a table: three digits, or a dash where there is none."""
    return "–" if value is None or math.isnan(value) else f"{value:.3g}"


def milliseconds(value: float) -> str:
    """A time in the unit that suits it: 0.24 µs, 0.58 ms, 1.33 s."""
    if not value:
        return "0"
    for scale, unit in ((1e3, "s"), (1.0, "ms")):
        if value >= scale:
            return f"{_three(value / scale)} {unit}"
    return f"{value:.2f} ms" if value >= 0.1 else f"{_three(value * 1e3)} µs"


def _three(value: float) -> str:
    """Three digits, as a reader writes them: 0.24, 4.91, 59.4, 1,234."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times(ratio: float) -> str:
    """How many times: 2.4×, 31×, 1,900×."""
    if ratio >= 1000:
        return f"{round(ratio, -2):,.0f}×"
    return f"{ratio:.0f}×" if ratio >= 10 else f"{ratio:.1f}×"
