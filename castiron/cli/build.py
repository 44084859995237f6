"""`castiron build` and `castiron verify`: progress while it works, a table when it is done."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from castiron.cli.compare import number
from castiron.errors import InputError
from castiron.lab.verify import Verdict
from castiron.pipeline import Report, build, check_artifact
from castiron.toolchain.zig import Progress


def parse_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """`x=1,3,224,224` as {"x": (1, 3, 224, 224)}; InputError says what is wrong with it."""
    out: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, sizes = text.rpartition("=")
        try:
            shape = tuple(int(s) for s in sizes.split(",")) if sizes.strip() else ()
        except ValueError:
            shape = (-1,)
        if not equals or not name or any(s < 0 for s in shape):
            raise InputError(f"--shape {text!r}: expected NAME=SIZES, such as x=1,3,224,224")
        out[name] = shape
    return out


def build_command(model: str, output: Path | None, *, quiet: bool, json: bool, shapes: Sequence[str], **options: Any) -> None:
    """Builds, then prints what was made and how near it is to its source."""
    with progress(quiet or json) as say:
        report = build(model, output, shapes=parse_shapes(shapes), progress=say, **options)
    if json:
        print(json_module.dumps(_entries(report)))
    elif not quiet:
        _print(report)


@contextmanager
def progress(silent: bool) -> Iterator[Progress]:
    """A spinner on a terminal; a line a stage elsewhere."""
    console = Console(stderr=True)
    if silent:
        yield lambda text: None
    elif console.is_terminal:
        with console.status("starting") as status:
            yield lambda text: status.update(text)
    else:
        yield lambda text: console.print(f"  {text}", highlight=False, markup=False)


def verify_command(artifact: Path, against: str, shapes: Sequence[str], budget: float, json: bool) -> None:
    """Runs an artifact against its source; ends with status 1 on a mismatch."""
    with progress(json) as say:
        verdicts = check_artifact(artifact, against, parse_shapes(shapes), budget, say)
    ok = all(v.ok for v in verdicts)
    if json:
        print(json_module.dumps({"ok": ok, "outputs": [_verdict(v) for v in verdicts]}))
    else:
        Console().print(_table(verdicts))
        print("OK" if ok else "MISMATCH")
    raise typer.Exit(0 if ok else 1)


def size(count: float) -> str:
    """Bytes for a reader: 19.4 KiB."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def _print(report: Report) -> None:
    console = Console()
    console.print(f"[bold]{report.path}[/]  {size(report.bytes)}, {report.form} for {report.target} ({', '.join(report.isas)})", highlight=False)
    peak = "depends on sizes" if report.arena_bytes is None else size(report.arena_bytes)
    console.print(f"weights {size(report.packed_bytes)} ({report.weights}), activations {peak}, built in {report.seconds:.1f} s", highlight=False)
    if report.verdicts:
        console.print(f"compared with {report.reference}:", highlight=False)
        console.print(_table(report.verdicts))
    elif report.unverified:
        console.print(f"[yellow]not compared with its source:[/] {report.unverified}", highlight=False)


def _table(verdicts: Sequence[Verdict]) -> Table:
    table = Table("output", "n", "max|diff|", "ulp", "error (float64)", "source's own", "allowed", "", box=None, pad_edge=False)
    for v in verdicts:
        state = "[green]OK[/]" if v.ok else f"[red]MISMATCH[/] {v.reason}"
        table.add_row(
            v.name, f"{v.n:,}", number(v.max_diff), number(v.ulp), number(v.error), number(v.source_error), number(v.allowed), state
        )
    return table


def _verdict(v: Verdict) -> dict[str, object]:
    return {
        "name": v.name, "n": v.n, "max_diff": v.max_diff, "ulp": v.ulp, "error": v.error, "source_error": v.source_error,
        "allowed": v.allowed, "ok": v.ok, "reason": v.reason,
    }  # fmt: skip


def _entries(report: Report) -> dict[str, object]:
    return {
        "path": str(report.path), "bytes": report.bytes, "form": report.form, "target": report.target, "isas": report.isas,
        "hash": report.hash, "weights": report.weights, "packed_bytes": report.packed_bytes,
        "arena_bytes": report.arena_bytes, "seconds": report.seconds, "reference": report.reference,
        "unverified": report.unverified, "outputs": [_verdict(v) for v in report.verdicts],
    }  # fmt: skip
