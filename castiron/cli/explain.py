"""`castiron explain MODEL`."""

from __future__ import annotations

import json as json_module
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count, groupby
from pathlib import Path

from castiron.cli.arguments import parse_shapes
from castiron.cli.show import Column, progress, shortened, size, table
from castiron.dump import Dump
from castiron.frontend.source import load
from castiron.lab.explain import Explanation, Figure, Kept, Row, Slot, Stage, Witness, explanation
from castiron.lab.reference import reference_inputs
from castiron.options import BuildOptions
from castiron.pipeline import compile_source

NAMES = 4
"""Names that are listed of a group before `and N more`."""


LONG = 12
"""Characters from which on the name of a size is abbreviated."""


@dataclass(frozen=True)
class _Brief:
    """Shows figures: thousands apart, long names of sizes as n, n2, n3."""

    names: Mapping[str, str]

    @staticmethod
    def of(sizes: Iterable[str]) -> _Brief:
        long = [name for name in sizes if len(name) > LONG]
        free = (name for name in (f"n{i or ''}" for i in count()) if name not in sizes)
        return _Brief(dict(zip(long, free)))

    def __call__(self, value: Figure) -> str:
        if isinstance(value, int):
            return f"{value:,}"
        return re.sub(r"(?<![\w.,])\d{5,}(?![\w.])", lambda digits: f"{int(digits[0]):,}", self.sizes(value))

    def sizes(self, text: str) -> str:
        """Names only: extents of a shape stand between commas already."""
        return re.sub(r"[A-Za-z_]\w*", lambda word: self.names.get(word[0], word[0]), text)


def explain_command(model: str, shapes: Sequence[str], dump: Path | None, json: bool) -> None:
    """Prints the model's way and its steps; nothing is compiled to machine code."""
    options = BuildOptions(shapes=parse_shapes(shapes))
    witness = Witness()
    with progress(json) as say:
        source = load(model)
        compiled = compile_source(source, options, Dump(dump, witness.watch), say, witness.notes)
        inputs = reference_inputs(source, options.shapes)
    found = explanation(compiled.graph, compiled.prepare, compiled.forward, compiled.storage, witness, inputs)
    print(json_module.dumps(asdict(found)) if json else "\n\n".join(_sections(found)))


def _sections(found: Explanation) -> Iterable[str]:
    brief = _Brief.of(found.sizes)
    yield "\n".join(f"{key}: {shortened(brief(value), 110)}" for key, value in found.summary.items())
    if found.sizes:
        yield "Sizes known at run time\n" + _sizes(found.sizes, brief)
    yield "The graph, pass by pass\n" + _stages(found.stages)
    yield "At run time (forward)\n" + _rows(found.forward, brief)
    if found.declined:
        yield "Not computed the best way there is\n" + _declined(found.declined)
    if found.kept:
        yield "Not fused: what lies in memory between steps\n" + _kept(found.kept)
    if found.memory:
        yield "Memory of activations\n" + _memory(found.memory, brief)
    if found.prepare:
        yield "When weights arrive (prepare)\n" + _rows(found.prepare, brief)


def _stages(stages: Sequence[Stage]) -> str:
    columns = (Column("pass"), Column("nodes", right=True), Column("change", limit=100))
    return table(columns, [[s.name, f"{s.nodes:,}", ", ".join(_change(s.change))] for s in stages])


def _change(change: Mapping[str, int]) -> list[str]:
    """`−20 BatchNormalization`: what went before what came."""
    return [f"{'−' if n < 0 else '+'}{abs(n)} {name}" for name, n in sorted(change.items(), key=lambda item: item[1])]


def _sizes(sizes: Mapping[str, int], brief: _Brief) -> str:
    columns = (Column("size"), Column("stands for"), Column("on the example", right=True))
    names = [(brief(name), name) for name in sizes]
    return table(columns, [[s, name if name != s else "", f"{sizes[name]:,}"] for s, name in names])


def _rows(rows: Sequence[Row], brief: _Brief) -> str:
    columns = (
        Column("step", limit=36),
        Column("what", limit=44),
        Column("operators", limit=36),
        Column("module", limit=28),
        Column("result", limit=36),
        Column("FLOPs", right=True, limit=32),
        Column("on the example", right=True),
        Column("bytes", right=True, limit=32),
        Column("on the example", right=True),
    )
    return table(columns, [_row(row, brief) for row in rows])


def _row(row: Row, brief: _Brief) -> list[str]:
    costs = [(row.flops, row.flops_here), (row.bytes, row.bytes_here)]
    shown = [text for cost, here in costs for text in (brief(cost), brief(here) if here != cost else "")]
    return [row.name, brief.sizes(row.what), _operators(row), row.module, brief.sizes(row.result), *shown]


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


def _memory(slots: Sequence[Slot], brief: _Brief) -> str:
    columns = (
        Column("at", right=True),
        Column("bytes", right=True, limit=32),
        Column("steps", right=True),
        Column("buffer", limit=36),
        Column("then", limit=90),
    )
    rows = [[f"{s.at:,}", brief(s.bytes), f"{s.first}–{s.last}", s.buffer, _listed(s.shared)] for s in slots]
    return table(columns, rows)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return ", ".join(shortened(name, 32) for name in names[:NAMES]) + more


def _total(figures: Sequence[Figure]) -> str:
    numbers = [f for f in figures if isinstance(f, int)]
    return size(sum(numbers)) if len(numbers) == len(figures) else "by sizes"
