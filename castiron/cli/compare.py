"""`castiron compare A B`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from castiron.cli.show import Column, conclude, json_number, number, table
from castiron.errors import InputError
from castiron.lab.arrays import STANDARD_INPUT, read
from castiron.lab.compare import Difference, compare_files

_COLUMNS = (
    Column("output"),
    Column("n", right=True),
    Column("max|diff|", right=True),
    Column("ulp", right=True),
    Column("worst at", limit=60),
    Column("A there", right=True),
    Column("B there", right=True),
    Column("", limit=200),
)


def compare_command(a: Path, b: Path, atol: float, rtol: float, json: bool) -> None:
    """Prints a row an output; ends with status 1 on a mismatch."""
    if a == b == STANDARD_INPUT:
        raise InputError("only one of A and B can be standard input")
    differences = compare_files(read(a), read(b), atol, rtol)
    entries = [difference_entry(d) for d in differences]
    conclude(all(d.ok for d in differences), entries, difference_table(differences), json)


def difference_entry(d: Difference) -> dict[str, object]:
    """For JSON."""
    return {
        "name": d.name, "n": d.n, "max_diff": json_number(d.max_diff), "ulp": json_number(d.ulp),
        "worst": None if d.worst is None else list(d.worst), "found": d.found, "expected": d.expected,
        "ok": d.ok, "reason": d.reason,
    }  # fmt: skip


def difference_table(differences: Sequence[Difference]) -> str:
    """For a reader."""
    rows = []
    for d in differences:
        place = "" if d.worst is None else str(list(d.worst))
        state = "OK" if d.ok else f"MISMATCH {d.reason}"
        ulp = "" if d.ulp is None else number(d.ulp)
        rows.append([d.name, f"{d.n:,}", number(d.max_diff), ulp, place, d.found, d.expected, state])
    return table(_COLUMNS, rows)
