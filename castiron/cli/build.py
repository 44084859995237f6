"""`castiron build` and `castiron verify`: progress while it works, a table when it is done."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from castiron.cli.arguments import parse_shapes
from castiron.cli.show import Column, conclude, json_number, number, progress, size, table
from castiron.lab.reference import varies
from castiron.lab.verify import Verdict
from castiron.pipeline import Examined, Report, build, check_artifact

_COLUMNS = (
    Column("output"),
    Column("n", right=True),
    Column("max|diff|", right=True),
    Column("ulp", right=True),
    Column("error (float64)", right=True),
    Column("source's own", right=True),
    Column("allowed", right=True),
    Column("", limit=200),
)


_UNSEEDED = (
    "{} makes other weights at each call, so no artifact of an earlier call can match it: let it load a checkpoint, or "
    "call torch.manual_seed first"
)


def build_command(
    model: str, output: Path | None, *, quiet: bool, json: bool, shapes: Sequence[str], **options: Any
) -> None:
    """Builds, then prints what was made and how near it is to its source."""
    with progress(quiet or json) as say:
        report = build(model, output, shapes=parse_shapes(shapes), progress=say, **options)
    if json:
        print(json_module.dumps(_entries(report)))
    elif not quiet:
        _print(report)


def verify_command(artifact: Path, against: str, shapes: Sequence[str], budget: float, json: bool) -> None:
    """Runs an artifact against its source; ends with status 1 on a mismatch."""
    with progress(json) as say:
        found = check_artifact(artifact, against, parse_shapes(shapes), budget, say)
        agree = all(v.ok for v in found.verdicts)
        hint = "" if agree or not varies(against) else _UNSEEDED.format(against)
    entries = [_verdict(v) for v in found.verdicts]
    shown = f"{_table(found.verdicts)}\n{_elsewhere(found)}"
    conclude(found.ok, entries, shown, json, hint, alone=_alone(found))


def _elsewhere(found: Examined) -> str:
    """What became of a copy, for a reader."""
    alone = found.alone
    libraries = f"loads {', '.join(alone.libraries)}" if alone.libraries else "no dynamic libraries"
    paths = f"holds paths of this machine: {', '.join(alone.paths)}" if alone.paths else "no path of this machine in it"
    left = [f"{count} symbols {prefix} left to a runtime" for prefix, count in alone.undefined.items()]
    works = f"answers otherwise ({', '.join(found.changed)})" if found.changed else "works"
    return f"alone in an empty folder, without environment: {'; '.join([works, libraries, *left, paths])}"


def _alone(found: Examined) -> dict[str, object]:
    return {
        "changed": list(found.changed), "paths": list(found.alone.paths), "libraries": list(found.alone.libraries),
        "undefined": dict(found.alone.undefined),
    }  # fmt: skip


def _print(report: Report) -> None:
    print(f"{report.path}  {size(report.bytes)}, {report.form} for {report.target} ({', '.join(report.isas)})")
    peak = "depends on sizes" if report.arena_bytes is None else size(report.arena_bytes)
    print(
        f"weights {size(report.packed_bytes)} ({report.weights}), activations {peak}, built in {report.seconds:.1f} s"
    )
    if report.verdicts:
        print(f"compared with {report.reference}:")
        print(_table(report.verdicts))
    elif report.unverified:
        print(f"not compared with its source: {report.unverified}")


def _table(verdicts: Sequence[Verdict]) -> str:
    rows = []
    for v in verdicts:
        exact = ["", ""] if v.error is None else [number(v.error), number(v.source_error)]
        state = "OK" if v.ok else f"MISMATCH {v.reason}"
        ulp = "" if v.ulp is None else number(v.ulp)
        rows.append([v.name, f"{v.n:,}", number(v.max_diff), ulp, *exact, number(v.allowed), state])
    return table(_COLUMNS, rows)


def _verdict(v: Verdict) -> dict[str, object]:
    return {
        "name": v.name, "n": v.n, "max_diff": json_number(v.max_diff), "ulp": json_number(v.ulp),
        "error": json_number(v.error), "source_error": json_number(v.source_error),
        "allowed": json_number(v.allowed), "ok": v.ok, "reason": v.reason,
    }  # fmt: skip


def _entries(report: Report) -> dict[str, object]:
    return {
        "path": str(report.path), "bytes": report.bytes, "form": report.form, "target": report.target,
        "isas": report.isas,
        "hash": report.hash, "weights": report.weights, "packed_bytes": report.packed_bytes,
        "arena_bytes": report.arena_bytes, "seconds": report.seconds, "reference": report.reference,
        "unverified": report.unverified, "outputs": [_verdict(v) for v in report.verdicts],
    }  # fmt: skip
