"""How the commands print: aligned columns, sizes and figures for a reader, progress while they work."""

from __future__ import annotations

import json as json_module
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

import typer
from rich.console import Console

from castiron.lab.figures import number as number
from castiron.lab.figures import size as size
from castiron.toolchain.zig import Progress


@dataclass(frozen=True)
class Column:
    """A column of a table. `right`: for figures; `limit`: characters beyond which an entry loses its middle."""

    title: str
    right: bool = False
    limit: int = 48


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """Rows under their titles, the same on every terminal and in a pipe. Columns without an entry are left out."""
    cells = [[shortened(cell, c.limit) for c, cell in zip(columns, row, strict=True)] for row in rows]
    used = [i for i in range(len(columns)) if any(row[i] for row in cells)]
    widths = [max(len(columns[i].title), *(len(row[i]) for row in cells)) for i in used]

    def line(row: Sequence[str]) -> str:
        padded = (row[i].rjust(w) if columns[i].right else row[i].ljust(w) for i, w in zip(used, widths))
        return "  ".join(padded).rstrip()

    return "\n".join(line(row) for row in ([c.title for c in columns], *cells))


def shortened(text: str, limit: int) -> str:
    """`text`, or its two ends with `…` between them where it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


def conclude(
    ok: bool, entries: Sequence[Mapping[str, object]], shown: str, json: bool, hint: str = "", **more: object
) -> NoReturn:
    """Prints a comparison, as JSON (with `more` in it) or as its table and OK or MISMATCH with a hint; ends with status

    0 or 1."""
    if json:
        print(json_module.dumps({"ok": ok, "outputs": entries, **more, **({"hint": hint} if hint else {})}))
    else:
        print("\n".join([shown, "OK" if ok else "MISMATCH", *([hint] if hint else [])]))
    raise typer.Exit(0 if ok else 1)


def json_number(value: float | None) -> float | None:
    """A figure for JSON, which has neither NaN nor infinity: null."""
    return value if value is not None and math.isfinite(value) else None


@contextmanager
def progress(silent: bool) -> Iterator[Progress]:
    """A spinner on a terminal; a line a stage elsewhere. Both on standard error."""
    console = Console(stderr=True)
    if silent:
        yield lambda text: None
    elif console.is_terminal:
        with console.status("starting") as status:
            yield lambda text: status.update(text)
    else:
        yield lambda text: console.print(f"  {text}", highlight=False, markup=False, soft_wrap=True)
