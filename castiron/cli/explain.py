"""`castiron explain MODEL`."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from castiron.cli.arguments import parse_shapes
from castiron.cli.show import Column, progress, shortened, size, table
from castiron.dump import Dump
from castiron.frontend.source import load
from castiron.lab.explain import Explanation, Figure, Kept, Row, Slot, Stage, Witness, explanation
from castiron.options import BuildOptions
from castiron.pipeline import compile_source

NAMES = 4
"""Names that are listed of a group before `and N more`."""


def explain_command(model: str, shapes: Sequence[str], dump: Path | None, json: bool) -> None:
    """Prints the model's way and its steps; nothing is compiled to machine code."""
    options = BuildOptions(shapes=parse_shapes(shapes))
    witness = Witness()
    with progress(json) as say:
        source = load(model)
        compiled = compile_source(source, options, Dump(dump, witness.watch), say, witness.notes)
    found = explanation(compiled.graph, compiled.prepare, compiled.forward, compiled.storage, witness)
    print(json_module.dumps(asdict(found)) if json else "\n\n".join(_sections(found)))


def _sections(found: Explanation) -> Iterable[str]:
    yield "\n".join(f"{key}: {_text(value)}" for key, value in found.summary.items())
    yield "The graph, pass by pass\n" + _stages(found.stages)
    yield "At run time (forward)\n" + _rows(found.forward)
    if found.declined:
        yield "Not computed the best way there is\n" + _declined(found.declined)
    if found.kept:
        yield "Not fused: what lies in memory between steps\n" + _kept(found.kept)
    if found.memory:
        yield "Memory of activations\n" + _memory(found.memory)
    if found.prepare:
        yield "When weights arrive (prepare)\n" + _rows(found.prepare)


def _stages(stages: Sequence[Stage]) -> str:
    columns = (Column("pass"), Column("nodes", right=True), Column("change", limit=100))
    return table(columns, [[s.name, f"{s.nodes:,}", ", ".join(_change(s.change))] for s in stages])


def _change(change: Mapping[str, int]) -> list[str]:
    """`−20 BatchNormalization`: what went before what came."""
    return [f"{'−' if n < 0 else '+'}{abs(n)} {name}" for name, n in sorted(change.items(), key=lambda item: item[1])]


def _rows(rows: Sequence[Row]) -> str:
    columns = (
        Column("step", limit=36),
        Column("what", limit=44),
        Column("operators", limit=36),
        Column("module", limit=28),
        Column("result", limit=36),
        Column("FLOPs", right=True, limit=32),
        Column("bytes", right=True, limit=32),
    )
    entries = [[r.name, r.what, _operators(r), r.module, r.result, _text(r.flops), _text(r.bytes)] for r in rows]
    return table(columns, entries)


def _operators(row: Row) -> str:
    """`Conv + Add + Relu`; operators of one kind in a row are counted."""
    runs = [(name, len(list(same))) for name, same in groupby(row.operators)]
    return " + ".join(name if count == 1 else f"{count} {name}" for name, count in runs)


def _declined(declined: Mapping[str, str]) -> str:
    groups: dict[str, list[str]] = {}
    for node, reason in declined.items():
        groups.setdefault(reason, []).append(node)
    columns = (Column("nodes", right=True), Column("why", limit=110), Column("which", limit=120))
    return table(columns, [[f"{len(nodes):,}", reason, _listed(nodes)] for reason, nodes in groups.items()])


def _kept(kept: Sequence[Kept]) -> str:
    groups: dict[str, list[Kept]] = {}
    for one in kept:
        groups.setdefault(one.reason, []).append(one)
    columns = (
        Column("buffers", right=True),
        Column("bytes", right=True),
        Column("why", limit=110),
        Column("which", limit=120),
    )
    return table(
        columns,
        [
            [f"{len(group):,}", _total([k.bytes for k in group]), reason, _listed([k.buffer for k in group])]
            for reason, group in sorted(groups.items(), key=lambda item: -len(item[1]))
        ],
    )


def _memory(slots: Sequence[Slot]) -> str:
    columns = (
        Column("at", right=True),
        Column("bytes", right=True, limit=32),
        Column("steps", right=True),
        Column("buffer", limit=36),
        Column("then", limit=90),
    )
    rows = [[f"{s.at:,}", _text(s.bytes), f"{s.first}–{s.last}", s.buffer, _listed(s.shared)] for s in slots]
    return table(columns, rows)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return ", ".join(shortened(name, 32) for name in names[:NAMES]) + more


def _total(figures: Sequence[Figure]) -> str:
    numbers = [f for f in figures if isinstance(f, int)]
    return size(sum(numbers)) if len(numbers) == len(figures) else "by sizes"


def _text(value: Figure) -> str:
    return value if isinstance(value, str) else f"{value:,}"
