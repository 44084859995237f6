"""`castiron explain MODEL`."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from castiron.cli.arguments import parse_shapes
from castiron.cli.show import progress
from castiron.dump import Dump
from castiron.frontend.source import load
from castiron.lab.explain import Row, memory, steps, summary
from castiron.options import BuildOptions
from castiron.pipeline import compile_source


def explain_command(model: str, shapes: Sequence[str], dump: Path | None, json: bool) -> None:
    """Prints the model's steps; nothing is compiled to machine code."""
    with progress(json) as say:
        source = load(model)
        compiled = compile_source(source, BuildOptions(shapes=parse_shapes(shapes)), Dump(dump), say)
    forward, prepare = steps(compiled.forward.program), steps(compiled.prepare.program)
    before, after = (sum(1 for _ in m.graph.all_nodes()) for m in (source.model, compiled.graph))
    facts = summary(compiled.prepare, compiled.forward, before, after, compiled.storage.packed_bytes)
    places = memory(compiled.forward)
    if json:
        rows = {"forward": [asdict(r) for r in forward], "prepare": [asdict(r) for r in prepare]}
        print(json_module.dumps({"summary": dict(facts), **rows, "memory": places}))
        return
    console = Console()
    for key, value in facts.items():
        console.print(f"[bold]{key}[/]: {value}", highlight=False)
    console.print(_table("when weights arrive (prepare)", prepare), _table("at run time (forward)", forward))
    if places:
        table = Table(*places[0], title="memory of temporaries", title_justify="left", box=None, pad_edge=False)
        for place in places:
            table.add_row(*place.values())
        console.print(table)


def _table(title: str, rows: Sequence[Row]) -> Table:
    table = Table(
        "step", "what", "fused", "result", "FLOPs", "bytes", title=title, title_justify="left", box=None, pad_edge=False
    )
    for row in rows:
        table.add_row(row.name, row.what, row.fused, row.shape, row.flops, row.bytes)
    return table
