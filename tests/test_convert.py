"""Files of weights as each other: .safetensors and burn's .bpk; what each hostile file is told."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cbor2
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from castiron import cli
from castiron.errors import InputError, WeightsError
from castiron.weights import convert, read
from castiron.weights.stored import SIZES

MLP = Path(__file__).parent.parent / "examples" / "mlp.safetensors"

Tensors = dict[str, tuple[str, list[int], bytes]]


def contents(path: Path) -> Tensors:
    """name -> (type, shape, bytes) of either format."""
    data = path.read_bytes()
    return {t.name: (t.dtype, list(t.shape), data[t.start : t.end]) for t in read(path).tensors}


def save(path: Path, tensors: Mapping[str, tuple[str, list[int], bytes]], metadata: Any = None) -> Path:
    """A .safetensors, in this order."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for *_, data in tensors.values()))
    return path


def pack(path: Path, said: Any, data: bytes = b"", version: int = 1, aligned: bool = True) -> Path:
    """A .bpk of these metadata (bytes, or to be encoded) and data."""
    text = said if isinstance(said, bytes) else cbor2.dumps(said)
    head = struct.pack("<4sHI", b"NRUB", version, len(text)) + text
    path.write_bytes(head + bytes(-len(head) % 256 if aligned else 0) + data)
    return path


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8), **more: Any) -> dict[str, Any]:
    """What .bpk says of a tensor."""
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


# There and back ------------------------------------------------------------------------------------------------------


def test_the_mlp_as_burnpack(tmp_path: Path) -> None:
    done = convert(MLP, tmp_path / "mlp.bpk")
    assert (done.tensors, done.bytes, done.notes) == (4, 4 * 67, ())
    data = (tmp_path / "mlp.bpk").read_bytes()
    magic, version, size = struct.unpack_from("<4sHI", data)
    said = cbor2.loads(data[10 : 10 + size])
    assert (magic, version, len(data)) == (b"NRUB", 1, 1120)
    assert list(said) == ["tensors"]
    assert list(said["tensors"]) == sorted(said["tensors"])
    assert all(list(e) == ["dtype", "shape", "data_offsets"] for e in said["tensors"].values())
    convert(tmp_path / "mlp.bpk", tmp_path / "back.safetensors")
    assert contents(tmp_path / "back.safetensors") == contents(MLP)
    assert set(safetensors.numpy.load_file(tmp_path / "back.safetensors")) == set(contents(MLP))


def test_adapters_of_the_mlp(tmp_path: Path) -> None:
    convert(MLP, tmp_path / "mlp.bpk", "pytorch-to-burn")
    found, own = contents(tmp_path / "mlp.bpk"), contents(MLP)
    assert found["fc1.weight"][1] == [4, 8]
    expected = np.frombuffer(own["fc1.weight"][2], "f4").reshape(8, 4).T
    assert found["fc1.weight"][2] == expected.tobytes()
    assert found["fc1.bias"] == own["fc1.bias"]
    convert(tmp_path / "mlp.bpk", tmp_path / "back.safetensors", "burn-to-pytorch")
    assert contents(tmp_path / "back.safetensors") == own


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


@st.composite
def tensors(draw: st.DrawFn) -> Tensors:
    """Any tensors that both formats have."""
    out: Tensors = {}
    types = sorted(set(SIZES) - {"FLEX32", "BOOL32", "C64", "F8_E4M3", "F8_E5M2", "F8_E8M0"})
    for name in draw(st.lists(NAMES.filter(lambda n: n != "__metadata__"), unique=True, max_size=6)):
        dtype, shape = draw(st.sampled_from(types)), draw(st.lists(st.integers(0, 5), max_size=4))
        size = SIZES[dtype] * int(np.prod(shape, dtype=int))
        fill = st.just(b"\1") if dtype == "BOOL" else st.binary(min_size=1, max_size=7)
        out[name] = dtype, shape, (draw(fill) * (size + 1))[:size]
    return out


@settings(max_examples=60, deadline=None)
@given(tensors(), st.dictionaries(NAMES, NAMES, max_size=3))
def test_there_and_back_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, made: Tensors, metadata: dict[str, str]
) -> None:
    folder = tmp_path_factory.mktemp("convert")
    first = save(folder / "a.safetensors", made, metadata)
    for before, after in (("a.safetensors", "b.bpk"), ("b.bpk", "c.safetensors"), ("c.safetensors", "d.bpk")):
        convert(folder / before, folder / after)
        assert contents(folder / after) == contents(first) == made
        assert read(folder / after).metadata == metadata
    assert {n for n, _ in safetensors.deserialize((folder / "c.safetensors").read_bytes())} == set(made)


def test_the_types_of_burn(tmp_path: Path) -> None:
    said = {
        "tensors": {
            "a": entry("Flex32"), "b": entry({"Bool": "U32"}, [2], [256, 264]), "c": entry("Bool", [1], [512, 513]),
            "d": entry({"Bool": "Native"}, [1], [768, 769], param_id=7, more=[1]),
        },
        "scalars": {"step": {"UInt": 3}},
    }  # fmt: skip
    data = struct.pack("<ff248xII248x?255x?", 1, 2, 1, 0, True, False)
    done = convert(pack(tmp_path / "a.bpk", said, data), tmp_path / "a.safetensors")
    found = safetensors.numpy.load_file(tmp_path / "a.safetensors")
    assert {n: (a.dtype.str, a.tolist()) for n, a in found.items()} == {
        "a": ("<f4", [1, 2]), "b": ("|b1", [True, False]), "c": ("|b1", [True]), "d": ("|b1", [False]),
    }  # fmt: skip
    assert "a of type Flex32" in done.notes[0] and "scalar 'step'" in done.notes[1]


def test_data_of_burn_0_19_begin_at_once(tmp_path: Path) -> None:
    said = {"tensors": {"a": entry(), "b": entry("U8", [3], [8, 11])}}
    file = pack(tmp_path / "a.bpk", said, bytes(range(11)), aligned=False)
    assert contents(file) == {"a": ("F32", [2], bytes(range(8))), "b": ("U8", [3], bytes([8, 9, 10]))}


def test_empty_files(tmp_path: Path) -> None:
    convert(save(tmp_path / "a.safetensors", {}), tmp_path / "a.bpk")
    convert(tmp_path / "a.bpk", tmp_path / "b.safetensors")
    assert contents(tmp_path / "b.safetensors") == {}
    pack(tmp_path / "short.bpk", {"tensors": {}}, aligned=False)
    assert contents(tmp_path / "short.bpk") == {}


@pytest.mark.skipif(sys.platform != "linux", reason="address space limits are Linux's")
def test_memory_does_not_grow_with_the_files(tmp_path: Path) -> None:
    """180 MB with 60 MB of memory for data; a matrix that is transposed among them."""
    rows, columns = 1000, 25_000
    entries = {"up.bias": (rows,), "up.weight": (rows, columns), "rest": (20_000_000,)}
    header, end = {}, 0
    for name, shape in entries.items():
        start, end = end, end + 4 * int(np.prod(shape))
        header[name] = entry("F32", shape, (start, end))
    text = json.dumps(header).encode()
    with (tmp_path / "a.safetensors").open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.truncate(8 + len(text) + end)
    script = (
        "import resource, sys; from castiron.weights import convert; own = resource.getrlimit(resource.RLIMIT_DATA)[1];"
        "grown = int(next(l for l in open('/proc/self/status') if l.startswith('VmData')).split()[1]) * 1024;"
        "resource.setrlimit(resource.RLIMIT_DATA, (grown + 60_000_000, own));"
        "done = convert(sys.argv[1], sys.argv[2], 'pytorch-to-burn'); assert done.transposed == ('up.weight',)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "a.safetensors", tmp_path / "a.bpk"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert {t.name: t.shape for t in read(tmp_path / "a.bpk").tensors}["up.weight"] == (columns, rows)


# Adapters ------------------------------------------------------------------------------------------------------------


def floats(*shape: int) -> tuple[str, list[int], bytes]:
    """A tensor of small numbers."""
    return "F32", list(shape), np.arange(np.prod(shape), dtype=np.float32).tobytes()


def adapt(tmp_path: Path, given: Tensors, **options: Any) -> dict[str, list[int]]:
    """Shapes by name after pytorch-to-burn; and back again, the same bytes."""
    source = save(tmp_path / "a.safetensors", given)
    done = convert(source, tmp_path / "a.bpk", "pytorch-to-burn", **options)
    convert(tmp_path / "a.bpk", tmp_path / "b.safetensors", "burn-to-pytorch", **options)
    assert contents(tmp_path / "b.safetensors") == given
    found = contents(tmp_path / "a.bpk")
    assert set(done.renamed.values()) <= set(found)
    return {name: shape for name, (_, shape, _) in found.items()}


def test_norms_and_convolutions_by_their_shapes(tmp_path: Path) -> None:
    given = {"conv.weight": floats(4, 3, 1, 1), "conv.bias": floats(4), "fc.weight": floats(2, 4), "fc.bias": floats(2)}
    given |= {f"bn.{own}": floats(4) for own in ("weight", "bias", "running_mean", "running_var")}
    given |= {"bn.num_batches_tracked": ("I64", [], bytes(8))}
    assert adapt(tmp_path, given) == {
        "conv.weight": [4, 3, 1, 1], "conv.bias": [4], "fc.weight": [4, 2], "fc.bias": [2], "bn.gamma": [4],
        "bn.beta": [4], "bn.running_mean": [4], "bn.running_var": [4], "bn.num_batches_tracked": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"head.weight": floats(3, 2)}, "'head.weight' may be of a Linear without a bias"),
        ({"n.weight": floats(3)}, "'n.weight' may be of a norm without a bias"),
        ({"c.weight": floats(3, 2), "c.bias": floats(2)}, "stored the other way already"),
        ({"c.weight": floats(3, 2), "c.bias": floats(5)}, "its bias has [5], a Linear would have [3]"),
        ({"n.weight": floats(3), "n.bias": floats(3), "n.gamma": floats(3)}, "'n.weight' and 'n.gamma' would both"),
    ],
)
def test_what_names_and_shapes_do_not_tell_is_asked_for(tmp_path: Path, given: Tensors, says: str) -> None:
    source = save(tmp_path / "a.safetensors", given)
    with pytest.raises(WeightsError) as refused:
        convert(source, tmp_path / "a.bpk", "pytorch-to-burn")
    assert says in str(refused.value)
    assert not (tmp_path / "a.bpk").exists()


def test_pattern_that_matches_no_layer(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--linear tail matches no layer.*head"):
        adapt(tmp_path, {"head.weight": floats(3, 2)}, linear=["head", "tail"])


def test_linear_layers_by_pattern(tmp_path: Path) -> None:
    given = {"emb.weight": floats(3, 2), "blocks.0.up.weight": floats(3, 2), "head.weight": floats(3, 2)}
    found = adapt(tmp_path, given, linear=["blocks.*", "head"])
    assert found == {"emb.weight": [3, 2], "blocks.0.up.weight": [2, 3], "head.weight": [2, 3]}


def test_layers_of_a_module(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    module = nn.ModuleDict(
        {"emb": nn.Embedding(5, 4), "up": nn.Linear(4, 3, bias=False), "rms": nn.RMSNorm(3), "act": nn.PReLU(3)}
        | {"bn": nn.BatchNorm2d(3), "lstm": nn.LSTM(3, 2)}
    )
    given = {n: ("F32", list(t.shape), t.numpy().tobytes()) for n, t in module.state_dict().items() if t.dim()}
    found = adapt(tmp_path, given, module=module)
    assert found["emb.weight"] == [5, 4] and found["up.weight"] == [4, 3]
    assert {"rms.gamma", "act.weight", "bn.gamma", "bn.beta", "bn.running_mean"} <= set(found)
    notes = convert(tmp_path / "a.safetensors", tmp_path / "a.bpk", "pytorch-to-burn", module=module).notes
    assert "lstm.weight_ih_l0 (and 3 more) stayed as it is" in notes[0]
    save(tmp_path / "c.safetensors", {"other.weight": floats(2, 2)})
    with pytest.raises(InputError, match=r"no layer of tensor 'other\.weight'"):
        convert(tmp_path / "c.safetensors", tmp_path / "c.bpk", "pytorch-to-burn", module=module)


# Hostile files -------------------------------------------------------------------------------------------------------

F32 = entry()
NESTED = b"\x81" * 5000 + b"\0"


@pytest.mark.parametrize(
    ("said", "data", "says"),
    [
        ({"tensors": {"a": F32}}, b"1234567", "cut off: tensor 'a' ends at byte 264, the file at 263"),
        ({"tensors": {"a": F32}}, bytes(9), "too long: 1 bytes follow its last tensor"),
        ({"tensors": {"a": F32, "b": F32}}, bytes(8), "'a' and 'b' overlap"),
        ({"tensors": {"a": F32, "b": entry(offsets=[4, 12])}}, bytes(12), "'a' and 'b' overlap"),
        ({"tensors": {"a": F32, "b": entry(offsets=[128, 136])}}, bytes(136), "'b' begins at byte 128"),
        ({"tensors": {"a": entry(shape=[3])}}, bytes(8), "'a': F32 [3] takes 12 bytes, the file has 8"),
        ({"tensors": {"a": entry(shape=[1 << 63, 1 << 63])}}, bytes(8), "'a': F32"),
        ({"tensors": {"a": entry(offsets=[8, 0])}}, bytes(8), "'a': its data_offsets are not"),
        ({"tensors": {"a": entry(offsets=[0, (1 << 64) - 1])}}, bytes(8), "'a': F32 [2] takes 8 bytes"),
        ({"tensors": {"a": entry(shape=[-1])}}, bytes(8), "'a': its shape is not a list of sizes"),
        ({"tensors": {"a": entry(shape=[True, 2])}}, bytes(8), "'a': its shape is not a list of sizes"),
        ({"tensors": {"a": {"dtype": "F32", "shape": [2]}}}, bytes(8), "'a': its data_offsets are not"),
        ({"tensors": {"a": entry("F8")}}, bytes(8), "'a': its type 'F8' is not known"),
        ({"tensors": {"a": entry({"QFloat": {"value": "Q8S"}})}}, bytes(8), "'a' is quantized (QFloat)"),
        ({"tensors": {"a": entry({"Bool": "U16"})}}, bytes(8), "'a': its type {'Bool': 'U16'} is not known"),
        ({"tensors": {"a": 5}}, b"", "'a': the metadata say nothing sensible"),
        ({"tensors": [F32]}, b"", "no table of tensors"),
        ({"tensors": {b"a": F32}}, bytes(8), "no table of tensors"),
        ({"weights": {}}, b"", "no table of tensors"),
        ({"tensors": {}, "metadata": {"a": 1}}, b"", "not text by name"),
        ({"tensors": {}, "scalars": []}, b"", "scalars are not a table"),
        ({"tensors": {}}, bytes(700), "too long: it has no tensors"),
        ([], b"", "its metadata are not a table"),
        (NESTED, b"", "maximum container nesting depth"),
        (b"\xa1\x67tensors" + NESTED, b"", "maximum container nesting depth"),
        (b"\xbf\xff", b"", "indefinite length"),
        (b"\xa1\x67tensors\xa2\x61a\0\x61a\0", b"", "Duplicate map key: 'a'"),
        (b"\xa1\x67tensors\xa0\0", b"", "1 bytes follow its metadata"),
        (b"\xbb" + b"\xff" * 8, b"", "premature end"),
        (b"\x9b\x7f" + b"\xff" * 7, b"", "premature end"),
        (b"\xd8\x1c\x81\xd8\x1d\0", b"", "burnpack has no tags"),
        (b"\xd8\x23\x61(", b"", "burnpack has no tags"),
        (b"\x61\xff", b"", "no CBOR"),
        (b"", b"", "premature end"),
    ],
)
def test_hostile_burnpack(tmp_path: Path, said: Any, data: bytes, says: str) -> None:
    refused(pack(tmp_path / "a.bpk", said, data), says)


def refused(file: Path, says: str) -> None:
    """The file is refused with one line that says so, and nothing is written."""
    target = file.parent / "b.safetensors"
    with pytest.raises(WeightsError) as error:
        convert(file, target)
    assert says in str(error.value) and "\n" not in str(error.value)
    assert not target.exists() and len(list(file.parent.iterdir())) == 1


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (b"", "not a burnpack file"),
        (b"NRUB\1\0", "not a burnpack file"),
        (b"BURN\1\0\0\0\0\0", "not a burnpack file"),
        (b"NRUB\2\0\0\0\0\0", "version 2; castiron reads version 1"),
        (b"NRUB\1\0\xff\xff\xff\xff", "its metadata take 4,294,967,295 bytes"),
    ],
)
def test_headers_of_burnpack(tmp_path: Path, head: bytes, says: str) -> None:
    (tmp_path / "a.bpk").write_bytes(head)
    refused(tmp_path / "a.bpk", says)


@pytest.mark.parametrize(
    ("header", "data", "says"),
    [
        ({"a": F32}, bytes(7), "cut off: tensor 'a'"),
        ({"a": F32}, bytes(9), "too long"),
        ({"a": F32, "b": F32}, bytes(8), "'a' and 'b' overlap"),
        ({"a": F32, "b": entry(offsets=[12, 20])}, bytes(20), "4 unused bytes before tensor 'b'"),
        ({"a": entry("F4")}, bytes(8), "'a': its type 'F4' is not known"),
        ({"a": []}, b"", "'a': the safetensors header says nothing sensible"),
        ({"__metadata__": {"a": 1}}, b"", "not text by name"),
        ({}, b"1", "too long"),
        ([], b"", "not a table of tensors"),
        (b'{"a":0,"a":1}', b"", "has 'a' twice"),
        (b"[" * 100_000, b"", "not JSON"),
        (b"\xff", b"", "not JSON"),
    ],
)
def test_hostile_safetensors(tmp_path: Path, header: Any, data: bytes, says: str) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    with pytest.raises(WeightsError) as error:
        convert(tmp_path / "a.safetensors", tmp_path / "b.bpk")
    assert says in str(error.value)
    assert not (tmp_path / "b.bpk").exists()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_files_are_refused_or_read(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any bytes changed, cut off or added: a message, never another exception."""
    folder = tmp_path_factory.mktemp("damaged")
    convert(MLP, folder / "a.bpk")
    whole = bytearray((folder / "a.bpk").read_bytes() if data.draw(st.booleans()) else MLP.read_bytes())
    file = folder / ("b.bpk" if whole.startswith(b"NRUB") else "b.safetensors")
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4)):
        whole[at] = value
    file.write_bytes(whole[: data.draw(st.integers(0, len(whole)))] if data.draw(st.booleans()) else whole)
    try:
        convert(file, folder / "c.bpk", data.draw(st.sampled_from([None, "pytorch-to-burn", "burn-to-pytorch"])))
    except WeightsError:
        assert not (folder / "c.bpk").exists()


def test_what_a_format_cannot_hold(tmp_path: Path) -> None:
    source = save(tmp_path / "a.safetensors", {"x": ("F8_E4M3", [1], b"1")})
    with pytest.raises(WeightsError, match="'x' is F8_E4M3; burnpack has no such type"):
        convert(source, tmp_path / "a.bpk")
    pack(tmp_path / "c.bpk", {"tensors": {"x": entry({"Bool": "U32"})}}, struct.pack("<II", 1, 2))
    with pytest.raises(WeightsError, match="'x' is Bool, but has 2 among its values"):
        convert(tmp_path / "c.bpk", tmp_path / "c.safetensors")
    assert not (tmp_path / "a.bpk").exists() and not (tmp_path / "c.safetensors").exists()


def test_paths_and_options(tmp_path: Path) -> None:
    for source, target, options, says in (
        ("no.bpk", "a.bpk", {}, "does not exist"),
        (MLP, "a.pt", {}, "files of weights are .safetensors or .bpk"),
        (MLP, "no/a.bpk", {}, "does not exist; make that folder"),
        (MLP, "a.bpk", {"adapter": "burn"}, "no adapter 'burn'"),
        (MLP, "a.bpk", {"linear": ["a"]}, "give an adapter"),
    ):
        with pytest.raises(InputError, match=says):
            convert(tmp_path / source, tmp_path / target, **options)
    (tmp_path / "folder.bpk").mkdir()
    with pytest.raises(InputError, match="it is a folder"):
        convert(tmp_path / "folder.bpk", tmp_path / "a.bpk")


# The commands --------------------------------------------------------------------------------------------------------


def test_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["convert", str(MLP), "mlp.bpk", "--adapter", "pytorch-to-burn"]
    for line, printed, status in (
        (arguments, "mlp.bpk  4 tensors, 268 B, 2 transposed\n", 0),
        (["inspect", "mlp.bpk"], "raw weights (burnpack 1)", 0),
        ([*arguments, "--model", "mlp.onnx"], "--model mlp.onnx: layers are known of a PyTorch module", 2),
        ([*arguments, "--linear", "fc1,fc2", "--json"], '"transposed": ["fc1.weight", "fc2.weight"]', 0),
        (["convert", "mlp.bpk", "mlp.bpk", "--adapter", "pytorch-to-burn"], "stored the other way already", 3),
    ):
        monkeypatch.setattr(sys, "argv", ["castiron", *line])
        assert cli.status() == status
        out = capsys.readouterr()
        assert printed in out.out + out.err
