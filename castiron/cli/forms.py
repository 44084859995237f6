"""`castiron forms MODEL`: every way to ship it, side by side."""

from __future__ import annotations

import json as json_module
import shlex
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console

from castiron.artifact.files import whole
from castiron.cli.arguments import parse_shapes
from castiron.cli.show import progress
from castiron.errors import InputError
from castiron.lab.forms.lab import chosen, run_forms
from castiron.lab.forms.page import page
from castiron.lab.forms.report import as_json, as_markdown, show
from castiron.pipeline import build

MARK = ".castiron-forms"
"""A file in each folder of reports: what holds it may be filled anew."""


def forms_command(
    model: str, names: Sequence[str], output: Path | None, runs: int, threads: int, shapes: Sequence[str], json: bool
) -> None:
    """Writes the forms and the report; ends with status 1 where a form computes something else than the model."""
    pinned, forms = parse_shapes(shapes), chosen(names)
    folder = _folder(output or Path(f"{_stem(model)}-forms"))
    with progress(json) as say:
        report = run_forms(
            model, forms, folder, build, runs=runs, threads=threads, shapes=pinned, say=say,
            command=_command(model, names, runs, threads, shapes),
        )  # fmt: skip
    told = json_module.dumps(as_json(report), indent=1)
    written = {"report.json": told, "report.html": page(report), "report.md": as_markdown(report)}
    for name, text in written.items():
        with whole(folder / name) as temporary:
            temporary.write_text(text)
    if json:
        print(told)
    else:
        console = Console()
        show(report, console if console.is_terminal else Console(width=240))
        print(f"\n{folder / 'report.html'}  the page; report.md and report.json hold the same, each form has a folder")
    raise typer.Exit(1 if any(row.state == "mismatch" for row in report.rows) else 0)


def _stem(model: str) -> str:
    """`mlp` of examples/mlp.py:mlp, models/mlp.onnx and package.models:mlp."""
    return Path(model).stem if Path(model).is_file() else model.rpartition(":")[2] or "model"


def _folder(path: Path) -> Path:
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; give another folder with --out")
    if path.is_dir() and any(path.iterdir()) and not (path / MARK).exists():
        raise InputError(f"{path} is a folder that castiron did not make; give another one with --out")
    path.mkdir(parents=True, exist_ok=True)
    (path / MARK).touch()
    return path.resolve()


def _command(model: str, names: Sequence[str], runs: int, threads: int, shapes: Sequence[str]) -> str:
    words = ["castiron", "forms", model, "--runs", str(runs), "--threads", str(threads)]
    words += ["--forms", ",".join(names)] if names else []
    return shlex.join([*words, *(word for shape in shapes for word in ("--shape", shape))])
