"""`castiron compare A B`."""

from __future__ import annotations

import json as json_module
import math
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from castiron.lab.compare import Difference, compare_sets, read


def compare_command(a: Path, b: Path, atol: float, rtol: float, json: bool) -> None:
    """Prints a row an output; ends with status 1 on a mismatch."""
    differences = compare_sets(read(a), read(b), atol, rtol)
    ok = all(d.ok for d in differences)
    if json:
        print(json_module.dumps({"ok": ok, "outputs": [_entry(d) for d in differences]}))
    else:
        Console().print(_table(differences))
        print("OK" if ok else "MISMATCH")
    raise typer.Exit(0 if ok else 1)


def number(value: float | None) -> str:
    """A figure of a table: three digits, or a dash where there is none."""
    return "–" if value is None or math.isnan(value) else f"{value:.3g}"


def _entry(d: Difference) -> dict[str, object]:
    finite = d.max_diff if math.isfinite(d.max_diff) else None
    return {"name": d.name, "n": d.n, "max_diff": finite, "worst": list(d.worst), "ulp": d.ulp, "ok": d.ok, "reason": d.reason}


def _table(differences: Sequence[Difference]) -> Table:
    table = Table("output", "n", "max|diff|", "ulp", "worst at", "", box=None, pad_edge=False)
    for d in differences:
        verdict = "[green]OK[/]" if d.ok else f"[red]MISMATCH[/] {d.reason}"
        table.add_row(d.name, f"{d.n:,}", number(d.max_diff), number(d.ulp), str(list(d.worst)), verdict)
    return table
