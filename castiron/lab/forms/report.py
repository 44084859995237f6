"""A report as JSON and as the table of a terminal."""

from __future__ import annotations

import math
from dataclasses import asdict
from statistics import median
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from castiron.lab.figures import milliseconds, number, size, times
from castiron.lab.forms.advice import choose
from castiron.lab.forms.lab import Report
from castiron.lab.forms.types import Row

STATES = {"mismatch": "MISMATCH", "missing": "missing", "left out": "left out", "failed": "FAILED"}

COLUMNS = (
    "form", "agreement", "ulp", "model", "program", "runtime", "start to exit", "min", "±", "× fastest", "peak memory",
    "a call", "elsewhere",
)  # fmt: skip
LEFT = {"form", "agreement", "elsewhere"}


def as_json(report: Report) -> dict[str, Any]:
    """All fields; figures that follow from others (medians, totals) too, so that scripts need not know how."""
    found = asdict(report)
    for entry, row in zip(found["rows"], report.rows, strict=True):
        if row.start:
            entry["start"] |= {"min": row.start.least, "median": row.start.median, "spread": row.start.spread}
        if row.ships:
            entry["ships"] |= {"runtime_bytes": row.ships.runtime_bytes, "total": row.ships.total}
        for one, output in zip(entry["agreement"], row.agreement, strict=True):
            one["ok"] = output.ok
        if row.moved:
            entry["moved"]["ok"] = row.moved.ok
    for entry in found["rows"]:
        if entry["start"]:
            entry["start"]["ratio"] = ratios(report.rows).get(entry["name"])
    found["choose"] = [asdict(rule) for rule in choose(report.rows)]
    cleaned: dict[str, Any] = _plain(found)
    return cleaned


def _plain(value: Any) -> Any:
    """JSON has neither NaN nor infinity."""
    if isinstance(value, dict):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def ratios(rows: tuple[Row, ...]) -> dict[str, float]:
    """How many times as long as the fastest form each takes: the median of the rounds' ratios, which what else the machine

    does spoils less than a ratio of medians."""
    known = {row.name: row.start.walls for row in rows if row.start and row.start.walls}
    fastest = min(known.values(), key=min, default=())
    return {
        n: median(a / b for a, b in zip(walls, fastest)) for n, walls in known.items() if len(walls) == len(fastest)
    }


def show(report: Report, console: Console) -> None:
    """The table, what is behind its words, and how to choose."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in COLUMNS:
        table.add_column(title, justify="left" if title in LEFT else "right")
    slower = ratios(report.rows)
    for row in report.rows:
        table.add_row(*_cells(row, slower.get(row.name)))
    console.print(table)
    for row in report.rows:
        for note in notes(row):
            console.print(f"  [bold]{escape(row.title)}[/]: {escape(note)}", highlight=False)
    console.print()
    for rule in choose(report.rows):
        console.print(f"  [bold]{escape(rule.need)}[/]  {escape(rule.text)}", highlight=False)
    before, after = report.load
    console.print(
        f"\n{report.runs} interleaved runs of whole processes, {report.threads} thread(s), medians; load average "
        f"{before:.1f} before, {after:.1f} after, on {report.machine.get('processors', '?')} processors; "
        f"{report.seconds:.0f} s",
        highlight=False,
    )


def as_markdown(report: Report) -> str:
    """The table for a README or an issue, with what is needed to read its figures."""
    rules = ("---" if title in LEFT else "---:" for title in COLUMNS)
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'|'.join(rules)}|"]
    slower = ratios(report.rows)
    for row in report.rows:
        cells = [Text.from_markup(cell).plain for cell in _cells(row, slower.get(row.name))]
        lines.append(f"| {' | '.join(cells)} |")
    before, after = report.load
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    machine = ", ".join(f"{name} {value}" for name, value in report.machine.items())
    lines += [
        "",
        f"{report.runs} interleaved runs, medians; threads {report.threads}; load average {before:.1f} before, {after:.1f}"
        f" after; {machine}; {versions}.",
        "",
    ]
    lines += [f"- **{row.title}**: {note}" for row in report.rows for note in notes(row)]
    lines += ["", *(f"- *{rule.need}*: {rule.text}" for rule in choose(report.rows)), ""]
    return "\n".join(lines)


def _cells(row: Row, ratio: float | None) -> list[str]:
    if row.state in ("missing", "left out", "failed") and not row.ships:
        style = "red" if row.state == "failed" else "dim"
        return [f"[{style}]{escape(row.title)}[/]", f"[{style}]{STATES[row.state]}[/]", *[""] * (len(COLUMNS) - 2)]
    worst = max((a.max_diff for a in row.agreement), default=math.nan)
    ulp = max((a.ulp for a in row.agreement if a.ulp is not None), default=None)
    state = f"OK {number(worst)}" if row.state == "ok" else f"[bold red]{STATES[row.state]} {number(worst)}[/]"
    ships, start, used, steady, moved = row.ships, row.start, row.memory, row.steady, row.moved
    return [
        escape(row.title),
        state,
        "" if ulp is None else number(ulp),
        *((size(n) if n else "–" for n in (ships.model, ships.program, ships.runtime_bytes)) if ships else ("",) * 3),
        milliseconds(start.median) if start else "",
        milliseconds(start.least) if start else "",
        milliseconds(start.spread / 2) if start else "",
        times(ratio) if ratio else "",
        size(used.peak) if used else "",
        milliseconds(steady.median) if steady else "–",
        "" if moved is None else "[red]only where built[/]" if not moved.ok else elsewhere(row),
    ]


def elsewhere(row: Row) -> str:
    """How a form that works where it is copied to stands there."""
    found = row.moved
    if found is None:
        return ""
    paths = f"{len(found.paths)} build path{'s' if len(found.paths) > 1 else ''}" if found.paths else ""
    return ", ".join(["works", *(text for text in (paths, "native code" if found.native else "") if text)])


def notes(row: Row) -> list[str]:
    """What a table has no room for."""
    out = [row.note] if row.note else []
    out += [row.remark] if row.remark else []
    if row.moved and row.moved.reason and row.moved.reason not in out:
        out.append(row.moved.reason)
    if row.ships and row.ships.undefined:
        listed = ", ".join(f"{count} {prefix}" for prefix, count in row.ships.undefined.items())
        out.append(f"symbols left to a runtime: {listed}")
    return out
