"""`python3 dev.py bench`: size, start-up and memory of the MLP's executable, build times, and the speed of the kernels.

Other ways to run the same MLP are measured in the same run, interleaved with castiron's, where they are installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import castiron
from castiron.cli.show import size
from castiron.lab.spawn import Spawner
from tests.test_kernels import FLAGS, NEEDS, SOURCES, TARGETS

ROOT = Path(__file__).parent.parent
ROUNDS, RUNS = 5, 40

PYTHON_PEERS = {
    "onnxruntime": "import numpy, onnxruntime; s = onnxruntime.InferenceSession({model!r}); "
    "print(s.run(None, {{'x': numpy.load({x!r})}}))",
    "torch": "import sys; sys.path.insert(0, {root!r}); import torch, numpy; from examples.mlp import MLP; "
    "from safetensors.torch import load_file; m = MLP(); m.load_state_dict(load_file({weights!r})); "
    "print(m.eval()(torch.from_numpy(numpy.load({x!r}))))",
}


@dataclass(frozen=True)
class Start:
    """One way to run the MLP, from start to exit: medians over interleaved runs."""

    form: str
    bytes: int | None
    wall_ms: float
    wall_min_ms: float
    peak_kib: int


def main() -> int:
    """Measures and prints; with --json for scripts."""
    parser = argparse.ArgumentParser(prog="dev.py bench", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--no-kernels", action="store_true", help="leave the kernels' ladder out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        starts = start_up(Path(folder))
        builds = build_times(Path(folder))
    if options.json:
        print(json.dumps({"start": [asdict(s) for s in starts], "build_seconds": builds}))
        return 0
    console = Console()
    table = Table("the 4-8-3 MLP, as", "file", "wall median", "wall min", "peak memory", box=None, pad_edge=False)
    for s in starts:
        table.add_row(
            s.form,
            "–" if s.bytes is None else size(s.bytes),
            f"{s.wall_ms:.2f} ms",
            f"{s.wall_min_ms:.2f} ms",
            size(s.peak_kib * 1024),
        )
    console.print(table, "")
    for name, seconds in builds.items():
        console.print(
            f"building {name}: {seconds:.1f} s (toolchain warm, comparison with the source included)", highlight=False
        )
    if not options.no_kernels:
        kernels()
    return 0


def kernels() -> None:
    """The tile kernels' GFLOP/s against a loop of nothing but multiply-adds, once an instruction set that runs here."""
    info = Path("/proc/cpuinfo")
    features = info.read_text().split() if info.exists() else []
    sources = [*SOURCES, ROOT / "tests" / "kernels" / "ladder.c"]
    for isa in (i for i, feature in NEEDS.items() if feature in features):
        print(f"kernels on {isa}:", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "ladder"
            flags = [*TARGETS[isa].split(), *FLAGS.split(), f"-DCI_ISA={isa}"]
            subprocess.run([sys.executable, "-m", "ziglang", "cc", *flags, *sources, "-o", program, "-lm"], check=True)
            subprocess.run([program, "--time"], check=True)


def start_up(folder: Path) -> list[Start]:
    """Every installed way to run the MLP, interleaved."""
    x, spawner = folder / "x.npy", Spawner(folder, print)
    np.save(x, (0.1 * np.arange(16) - 0.5).astype(np.float32).reshape(4, 4))
    commands: dict[str, tuple[list[str], int | None]] = {}
    for weights in ("embed", "file"):
        path = folder / weights / "mlp"
        path.parent.mkdir()
        report = castiron.build(ROOT / "examples" / "mlp.onnx", path, weights=weights)
        commands[f"castiron, weights {'inside' if weights == 'embed' else 'beside it'}"] = (
            [str(path), str(x)],
            report.bytes,
        )
    for package, program in PYTHON_PEERS.items():
        if importlib.util.find_spec(package):
            text = program.format(
                model=str(ROOT / "examples/mlp.onnx"),
                weights=str(ROOT / "examples/mlp.safetensors"),
                x=str(x),
                root=str(ROOT),
            )
            commands[f"Python, {package}"] = ([sys.executable, "-c", text], None)
    walls: dict[str, list[float]] = {form: [] for form in commands}
    peaks: dict[str, list[int]] = {form: [] for form in commands}
    for _ in range(ROUNDS):
        for form, (command, _) in commands.items():
            runs = RUNS if command[0] != sys.executable else 1
            measured = spawner.measure(command, runs, memory=True, env={})
            assert not measured.failure, f"{form}: {measured.failure}"
            walls[form] += measured.walls
            peaks[form].append(measured.peak)
    return [
        Start(form, count, statistics.median(walls[form]), min(walls[form]), max(peaks[form]))
        for form, (_, count) in commands.items()
    ]


def build_times(folder: Path) -> dict[str, float]:
    """Seconds to build the MLP (whole command) and, where torch is installed, ResNet-50 from its exported file."""
    out = {
        "the MLP": timed(
            lambda: subprocess.run(
                [sys.executable, "-m", "castiron", "build", "examples/mlp.onnx", "-o", str(folder / "m"), "-q"],
                cwd=ROOT,
                check=True,
            )
        )
    }
    if importlib.util.find_spec("torch"):
        from tests import zoo

        module, arguments = zoo.resnet50()[:2]
        import torch

        torch.onnx.export(module, arguments, folder / "resnet50.onnx", dynamo=True, verbose=False)
        command = [
            sys.executable,
            "-m",
            "castiron",
            "build",
            str(folder / "resnet50.onnx"),
            "-o",
            str(folder / "r"),
            "-q",
        ]
        out["ResNet-50"] = timed(lambda: subprocess.run(command, cwd=ROOT, check=True))
    return out


def timed(function: Callable[[], object]) -> float:
    """Seconds of the second call: the first one warms caches."""
    function()
    started = time.monotonic()
    function()
    return time.monotonic() - started


if __name__ == "__main__":
    sys.exit(main())
