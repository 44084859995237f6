"""What the README's first command shows: two models become executables that run anywhere and give the same numbers.

It builds the 4-8-3 MLP of this folder and a trained model fetched from a package (Google's file-type detector magika),
runs each from an empty folder with an empty environment, compares with onnxruntime, and prints sizes and times. Where
PyTorch is installed, the MLP is built from its nn.Module too.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import castiron
from castiron.cli.show import progress, size
from castiron.frontend.source import Source, load
from castiron.lab.arrays import write_npz
from castiron.lab.compare import compare_sets
from castiron.lab.native import alone
from castiron.lab.reference import reference_inputs
from castiron.lab.spawn import Spawner
from examples.fetch import FetchError, fetch

HERE = Path(__file__).parent
RUNS = 20


def main() -> int:
    """Builds and shows; 0 where everything matches."""
    console = Console()
    console.print("[bold]castiron[/]: from a model to one native file\n", highlight=False)
    table = Table("model", "file", "start to exit", "castiron against its source", "", box=None, pad_edge=False)
    models: list[tuple[str, str]] = [("MLP 4-8-3 (ONNX)", str(HERE / "mlp.onnx"))]
    if importlib.util.find_spec("torch"):
        models.append(("MLP 4-8-3 (nn.Module)", f"{HERE / 'mlp.py'}:mlp"))
    try:
        console.print("fetching magika's trained model from its package", highlight=False)
        models.append(("magika 3.3 (ONNX)", str(fetch("magika"))))
    except FetchError as error:
        console.print(f"[yellow]skipped:[/] {error}")
    matched = True
    with tempfile.TemporaryDirectory() as folder:
        with progress(silent=False) as say:
            spawner = Spawner(Path(folder), say)
        for title, model in models:
            console.print(f"building {title}", highlight=False)
            row, ok = show(title, model, Path(folder) / "model", spawner)
            table.add_row(*row)
            matched = matched and ok
    console.print()
    console.print(table)
    console.print(
        "\nEach file was copied alone to an empty folder and run there with an empty environment.", highlight=False
    )
    console.print(
        "Build your own: [bold].venv/bin/castiron build model.onnx -o model && ./model --help[/]", highlight=False
    )
    return 0 if matched else 1


def show(title: str, model: str, output: Path, spawner: Spawner) -> tuple[list[str], bool]:
    """A row of the table for one model, and whether it matches."""
    with progress(silent=False) as say:
        report = castiron.build(model, output, progress=say)
    source = load(model)
    inputs = reference_inputs(source, {})
    with alone(report.path) as program:
        answer, wall = run_alone(program, inputs, spawner)
    verdict = "MISMATCH"
    differences = compare_sets(answer, expected(source, inputs), atol=1e-5, rtol=1e-4)
    if all(d.ok for d in differences):
        verdict = "[green]OK[/]"
    largest = max(d.max_diff for d in differences)
    shown = f"max|diff| {largest:.2g} from {source.framework}"
    return [title, size(report.bytes), f"{wall:.2f} ms", shown, verdict], "OK" in verdict


def expected(source: Source, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the source framework answers."""
    assert source.run is not None, "onnxruntime is installed with castiron[lab]"
    return source.run(inputs)


def run_alone(program: Path, inputs: dict[str, np.ndarray], spawner: Spawner) -> tuple[dict[str, np.ndarray], float]:
    """The program's answer and the median milliseconds from start to exit, where it lies, with no environment."""
    write_npz(program.parent / "inputs.npz", inputs)
    command = [str(program), "inputs.npz", "-o", "outputs.npz"]
    walls = spawner.measure(command, RUNS, cwd=program.parent, env={}).walls
    with np.load(program.parent / "outputs.npz") as archive:
        return {name: archive[name] for name in archive.files}, statistics.median(walls)


if __name__ == "__main__":
    sys.exit(main())
