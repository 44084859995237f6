"""The commands, a function each: options as users of the field expect them, the work done elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from castiron.options import Form, Weights

app = typer.Typer(
    name="castiron",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    add_completion=False,
    help="Compiles PyTorch and ONNX models into one native file, and proves that it computes the same.",
)

MODEL = "model.onnx, model.pt2, or file.py:function / package.module:function returning (module, example inputs)"

Model = Annotated[str, typer.Argument(metavar="MODEL", help=MODEL, show_default=False)]
Shapes = Annotated[Optional[list[str]], typer.Option("--shape", metavar="NAME=SIZES", help="Pin sizes: x=1,3,224,224.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


@app.command()
def build(
    model: Model,
    output: Annotated[Optional[Path], typer.Option("-o", "--output", metavar="OUT", help="File (folder for source) to write.")] = None,
    form: Annotated[Form, typer.Option("--as", help="What to make.")] = Form.EXE,
    weights: Annotated[Weights, typer.Option("--weights", help="Inside the file, or NAME.weights beside it.")] = Weights.EMBED,
    shape: Shapes = None,
    target: Annotated[Optional[str], typer.Option("--target", metavar="TRIPLE", help="x86_64-linux, aarch64-linux; default: this machine.")] = None,
    cpu: Annotated[Optional[str], typer.Option("--cpu", metavar="LEVELS", help="Instruction sets to include: x86-64-v4,x86-64-v3; default: all.")] = None,
    error_budget: Annotated[float, typer.Option("--error-budget", metavar="R", min=1.0, help="Largest error against float64, in units of the source's own.")] = 2.0,
    name: Annotated[Optional[str], typer.Option("--name", metavar="ID", help="Prefix of the C symbols; default: from MODEL.")] = None,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Run the artifact against its source; refuse a mismatch.")] = True,
    dump: Annotated[Optional[Path], typer.Option("--dump", metavar="DIR", help="Write every stage there: .onnx, .txt, .c.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Compile MODEL into a native file, run it and check it against its source."""
    from castiron.cli.build import build_command

    levels = tuple(cpu.split(",")) if cpu else None
    build_command(
        model, output, quiet=quiet, json=json, form=form, weights=weights, shapes=shape or [], target=target, cpu=levels,
        error_budget=error_budget, name=name, verify=verify, dump=dump,
    )  # fmt: skip


@app.command()
def run(
    model: Model,
    inputs: Annotated[Optional[list[str]], typer.Argument(metavar="[INPUT]...", help="Files (.npy, .npz, .json), in order or NAME=FILE.", show_default=False)] = None,
    output: Annotated[Optional[Path], typer.Option("-o", "--output", metavar="OUT", help="Write .npz instead of printing JSON.")] = None,
    shape: Shapes = None,
) -> None:
    """Run MODEL once in its own framework (onnxruntime, PyTorch): what an artifact is compared with."""
    from castiron.cli.run import run_command

    run_command(model, inputs or [], output, shape or [])


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help=".npy, .npz or JSON", show_default=False)],
    b: Annotated[Path, typer.Argument(metavar="B", help="the reference: .npy, .npz or JSON", show_default=False)],
    atol: Annotated[float, typer.Option("--atol", min=0.0, help="Absolute tolerance.")] = 1e-6,
    rtol: Annotated[float, typer.Option("--rtol", min=0.0, help="Relative tolerance.")] = 1e-5,
    json: Json = False,
) -> None:
    """Compare two sets of arrays; exit status 0 if they agree, 1 if not."""
    from castiron.cli.compare import compare_command

    compare_command(a, b, atol, rtol, json)


@app.command()
def verify(
    artifact: Annotated[Path, typer.Argument(metavar="ARTIFACT", help="An executable or shared library.", show_default=False)],
    against: Annotated[str, typer.Option("--against", metavar="MODEL", help=MODEL)],
    shape: Shapes = None,
    error_budget: Annotated[float, typer.Option("--error-budget", metavar="R", min=1.0)] = 2.0,
    json: Json = False,
) -> None:
    """Run ARTIFACT, copied alone to an empty folder, against its source; exit status 0 if they agree, 1 if not."""
    from castiron.cli.build import verify_command

    verify_command(artifact, against, shape or [], error_budget, json)


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A model, a weights file, or an artifact.", show_default=False)],
    json: Json = False,
) -> None:
    """Describe a model, a weights file or an artifact."""
    from castiron.cli.inspect import inspect_command

    inspect_command(file, json)


@app.command()
def explain(model: Model, shape: Shapes = None, json: Json = False) -> None:
    """Show what became of MODEL: what was fused, folded and chosen, step by step, with sizes, FLOPs, bytes and memory."""
    from castiron.cli.explain import explain_command

    explain_command(model, shape or [], json)
