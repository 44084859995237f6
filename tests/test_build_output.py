"""A build's output appears whole or not at all, whatever goes wrong, and what is wrong is said in one line."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import onnx
import pytest

import castiron
from castiron.lab import native
from tests.artifacts.builds import MLP, ROOT, built, command, left, one_line, outputs, scratch

# Whole or not at all -------------------------------------------------------------------------------------------------


def test_mismatch_removes_the_artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = native.run_executable
    monkeypatch.setattr(native, "run_executable", lambda *a, **k: {n: y + 1 for n, y in right(*a, **k).items()})
    with pytest.raises(castiron.MismatchError, match=r"removed.*'y'") as raised:
        castiron.build(str(MLP), tmp_path / "mlp")
    assert raised.value.status == 1
    assert left(tmp_path) == []
    castiron.build(str(MLP), tmp_path / "mlp", verify=False)
    assert left(tmp_path) == ["mlp"]


def test_mismatch_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mlp").write_text("before")
    monkeypatch.setattr(native, "run_executable", lambda *a, **k: {})
    with pytest.raises(castiron.MismatchError):
        castiron.build(str(MLP), tmp_path / "mlp")
    assert (tmp_path / "mlp").read_text() == "before"
    assert left(tmp_path) == ["mlp"]


def test_source_that_fails_on_the_generated_inputs(tmp_path: Path) -> None:
    seventh = onnx.parser.parse_graph(
        "g (float[T] x) => (float[1] y) <int64[1] i = {7}> { y = Gather <axis = 0> (x, i) }"
    )
    model = tmp_path / "seventh.onnx"
    onnx.save(onnx.helper.make_model(seventh, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10), model)
    with pytest.raises(castiron.InputError, match=r"the source itself.*\n.*--shape"):
        castiron.build(model, tmp_path / "seventh")
    assert left(tmp_path) == ["seventh.onnx"]
    assert castiron.build(model, tmp_path / "seventh", verify=False).verdicts == ()
    castiron.build(model, tmp_path / "seventh", shapes={"x": (9,)})


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "kept").write_text("")
    for target, form, message in [
        ("folder", "exe", "is a folder"),
        ("folder", "source", "castiron did not make"),
        ("file", "source", "is a file"),
        ("file/mlp", "exe", "is a file, not a folder"),
        ("/proc/mlp", "exe", "cannot be written to"),
    ]:
        with pytest.raises(castiron.InputError, match=message):
            castiron.build(str(MLP), tmp_path / target, form=form)
    assert left(tmp_path) == ["file", "folder"]
    assert left(tmp_path / "folder") == ["kept"]
    done = command("build", MLP, "-o", tmp_path / "folder")
    assert done.returncode == 2
    assert "is a folder" in one_line(done)


def test_missing_folders_are_not_made(tmp_path: Path) -> None:
    with pytest.raises(castiron.InputError, match="a/b does not exist; make that folder"):
        castiron.build(str(MLP), tmp_path / "a" / "b" / "mlp", verify=False)
    assert left(tmp_path) == []


LIMITED = """
import resource, sys
from castiron.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
main()
"""


@pytest.mark.parametrize("limit", [100, 1000, 20_000, 50_000])
def test_full_disk(limit: int, tmp_path: Path) -> None:
    built()  # so that the runtime's objects are at hand
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CASTIRON_CACHE": str(scratch() / "cache")}
    shutil.copytree(castiron_cache(), scratch() / "cache", dirs_exist_ok=True)
    arguments = ["-c", LIMITED, str(limit), "build", str(MLP), "-o", str(tmp_path / "mlp"), "--quiet"]
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode not in (0, -signal.SIGXFSZ)
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("castiron: ")
    assert left(tmp_path) == []


def castiron_cache() -> Path:
    """Where compiled runtime objects are kept."""
    from castiron.options import environment

    return environment().cache


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_killed_build_leaves_nothing(sent: signal.Signals, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "castiron", "build", str(MLP), "-o", str(tmp_path / "mlp")]
    # where the tests run in the background, SIGINT is ignored, and children inherit that
    heeding = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(line, env=environment, stderr=subprocess.PIPE, text=True, preexec_fn=heeding) as process:
        assert process.stderr is not None
        assert any("packing" in said for said in process.stderr)
        process.send_signal(sent)
        process.communicate()
    assert process.returncode not in (0, 1)
    if sent == signal.SIGKILL:  # nobody can clean up then, but the next build can
        assert "mlp" not in left(tmp_path)
        castiron.build(str(MLP), tmp_path / "mlp", verify=False)
        assert left(tmp_path) == ["mlp"]
    else:
        assert left(tmp_path) == []


def test_builds_at_the_same_time(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = []
    for form in ("exe", "exe", "source", "source"):
        line = [sys.executable, "-m", "castiron", "build", str(MLP), "-q", "--as", form]
        started.append(subprocess.Popen([*line, "-o", str(tmp_path / f"mlp-{form}")], env=environment))
    deadline = time.monotonic() + 240
    for process in started:
        assert process.wait(max(1, deadline - time.monotonic())) == 0
    assert left(tmp_path) == ["mlp-exe", "mlp-source"]
    assert outputs(tmp_path / "mlp-exe") == outputs(built())


# The command line ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--shape", "nonsense"], "NAME=SIZES"),
        (["--shape", "x=2,5"], "fixes this dimension"),
        (["--target", "pdp11-linux"], "'pdp11-linux' is not known"),
        (["--cpu", "x86-64-v9"], "'x86-64-v9'"),
        (["--as", "nonsense"], "--as"),
    ],
)
def test_wrong_options_on_the_command_line(options: list[str], message: str, tmp_path: Path) -> None:
    done = command("build", MLP, "-o", tmp_path / "mlp", *options)
    assert done.returncode == 2
    assert message in one_line(done)
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shapes": {"x": (1,)}}, "2 dimensions"),
        ({"shapes": {"z": (1, 4)}}, "no input 'z'"),
        ({"form": "nonsense"}, "'nonsense'"),
        ({"weights": "elsewhere"}, "'elsewhere'"),
        ({"nonsense": 1}, "no option 'nonsense'"),
        ({"target": "x86_64-windows"}, "'x86_64-windows'"),
        ({"cpu": ("arm64",)}, "'arm64'"),
    ],
)
def test_wrong_options(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(castiron.InputError, match=message):
        castiron.build(str(MLP), tmp_path / "mlp", **options)
    assert left(tmp_path) == []


def test_generated_inputs_have_sizes_that_fit_each_other(tmp_path: Path) -> None:
    """Symbols of two inputs that the model adds are the same size, whatever they are called."""
    graph = onnx.parser.parse_graph("g (float[A] x, float[B] y) => (float[C] z) { z = Add (x, y) }")
    model = tmp_path / "sum.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10), model)
    assert castiron.build(model, tmp_path / "sum").verdicts[0].ok
    assert command("verify", tmp_path / "sum", "--against", model).returncode == 0
