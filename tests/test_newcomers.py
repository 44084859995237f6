"""What newcomers do: each mistake gets one message that says what to do, each odd but clear wish is granted."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import helper

import castiron
from castiron.toolchain import elf
from tests.commanding import Command, command, errors_of, one_line

__all__ = ["command"]  # a fixture

MLP = Path(__file__).parent.parent / "examples" / "mlp.onnx"
FAST = ("--cpu", "x86-64-v3", "--quiet")

NET = """
import numpy
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 4)

    def forward(self, x):
        return self.layer(x)

def random(): return Net(), (torch.ones(2, 3),)
def alone(): return Net(), torch.ones(2, 3)
def array(): return Net(), numpy.ones((2, 3), numpy.float32)
def a_class(): return Net, (torch.ones(2, 3),)
def only(): return Net()
def only_class(): return Net
def four(): return Net(), 1, 2, 3
def nothing(): pass
def seeded():
    torch.manual_seed(0)
    return random()
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    """A file of functions, as users write them."""
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(NET)
    return "net.py:"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The MLP as a shared library under another name than the model's."""
    path = tmp_path_factory.mktemp("library") / "libother.so"
    castiron.build(str(MLP), path, form="shared", cpu=("x86-64-v3",))
    return path


# Functions that return models --------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["alone", "array"])
def test_one_example_input_needs_no_tuple(command: Command, net: str, function: str) -> None:
    assert command("explain", net + function)[0] == 0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("a_class", "Net is a class; give an instance of it, such as Net()"),
        ("only", "must return (module, example_inputs) or (module, example_inputs, dynamic_shapes), not Net; for"),
        ("only_class", "not the class Net; for example `return Net(), (torch.randn(1, 3),)`"),
        ("Net", "not Net; for example"),
        ("four", "not a tuple of 4"),
        ("nothing", "not None"),
    ],
)
def test_functions_that_return_something_else(command: Command, net: str, function: str, message: str) -> None:
    status, out, err = command("build", net + function, "-q")
    assert status == 2 and out == "" and message in err and one_line(err)


def test_random_weights_are_told_from_a_wrong_artifact(command: Command, net: str) -> None:
    assert command("build", net + "seeded", "-o", "net", *FAST)[0] == 0
    status, out, _ = command("verify", "net", "--against", net + "seeded")
    assert status == 0 and out.endswith("OK\n")
    status, out, _ = command("verify", "net", "--against", net + "random")
    assert status == 1 and "MISMATCH\nnet.py:random makes other weights at each call" in out and "manual_seed" in out
    shutil.copy("net.py", "changed.py")
    Path("changed.py").write_text(Path("net.py").read_text().replace("manual_seed(0)", "manual_seed(1)"))
    status, out, _ = command("verify", "net", "--against", "changed.py:seeded")
    assert status == 1 and out.endswith("MISMATCH\n")


# Artifacts ---------------------------------------------------------------------------------------------------


def test_an_artifact_of_another_model(command: Command, library: Path, tmp_path: Path) -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    ports = [[helper.make_tensor_value_info(n, 1, [5])] for n in "xy"]
    model = helper.make_model(helper.make_graph([relu], "g", *ports), opset_imports=[helper.make_opsetid("", 20)])
    model.ir_version = 10
    onnx.save(model, "relu.onnx")
    assert command("build", "relu.onnx", "-o", "relu", *FAST)[0] == 0
    for artifact, against in (("relu", MLP), (library, "relu.onnx")):
        status, out, err = command("verify", artifact, "--against", against)
        said = errors_of(err)
        assert status == 2 and out == "" and one_line(said) and "castiron-run" not in said
        assert f"{artifact} does not take the inputs of {against}: " in said and "input 'x': expected float32[" in said


def test_folders_are_said_to_be(command: Command, library: Path) -> None:
    assert command("build", MLP, "-o", "source", "--as", "source", "--no-verify", "-q")[0] == 0
    status, _, err = command("verify", "source", "--against", MLP)
    assert (
        status == 2 and "source is a folder of C; build the executable as its README.md says" in err and one_line(err)
    )
    status, out, _ = command("inspect", "source")
    assert status == 0 and "model as C" in out and "name: mlp" in out
    for name in ("verify", "inspect"):
        status, _, err = command(name, library.parent, *(["--against", MLP] if name == "verify" else []))
        assert status == 2 and "is a folder; name a file in it, such as libother.so" in err and one_line(err)


def test_a_library_tells_what_it_takes(command: Command, library: Path) -> None:
    status, out, _ = command("inspect", library)
    assert status == 0 and "[batch, 4]" in out and "fc1.weight" in out and "isas: [x86-64-v3]" in out
    with castiron.load(library) as model:
        assert model.about["outputs"] == [{"name": "y", "type": "float32", "shape": ["batch", 3]}]
        with pytest.raises(castiron.InputError, match=r"float64\[2, 4\]; convert it with \.astype\(np\.float32\)"):
            model(np.ones((2, 4)))
        with pytest.raises(castiron.InputError, match="cannot be passed"):
            model(np.array([None]))


def test_a_header_is_named_after_its_library(command: Command, library: Path) -> None:
    assert sorted(f.name for f in library.parent.iterdir()) == ["libother.so", "other.h"]


# Options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["9bad", "a-b", "ü", "int", "ci_x", "_x", ""])
def test_names_that_c_does_not_take(command: Command, name: str) -> None:
    status, _, err = command("build", MLP, "--name", name, "-q")
    assert status == 2 and f"name {name!r} cannot begin the names of C functions" in err and one_line(err)


def test_a_form_that_is_none(command: Command) -> None:
    status, _, err = command("build", MLP, "--as", "dll")
    assert status == 2 and one_line(err) and "Value error" not in err and "'exe', 'shared', 'static', 'source'" in err


def test_a_folder_that_is_not_there(command: Command) -> None:
    np.save("x.npy", np.zeros((1, 4), np.float32))
    for arguments in (("build", MLP, "-q", "-o", "no/where/mlp"), ("run", MLP, "x.npy", "-o", "no/where/y.npz")):
        status, _, err = command(*arguments)
        assert status == 2 and "no/where does not exist; make that folder" in err and one_line(err)
        assert not Path("no").exists()


def test_a_model_is_no_set_of_arrays(command: Command) -> None:
    np.save("x.npy", np.zeros((1, 4), np.float32))
    status, _, err = command("compare", MLP, "x.npy")
    assert status == 2 and "neither .npy, .npz nor JSON" in err and "castiron run" in err and one_line(err)
    Path("noise").write_bytes(bytes(range(128, 256)))
    status, _, err = command("compare", "noise", "noise")
    assert status == 2 and err == "castiron: noise is neither .npy, .npz nor JSON\n"


def test_nodes_without_names_are_called_after_their_outputs(command: Command) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["first"]),
        helper.make_node("Foo", ["first"], ["second"], domain="my"),
        helper.make_node("Foo", ["second"], ["y"], domain="my"),
    ]
    ports = [[helper.make_tensor_value_info(n, 1, [5])] for n in "xy"]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("my", 1)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", *ports), opset_imports=opsets, ir_version=10), "m.onnx")
    status, _, err = command("build", "m.onnx", "-q")
    assert status == 2 and "my::Foo, 2 times" in err and "'second', 'y'" in err


def test_weights_that_fit_no_file_are_refused_before_the_source_runs(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elf, "LIMIT", 100)
    monkeypatch.setattr("castiron.pipeline.vectors", lambda *_: pytest.fail("the source has been run"))
    status, _, err = command("build", MLP, "-o", "mlp", *FAST)
    assert status == 2 and "--weights file" in err and one_line(err) and not Path("mlp").exists()


def test_costs_are_told_for_the_example_too(command: Command) -> None:
    size = "a_size_of_a_very_long_name"
    x, y = (helper.make_tensor_value_info("x", 1, [size, 70_000]), helper.make_tensor_value_info("y", 1, None))
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), "m.onnx")
    status, out, _ = command("explain", "m.onnx")
    assert status == 0 and "FLOPs: 70,000·n\nFLOPs on the example: 140,000\n" in out
    assert f"n     {size}               2" in out and "float32 [n, 70000]" in out
    (row,) = json.loads(command("explain", "m.onnx", "--json")[1])["forward"]
    assert (row["flops"], row["flops_here"]) == (f"70000·{size}", 140_000)


def test_weights_missing_beside_an_artifact_are_asked_for_there(command: Command) -> None:
    assert command("build", MLP, "-o", "mlp", "--weights", "file", *FAST)[0] == 0
    Path("other").mkdir()
    Path("mlp").rename("other/mlp")
    status, _, err = command("verify", "other/mlp", "--against", MLP)
    assert status == 3 and "'other/mlp.weights': is not there" in err and one_line(errors_of(err))


def test_an_input_that_is_given_twice(command: Command) -> None:
    np.save("x.npy", np.zeros((1, 4), np.float32))
    status, _, err = command("run", MLP, "x=x.npy", "x=x.npy")
    assert status == 2 and "input 'x' is given twice" in err and one_line(err)


def test_a_full_disk_is_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("castiron.dump.ir.save", full)
    status, _, err = command("explain", MLP, "--dump", "stages")
    assert status == 2 and "--dump stages: cannot be written to (No space left" in err and one_line(errors_of(err))

    def aborted(*_: object, **__: object) -> None:
        raise castiron.ToolchainError("the C compiler was ended by signal 6")

    monkeypatch.setattr("castiron.pipeline.make", aborted)
    status, _, err = command("build", MLP, "-o", "mlp", *FAST)
    assert status == 1 and "signal 6" in err
    monkeypatch.setattr("castiron.artifact.staging.shutil.disk_usage", lambda _: SimpleNamespace(free=30 << 10))
    status, _, err = command("build", MLP, "-o", "mlp", *FAST)
    assert status == 2 and "mlp cannot be written: only 30 KiB of its disk are free" in err and one_line(err)


def test_the_version(command: Command) -> None:
    assert command("--version") == (0, f"castiron {castiron.__version__}\n", "")
    assert "--version" in command("--help")[1] and "Compiles PyTorch and ONNX models" in command("--help")[1]
