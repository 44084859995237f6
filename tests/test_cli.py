"""The command line as users meet it: what works, and one clear message for all that does not.

Commands run in this process (`_status`), except where the process itself is the subject.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import castiron
from castiron.errors import InternalError
from tests.commanding import Command, command, errors_of, one_line

ROOT = Path(__file__).parent.parent
MLP = ROOT / "examples" / "mlp.onnx"


@pytest.fixture(scope="session")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The MLP of examples/ as an executable."""
    path = tmp_path_factory.mktemp("built") / "mlp"
    castiron.build(str(MLP), path, cpu=("x86-64-v3",))
    return path


def save(
    path: Path, nodes: Sequence[onnx.NodeProto], shape: Any = (2, 3), weights: Any = None, kind: int = 1, **options: Any
) -> Path:
    """A model of one input `x` and one output `y`."""
    ports = [helper.make_tensor_value_info("x", kind, shape)], [helper.make_tensor_value_info("y", kind, None)]
    tensors = [numpy_helper.from_array(np.asarray(a, np.float32), n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "g", *ports, tensors)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("my", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path, **options)
    return path


__all__ = ["command"]  # a fixture


# What works -------------------------------------------------------------------------------------------------


def test_build_run_compare_inspect_verify(command: Command, mlp: Path, tmp_path: Path) -> None:
    np.save("x.npy", np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4))
    assert command("run", MLP, "x.npy", "-o", "y.npz")[0] == 0
    Path("y.json").write_bytes(subprocess.run([mlp, "x.npy"], check=True, capture_output=True).stdout)
    status, out, _ = command("compare", "y.json", "y.npz", "--atol", "1e-6")
    head, row, verdict = out.splitlines()
    assert status == 0 and verdict == "OK" and head.split()[:5] == ["output", "n", "max|diff|", "ulp", "worst"]
    assert row.split()[:2] == ["y", "15"]
    found = json.loads(command("inspect", mlp, "--json")[1])
    assert found["kind"] == "executable" and found["inputs"][0]["shape"] == ["batch", 4]
    status, out, _ = command("verify", mlp, "--against", MLP)
    assert status == 0 and out.endswith("OK\n") and "error (float64)" in out


def test_build_ends_with_how_near_it_is(command: Command) -> None:
    status, out, err = command("build", MLP, "-o", "mlp", "--cpu", "x86-64-v3")
    assert status == 0 and Path("mlp").stat().st_mode & 0o100
    assert "max|diff|" in out and "ulp" in out and "source's own" in out and out.rstrip().endswith("OK")
    assert "comparing with the source" in err
    status, out, err = command("build", MLP, "-o", "quiet", "--cpu", "x86-64-v3", "--quiet")
    assert (status, out, err) == (0, "", "")
    status, out, err = command("build", MLP, "-o", "told", "--cpu", "x86-64-v3", "--json")
    told = json.loads(out)
    assert err == "" and told["outputs"][0]["ok"] and told["outputs"][0]["error"] <= told["outputs"][0]["allowed"]


def test_run_takes_every_kind_of_input(command: Command) -> None:
    x = np.full((1, 4), 0.1, np.float32)
    np.save("x.npy", x)
    np.savez("x.npz", x=x)
    np.savez("numbered.npz", x)
    Path("x.json").write_text("[[0.1, 0.1, 0.1, 0.1]]")
    Path("named.json").write_text('{"x": [[0.1, 0.1, 0.1, 0.1]]}')
    answers = {
        command("run", MLP, text)[1] for text in ("x.npy", "x.npz", "numbered.npz", "x.json", "named.json", "x=x.npy")
    }
    (answer,) = answers
    assert max(len(str(v)) for v in json.loads(answer)["y"][0]) <= 13  # as short as float32 allows
    assert command("run", MLP, "x.npy", "-o", "y.npy")[0] == 0
    assert np.load("y.npy").shape == (1, 3)
    status, out, _ = command("run", MLP)
    assert status == 0 and json.loads(out)["y"]


def test_explain_and_dump(command: Command) -> None:
    status, out, _ = command("explain", MLP, "--dump", "stages")
    assert status == 0 and "no more than 64 elements" in out and "Gemm + Relu" in out
    assert {"00-import.onnx", "60-lowered.txt", "71-forward.txt"} <= {p.name for p in Path("stages").iterdir()}


def test_pinned_sizes(command: Command) -> None:
    status, out, _ = command("explain", MLP, "--shape", "x=7,4", "--json")
    assert status == 0 and json.loads(out)["forward"][0]["result"] == "float32 [7, 8]"
    status, out, _ = command("explain", MLP, "--shape", "x=-1,4", "--json")
    assert status == 0 and json.loads(out)["forward"][0]["result"] == "float32 [batch, 8]"


def test_every_help_shows_how_to_start(command: Command) -> None:
    for name in ("build", "run", "compare", "verify", "inspect", "explain"):
        status, out, _ = command(name, "--help")
        assert (
            status == 0 and "Examples:\n    castiron" in out.replace("./model x.npy > y.json && ", "") and name in out
        )
    status, out, _ = command()
    assert status == 2 and "Exit status: 0 done" in out


# What does not ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "no.onnx"], "no.onnx: no such file"),
        (["build", "."], "is a folder"),
        (["build", ""], "is empty"),
        (["build", "no:function"], "cannot import 'no'"),
        (["build", "no.py:function"], "no.py: no such file"),
        (["build", "plain.py"], "name the function"),
        (["build", "garbage.onnx"], "not a whole ONNX model"),
        (["build", "cut.onnx"], "not a whole ONNX model"),
        (["build", "empty.onnx"], "holds no graph"),
        (["build", "what.txt"], "castiron reads .onnx"),
        (["build", MLP, "--shape", "z=1"], "no input 'z'; its inputs are x"),
        (["build", MLP, "--shape", "x=1"], "has 2 dimensions"),
        (["build", MLP, "--shape", "x=1,5"], "fixes this dimension of 'x' to 4"),
        (["build", MLP, "--shape", "x=-2,4"], "expected NAME=SIZES"),
        (["build", MLP, "--shape", "x=1,four"], "expected NAME=SIZES"),
        (["build", MLP, "--shape", "x"], "expected NAME=SIZES"),
        (["build", MLP, "--shape", "x=1,4", "--shape", "x=2,4"], "given twice"),
        (["build", MLP, "--error-budget", "0"], "--error-budget"),
        (["build", MLP, "--target", "sparc"], "target 'sparc'"),
        (["build", MLP, "--cpu", "z80"], "--cpu 'z80'"),
        (["build", MLP, "-o", "/proc/no/mlp"], "/proc/no"),
        (["build", MLP, "-o", "plain.py/mlp"], "plain.py"),
        (["build", MLP, "-o", "."], "give the name of a file"),
        (["build", MLP, "--dump", "plain.py"], "--dump plain.py"),
        (["build"], "Missing argument 'MODEL'; see castiron build --help"),
        (["bild", MLP], "No such command 'bild'"),
        (["run", MLP, "no.npy"], "no.npy does not exist"),
        (["run", MLP, "z=x.npy"], "no input 'z'"),
        (["run", MLP, "x.npy", "x.npy"], "x.npy"),
        (["run", MLP, "wrong.npy"], "fails on these inputs"),
        (["run", MLP, "--shape", "z=1"], "no input 'z'"),
        (["compare", "no.npy", "x.npy"], "no.npy does not exist"),
        (["compare", "x.npy", "what.txt"], "neither .npy, .npz nor JSON"),
        (["compare", "-", "-"], "only one"),
        (["inspect", "no"], "no"),
        (["inspect", "what.txt"], "what.txt"),
        (["inspect", "empty.onnx"], "empty.onnx"),
        (["inspect", "."], "is a folder"),
        (["verify", "no", "--against", MLP], "no does not exist"),
        (["verify", "what.txt", "--against", MLP], "what.txt"),
        (["explain", "no.onnx"], "no such file"),
    ],
)
def test_mistakes(command: Command, tmp_path: Path, arguments: Sequence[object], message: str) -> None:
    (tmp_path / "garbage.onnx").write_bytes(b"\xff\x07 no model")
    (tmp_path / "cut.onnx").write_bytes(MLP.read_bytes()[:1500])
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "plain.py").touch()
    (tmp_path / "what.txt").write_text("hello")
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.float32))
    np.save(tmp_path / "wrong.npy", np.zeros((1, 5), np.float32))
    status, out, err = command(*arguments, *(["--quiet"] if arguments[0] == "build" and len(arguments) > 1 else []))
    assert status == 2 and out == "" and message in errors_of(err) and one_line(errors_of(err)), err


def test_models_that_are_not_compiled(command: Command, tmp_path: Path) -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    cases = {
        save(tmp_path / "rank.onnx", [relu], None): "--shape x=",
        save(
            tmp_path / "strings.onnx", [helper.make_node("Identity", ["x"], ["y"])], [2], kind=TensorProto.STRING
        ): "strings",
        save(tmp_path / "custom.onnx", [helper.make_node("Foo", ["x"], ["y"], "foo", domain="my")]): "my::Foo, 1 time",
        save(tmp_path / "loose.onnx", [helper.make_node("Relu", ["nothing"], ["y"])]): "nothing before it makes",
        save(
            tmp_path / "sizes.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], weights={"w": np.ones((4, 5))}
        ): "do not fit",
    }
    for path, message in cases.items():
        status, out, err = command("build", path, "--quiet")
        assert status == 2 and out == "" and message in err and one_line(err), err
    branch = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["t"])], "b", [], [helper.make_tensor_value_info("t", 1, None)]
    )
    condition = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", TensorProto.BOOL, [1], [True]))
    choice = helper.make_node("If", ["c"], ["y"], "choice", then_branch=branch, else_branch=branch)
    assert command("explain", save(tmp_path / "chosen.onnx", [condition, choice]))[0] == 0


def test_external_weights_that_are_cut_or_gone(command: Command, tmp_path: Path) -> None:
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    options = {"save_as_external_data": True, "location": "w.data", "size_threshold": 0}
    path = save(tmp_path / "outside.onnx", [product], weights={"w": np.ones((3, 50))}, **options)
    assert command("explain", path)[0] == 0
    os.truncate(tmp_path / "w.data", 100)
    status, _, err = command("build", path, "-q")
    assert status == 2 and "w.data is cut off" in err and one_line(err)
    (tmp_path / "w.data").unlink()
    status, _, err = command("build", path, "-q")
    assert status == 2 and "w.data, which is missing" in err and one_line(err)


def test_cut_artifacts(command: Command, mlp: Path, tmp_path: Path) -> None:
    data = mlp.read_bytes()
    for end in (10, 100, 5000, len(data) // 2):
        Path("cut").write_bytes(data[:end])
        Path("cut").chmod(0o755)
        for arguments in (("inspect", "cut"), ("verify", "cut", "--against", MLP)):
            status, _, err = command(*arguments)
            assert status == 2 and one_line(err) and "cut" in err
    Path("w.safetensors").write_bytes((MLP.parent / "mlp.safetensors").read_bytes()[:-1])
    status, _, err = command("inspect", "w.safetensors")
    assert status == 3 and "cut off" in err


def test_a_difference_refuses_the_file(command: Command, mlp: Path, tmp_path: Path) -> None:
    model = onnx.load(MLP)
    bias = next(t for t in model.graph.initializer if t.name == "fc2.bias")
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + np.float32(1e-4), "fc2.bias"))
    onnx.save(model, "other.onnx")
    status, out, _ = command("verify", mlp, "--against", "other.onnx")
    assert status == 1 and "MISMATCH" in out and "× the source's own" in out


def test_faults_of_castiron_are_said_to_be(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("castiron.cli.inspect.describe", broken)
    monkeypatch.setattr("tempfile.tempdir", str(Path.cwd()))
    status, _, err = command("inspect", MLP)
    (report,) = Path.cwd().glob("castiron-fault-*.txt")
    assert status == InternalError.status == 70 and one_line(err)
    assert "a fault of castiron, not of your model: KeyError: 'oops'" in err and report.name in err
    assert "Traceback" in report.read_text() and "broken" in report.read_text() and "onnx-ir" in report.read_text()


# The process ------------------------------------------------------------------------------------------------


def _python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)


def test_torch_is_never_imported_for_onnx(tmp_path: Path) -> None:
    build = f"castiron.build({str(MLP)!r}, 'mlp', cpu=('x86-64-v3',))"
    done = _python(
        f"import sys, castiron; {build}; assert not [m for m in sys.modules if m.split('.')[0] == 'torch']", tmp_path
    )
    assert done.returncode == 0, done.stderr


def test_torch_is_asked_for_where_it_is_missing(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("import torch\n")
    (tmp_path / "net.pt2").touch()
    block = "import sys; sys.modules['torch'] = None; from castiron import cli; "
    for model in ("net.py:make", "net.pt2"):
        done = _python(f"{block}sys.argv = ['castiron', 'build', {model!r}]; cli.main()", tmp_path)
        assert done.returncode == 2 and "pip install torch" in done.stderr and "Traceback" not in done.stderr


def test_a_reader_may_leave(tmp_path: Path) -> None:
    command = f"{sys.executable} -m castiron explain {MLP} --json | head -c 1"
    done = subprocess.run(
        command, shell=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.stdout == "{" and "Traceback" not in done.stderr and "Error" not in done.stderr


# PyTorch ----------------------------------------------------------------------------------------------------


def test_python_builds_a_module(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module, x = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.GELU()).eval(), torch.randn(2, 3)
    sizes = ({0: torch.export.Dim("batch")},)
    options = {"example_inputs": (x,), "dynamic_shapes": sizes, "cpu": ("x86-64-v3",), "form": "shared"}
    report = castiron.build(module, tmp_path / "libnet.so", **options)
    assert report.path.exists() and report.reference == "pytorch" and all(v.ok for v in report.verdicts)
    with castiron.load(report.path) as model:
        for batch in (1, 7):
            given = np.random.default_rng(0).standard_normal((batch, 3), np.float32)
            (answer,) = model(given).values()
            np.testing.assert_allclose(answer, module(torch.from_numpy(given)).detach().numpy(), atol=1e-6)
    for wrong in ({"optimise": True}, {"form": "dll"}, {"error_budget": 0}, {"cpu": "z80"}, {"shapes": {"z": (1,)}}):
        with pytest.raises(castiron.InputError, match=next(iter(wrong)).removesuffix("s")):
            castiron.build(module, tmp_path / "no", example_inputs=(x,), **wrong)
    with pytest.raises(castiron.InputError, match="example inputs"):
        castiron.build(module, tmp_path / "no")


@pytest.mark.parametrize("form", ["exe", "shared"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(tmp_path: Path, dtype: str, form: str) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(3, 2).to(getattr(torch, dtype)).eval()
    x = torch.randn(4, 3, dtype=getattr(torch, dtype))
    report = castiron.build(module, tmp_path / "net", example_inputs=(x,), cpu=("x86-64-v3",), form=form)
    (verdict,) = report.verdicts
    assert verdict.ok and verdict.error is not None


def test_exported_program(command: Command, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module, x = torch.nn.Linear(3, 2).eval(), torch.randn(4, 3)
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "net.pt2")
    assert command("build", "net.pt2", "-o", "net", "--cpu", "x86-64-v3")[0] == 0
    np.save("x.npy", x.numpy())
    np.save("y.npy", module(x).detach().numpy())
    Path("y.json").write_bytes(subprocess.run(["./net", "x.npy"], check=True, capture_output=True).stdout)
    assert command("compare", "y.json", "y.npy")[0] == 0
    whole = Path("net.pt2").read_bytes()
    Path("net.pt2").write_bytes(whole[: len(whole) // 2])
    status, _, err = command("build", "net.pt2", "-q")
    assert status == 2 and "not a whole .pt2" in err and one_line(err)


# Documentation ----------------------------------------------------------------------------------------------


def test_the_page_of_the_commands_is_fresh() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    generate = [sys.executable, ROOT / "docs" / "generate.py", "--check"]
    done = subprocess.run(generate, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_passes_are_documented_in_their_order() -> None:
    tree = ast.parse((ROOT / "castiron" / "pipeline.py").read_text())
    imports = [n for n in tree.body if isinstance(n, ast.ImportFrom)]
    home = {a.name: str(n.module).removeprefix("castiron.").replace(".", "/") + ".py" for n in imports for a in n.names}
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}

    def called(node: ast.AST) -> list[str]:
        inner = [name for child in ast.iter_child_nodes(node) for name in called(child)]
        own = home.get(node.func.id, "") if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        return [*inner, own] if own.startswith(("graph/", "program/")) and own != "program/text.py" else inner

    graph, lowered, program = (called(functions[n]) for n in ("compile_graph", "lower_source", "compile_programs"))
    last = dict.fromkeys(reversed(program))  # forward comes after prepare, and has all of its passes
    passes = [*dict.fromkeys([*graph, *lowered]), *reversed(last)]
    documented = re.findall(
        r"^\| `((?:graph|program)/\w+\.py)` \|", (ROOT / "docs" / "architecture.md").read_text(), re.M
    )
    assert documented == passes
