"""`castiron inspect FILE`: a model, a weights file or an artifact."""

from __future__ import annotations

import json as json_module
import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from castiron.cli.build import size
from castiron.errors import InputError
from castiron.lab.inspect import describe


def inspect_command(file: Path, json: bool) -> None:
    """Prints what the file is."""
    if not file.exists():
        raise InputError(f"{file} does not exist")
    found = describe(file)
    if json:
        print(json_module.dumps(found))
        return
    console = Console()
    console.print(f"[bold]{file}[/]  {found.pop('kind')}, {size(os.path.getsize(file))}", highlight=False)
    for key, value in found.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            console.print(_table(key, value))
        elif isinstance(value, dict):
            console.print(f"{key}: " + ", ".join(f"{k} {v}" for k, v in value.items()), highlight=False)
        else:
            console.print(f"{key}: {value}", highlight=False)


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(*rows[0], title=f"{title} ({len(rows)})", title_justify="left", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(str(v) for v in row.values()))
    return table
