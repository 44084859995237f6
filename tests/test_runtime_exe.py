"""The executable's command line, compiled with a stand-in for the runtime's core (tests/runtime_exe/fake.c)."""

import ctypes
import io
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parent.parent
CORE = ROOT / "castiron/runtime/core"
EXE = [
    *sorted((ROOT / "castiron/runtime/exe").glob("*.c")),
    *(CORE / f"{name}.c" for name in ("error", "json_reader", "reason", "steps", "types", "write")),
]
FAKE = ROOT / "tests/runtime_exe/fake.c"
ZIG = [sys.executable, "-m", "ziglang", "cc"]
TARGET = ["-target", "x86_64-linux-musl"] if os.uname().machine == "x86_64" else ["-target", "aarch64-linux-musl"]
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
    "float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16,
}  # fmt: skip
ONE, TWO = {"FAKE_TYPE": "0"}, {"FAKE_TYPE": "-1"}


def typed(name: str) -> dict[str, str]:
    """The model that gives back an array of this type."""
    return {"FAKE_TYPE": str(TYPES[name])}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exe")


@dataclass(frozen=True)
class Executable:
    """The command line over one of the fake models, and under the sanitizers where gcc is installed."""

    path: str
    sanitized_path: str

    def __call__(self, model: dict[str, str], sanitized: bool = False) -> "Program":
        return Program(self.sanitized_path if sanitized else self.path, model)


@dataclass(frozen=True)
class Program:
    path: str
    environment: dict[str, str]


@pytest.fixture(scope="session")
def build(folder: Path) -> Executable:
    plain, sanitized = str(folder / "plain"), str(folder / "sanitized")
    sources = [*map(str, EXE), str(FAKE)]
    subprocess.run([*ZIG, *TARGET, "-Os", *WARNINGS, *sources, "-o", plain], check=True)
    if shutil.which("gcc"):
        flags = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *WARNINGS]
        subprocess.run(["gcc", *flags, *sources, "-o", sanitized], check=True)
    return Executable(plain, sanitized if shutil.which("gcc") else plain)


def run(exe: Program, *arguments: str, stdin: bytes | str = b"", cwd: Path | None = None) -> tuple[int, bytes, str]:
    data = stdin.encode() if isinstance(stdin, str) else stdin
    command, environment = [exe.path, *arguments], {**os.environ, **exe.environment}
    done = subprocess.run(command, input=data, capture_output=True, cwd=cwd, env=environment, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def npy(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    return file.getvalue()


def npz(compressed: bool = False, **arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    return file.getvalue()


X = np.array([[1, -2.5, 3e-30], [np.inf, np.nan, 0.1]], np.float32)


# Numbers --------------------------------------------------------------------------------------------------------------


class Numbers:
    """number.c as a library."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        self.write = library.ci_print_float
        self.write.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int32]
        self.read = library.ci_parse_float
        self.read.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.POINTER(ctypes.c_uint64)]
        self.read.restype = ctypes.c_bool

    def text(self, bits: int, kind: str) -> str:
        buffer = ctypes.create_string_buffer(32)
        length = self.write(buffer, bits, TYPES[kind])
        return buffer.raw[:length].decode()

    def bits(self, text: str, kind: str) -> int | None:
        buffer = ctypes.create_string_buffer(text.encode())
        start, bits = ctypes.addressof(buffer), ctypes.c_uint64()
        fits = self.read(start, start + len(text), TYPES[kind], ctypes.byref(bits))
        return bits.value if fits else None


@pytest.fixture(scope="session")
def numbers(folder: Path) -> Numbers:
    path = str(folder / "numbers.so")
    sources = [str(path) for path in EXE if path.stem in ("number", "bignum", "error")]
    subprocess.run([*ZIG, "-O2", "-shared", "-fPIC", *sources, "-o", path], check=True)
    return Numbers(path)


def float64(bits: int) -> float:
    return float(np.uint64(bits).view(np.float64))


def float32(bits: int) -> np.float32:
    return np.float32(np.uint32(bits).view(np.float32))


bits64 = st.integers(0, 2**64 - 1) | st.floats(width=64).map(lambda x: struct.unpack("<Q", struct.pack("<d", x))[0])
bits32 = st.integers(0, 2**32 - 1) | st.integers(0, 2**23) | st.integers(0, 510).map(lambda x: x << 23)


@settings(max_examples=500, deadline=None)
@given(bits=bits64 | st.integers(0, 2**52))
def test_float64_prints_as_repr_and_reads_back(numbers: Numbers, bits: int) -> None:
    value = float64(bits)
    if np.isfinite(value):
        assert numbers.text(bits, "float64") == repr(value)
        assert numbers.bits(repr(value), "float64") == bits


@settings(max_examples=500, deadline=None)
@given(bits=bits32)
def test_float32_prints_shortest_and_reads_back(numbers: Numbers, bits: int) -> None:
    value = float32(bits)
    if np.isfinite(value):
        text = numbers.text(bits, "float32")
        assert Decimal(text) == Decimal(np.format_float_scientific(value, unique=True, trim="-"))
        assert numbers.bits(text, "float32") == bits
        assert numbers.bits(repr(float(value)), "float32") == bits


@settings(max_examples=300, deadline=None)
@given(text=st.from_regex(r"-?[1-9][0-9]{0,30}(\.[0-9]{1,40})?(e[+-]?[0-9]{1,3})?", fullmatch=True))
def test_decimals_read_as_python_reads_them(numbers: Numbers, text: str) -> None:
    value = float(text)
    if np.isfinite(value):
        assert numbers.bits(text, "float64") == struct.unpack("<Q", struct.pack("<d", value))[0]
    else:
        assert numbers.bits(text, "float64") is None


@settings(max_examples=200, deadline=None)
@given(bits=st.integers(0, 0x7F7FFFFE), side=st.sampled_from([-1, 0, 1]), place=st.integers(1, 300))
def test_float32_rounds_once_beside_midpoints(numbers: Numbers, bits: int, side: int, place: int) -> None:
    low, high = Fraction(float(float32(bits))), Fraction(float(float32(bits + 1)))
    middle = (low + high) / 2
    power = max(middle.denominator.bit_length(), 1) + place  # decimals that hold the midpoint, and some more
    scaled = middle * 10**power + side
    assert scaled.denominator == 1
    text = f"{scaled.numerator}e-{power}"
    nearest = bits + (side > 0 or (side == 0 and bits % 2))
    assert numbers.bits(text, "float32") == nearest


def test_every_half_and_bfloat16_reads_back(numbers: Numbers) -> None:
    for bits in range(0, 65536, 7):
        half = np.uint16(bits).view(np.float16)
        if np.isfinite(half):
            text = numbers.text(bits, "float16")
            assert numbers.bits(text, "float16") == bits
            assert float(text) == float(np.format_float_scientific(half))
        if bits & 0x7F80 != 0x7F80:
            assert numbers.bits(numbers.text(bits, "bfloat16"), "bfloat16") == bits


def test_numbers_too_large_are_refused(numbers: Numbers) -> None:
    assert numbers.bits("3.4028235e38", "float32") == 0x7F7FFFFF
    for text, kind in [
        ("3.4028236e38", "float32"),
        ("1e400", "float64"),
        ("65520", "float16"),
        ("1e99999999999", "float64"),
    ]:
        assert numbers.bits(text, kind) is None
    assert numbers.bits("1e-99999999999999999999", "float64") == 0
    assert numbers.bits("0e99999999999999999999", "float64") == 0
    assert numbers.bits("-0.0", "float32") == 0x80000000


# JSON and files -------------------------------------------------------------------------------------------------------


def test_json_round_trip(build: Executable) -> None:
    status, out, err = run(build(ONE), stdin=json.dumps(X.tolist()))
    assert (status, err) == (0, "")
    np.testing.assert_array_equal(np.array(json.loads(out)["y"], np.float32), X * 2)


@pytest.mark.parametrize("kind", [name for name in TYPES if name != "bfloat16"])
def test_every_type_passes_through_json_npy_and_npz(build: Executable, folder: Path, kind: str) -> None:
    exe, generator = build(typed(kind)), np.random.default_rng(0)
    array = np.frombuffer(generator.bytes(960), kind if kind != "bool" else "uint8")[:120].reshape(2, 3, 20)
    array = array % 2 == 1 if kind == "bool" else array
    status, out, err = run(exe, stdin=json.dumps(array.tolist()))
    assert (status, err) == (0, "")
    np.testing.assert_array_equal(np.array(json.loads(out)["y"], kind), array)
    for version in [(1, 0), (2, 0), (3, 0)]:
        status, out, err = run(exe, "-o", "-", stdin=npy(array, version))
        assert (status, err) == (0, "")
        loaded = np.load(io.BytesIO(out))
        assert loaded.dtype == array.dtype
        np.testing.assert_array_equal(loaded, array)
    for form in [np.asfortranarray(array), array.astype(array.dtype.newbyteorder(">"))]:
        status, out, err = run(exe, "-", "-o", "-", stdin=npy(form))
        np.testing.assert_array_equal(np.load(io.BytesIO(out)), array)
    for compressed in [False, True]:
        (folder / "in.npz").write_bytes(npz(compressed, x=array))
        status, out, err = run(exe, "in.npz", "-o", "out.npz", cwd=folder)
        assert (status, out, err) == (0, b"", "")
        with np.load(folder / "out.npz") as loaded:
            assert loaded["y"].dtype == array.dtype
            np.testing.assert_array_equal(loaded["y"], array)


def test_bfloat16_travels_as_float32(build: Executable) -> None:
    exe = build(typed("bfloat16"))
    values = np.array([1.0, 1.00390625, 1.01171875, 3e38, np.inf, np.nan], np.float32)  # two midpoints, to even
    status, out, err = run(exe, "-o", "-", stdin=npy(values))
    assert (status, err) == (0, "")
    expected = np.array([1.0, 1.0, 1.015625, 3.0040553e38, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(np.load(io.BytesIO(out)), expected)
    assert run(exe, stdin="[1.00390625, 0.1]")[1] == b'{"y": [1.0, 0.1]}\n'


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,) * 16])
def test_odd_shapes(build: Executable, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, np.float32)
    status, out, err = run(build(typed("float32")), "-o", "-", stdin=npy(array))
    assert (status, err) == (0, "")
    assert np.load(io.BytesIO(out)).shape == shape
    status, out, err = run(build(typed("float32")), stdin=json.dumps(array.tolist()))
    assert (status, json.loads(out)["y"]) == (0, array.tolist())


def test_empty_batch_takes_the_other_extents_from_the_model(build: Executable) -> None:
    status, out, _ = run(build(ONE), "-o", "-", stdin="[]")
    assert status == 0
    assert np.load(io.BytesIO(out)).shape == (0, 3)


def test_inputs_are_bound_by_name_and_in_order(build: Executable, folder: Path) -> None:
    exe, ids = build(TWO), np.array([5, -(2**63)])
    np.save(folder / "x.npy", X)
    np.save(folder / "ids.npy", ids)
    (folder / "both.json").write_text(json.dumps({"ids": ids.tolist(), "x": X.tolist()}))
    (folder / "x.json").write_text(json.dumps(X.tolist()))
    (folder / "both.npz").write_bytes(npz(x=X, ids=ids))
    np.savez(folder / "single.npz", X)
    for arguments in [
        ["x.npy", "ids.npy"], ["ids.npy", "--input", "x=x.json"], ["both.json"], ["both.npz"],
        ["--input=x=both.npz", "ids.npy"], ["--input", "x=single.npz", "--input", "ids=ids.npy"],
        ["x.json", "--", "ids.npy"],
    ]:  # fmt: skip
        status, out, err = run(exe, "-o", "out.npz", *arguments, cwd=folder)
        assert (status, out, err) == (0, b"", ""), arguments
        with np.load(folder / "out.npz") as loaded:
            np.testing.assert_array_equal(loaded["y"], X * 2)
            np.testing.assert_array_equal(loaded["ids2"], ids + 1)
    for arguments, words in [
        (["x.npy"], "input 'ids' is missing"),
        (["x.npy", "ids.npy", "x.npy"], "one array too many"),
        (["x.npy", "both.npz"], "input 'x' is given twice"),
        (["--input", "z=x.npy"], "no input 'z'; its inputs: x, ids"),
        (["ids.npy", "x.npy"], "input 'x': ids.npy holds int64, the model takes float32; convert it first"),
        (["--input", "ids=single.npz", "x.npy"], "holds float32, the model takes int64"),
        (["--input", "x=both.json"], "an object, where the array of one input was expected"),
        (["gone.npy"], "gone.npy: cannot open (no such file"),
        (["both.npz", "-o", "y.npy"], "use .npz"),
    ]:
        status, out, err = run(exe, *arguments, cwd=folder)
        assert (status, out) == (2, b""), arguments
        assert words in err


def test_written_npz_is_an_ordinary_zip(build: Executable) -> None:
    _, out, _ = run(build(TWO), "-o", "-", stdin=npz(x=X, ids=np.array([1, 2])))
    with zipfile.ZipFile(io.BytesIO(out)) as archive:
        assert archive.namelist() == ["y.npy", "ids2.npy"]
        assert archive.testzip() is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("[[1,2,3],\n [4,5]]", "input 'x': standard input: line 2, column 2: this list differs in length"),
        ("[[1,2,3],4]", "a list was expected"),
        ("[1,[2]]", "a list where a number"),
        ("[[1,2,3]", "ends here|',' or ']'"),
        ("[[1,2,3]] x", "line 1, column 11: more text"),
        ('[["1",2,3]]', "a number was expected"),
        ("[[null,2,3]]", "a number was expected"),
        ("[[01,2,3]]", "a number was expected"),
        ("[[1.,2,3]]", "a number was expected"),
        ("[[1e39,2,3]]", "too large"),
        ("[[1,2,3],]", "a number was expected|a list was expected"),
        ('{"z": [[1,2,3]]}', "no input 'z'; its inputs: x"),
        ('{"x": [[1,2,3]], "x": [[1,2,3]]}', "given twice"),
        ('{"x" [[1,2,3]]}', "':' was expected"),
        ('{"x": [[1,2,3]]', "',' or '}' was expected"),
        ('{"x', "has no end"),
        ('{"\\q": 1}', "escape"),
        ("{}", "input 'x' is missing"),
        ("[" * 100000, "more than 16 lists"),
        ("[[1,2]]", "expected [N,3]"),
    ],
)
def test_faulty_json_is_refused_with_its_place(build: Executable, text: str, words: str) -> None:
    status, out, err = run(build(ONE), stdin=text)
    assert (status, out) == (2, b"")
    assert err.startswith("fake: ")
    assert any(word in err for word in words.split("|")), err


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("int8", ["-128", "127", "-0"], ["128", "-129", "1.0", "1e2", "true", "NaN"]),
        ("uint8", ["0", "255"], ["256", "-1"]),
        ("int64", [str(-(2**63)), str(2**63 - 1)], [str(2**63), str(-(2**63) - 1), "9" * 40]),
        ("uint64", [str(2**64 - 1)], [str(2**64), "-1"]),
        ("bool", ["true", "false", "1", "0"], ["2", "10", "1.0", "tru", '"true"']),
    ],
)
def test_integers_and_booleans(build: Executable, kind: str, good: list[str], bad: list[str]) -> None:
    for text in good:
        status, out, _ = run(build(typed(kind)), stdin=text)
        assert status == 0
        assert json.loads(out)["y"] == json.loads(text)
    for text in bad:
        assert run(build(typed(kind)), stdin=f"[{text}]")[:2] == (2, b""), text


def test_names_in_json_may_be_escaped(build: Executable) -> None:
    assert run(build(ONE), stdin='\ufeff{"\\u0078": [[1,2,3]]}')[:2] == (0, b'{"y": [[2.0, 4.0, 6.0]]}\n')
    assert "no input '\N{GRINNING FACE}'" in run(build(ONE), stdin='{"\\ud83d\\ude00": 1}')[2]


def header(text: str, data: bytes = b"", version: int = 1) -> bytes:
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(text)) + text.encode() + data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }"), "damaged"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387903, 3), }"), "cut off"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }"), "cut off"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }", bytes(13)), "1 bytes too many"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (1" + ",1" * 16 + "), }", bytes(4)), "damaged"),
        (header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", bytes(4)), "NumPy type"),
        (header("{'descr': '<U3', 'fortran_order': False, 'shape': (1,), }", bytes(12)), "NumPy type '<U3'"),
        (
            header("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", bytes(8)),
            "holds float64, the model takes",
        ),
        (header("{'descr': '<f4', 'shape': (1,), }", bytes(4)), "damaged"),
        (header("{}", version=9), "version 9"),
        (header("")[:-2] + b"\xff\xff", "cut off"),
    ],
)
def test_faulty_npy_is_refused(build: Executable, data: bytes, words: str) -> None:
    status, out, err = run(build(ONE, sanitized=True), stdin=data)
    assert (status, out) == (2, b"")
    assert words in err


# Fuzzing --------------------------------------------------------------------------------------------------------------


def survives(exe: Program, data: bytes, path: Path) -> None:
    path.write_bytes(data)
    status, _, err = run(exe, str(path), "-o", "/dev/null")
    assert status in (0, 2), (data, err)
    assert err.startswith("fake: ") or not status, err


def seeds() -> list[bytes]:
    x, ids = np.ones((2, 3), np.float32), np.array([1, 2])
    return [npy(x), npz(x=x, ids=ids), npz(True, x=x, ids=ids), json.dumps({"x": x.tolist(), "ids": [1, 2]}).encode()]


@pytest.mark.parametrize("seed", range(4))
def test_cut_and_mutated_files_never_crash(build: Executable, folder: Path, seed: int) -> None:
    exe, data, chance, path = build(TWO, sanitized=True), seeds()[seed], random.Random(seed), folder / f"fuzz{seed}"
    for length in chance.sample(range(len(data)), min(len(data), 60)):
        survives(exe, data[:length], path)
    for _ in range(150):
        mutated = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            mutated[chance.randrange(len(data))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        survives(exe, bytes(mutated), path)


def test_inflate_agrees_with_zlib(build: Executable) -> None:
    generator, exe = np.random.default_rng(1), build(typed("uint8"))
    for array in [
        generator.integers(0, 256, 70000),
        generator.integers(0, 3, 200000),
        np.zeros(300000),
        np.arange(1000) % 7,
    ]:
        array = array.astype(np.uint8)
        status, out, err = run(exe, "-o", "-", stdin=npz(True, x=array))
        assert (status, err) == (0, "")
        np.testing.assert_array_equal(np.load(io.BytesIO(out)), array)


def test_a_wrong_checksum_is_refused(build: Executable) -> None:
    data = bytearray(npz(x=np.ones((1, 3), np.float32)))
    data[data.index(np.float32(1).tobytes() * 3)] ^= 1
    status, _, err = run(build(ONE), stdin=bytes(data))
    assert status == 2
    assert "array 'x' is damaged" in err


# Output, options, streams ---------------------------------------------------------------------------------------------


def test_output_appears_whole_or_not_at_all(build: Executable, folder: Path, tmp_path: Path) -> None:
    exe = build(ONE)
    target = tmp_path / "y.npy"
    target.write_text("old")
    assert run(exe, "-o", str(target), stdin="[[1,2]]")[0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["y.npy"]
    assert target.read_text() == "old"
    assert run(exe, "-o", str(target), stdin="[[1,2,3]]")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["y.npy"]
    np.testing.assert_array_equal(np.load(target), [[2, 4, 6]])
    assert run(exe, "-o", str(tmp_path / "y.json"), stdin="[[1,2,3]]")[0] == 0
    assert json.loads((tmp_path / "y.json").read_text()) == {"y": [[2, 4, 6]]}
    status, _, err = run(exe, "-o", str(tmp_path / "no/y.npy"), stdin="[[1,2,3]]")
    assert status == 2
    assert "cannot create (no such file or folder)" in err


def test_full_device_and_gone_reader_are_errors(build: Executable) -> None:
    exe = build(ONE)
    status, _, err = run(exe, "-o", "/dev/full", stdin="[[1,2,3]]")
    assert (status, err) == (2, "fake: /dev/full: cannot write (no space left on the device)\n")
    with open("/dev/full", "w") as full:
        for arguments in [[], ["--stream"], ["--info"], ["--help"]]:
            done = subprocess.run(
                [exe.path, *arguments], input=b"[[1,2,3]]", stdout=full, stderr=subprocess.PIPE, check=False
            )
            assert done.returncode == 2
            assert b"no space left" in done.stderr
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([exe.path], input=b"[[1,2,3]]", stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.returncode == 2
    assert b"the reader has gone" in done.stderr


def test_stream(build: Executable) -> None:
    lines = ["[[1,2,3]]", "", '{"x": [[0.1,0,0]]}', "[[1,2", "  \r", "[[1,2]]", "[[4,5,6],[7,8,9]]"]
    status, out, err = run(build(ONE, sanitized=True), "--stream", stdin="\n".join(lines))
    answers = [json.loads(line) for line in out.splitlines()]
    assert status == 2
    assert "2 lines could not be answered" in err
    assert answers[0] == {"y": [[2, 4, 6]]}
    assert answers[1] == {"y": [[0.2, 0, 0]]}
    assert "line 4, column 6" in answers[2]["error"]
    assert "expected [N,3]" in answers[3]["error"]
    assert answers[4] == {"y": [[8, 10, 12], [14, 16, 18]]}
    assert run(build(ONE), "--stream", stdin="[[1,2,3]]\n" * 5000)[:2] == (0, b'{"y": [[2.0, 4.0, 6.0]]}\n' * 5000)


def test_stream_answers_at_once(build: Executable) -> None:
    with subprocess.Popen([build(ONE).path, "--stream"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        for _ in range(3):
            process.stdin.write(b"[[1,2,3]]\n")
            process.stdin.flush()
            assert process.stdout.readline() == b'{"y": [[2.0, 4.0, 6.0]]}\n'
        process.stdin.close()
        assert process.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--wieghts", "f"], 2, "did you mean --weights?"),
        (["--zzzzzzzzzzzzz"], 2, "see --help"),
        (["-x"], 2, "unknown option '-x'"),
        (["--threads"], 2, "--threads needs a value"),
        (["--threads", "-1"], 2, "from 0 to"),
        (["--repeat=many"], 2, "from 0 to"),
        (["--info=1"], 2, "takes no value"),
        (["--input", "x"], 2, "NAME=FILE"),
        (["-o", "y.txt"], 2, "must end in .npz, .npy or .json"),
        (["--stream", "x.npy"], 2, "--stream takes no files"),
        (["--weights", "bad.weights"], 3, "weights are of another model"),
        (["--save-weights", "elsewhere"], 3, "cannot write weights"),
    ],
)
def test_wrong_options(build: Executable, arguments: list[str], status: int, words: str) -> None:
    code, out, err = run(build(ONE, sanitized=True), *arguments)
    assert (code, out) == (status, b"")
    assert words in err


def test_what_the_options_give(build: Executable) -> None:
    exe = build(ONE, sanitized=True)
    assert run(exe, "--version") == (0, b"fake (castiron 0.1)\n", "")
    status, out, _ = run(exe, "-h")
    assert status == 0
    assert b"  x                float32 [N,3]\n" in out
    info = json.loads(run(exe, "--info")[1])
    assert info["inputs"] == [{"name": "x", "type": "float32", "shape": ["N", 3]}]
    assert (info["isa"], info["source"], info["weights"]["source"]) == ("x86-64-v3", "test", "file")
    assert run(exe, "--save-weights", "saved.weights")[0] == 0
    status, out, err = run(exe, "--weights=good.weights", "--repeat", "5", "--profile", stdin="[[1,2,3]]")
    assert (status, out) == (0, b'{"y": [[2.0, 4.0, 6.0]]}\n')
    assert err.startswith("5 runs: min ")
    assert [line.split() for line in err.splitlines()[2:]] == [
        ["y", "Mul", "5", "0.005000", "33.3"],
        ["ids2", "Add", "5", "0.010000", "66.7"],
        ["all", "5", "0.015000", "100.0"],
    ]


def test_selftest(build: Executable) -> None:
    assert run(build(ONE, sanitized=True), "--selftest") == (0, b"y: 3 values, max|diff| 0.0, ulp 0.0, OK\n", "")
    near = run(build({**ONE, "FAKE_OFFSET": "1"}), "--selftest")
    assert near == (0, b"y: 3 values, max|diff| 2.3841858e-07, ulp 0.5, OK\n", "")
    status, out, err = run(build({**ONE, "FAKE_OFFSET": "4194304"}), "--selftest")
    assert (status, out) == (1, b"y: 3 values, max|diff| 1.0, ulp 2097152.0, MISMATCH\n")
    assert "outputs differ from those recorded" in err
    assert run(build(TWO), "--selftest")[0] == 2
