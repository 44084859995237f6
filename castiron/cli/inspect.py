"""`castiron inspect FILE`: a model, a weights file or an artifact."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from castiron.cli.show import Column, size, table
from castiron.lab.inspect import describe


def inspect_command(file: Path, json: bool) -> None:
    """Prints what the file is."""
    found = describe(file)
    if json:
        print(json_module.dumps(found))
        return
    bytes = f", {size(file.stat().st_size)}" if file.is_file() else ""
    print(f"{file}  {found.pop('kind')}{bytes}")
    for key, value in found.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            print(f"{key} ({len(value)})\n{_table(value)}")
        elif isinstance(value, dict):
            print(f"{key}: " + ", ".join(f"{k} {_text(v)}" for k, v in value.items()))
        elif value not in ("", [], None):
            print(f"{key}: {_text(value)}")


def _table(rows: Sequence[dict[str, Any]]) -> str:
    columns = [Column(f"  {key}", right=isinstance(value, int)) for key, value in rows[0].items()]
    return table(columns, [[f"  {_text(row[c.title.strip()])}" for c in columns] for row in rows])


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(str, value)) + "]"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
