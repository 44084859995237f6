"""A report as one self-contained HTML page."""

from __future__ import annotations

import math
from pathlib import Path

import jinja2

from castiron.lab.figures import milliseconds, number, size, times
from castiron.lab.forms import charts
from castiron.lab.forms.advice import choose
from castiron.lab.forms.lab import Report
from castiron.lab.forms.report import STATES, elsewhere, notes, ratios
from castiron.lab.forms.types import Row

TEMPLATE = Path(__file__).with_name("page.html")
SHOWN = 6
"""Absolute paths that are shown of a form."""


def page(report: Report) -> str:
    """The page: light and dark by the reader's preference, without anything to load."""
    rows = report.rows
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"size": size, "number": number, "ms": milliseconds, "rate": rate, "times": times}
    return environment.from_string(TEMPLATE.read_text()).render(
        report=report,
        name=Path(report.model).name,
        rows=[(row, _class(row), _agreement(row)) for row in rows],
        running=[row for row in rows if row.agreement],
        elsewhere=elsewhere,
        notes=notes,
        rules=choose(rows),
        ratios=ratios(rows),
        charts=[
            chart
            for chart in (charts.start_up(rows), charts.memory(rows), charts.shipped(rows), charts.latency(rows))
            if chart.lines
        ],
        threads=sorted({count for row in rows if row.steady for count in row.steady.throughput}),
        summary=summary(rows),
        shown=SHOWN,
    )


def summary(rows: tuple[Row, ...]) -> str:
    """How many forms there are, and how they came out."""
    counts = {state: sum(row.state == state for row in rows) for state in ("ok", *STATES)}
    said = {
        "ok": "agree",
        "mismatch": "mismatch",
        "failed": "failed",
        "missing": "without their tools here",
        "left out": "not for this model",
    }
    return ", ".join(f"{counts[state]} {words}" for state, words in said.items() if counts[state])


def _class(row: Row) -> str:
    return {"ok": "ok", "mismatch": "bad", "failed": "bad"}.get(row.state, "absent")


def _agreement(row: Row) -> str:
    if not row.agreement:
        return STATES.get(row.state, "")
    worst = max((a.max_diff for a in row.agreement), default=math.nan)
    return f"{'OK' if row.state == 'ok' else STATES[row.state]} {number(worst)}"


def rate(value: float) -> str:
    """Calls a second: 430, 12,300, 4.1 M."""
    if value >= 1e6:
        return f"{value / 1e6:.1f} M"
    return f"{value:,.0f}" if value < 1000 else f"{round(value, -2):,.0f}"
