"""The core of the C runtime, by a model written in C by hand (runtime_core/fake_model.c)."""

from __future__ import annotations

import ctypes as c
import json
import os
import platform
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parent.parent
CORE = sorted((ROOT / "castiron/runtime/core").glob("*.c"))
FAKE = ROOT / "tests/runtime_core/fake_model.c"
DRIVER = ROOT / "tests/runtime_core/driver.c"
WARNINGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]
TYPES = {"float32": 1, "uint8": 2, "int32": 6, "int64": 7, "float16": 10}
OK, BAD_INPUT, BAD_WEIGHTS, NO_MEMORY = 0, 2, 3, 4

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the runtime's shared library is tested on Linux")


class Array(c.Structure):
    _fields_ = [("data", c.c_void_p), ("type", c.c_int32), ("rank", c.c_int32), ("dims", c.c_int64 * 16)]


class Error(c.Structure):
    _fields_ = [("text", c.c_char * 512)]


class Life(c.Structure):
    _fields_ = [("first", c.c_int32), ("last", c.c_int32)]


def compile_c(out: Path, sources: list[Path], *flags: str) -> Path:
    zig = [sys.executable, "-m", "ziglang", "cc", "-O1", "-g0", *WARNINGS]
    subprocess.run([*zig, *flags, "-o", str(out), *map(str, sources)], check=True)
    return out


@pytest.fixture(scope="session")
def lib(tmp_path_factory: pytest.TempPathFactory) -> c.CDLL:
    out = tmp_path_factory.mktemp("core") / "fake.so"
    compile_c(out, [*CORE, FAKE], "-shared", "-fPIC", "-DCI_SHARED", "-pthread", "-ldl")
    lib = c.CDLL(str(out))
    lib.fake_model.restype = c.c_void_p
    lib.ci_plan.restype = lib.ci_session_step_ns.restype = lib.ci_session_arena_bytes.restype = c.c_int64
    lib.ci_load.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p, c.c_void_p]
    lib.ci_load_bytes.argtypes = [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p]
    lib.ci_session_new.argtypes = [c.c_void_p, c.c_int, c.c_void_p, c.c_void_p]
    lib.ci_weights_save.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]
    for name in ("run", "shape"):
        getattr(lib, f"ci_session_{name}").argtypes = [c.c_void_p] * 4
    for name in ("ci_weights_free", "ci_session_free", "ci_session_arena_bytes"):
        getattr(lib, name).argtypes = [c.c_void_p]
    lib.ci_session_profile.argtypes = [c.c_void_p, c.c_bool]
    lib.ci_session_step_ns.argtypes = [c.c_void_p, c.c_int32]
    return lib


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = f"{platform.machine()}-linux-musl"
    out = tmp_path_factory.mktemp("driver") / "driver"
    return compile_c(out, [*CORE, FAKE, DRIVER], "-target", target)


# Weights files -------------------------------------------------------------------------------------------------------

W = np.arange(12, dtype=np.float32).reshape(4, 3)
B = np.array([10, 20, 30], np.float32)
TABLE = np.array([5, 4, 3, 2, 1], np.int32)
ENTRIES: dict[str, Any] = {
    "fc1.weight": {"dtype": "F32", "shape": [4, 3], "data_offsets": [0, 48]},
    "fc1.bias": {"dtype": "F32", "shape": [3], "data_offsets": [48, 60]},
    "täble": {"dtype": "I32", "shape": [5], "data_offsets": [60, 80]},
}
DATA = W.tobytes() + B.tobytes() + TABLE.tobytes()


def raw(header: dict[str, Any] | str, data: bytes = DATA, length: int | None = None) -> bytes:
    text = header.encode() if isinstance(header, str) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def changed(name: str, **fields: Any) -> dict[str, Any]:
    return ENTRIES | {name: ENTRIES[name] | fields}


def shifted(extra: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """The weights behind 8 bytes of another tensor."""
    entries = {n: e | {"data_offsets": [o + 8 for o in e["data_offsets"]]} for n, e in ENTRIES.items()}
    return extra | entries, b"12345678" + DATA


class Weights:
    """Loads by path (str), bytes, or by default (None)."""

    def __init__(self, lib: c.CDLL, source: Path | bytes | None, model: str = "file") -> None:
        self.lib, self.pointer, error = lib, c.c_void_p(1), Error()
        fake = lib.fake_model(model.encode())
        out = c.byref(self.pointer), c.byref(error)
        if isinstance(source, bytes):
            self.buffer = np.zeros(len(source) + 64, np.uint8)
            start = -self.buffer.ctypes.data % 64
            self.buffer[start : start + len(source)] = np.frombuffer(source, np.uint8)
            self.status = lib.ci_load_bytes(fake, self.buffer.ctypes.data + start, len(source), *out)
        else:
            self.status = lib.ci_load(fake, None if source is None else os.fsencode(source), *out)
        self.message = error.text.decode(errors="replace")
        assert (self.status == OK) == bool(self.pointer) and (self.status == OK) != bool(self.message)

    def __del__(self) -> None:
        self.lib.ci_weights_free(self.pointer)


class Session:
    def __init__(self, weights: Weights, threads: int = 1) -> None:
        assert weights.status == OK, weights.message
        self.lib, self.pointer, error = weights.lib, c.c_void_p(), Error()
        self.status = self.lib.ci_session_new(weights.pointer, threads, c.byref(self.pointer), c.byref(error))
        self.message = error.text.decode()
        self.outputs = (Array * 4)()

    def run(self, *arrays: Any, call: str = "run") -> list[np.ndarray]:
        inputs, error = (Array * max(len(arrays), 1))(), Error()
        for slot, array in zip(inputs, arrays, strict=False):
            slot.data, slot.type, slot.rank = array.ctypes.data, TYPES[str(array.dtype)], array.ndim
            slot.dims[: array.ndim] = array.shape
        function = getattr(self.lib, f"ci_session_{call}")
        self.status = function(self.pointer, c.byref(inputs), c.byref(self.outputs), c.byref(error))
        self.message = error.text.decode()
        if self.status or call != "run":
            return []
        return [self.output(slot) for slot in self.outputs]

    @staticmethod
    def output(slot: Array) -> np.ndarray:
        kind = np.dtype({v: k for k, v in TYPES.items()}[slot.type])
        shape = tuple(slot.dims[: slot.rank])
        text = c.string_at(slot.data, int(np.prod(shape)) * kind.itemsize)
        return np.frombuffer(text, kind).reshape(shape)

    def __del__(self) -> None:
        self.lib.ci_session_free(self.pointer)


@pytest.fixture
def weights(lib: c.CDLL) -> Weights:
    return Weights(lib, raw(ENTRIES))


def feed(batch: int, index: list[int] | tuple[int, ...] = (0,)) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x = np.arange(batch * 4, dtype=np.float32).reshape(batch, 4)
    return x, np.zeros(batch, np.float32), np.array(index, np.int64)


def test_raw_weights_are_prepared_and_run(weights: Weights) -> None:
    session = Session(weights)
    for batch in (3, 3, 1, 200, 0):
        x, scale, index = feed(batch, (0, -1, 4))
        outputs = session.run(x, scale, index)
        if batch == 0:
            assert session.status == BAD_INPUT
            assert session.message == "step 'last' (Slice): index -1 is outside [0, 0)"
            continue
        assert session.status == OK, session.message
        np.testing.assert_array_equal(outputs[0], x @ W + B)
        np.testing.assert_array_equal(outputs[1], [5, 1, 1])
        assert outputs[2].shape == (6,) and outputs[3].shape == (97,)


@pytest.mark.parametrize(
    "source",
    [
        raw(ENTRIES | {"__metadata__": {"format": "pt", "u": "\u00fc"}}),
        raw(json.dumps(ENTRIES, ensure_ascii=False) + "   "),
        raw(json.dumps(ENTRIES).replace(",", " ,\n\t").replace("dtype", "dt\\u0079pe")),
        raw(json.dumps(ENTRIES) + " "),
        raw(*shifted({"bn.num_batches_tracked": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}})),
    ],
)
def test_valid_spellings_of_raw_weights(lib: c.CDLL, source: bytes) -> None:
    x, scale, index = feed(2)
    np.testing.assert_array_equal(Session(Weights(lib, source)).run(x, scale, index)[0], x @ W + B)


DAMAGED = {
    "tensor 'fc1.weight' has shape [3,4], expected [4,3]": raw(changed("fc1.weight", shape=[3, 4])),
    "tensor 'fc1.weight' has shape [12], expected [4,3]": raw(changed("fc1.weight", shape=[12])),
    "tensor 'fc1.bias' has type F16, expected F32": raw(changed("fc1.bias", dtype="F16")),
    "tensor 'fc1.bias' is missing, expected float32[3]": raw(
        {"fc1.weight": ENTRIES["fc1.weight"], "other": ENTRIES["fc1.bias"], "täble": ENTRIES["täble"]}
    ),
    "tensor 'y' is no weight of model 'fake' (2 such tensors)": raw(
        *shifted({n: {"dtype": "U8", "shape": [4], "data_offsets": o} for n, o in (("y", [0, 4]), ("z", [4, 8]))})
    ),
    "tensor 'fc1.bias' has 8 bytes, its shape and type need 12": raw(changed("fc1.bias", data_offsets=[48, 56])),
    "tensor 'fc1.bias' is at bytes 60 to 48 of the data": raw(changed("fc1.bias", data_offsets=[60, 48])),
    "tensor 't\\u00e4ble' is at bytes 60 to 80 of the data, which has 79: the file is cut off": raw(ENTRIES, DATA[:-1]),
    "the data has tensors that overlap at byte 60": raw(changed("täble", data_offsets=[59, 79])),
    "the data has a gap at byte 0": raw(*shifted({})),
    "the data has 1 bytes behind the last tensor": raw(ENTRIES, DATA + b"x"),
    "tensor 'fc1.bias' appears twice": raw(
        json.dumps(ENTRIES)[:-1] + ',"fc1.bias":' + json.dumps(ENTRIES["fc1.bias"]) + "}"
    ),
    "__metadata__ appears twice": raw('{"__metadata__":{},"__metadata__":{}}'),
    "tensor 'a' has more than 16 dimensions": raw({"a": {"dtype": "F32", "shape": [1] * 17, "data_offsets": [0, 4]}}),
    "tensor 'a' has an unknown or repeated key 'x'": raw({"a": {"x": 1}}),
    "tensor 'a' lacks a dtype, shape or data_offsets": raw({"a": {"dtype": "F32", "shape": []}}),
    "expected a dimension at byte 24": raw('{"a":{"shape":[ -1]}}'),
    "expected a key, ':' and a string": raw('{"__metadata__":{"a":{"a":1}}}'),
    "expected '{' at byte 8": raw("[" * 5000),
    "expected a name and ':' at byte 9": raw("{,}"),
    "expected the end at byte 10": raw("{}x"),
    "expected ',' or '}' at byte": raw(json.dumps(ENTRIES)[:-1]),
    "is no packed weights, safetensors or burnpack file, or is cut off in its header": raw(ENTRIES, length=1 << 62),
    "has 9 bytes, too few for a weights file": b"123456789",
}


@pytest.mark.parametrize("message", DAMAGED)
def test_damaged_raw_weights(lib: c.CDLL, message: str, tmp_path: Path) -> None:
    found = Weights(lib, DAMAGED[message])
    assert found.status == BAD_WEIGHTS
    assert found.message.startswith("weights in memory: ") and message in found.message
    path = tmp_path / "w.safetensors"
    path.write_bytes(DAMAGED[message])
    assert message in Weights(lib, path).message


@pytest.mark.parametrize(
    ("number", "message"), [("9" * 30, "a dimension"), ("1.5", "',' or ']'"), ("01", "a dimension")]
)
def test_numbers_are_strict(lib: c.CDLL, number: str, message: str) -> None:
    found = Weights(lib, raw(f'{{"a":{{"dtype":"F32","shape":[{number}],"data_offsets":[0,4]}}}}'))
    assert found.status == BAD_WEIGHTS and f"expected {message}" in found.message


def test_every_cut_and_change_of_a_raw_file(driver: Path, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(raw(ENTRIES | {"__metadata__": {"a": "\\\u00fc"}}))
    done = subprocess.run([driver, "--mutate", path], capture_output=True, text=True, env={})
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc and its sanitizers")
@pytest.mark.parametrize("sanitizer", ["address,undefined"])
def test_sanitizers(sanitizer: str, tmp_path: Path) -> None:
    out = tmp_path / "driver"
    flags = [*WARNINGS, "-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-pthread", "-ldl"]
    command = ["gcc", *map(str, [*CORE, FAKE, DRIVER]), *flags, "-o", str(out)]
    built = subprocess.run(command, capture_output=True, text=True)
    if "cannot find" in built.stderr:
        pytest.skip("gcc has no sanitizers here")
    assert built.returncode == 0, built.stderr
    path = tmp_path / "w.safetensors"
    path.write_bytes(raw(ENTRIES))
    done = subprocess.run([out, "--mutate", path, path, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].startswith("0") and done.stdout.splitlines()[2].startswith("3")


def test_unusable_paths(lib: c.CDLL, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    unusable = {"none": "cannot be opened: no such file", "empty": "is empty", "pipe": "is a device or pipe"}
    for name, message in unusable.items():
        found = Weights(lib, tmp_path / name)
        assert found.status == BAD_WEIGHTS and message in found.message and name in found.message
    assert "is a folder, not a file" in Weights(lib, tmp_path).message
    long = Weights(lib, tmp_path / ("long/" * 400))
    assert "..." in long.message and "cannot be opened" in long.message and len(long.message) < 300
    assert "there are none" in Weights(lib, b"").message
    if os.geteuid():
        (tmp_path / "empty").chmod(0)
        assert "permission denied" in Weights(lib, tmp_path / "empty").message


# Packed weights ------------------------------------------------------------------------------------------------------


def save(weights: Weights, path: Path) -> tuple[int, str]:
    error = Error()
    status = weights.lib.ci_weights_save(weights.pointer, os.fsencode(path), c.byref(error))
    return status, error.text.decode()


def test_packed_round_trip(weights: Weights, tmp_path: Path) -> None:
    path = tmp_path / "fake.weights"
    path.write_bytes(b"old")
    assert save(weights, path) == (OK, "")
    assert [p.name for p in tmp_path.iterdir()] == ["fake.weights"]
    saved = path.read_bytes()
    assert saved[:8] == b"CASTIRON" and struct.unpack("<II", saved[8:16]) == (1, 128) and len(saved) == 256
    assert struct.unpack("<Q", saved[80:88]) == (128,) and not any(saved[88:128])
    for source in (path, saved):
        x, scale, index = feed(2)
        packed = Weights(weights.lib, source)
        session = Session(packed)
        weights.lib.ci_weights_free(packed.pointer)  # the session keeps what it needs
        packed.pointer = c.c_void_p()
        np.testing.assert_array_equal(session.run(x, scale, index)[0], x @ W + B)


def test_damaged_packed_weights(weights: Weights, tmp_path: Path) -> None:
    save(weights, tmp_path / "w")
    good = (tmp_path / "w").read_bytes()
    cases = {
        "has 255 bytes, expected 256": good[:-1],
        "has 257 bytes, expected 256": good + b"x",
        "is cut off: 100 bytes, expected 256": good[:100],
        "is packed in format 2, expected format 1": good[:8] + b"\2" + good[9:],
        "of another model: its hash is ?123456789ab..., model 'fake' has 01234567": good[:16] + b"\n" + good[17:],
        "is no packed weights": b"CASTIROM" + good[8:],
    }
    for message, data in cases.items():
        found = Weights(weights.lib, data)
        assert found.status == BAD_WEIGHTS and message in found.message
    for cut in range(len(good)):
        assert Weights(weights.lib, good[:cut]).status == BAD_WEIGHTS


def test_packed_bytes_must_be_aligned(weights: Weights, tmp_path: Path) -> None:
    save(weights, tmp_path / "w")
    found = Weights(weights.lib, (tmp_path / "w").read_bytes())
    start, pointer, error = -found.buffer.ctypes.data % 64, c.c_void_p(), Error()
    moved = np.concatenate([found.buffer[start:], found.buffer[:8]])
    address = moved.ctypes.data
    moved[1 - address % 2 :][:256] = found.buffer[start : start + 256]
    status = weights.lib.ci_load_bytes(
        weights.lib.fake_model(b"file"), address + 1 - address % 2, 256, c.byref(pointer), c.byref(error)
    )
    assert status == BAD_WEIGHTS and b"must be aligned to 64" in error.text


def test_saving_fails_cleanly(weights: Weights, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path, reason in ((tmp_path / "none/w", "no such file or folder"), (tmp_path / "folder", "it is a folder")):
        status, message = save(weights, path)
        assert status == BAD_WEIGHTS and message.endswith(f"cannot be written: {reason}")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


# Where weights come from ---------------------------------------------------------------------------------------------


def test_default_weights_lie_beside_the_executable(driver: Path, weights: Weights, tmp_path: Path) -> None:
    own, elsewhere = tmp_path / "own", tmp_path / "elsewhere"
    own.mkdir()
    elsewhere.mkdir()
    program = shutil.copy(driver, own / "program")
    (elsewhere / "link").symlink_to(program)

    def run(name: Path) -> str:
        return subprocess.run([name, "-"], cwd=elsewhere, env={}, capture_output=True, text=True).stdout

    save(weights, elsewhere / "fake.weights")
    expected = (
        f"3 weights file '{own}/fake.weights': is not there: copy it beside this program, or give another by its path\n"
    )
    assert run(program) == expected
    save(weights, own / "fake.weights")
    (elsewhere / "fake.weights").unlink()
    assert run(program) == "0 \n" and run(elsewhere / "link") == "0 \n"


def test_default_weights_lie_beside_the_shared_library(lib: c.CDLL, weights: Weights) -> None:
    beside = Path(lib._name).parent / "fake.weights"
    assert str(beside) in Weights(lib, None).message
    save(weights, beside)
    try:
        assert Weights(lib, None).status == OK
    finally:
        beside.unlink()


def test_embedded_bare_and_empty_models(lib: c.CDLL) -> None:
    x, scale, index = feed(2)
    embedded = Session(Weights(lib, None, "embedded")).run(x, scale, index)
    np.testing.assert_array_equal(embedded[0], x[:, :3] + B)
    replaced = Session(Weights(lib, raw(ENTRIES), "embedded")).run(x, scale, index)
    np.testing.assert_array_equal(replaced[0], x @ W + B)
    assert Weights(lib, None, "bare").message == "model 'fake' carries no weights: give it a weights file"
    assert Weights(lib, None, "empty").status == OK
    assert "no weight of model 'empty'" in Weights(lib, raw(ENTRIES), "empty").message
    huge = Weights(lib, raw(ENTRIES), "huge")
    assert huge.status == NO_MEMORY and str(1 << 60) in huge.message


# Instruction sets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forced", "message"),
    [
        ("", ""),
        ("generic", ""),
        ("x86-64-v9", "CASTIRON_CPU=x86-64-v9: this processor does not have it"),
        ("x86-64-v3", "model 'fake' has code for x86-64-v9, x86-64-v2, arm64, generic only"),
        ("?" * 300, "has code for"),
    ],
)
def test_instruction_set_by_environment(driver: Path, tmp_path: Path, forced: str, message: str) -> None:
    (tmp_path / "w").write_bytes(raw(ENTRIES))
    done = subprocess.run([driver, tmp_path / "w"], env={"CASTIRON_CPU": forced}, capture_output=True, text=True)
    status, text = done.stdout[0], done.stdout[2:]
    assert (status, message in text) == (("2", True) if message else ("0", True))


def test_no_instruction_set_fits(lib: c.CDLL) -> None:
    found = Weights(lib, None, "foreign")
    assert found.status == BAD_INPUT and "has code for x86-64-v9 only, and this processor has none" in found.message


# Inputs and outputs --------------------------------------------------------------------------------------------------


def test_inputs_are_checked(weights: Weights) -> None:
    x, scale, index = feed(3)
    session = Session(weights)
    cases: list[tuple[tuple[Any, ...], str]] = [
        ((x[:, :3].copy(), scale, index), "input 'x': expected float32[batch,4], got float32[3,3]"),
        ((x.astype(np.float16), scale, index), "input 'x': expected float32[batch,4], got float16[3,4]"),
        ((x[0], scale, index), "input 'x': expected float32[batch,4], got float32[4]"),
        ((x, scale[:2], index), "input 'scale': expected float32[batch] with batch = 3, got float32[2]"),
        ((x, scale, index.astype(np.int32)), "input 'index': expected int64[n], got int32[1]"),
        ((x, scale, np.zeros(101, np.int64)), "would give output 'shrunk' the impossible shape [-1]"),
        ((x, scale, index + 5), "step 'gather_3' (Gather): index 5 is outside [-5, 5)"),
        ((x, scale, index - 6), "step 'gather_3' (Gather): index -6 is outside [-5, 5)"),
    ]
    for arrays, message in cases:
        session.run(*arrays)
        assert session.status == BAD_INPUT and message in session.message
    assert session.run(x, scale, index) and session.status == OK


def array(shape: tuple[int, ...], type: int = 1, data: int | None = None) -> Array:
    return Array(data, type, len(shape), (c.c_int64 * 16)(*shape[:16]))


@pytest.mark.parametrize(
    ("inputs", "status", "message"),
    [
        ([array((3, 4)), array((3,)), array((1,), 7)], BAD_INPUT, "input 'x': its data is NULL"),
        ([array((-1, 4)), array((3,)), array((1,), 7)], BAD_INPUT, "its dimensions are negative or too large"),
        ([array((1 << 60, 4)), array((3,)), array((1,), 7)], BAD_INPUT, "its dimensions are negative or too large"),
        ([Array(None, 1, 17), array((3,)), array((1,), 7)], BAD_INPUT, "got float32 of rank 17"),
        ([Array(None, 1, -1), array((3,)), array((1,), 7)], BAD_INPUT, "got float32 of rank -1"),
        ([Array(None, 99, 1), array((3,)), array((1,), 7)], BAD_INPUT, "got unknown[0]"),
        ([array((1 << 42, 4), 1, 64), array((1 << 42,), 1, 64), array((1,), 7, 64)], NO_MEMORY, "bytes needed"),
    ],
)
def test_impossible_inputs(weights: Weights, inputs: list[Array], status: int, message: str) -> None:
    session, error = Session(weights), Error()
    found = weights.lib.ci_session_run(session.pointer, (Array * 3)(*inputs), session.outputs, c.byref(error))
    assert found == status and message in error.text.decode()
    assert session.run(*feed(2)) and session.status == OK


def test_outputs_of_the_caller(weights: Weights) -> None:
    session, y = Session(weights), np.full((3, 3), 7, np.float32)
    x, scale, index = feed(3)
    session.run(x, scale, index, call="shape")
    assert list(session.outputs[0].dims[:2]) == [3, 3] and not session.outputs[0].data
    session.outputs[0] = Array(y.ctypes.data, 99, 1)
    session.run(x, scale, index)
    np.testing.assert_array_equal(y, x @ W + B)
    assert session.outputs[0].type == 1 and session.outputs[0].rank == 2 and session.outputs[0].data == y.ctypes.data


def test_unaligned_inputs_and_growing_outputs(weights: Weights) -> None:
    session = Session(weights)
    for batch in (1, 1000, 5, 3000):
        x, scale, index = feed(batch)
        memory = np.zeros(x.nbytes + 1, np.uint8)
        odd = memory[1:].view(np.float32).reshape(x.shape)
        odd[:] = x
        np.testing.assert_array_equal(session.run(odd, scale, index)[0], x @ W + B)


def test_profile(weights: Weights) -> None:
    session, lib = Session(weights), weights.lib
    session.run(*feed(100))
    assert lib.ci_session_step_ns(session.pointer, 0) == 0
    lib.ci_session_profile(session.pointer, True)
    session.run(*feed(100))
    assert lib.ci_session_step_ns(session.pointer, 0) > 0 and lib.ci_session_step_ns(session.pointer, 4) == 0
    assert lib.ci_session_arena_bytes(session.pointer) == 1216 + 64


# Threads -------------------------------------------------------------------------------------------------------------


def thread_count() -> int:
    return len(os.listdir("/proc/self/task"))


def test_threads_give_the_same_and_end(weights: Weights) -> None:
    before = thread_count()
    session = Session(weights, 4)
    session.run(*feed(1))
    for batch in [1, 2, 3, 500, 7] * 40:
        x, scale, index = feed(batch, [i % 5 for i in range(99)])
        outputs = session.run(x, scale, index)
        np.testing.assert_array_equal(outputs[0], x @ W + B)
        np.testing.assert_array_equal(outputs[1], TABLE[index])
    assert thread_count() == before + 3
    session.run(*feed(3, [0] * 50 + [9] * 49))
    assert session.message == "step 'gather_3' (Gather): index 9 is outside [-5, 5)"
    del session
    assert thread_count() == before


def test_one_thread_starts_none_and_wrong_counts_are_refused(weights: Weights) -> None:
    before = thread_count()
    for threads in (1, 0):
        session = Session(weights, threads)
        session.run(*feed(300))
        assert session.status == OK and thread_count() <= before + (os.cpu_count() or 1) - 1 + (threads == 1)
        del session
    assert Session(weights, -1).message == "threads: expected 0 (as many as there are) or more, got -1"


def test_fork_after_threads_started(weights: Weights) -> None:
    session = Session(weights, 3)
    x, scale, index = feed(300)
    session.run(x, scale, index)
    child = os.fork()
    if not child:
        good = np.array_equal(session.run(x, scale, index)[0], x @ W + B)
        weights.lib.ci_session_free(session.pointer)
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def cgroups(lib: c.CDLL, tmp_path: Path) -> Iterator[Any]:
    def cpus(membership: str, files: dict[str, str]) -> int:
        for name, text in files.items():
            (tmp_path / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "fs" / name).write_text(text)
        (tmp_path / "self").write_text(membership)
        return int(lib.ci_cgroup_cpus(os.fsencode(tmp_path / "self"), os.fsencode(tmp_path / "fs")))

    yield cpus


@pytest.mark.parametrize(
    ("membership", "files", "cpus"),
    [
        ("0::/\n", {"cpu.max": "max 100000\n"}, 2**31 - 1),
        ("0::/\n", {"cpu.max": "250000 100000\n"}, 3),
        ("0::/a/b\n", {"cpu.max": "max 100000\n", "a/cpu.max": "100000 100000\n", "a/b/cpu.max": "400000 100000\n"}, 1),
        ("0::/of/the/host\n", {"cpu.max": "150000 100000\n"}, 2),
        ("5:cpu,cpuacct:/d\n3:cpuset:/\n", {"cpu/d/cpu.cfs_quota_us": "50000", "cpu/d/cpu.cfs_period_us": "100000"}, 1),
        ("5:cpu:/d\n", {"cpu/d/cpu.cfs_quota_us": "-1", "cpu/d/cpu.cfs_period_us": "100000"}, 2**31 - 1),
        ("5:cpuset:/d\n", {"cpu/d/cpu.cfs_quota_us": "1", "cpu/d/cpu.cfs_period_us": "1"}, 2**31 - 1),
        ("nonsense", {}, 2**31 - 1),
    ],
)
def test_processor_quota(cgroups: Any, membership: str, files: dict[str, str], cpus: int) -> None:
    assert cgroups(membership, files) == cpus


# The memory plan -----------------------------------------------------------------------------------------------------


def reference_plan(lives: list[tuple[int, int]], sizes: list[int]) -> tuple[int, list[int]]:
    """Best fit, larger first, in the plainest words."""
    padded = [-(-s // 64) * 64 for s in sizes]
    offsets = [0] * len(sizes)
    placed: list[int] = []
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        rivals = [j for j in placed if lives[j][0] <= lives[i][1] and lives[i][0] <= lives[j][1]]
        end = 0
        gaps: list[tuple[int, int]] = []
        for j in sorted(rivals, key=lambda j: offsets[j]):
            if offsets[j] - end >= padded[i]:
                gaps.append((offsets[j] - end, end))
            end = max(end, offsets[j] + padded[j])
        offsets[i] = min(gaps)[1] if gaps else end
        placed.append(i)
    return max((o + p for o, p in zip(offsets, padded, strict=True)), default=0), offsets


buffers = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4), st.integers(0, 700)), max_size=25)


@settings(max_examples=200, deadline=None)
@given(buffers)
def test_plan(lib: c.CDLL, chosen: list[tuple[int, int, int]]) -> None:
    lives, sizes = [(a, a + n) for a, n, _ in chosen], [s for *_, s in chosen]
    n = len(chosen)
    offsets = (c.c_int64 * (n or 1))()
    total = lib.ci_plan((Life * (n or 1))(*lives), (c.c_int64 * (n or 1))(*sizes), n, offsets)
    assert (total, list(offsets[:n])) == reference_plan(lives, sizes)
    for i in range(n):
        assert offsets[i] % 64 == 0 and offsets[i] + sizes[i] <= total
        for j in range(i):
            apart = lives[i][1] < lives[j][0] or lives[j][1] < lives[i][0]
            assert apart or offsets[i] + sizes[i] <= offsets[j] or offsets[j] + sizes[j] <= offsets[i]


def test_plan_refuses_what_cannot_be(lib: c.CDLL) -> None:
    lives, offsets = (Life * 2)((0, 1), (0, 1)), (c.c_int64 * 2)()
    assert lib.ci_plan(lives, (c.c_int64 * 2)(64, -1), 2, offsets) == -1
    assert lib.ci_plan(lives, (c.c_int64 * 2)(1 << 61, 1 << 61), 2, offsets) == 2**63 - 1
