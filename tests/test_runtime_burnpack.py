"""Raw weights in burn's format, as the runtime reads them (castiron/runtime/core/burnpack.c)."""

from __future__ import annotations

import ctypes as c
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import cbor2
import numpy as np
import pytest

import castiron
from castiron.weights import convert
from tests.test_runtime_core import BAD_WEIGHTS, CORE, DRIVER, FAKE, TABLE, WARNINGS, B, Session, W, Weights, feed
from tests.test_runtime_core import driver as driver
from tests.test_runtime_core import lib as lib

ROOT = Path(__file__).parent.parent
ENTRIES: dict[str, Any] = {
    "fc1.bias": {"dtype": "F32", "shape": [3], "data_offsets": [256, 268]},
    "fc1.weight": {"dtype": "F32", "shape": [4, 3], "data_offsets": [0, 48], "param_id": 1 << 63},
    "täble": {"dtype": "I32", "shape": [5], "data_offsets": [512, 532]},
}
DATA = W.tobytes().ljust(256, b"\0") + B.tobytes().ljust(256, b"\0") + TABLE.tobytes()


def pack(said: Any, data: bytes = DATA, version: int = 1, size: int | None = None, align: int = 256) -> bytes:
    """A .bpk; `said`: its metadata, to be encoded or in CBOR."""
    text = said if isinstance(said, bytes) else cbor2.dumps(said)
    head = b"NRUB" + struct.pack("<HI", version, len(text) if size is None else size) + text
    return head + bytes(-len(head) % align) + data


def tensors(**changed: Any) -> dict[str, Any]:
    """Metadata in which these fields of fc1.bias are others; None: the field is missing."""
    bias = {k: v for k, v in {**ENTRIES["fc1.bias"], **changed}.items() if v is not None}
    return {"tensors": ENTRIES | {"fc1.bias": bias}}


def nested(depth: int) -> bytes:
    """Metadata with so many lists in each other under a key that nobody knows."""
    return b"\xa2\x67unknown" + b"\x81" * depth + b"\0" + cbor2.dumps({"tensors": ENTRIES})[1:]


OLD = {
    "fc1.bias": {"dtype": "F32", "shape": [3], "data_offsets": [48, 60]},
    "fc1.weight": {"dtype": "F32", "shape": [4, 3], "data_offsets": [0, 48]},
    "täble": {"dtype": "I32", "shape": [5], "data_offsets": [60, 80]},
}
TIGHT = W.tobytes() + B.tobytes() + TABLE.tobytes()
COUNTER = {"bn.num_batches_tracked": {"dtype": "I64", "shape": [], "data_offsets": [768, 776]}}
VALID = {
    "as burn writes it": pack({"tensors": ENTRIES, "metadata": {"a": "b"}, "scalars": {"eps": {"Float": 1e-5}}}),
    "of burn 0.19": pack({"tensors": OLD}, TIGHT, align=1),
    "another order of keys": pack(
        {"scalars": {}, "tensors": {n: dict(reversed(e.items())) for n, e in ENTRIES.items()}}
    ),
    "unknown keys of all kinds": pack(
        tensors(x=[1, -1, 1.5, None, True, b"x", "y", {"z": [2**40]}, cbor2.CBORTag(9, 1)], y="z" * 300)
    ),
    "a counter of batch norms": pack({"tensors": ENTRIES | COUNTER}, DATA.ljust(768, b"\0") + bytes(8)),
    "long integers": pack(cbor2.dumps({"tensors": ENTRIES}).replace(b"\x18\x30", b"\x1b" + bytes(7) + b"\x30")),
    "some depth": pack(nested(10)),
}


@pytest.mark.parametrize("name", VALID)
def test_spellings_that_are_read(lib: c.CDLL, name: str) -> None:
    x, scale, index = feed(2)
    outputs = Session(Weights(lib, VALID[name])).run(x, scale, index)
    np.testing.assert_array_equal(outputs[0], x @ W + B)
    np.testing.assert_array_equal(outputs[1], [5, 5, 5][: len(outputs[1])])


TWICE = cbor2.dumps({"tensors": ENTRIES}).replace(
    b"\x67tensors\xa3", b"\x67tensors\xa4\x68fc1.bias" + cbor2.dumps(OLD["fc1.bias"])
)
REPEATED = (
    cbor2.dumps(tensors())
    .replace(b"\x65shape\x81\x03", b"\x65shape\x81\x03\x65shape\x81\x03")
    .replace(b"\xa3\x65dtype", b"\xa4\x65dtype")
)
DAMAGED = {
    "is a burnpack file that is cut off in its header": pack({"tensors": ENTRIES})[:9],
    "is a burnpack file of version 2, expected 1": pack({"tensors": ENTRIES}, version=2),
    "burnpack file: expected a map of tensors at byte 10": pack([]),
    "expected a map of tensors at byte 11": pack({}),
    "tensor 'fc1.bias' is missing, expected float32[3]": pack(
        {"tensors": {"fc1.weight": ENTRIES["fc1.weight"], "other": ENTRIES["fc1.bias"], "täble": ENTRIES["täble"]}}
    ),
    "tensor 'y' is no weight of model 'fake' (1 such tensors)": pack(
        {"tensors": ENTRIES | {"y": {"dtype": "U8", "shape": [4], "data_offsets": [768, 772]}}}, DATA.ljust(772, b"\0")
    ),
    "tensor 'fc1.bias' has shape [1,3], expected [3]": pack(tensors(shape=[1, 3])),
    "tensor 'fc1.bias' has type F16, expected F32": pack(tensors(dtype="F16")),
    "tensor 'fc1.bias' has type BOOL, expected F32": pack(tensors(dtype={"Bool": "Native"})),
    "tensor 'fc1.bias' has type Bool, expected F32": pack(tensors(dtype={"Bool": "U32"})),
    "tensor 'fc1.bias' has type F\\u00332, expected F32": pack(tensors(dtype="F\\u00332")),
    "tensor 'fc1.bias' is stored as QFloat, which cannot be read": pack(tensors(dtype={"QFloat": {"mode": "S"}})),
    "tensor 'fc1.bias' has 8 bytes, its shape and type need 12": pack(tensors(data_offsets=[256, 264])),
    "tensor 'fc1.bias' is at bytes 268 to 256 of the data": pack(tensors(data_offsets=[268, 256])),
    "tensor 'täble' is at bytes 512 to 532 of the data, which has 531: the file is cut off": pack(tensors(), DATA[:-1]),
    "the data has tensors that overlap at byte 48": pack(tensors(data_offsets=[40, 52])),
    "the data has a gap at byte 48": pack(tensors(data_offsets=[304, 316])),
    "the data has 1 bytes behind the last tensor": pack(tensors(), DATA + b"x"),
    "tensor 'fc1.bias' appears twice": pack(TWICE),
    "tensor 'fc1.bias' is not described as burnpack does it, at byte": pack(REPEATED),
    "tensor 'fc1.bias' lacks a dtype, shape or data_offsets": pack(tensors(shape=None)),
}  # fmt: skip
STRANGE = {
    "seventeen dimensions": tensors(shape=[1] * 17),
    "a negative dimension": tensors(shape=[-3]),
    "a huge dimension": tensors(shape=[1 << 63]),
    "three offsets": tensors(data_offsets=[0, 1, 2]),
    "offsets as text": tensors(data_offsets="0-12"),
    "a type of a number": tensors(dtype=1),
    "two types": tensors(dtype={"Bool": "Native", "F32": 1}),
}
BROKEN = {
    "nothing": b"",
    "deep nesting": nested(100_000),
    "indefinite lengths": b"\xbf\x67tensors\xa0\xff",
    "text beyond the end": b"\xa1\x7b" + b"\xff" * 8,
    "a list beyond the end": b"\xa1\x67tensors\xa1\x61a\xa1\x65shape\x9b" + b"\xff" * 8,
    "a map of all the tensors there can be": b"\xa1\x67tensors\xbb" + b"\xff" * 8,
    "tensors twice": b"\xa2\x67tensors\xa0\x67tensors\xa0",
    "more behind the map": cbor2.dumps({"tensors": ENTRIES}) + b"\0",
    "reserved lengths": b"\xa1\x67tensors\xbc",
}


def test_every_name_that_a_message_gives(lib: c.CDLL, tmp_path: Path) -> None:
    for message, source in DAMAGED.items():
        found = Weights(lib, source)
        assert found.status == BAD_WEIGHTS
        assert found.message.startswith("weights in memory: ") and message in found.message, found.message
        path = tmp_path / "w.bpk"
        path.write_bytes(source)
        assert message in Weights(lib, path).message


def test_what_is_not_described_as_burnpack_does_it(lib: c.CDLL) -> None:
    for name, said in STRANGE.items():
        found = Weights(lib, pack(said))
        assert found.status == BAD_WEIGHTS and "tensor 'fc1.bias' is not described as burnpack" in found.message, name
    for name, said in BROKEN.items():
        found = Weights(lib, pack(said))
        assert found.status == BAD_WEIGHTS and "at byte" in found.message, name
    assert "cut off in its header" in Weights(lib, pack({"tensors": ENTRIES}, size=1 << 31)).message


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory, driver: Path) -> Path:
    """The driver under gcc's sanitizers, or as it is where they are not installed."""
    out = tmp_path_factory.mktemp("burnpack") / "driver"
    flags = [*WARNINGS, "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-pthread", "-ldl"]
    gcc = shutil.which("gcc")
    if gcc and not subprocess.run([gcc, *map(str, [*CORE, FAKE, DRIVER]), *flags, "-o", str(out)]).returncode:
        return out
    return driver


@pytest.mark.parametrize("name", ["as burn writes it", "of burn 0.19", "unknown keys of all kinds", "some depth"])
def test_every_cut_and_change_of_a_file(sanitized: Path, name: str, tmp_path: Path) -> None:
    path = tmp_path / "w.bpk"
    path.write_bytes(VALID[name])
    done = subprocess.run([sanitized, "--mutate", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_executable_gives_the_bits_of_safetensors(tmp_path: Path) -> None:
    exe, raw, burn = tmp_path / "mlp", tmp_path / "mlp.safetensors", tmp_path / "mlp.bpk"
    castiron.build(ROOT / "examples" / "mlp.onnx", exe)
    convert(ROOT / "examples" / "mlp.safetensors", burn)
    convert(burn, raw)
    given = np.linspace(-3, 3, 40, dtype=np.float32).reshape(10, 4)
    np.save(tmp_path / "x.npy", given)
    outputs = []
    for weights in (raw, burn):
        command = [exe, "--weights", weights, tmp_path / "x.npy"]
        outputs.append(subprocess.run(command, capture_output=True, check=True).stdout)
    assert outputs[0] == outputs[1] == subprocess.run([exe, tmp_path / "x.npy"], capture_output=True, check=True).stdout
    burn.write_bytes(burn.read_bytes()[:-1])
    done = subprocess.run([exe, "--weights", burn, tmp_path / "x.npy"], capture_output=True, text=True)
    assert done.returncode == BAD_WEIGHTS and "mlp.bpk" in done.stderr and "the file is cut off" in done.stderr
