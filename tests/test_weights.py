"""Weights inside, beside, or raw at run time: the same bits; and what each wrong file is told."""

from __future__ import annotations

import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import castiron
from castiron.artifact.files import PACKED_HEADER
from castiron.lab.inspect import describe
from castiron.toolchain import elf
from castiron.toolchain.zig import EXECUTABLE, LINK, compiler
from tests.artifacts.builds import MLP, QEMU, RAW, ROOT, X, built, outputs, run

Tensors = dict[str, tuple[str, list[int], bytes]]


def packed() -> bytes:
    """The MLP's packed weights file."""
    return (built(weights="file").parent / "mlp.weights").read_bytes()


def read_raw() -> Tensors:
    """The MLP's .safetensors: name -> (type, shape, bytes)."""
    data = RAW.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    body = data[8 + size :]
    return {n: (e["dtype"], e["shape"], body[slice(*e["data_offsets"])]) for n, e in header.items()}


def write_raw(path: Path, tensors: Mapping[str, tuple[str, list[int], bytes]]) -> Path:
    """A .safetensors of these."""
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))
    return path


def refused(program: Path, *options: str | Path, says: str) -> None:
    """The program ends with status 3 and one line that says so."""
    done = run(program, X, *map(str, options))
    message = done.stderr.decode()
    assert done.returncode == 3, message
    assert done.stdout == b""
    assert message.count("\n") == 1
    assert says in message


# The same bits -------------------------------------------------------------------------------------------------------


def test_every_way_gives_the_same_bits(tmp_path: Path) -> None:
    expected = outputs(built())
    beside = built(weights="file")
    assert sorted(f.name for f in beside.parent.iterdir()) == ["mlp", "mlp.weights"]
    assert outputs(beside) == expected
    for program in (built(), beside):
        assert outputs(program, X, "--weights", str(RAW)) == expected
        assert outputs(program, X, "--weights", str(beside.parent / "mlp.weights")) == expected
    with castiron.load(built("shared")) as inside, castiron.load(built("shared", "file")) as outside:
        for model in (inside, outside, castiron.load(built("shared"), weights=RAW)):
            assert model(X)["y"].tobytes() == expected[128:]


def test_executable_alone(tmp_path: Path) -> None:
    """In a folder of its own, from another one, without an environment, after the build's folder has gone."""
    build, empty, elsewhere = tmp_path / "build", tmp_path / "empty", tmp_path / "elsewhere"
    for folder in (build, empty, elsewhere):
        folder.mkdir()
    castiron.build(str(MLP), build / "mlp")
    shutil.copy(build / "mlp", empty)
    shutil.rmtree(build)
    assert outputs(empty / "mlp", X, cwd=elsewhere) == outputs(built())


def test_weights_are_looked_for_beside_the_executable_only(tmp_path: Path) -> None:
    source = built(weights="file").parent
    program = Path(shutil.copy(source / "mlp", tmp_path))
    refused(program, says="mlp.weights")
    done = run(program, X, cwd=source)  # the current folder has one, which must not count
    assert done.returncode == 3
    shutil.copy(source / "mlp.weights", tmp_path)
    assert outputs(program, X, cwd=Path("/")) == outputs(built())
    link = tmp_path / "bin" / "mlp"
    link.parent.mkdir()
    link.symlink_to(program)
    assert outputs(link) == outputs(built())


def test_save_weights_packs_a_checkpoint(tmp_path: Path) -> None:
    tensors = read_raw()
    kind, shape, data = tensors["fc1.weight"]
    tensors["fc1.weight"] = (kind, shape, (np.frombuffer(data, np.float32) + np.float32(0.25)).tobytes())
    raw, saved = write_raw(tmp_path / "new.safetensors", tensors), tmp_path / "new.weights"
    done = run(built(), X, "--weights", str(raw), "--save-weights", str(saved))
    assert done.returncode == 0, done.stderr
    assert len(saved.read_bytes()) == len(packed())
    expected = outputs(built(), X, "--weights", str(raw), cpu="x86-64-v3")
    assert expected != outputs(built(), cpu="x86-64-v3")
    assert outputs(built(), X, "--weights", str(saved), cpu="x86-64-v3") == expected
    if QEMU:
        arm = built(target="aarch64-linux")
        assert outputs(arm, X, "--weights", str(saved), emulator=QEMU) == expected
    assert sorted(os.listdir(tmp_path)) == ["new.safetensors", "new.weights"]


# Wrong files ---------------------------------------------------------------------------------------------------------

PACKED_FAULTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda d: b"", "is empty"),
    "one byte": (lambda d: d[:1], "too few"),
    "inside the magic": (lambda d: d[:7], "too few"),
    "magic only": (lambda d: d[:8], "is cut off: 8 bytes"),
    "inside the header": (lambda d: d[: PACKED_HEADER.size - 1], "is cut off: 127 bytes"),
    "header only": (lambda d: d[: PACKED_HEADER.size], "cut off"),
    "inside the data": (lambda d: d[: len(d) // 2], "cut off"),
    "one byte short": (lambda d: d[:-1], "cut off"),
    "one byte long": (lambda d: d + b"\0", "expected"),
    "another format": (lambda d: d[:8] + b"\2" + d[9:], "pack the weights again"),
    "another model": (lambda d: d[:16] + bytes([d[16] ^ 1]) + d[17:], "of another model"),
    "something else": (lambda d: b"text" * 100, "no packed weights, safetensors or burnpack file"),
}


@pytest.mark.parametrize("fault", PACKED_FAULTS)
def test_wrong_packed_file(fault: str, tmp_path: Path) -> None:
    damage, says = PACKED_FAULTS[fault]
    program = Path(shutil.copy(built(weights="file"), tmp_path))
    wrong = tmp_path / "mlp.weights"
    wrong.write_bytes(damage(packed()))
    shutil.copy(wrong, tmp_path / "libmlp.weights")
    refused(program, says=says)
    refused(program, says=str(tmp_path))
    refused(built(), "--weights", wrong, says=says)
    library = Path(shutil.copy(built("shared", "file"), tmp_path))
    with pytest.raises(castiron.WeightsError, match=r"libmlp\.weights") as raised:
        castiron.load(library)
    assert says in str(raised.value)


def test_weights_of_another_model() -> None:
    other = built(weights="file", model="conv").parent / "conv.weights"
    refused(built(), "--weights", other, says="model 'mlp' has")


@pytest.mark.parametrize("path", ["/nothing/here.weights", "/", "/dev/null"])
def test_weights_that_are_no_file(path: str) -> None:
    refused(built(), "--weights", path, says=path)


def _with(name: str, change: Callable[[str, list[int], bytes], tuple[str, list[int], bytes]]) -> Tensors:
    tensors = read_raw()
    tensors[name] = change(*tensors[name])
    return tensors


RAW_FAULTS: dict[str, tuple[Callable[[], Tensors], str]] = {
    "shape": (
        lambda: _with("fc1.weight", lambda t, s, d: (t, [4, 8], d)),
        "'fc1.weight' has shape [4,8], expected [8,4]",
    ),
    "rank": (lambda: _with("fc1.bias", lambda t, s, d: (t, [8, 1], d)), "'fc1.bias' has shape [8,1], expected [8]"),
    "type": (lambda: _with("fc2.bias", lambda t, s, d: ("F16", s, d[:6])), "'fc2.bias' has type F16, expected F32"),
    "name": (lambda: {n.replace("fc2", "fc3"): t for n, t in read_raw().items()}, "'fc2.weight' is missing"),
    "missing": (lambda: {n: t for n, t in read_raw().items() if n != "fc1.bias"}, "'fc1.bias' is missing"),
    "extra": (lambda: read_raw() | {"fc9.bias": ("F32", [1], bytes(4))}, "'fc9.bias' is no weight"),
    "bytes": (lambda: _with("fc2.bias", lambda t, s, d: (t, s, d[:8])), "'fc2.bias' has 8 bytes"),
}


@pytest.mark.parametrize("fault", RAW_FAULTS)
def test_wrong_tensor(fault: str, tmp_path: Path) -> None:
    tensors, says = RAW_FAULTS[fault]
    path = write_raw(tmp_path / "raw.safetensors", tensors())
    refused(built(), "--weights", path, says=says)
    with pytest.raises(castiron.WeightsError) as raised:
        castiron.load(built("shared"), weights=path)
    assert says in str(raised.value)


def test_raw_file_cut_at_every_kind_of_boundary(tmp_path: Path) -> None:
    data = RAW.read_bytes()
    (header,) = struct.unpack_from("<Q", data)
    cuts = [0, 1, 7, 8, 9, 8 + header // 2, 8 + header - 1, 8 + header, 8 + header + 1, len(data) - 1]
    path = tmp_path / "raw.safetensors"
    for cut in cuts:
        path.write_bytes(data[:cut])
        refused(built(), "--weights", path, says="raw.safetensors")
    path.write_bytes(data + b"\0")
    refused(built(), "--weights", path, says="1 bytes behind the last tensor")


@pytest.mark.slow
def test_raw_file_cut_everywhere(tmp_path: Path) -> None:
    data, path = RAW.read_bytes(), tmp_path / "raw.safetensors"
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        refused(built(), "--weights", path, says="raw.safetensors")


# Large weights -------------------------------------------------------------------------------------------------------


def test_limit_of_the_object_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf, "LIMIT", 300)
    with pytest.raises(castiron.InputError, match="--weights file"):
        castiron.build(str(MLP), tmp_path / "mlp")
    assert os.listdir(tmp_path) == []
    castiron.build(str(MLP), tmp_path / "mlp", weights="file")
    assert sorted(os.listdir(tmp_path)) == ["mlp", "mlp.weights"]


def test_blob_costs_the_compiler_no_memory(tmp_path: Path) -> None:
    """64 MB through the object writer and the linker, which may have 48 MB of their own; maps of files do not count."""
    size, room = 64 << 20, 48 << 20
    data, blob = tmp_path / "data", tmp_path / "blob.o"
    with data.open("wb") as file:
        file.seek(size - 4)
        file.write(b"tail")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    elf.write_object(blob, 62, [elf.Blob("small", b"head"), elf.Blob("large", data)])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10  # in KiB
    main = tmp_path / "main.c"
    main.write_text(
        "#include <stdio.h>\nextern const char small[], large[];\n"
        'int main(void) { return printf("%.4s %.4s %d", small, '
        f"large + {size - 4}, (int)((size_t)large % 64)) < 0; }}\n"
    )
    program = tmp_path / "main"
    line = [*compiler(), "cc", "-target", "x86_64-linux-musl", *LINK, *EXECUTABLE, main, blob, "-o", program]
    limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (room, room))  # noqa: E731
    subprocess.run(line, check=True, preexec_fn=limit)
    assert subprocess.run([program], capture_output=True).stdout == b"head tail 0"


@pytest.mark.slow
def test_large_weights(tmp_path: Path) -> None:
    """300 MB of weights: seconds, and no process holds more than a few copies of them."""
    rows, columns = 9600, 8192
    model = large_model(tmp_path, rows, columns)
    started = time.monotonic()
    line = [sys.executable, "-m", "castiron", "build", str(model), "-o", str(tmp_path / "large"), "--no-verify", "-q"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    subprocess.run(line, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    size = 4 * rows * columns
    assert time.monotonic() - started < 120
    assert peak < 5 * size or peak == before << 10
    assert size < (tmp_path / "large").stat().st_size < size + (1 << 20)
    x = np.ones((1, rows), np.float32)
    done = run(tmp_path / "large", x, "-o", "-")
    assert done.returncode == 0, done.stderr


def large_model(folder: Path, rows: int, columns: int) -> Path:
    """large.onnx: x[1, rows] times a matrix that lies in a file beside it."""
    block = np.random.default_rng(0).standard_normal(columns).astype(np.float32)
    with (folder / "large.data").open("wb") as file:
        for row in range(rows):
            file.write((block * np.float32(1 + row % 7)).tobytes())
    tensor = TensorProto(name="w", data_type=1, dims=[rows, columns], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="large.data")
    ports = [helper.make_tensor_value_info(n, 1, [1, s]) for n, s in (("x", rows), ("y", columns))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "large", ports[:1], ports[1:], [tensor])
    path = folder / "large.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString())
    return path


# Told about ----------------------------------------------------------------------------------------------------------


def test_inspect_tells_a_cut_file(tmp_path: Path) -> None:
    path = tmp_path / "mlp.weights"
    path.write_bytes(packed()[:-1])
    assert "cut off" in describe(path)["state"]
    path.write_bytes(packed()[:20])
    with pytest.raises(castiron.WeightsError, match="cut off"):
        describe(path)


def test_embedded_weights_are_aligned() -> None:
    """Packed weights lie in the file at a multiple of 64, so that the pages mapped from it serve vector loads."""
    data = packed()[PACKED_HEADER.size :]
    place = built().read_bytes().find(data)
    assert place >= 0
    assert place % 64 == 0
