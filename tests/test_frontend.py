"""Models from files, functions and modules; what the user reads where they are wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from castiron.errors import CastironError, InputError, ModelError
from castiron.frontend import example_inputs, load
from castiron.frontend.float64 import in_float64


def _linear(batch: object = "N") -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3) / 8, "fc.weight")
    scale = numpy_helper.from_array(np.float32(2), "scale")
    nodes = [
        helper.make_node("MatMul", ["x", "fc.weight"], ["h"], "matmul"),
        helper.make_node("Mul", ["h", "scale"], ["y"], "mul"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "linear", [x], [y], [weight, scale])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    path = tmp_path / "linear.onnx"
    onnx.save(_linear(), path)
    return path


def test_onnx_file(linear: Path) -> None:
    source = load(linear)
    assert (source.name, source.framework, source.origin) == ("linear", "onnx", linear)
    assert source.parameters == {"fc.weight"}
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    assert source.run is not None and source.run64 is not None
    exact = source.run64({"x": x})["y"]
    assert exact.dtype == np.float64
    np.testing.assert_allclose(source.run({"x": x})["y"], exact, rtol=1e-6)


def test_model_in_memory(linear: Path) -> None:
    source = load(ir.load(linear))
    assert source.run is not None
    assert source.run({"x": np.ones((1, 4), np.float32)})["y"].shape == (1, 3)


def test_external_data(tmp_path: Path) -> None:
    path = tmp_path / "big.onnx"
    onnx.save(_linear(), path, save_as_external_data=True, location="big.data", size_threshold=0)
    weight = load(path).model.graph.initializers["fc.weight"].const_value
    assert isinstance(weight, ir.ExternalTensor) and weight.numpy()[3, 2] == np.float32(11 / 8)
    data = tmp_path / "big.data"
    data.write_bytes(data.read_bytes()[:20])
    with pytest.raises(ModelError, match="cut off"):
        load(path)
    data.unlink()
    with pytest.raises(ModelError, match="missing"):
        load(path)


def test_a_cut_file_never_loads_silently(linear: Path, tmp_path: Path) -> None:
    whole = linear.read_bytes()
    for size in range(0, len(whole) - 1, 7):
        cut = tmp_path / "cut.onnx"
        cut.write_bytes(whole[:size])
        with pytest.raises((ModelError, InputError)):
            load(cut)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.onnx", None, "no such file"),
        ("garbage.onnx", b"not a model at all" * 9, "not a whole ONNX model|no graph"),
        ("model.txt", b"", "castiron reads"),
        ("model.py", b"", "name the function"),
        ("state.pt", b"garbage", "no TorchScript"),
        ("model.pt2", b"garbage", "not a whole .pt2"),
    ],
)
def test_wrong_files(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    if path.suffix in (".pt", ".pt2"):
        pytest.importorskip("torch")
    with pytest.raises(CastironError, match=message):
        load(path)


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        load(tmp_path)


def test_undefined_value(tmp_path: Path) -> None:
    model = _linear()
    model.graph.node[0].input[0] = "nowhere"
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="'nowhere', which nothing before it makes"):
        load(tmp_path / "m.onnx")


def test_onnx_never_imports_torch(linear: Path) -> None:
    code = f"import sys; from castiron.frontend import load; load({str(linear)!r}); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent)


def test_float64_keeps_what_must_be_float32() -> None:
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest")]
    scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 2, 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 4, 4])
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], [scales]), opset_imports=[helper.make_opsetid("", 18)]
    )
    wide = in_float64(model)
    onnx.checker.check_model(wide, full_check=True)
    assert model.graph.initializer[0].data_type == TensorProto.FLOAT
    result = onnx.reference.ReferenceEvaluator(wide).run(None, {"x": np.ones((1, 1, 2, 2))})[0]
    assert result.dtype == np.float64 and result.shape == (1, 1, 4, 4)


def test_example_inputs_without_dimensions() -> None:
    ports = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in (("x", [2]), ("s", []), ("y", None))
    ]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "s"], ["y"])], "g", ports[:2], ports[2:])
    assert example_inputs(ir.from_proto(helper.make_model(graph)))["s"].shape == ()


def test_example_inputs_fit_tables() -> None:
    table = numpy_helper.from_array(np.zeros((50, 8), np.float32), "table")
    nodes = [helper.make_node("Gather", ["table", "ids"], ["e"]), helper.make_node("Add", ["e", "bias"], ["y"])]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "time"])
    bias = helper.make_tensor_value_info("bias", TensorProto.FLOAT, ["batch", "time", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = ir.from_proto(helper.make_model(helper.make_graph(nodes, "g", [ids, bias], [y], [table])))
    made = example_inputs(model)
    assert made["ids"].shape == made["bias"].shape[:2] and made["ids"].shape[0] != made["ids"].shape[1]
    assert 1 < made["ids"].max() < 50
    assert example_inputs(model, {"ids": (1, 9)})["bias"].shape == (1, 9, 8)
    assert all(np.array_equal(a, b) for a, b in zip(made.values(), example_inputs(model).values()))


# PyTorch ----------------------------------------------------------------------------------------------------


def test_function_of_a_file() -> None:
    pytest.importorskip("torch")
    source = load(f"{Path(__file__).parent / 'zoo.py'}:mlp")
    assert source.name == "mlp" and source.framework == "pytorch"
    assert source.parameters == {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}
    assert source.inputs is not None and source.run is not None and source.run64 is not None
    assert str(source.model.graph.inputs[0].shape) == "[batch,4]"
    (name,) = source.run(source.inputs)
    assert name == source.model.graph.outputs[0].name
    x = {k: v[:1] for k, v in source.inputs.items()}
    np.testing.assert_allclose(source.run(x)[name], source.run64(x)[name], atol=1e-6)


def test_missing_function_lists_what_there_is() -> None:
    pytest.importorskip("torch")
    with pytest.raises(InputError, match=r"no function 'resnet19'; it has .*resnet18"):
        load(f"{Path(__file__).parent / 'zoo.py'}:resnet19")
    with pytest.raises(InputError, match="cannot import"):
        load("no_such_package.models:make")


def test_module_needs_inputs_and_keeps_its_mode() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.5))
    module.train()
    with pytest.raises(InputError, match="example inputs"):
        load(module)
    source = load(module, (torch.ones(1, 3),))
    assert module.training and source.parameters == {"0.weight", "0.bias"}


def test_exported_program(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(3, 2).eval()
    path = tmp_path / "linear.pt2"
    torch.export.save(torch.export.export(module, (torch.ones(1, 3),)), path)
    source = load(path)
    assert source.parameters == {"weight", "bias"} and source.run is not None and source.inputs is not None
    (result,) = source.run(source.inputs).values()
    np.testing.assert_allclose(result, module(torch.ones(1, 3)).detach().numpy(), rtol=1e-6)


def test_torchscript(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module, x = torch.nn.Linear(3, 2).eval(), torch.ones(4, 3)
    path = tmp_path / "linear.pt"
    torch.jit.trace(module, x).save(path)
    with pytest.raises(InputError, match="does not say what its inputs are"):
        load(path)
    source = load(torch.jit.load(path), (x,), ({0: torch.export.Dim("batch")},))
    assert str(source.model.graph.inputs[0].shape) == "[batch,3]" and source.parameters == {"weight", "bias"}
    assert source.run is not None and source.inputs is not None
    (result,) = source.run(source.inputs).values()
    np.testing.assert_allclose(result, module(x).detach().numpy(), rtol=1e-6)
    torch.save(module.state_dict(), path)
    with pytest.raises(ModelError, match="checkpoint"):
        load(path)


FUNCTIONS = """
import torch

class Raises(torch.nn.Module):
    def forward(self, x):
        raise RuntimeError("boom")

class Bessel(torch.nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x) + torch.special.bessel_j0(2 * x) + torch.special.zeta(x, x)

def wrong(): return 5
def alone(): return (torch.nn.Linear(2, 2),)
def fails(): raise ValueError("mine")
def leaves(): raise SystemExit(3)
def number(): return torch.nn.Linear(2, 2), 5
def other(): return 3, (torch.ones(1),)
def raises(): return Raises(), (torch.ones(1),)
def misfit(): return torch.nn.Linear(2, 2), (torch.ones(1, 3),)
def bessel(): return Bessel(), (torch.ones(1),)
"""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("wrong", "must return .*not int"),
        ("alone", "must return .*not a tuple of 1"),
        ("fails", r"net.py:fails fails: ValueError: mine \(.*net.py:14\)"),
        ("leaves", "SystemExit: 3"),
        ("number", "example inputs are a tuple .*not int"),
        ("other", "not int"),
        ("raises", r"cannot export it: RuntimeError: boom \(.*net.py:6\)"),
        ("misfit", "must have same reduction dim"),
        ("bessel", r"(?s)bessel_j0.default, 2 times\n.*net.py:10\).*zeta.default, 1 time"),
    ],
)
def test_what_can_be_wrong_with_a_function(
    tmp_path: Path, function: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(FUNCTIONS)
    with pytest.raises(CastironError, match=message):
        load(f"{tmp_path / 'net.py'}:{function}")
    assert capfd.readouterr() == ("", "")


def test_what_a_function_prints_is_no_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(
        "import torch\nprint('a')\ndef make():\n    print('b')\n    return torch.nn.ReLU(), (torch.ones(1),)\n"
    )
    load(f"{tmp_path / 'net.py'}:make")
    assert capfd.readouterr() == ("", "a\nb\n")


def test_complex_numbers_are_pairs() -> None:
    torch = pytest.importorskip("torch")

    class Turn(torch.nn.Module):  # type: ignore[misc]
        def forward(self, z: object) -> object:
            return torch.view_as_complex(torch.view_as_real(z) * 2).conj()

    z = torch.tensor([1 + 2j, 3 - 1j])
    source = load(Turn(), (z,))
    assert source.inputs is not None and source.run is not None and source.run64 is not None
    assert source.inputs["z"].tolist() == [[1, 2], [3, -1]]
    ran, exact = (next(iter(run(source.inputs).values())) for run in (source.run, source.run64))
    assert ran.tolist() == exact.tolist() == [[2, -4], [6, 2]]
    assert (ran.dtype, exact.dtype) == (np.float32, np.float64)


def test_a_module_in_training_is_taken_as_it_is_in_use() -> None:
    """And left as it was: flags of each submodule, statistics of batches."""
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.5))
    module[1].eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    x = torch.randn(5, 4)
    source = load(module, (x,))
    assert source.run is not None and source.run64 is not None
    (first,), (second,), (exact,) = (
        list(run({"input": x.numpy()}).values()) for run in (source.run, source.run, source.run64)
    )
    assert [m.training for m in module.modules()] == [True, True, False, True]
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, exact, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(first, module.eval()(x).detach().numpy())
