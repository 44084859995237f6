"""Inputs, limits and surroundings that mean harm: each ends with a status and a message, none crashes or hangs."""

from __future__ import annotations

import ctypes as c
import gc
import json
import os
import resource
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import castiron
from castiron.artifact.load import Model, _Array, _Error

# ids index a table; T meets a kernel of 3; scores grow with the square of T.
TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
hostile (int64[N] ids, float[N, 2, T] x) => (float[N, 4] rows, float[N, 3, L] lines, float[N, 1, T] scores)
<float[50, 4] table, float[3, 2, 3] kernel> {
    rows = Gather (table, ids)
    lines = Conv (x, kernel)
    turned = Transpose <perm = [0, 2, 1]> (x)
    products = MatMul (turned, x)
    chances = Softmax (products)
    first = Constant <value_ints = [1]> ()
    scores = ReduceMax <keepdims = 1> (chances, first)
}
"""
OK, BAD_INPUT, NO_MEMORY = 0, 2, 4


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A folder that other users may read."""
    path = Path(tempfile.mkdtemp(prefix="castiron-hostile-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@cache
def built(folder: Path, form: str) -> Path:
    random = np.random.default_rng(1)
    model = onnx.parser.parse_model(TEXT)
    for name, shape in (("table", (50, 4)), ("kernel", (3, 2, 3))):
        values = random.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    del model.graph.value_info[:]
    path = folder / "hostile.onnx"
    onnx.save(model, path)
    return castiron.build(str(path), folder / f"hostile-{form}", form=form, cpu=("v3",)).path


@pytest.fixture(scope="session")
def program(folder: Path) -> Path:
    return built(folder, "exe")


@pytest.fixture(scope="session")
def library(folder: Path) -> Path:
    return built(folder, "shared")


def arrays(n: int = 3, t: int = 8, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {"ids": random.integers(0, 50, n), "x": random.standard_normal((n, 2, t)).astype(np.float32)}


def call(
    program: Path, given: dict[str, np.ndarray] | bytes | None, *options: str, **more: Any
) -> subprocess.CompletedProcess[bytes]:
    """The program on arrays (as .npz) or on bytes, by standard input."""
    if isinstance(given, dict):
        with tempfile.TemporaryFile() as file:
            np.savez(file, **given)  # type: ignore[arg-type]
            file.seek(0)
            given = file.read()
    if given is not None:
        more["input"] = given
    return subprocess.run([program, *options], capture_output=True, timeout=60, **more)


def refused(done: subprocess.CompletedProcess[bytes], status: int, *words: str) -> None:
    """It ended with this status, nothing on standard output and a message that holds the words."""
    message = done.stderr.decode()
    assert done.returncode == status, (done.returncode, message)
    assert message.startswith("hostile: ") and message.count("\n") == 1, message
    for word in words:
        assert word in message, message


def limited(**limits: int) -> Callable[[], None]:
    """For preexec_fn: limits by name (`AS=…`)."""

    def apply() -> None:
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))

    return apply


# Values --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [50, -51, 2**31, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("threads", ["1", "3"])
def test_an_index_outside_its_table(program: Path, index: int, threads: str) -> None:
    given = arrays()
    given["ids"][1] = index
    refused(call(program, given, "--threads", threads), BAD_INPUT, "Gather", f"index {index} is outside [-50, 50)")


def test_negative_indices_count_from_the_end(program: Path) -> None:
    given = arrays()
    plain = call(program, given)
    given["ids"] -= 50
    assert call(program, given).stdout == plain.stdout


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3.4e38, 1e-45])
def test_strange_floats(program: Path, value: float) -> None:
    given = arrays()
    given["x"][1, :, 2] = value
    done = call(program, given, "--threads", "2")
    assert done.returncode == OK and not done.stderr
    answer = json.loads(done.stdout)
    clean = json.loads(call(program, arrays()).stdout)
    for name in ("rows", "lines", "scores"):  # other rows know nothing of it
        assert answer[name][0] == clean[name][0] and answer[name][2] == clean[name][2]


# Sizes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("t", [0, 1])
def test_a_sequence_shorter_than_the_kernel(program: Path, t: int) -> None:
    refused(call(program, arrays(t=t)), BAD_INPUT, "Conv", "negative size", "T - 2")


@pytest.mark.parametrize(("n", "t"), [(0, 8), (3, 2), (1, 3), (0, 2)])
def test_empty_and_smallest(program: Path, n: int, t: int) -> None:
    done = call(program, arrays(n, t))
    assert done.returncode == OK and np.shape(json.loads(done.stdout)["rows"])[0] == n


def npy(shape: tuple[int, ...], data: bytes = b"", type: str = "<f4") -> bytes:
    """A .npy file of a header that says what it likes."""
    header = f"{{'descr': '{type}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


@pytest.mark.parametrize(
    "shape",
    [
        (2**40, 2, 3),
        (2**62, 2, 2**62),
        (2**63 - 1, 2, 2**63 - 1),
        (3, 2, 2**61),
        (0, 2, 2**62),
        (2**32, 2**32, 4),
        (2**64, 2, 3),
        (-1, 2, 3),
    ],
)
def test_headers_that_promise_too_much(program: Path, folder: Path, shape: tuple[int, ...]) -> None:
    ids, x = folder / "ids.npy", folder / "huge.npy"
    np.save(ids, arrays()["ids"])
    x.write_bytes(npy(shape, bytes(24)))
    done = call(program, None, str(ids), str(x), preexec_fn=limited(AS=64 << 20))
    refused(done, BAD_INPUT)


def test_deep_json(program: Path) -> None:
    refused(call(program, b'{"x": ' + b"[" * 2_000_000), BAD_INPUT)
    refused(call(program, b'{"x": ' + b'{"a":' * 1_000_000), BAD_INPUT)


# Limits --------------------------------------------------------------------------------------------------------------


def test_no_memory_for_intermediate_values(program: Path) -> None:
    done = call(program, arrays(1, 5000), "--threads", "1", preexec_fn=limited(AS=50 << 20))
    refused(done, NO_MEMORY, "intermediate values", "bytes")


@pytest.mark.parametrize("megabytes", [1, 2, 3, 5, 8])
def test_no_memory_for_anything(program: Path, megabytes: int) -> None:
    """Whatever is refused, it is said; the smallest limits do not let the system start the program."""
    done = call(program, arrays(10, 2000), "--threads", "4", preexec_fn=limited(AS=megabytes << 20))
    if done.returncode > 0:
        refused(done, NO_MEMORY)
    else:
        assert done.returncode == OK or (megabytes <= 1 and not done.stdout)


def test_no_threads_to_be_had(program: Path, folder: Path) -> None:
    given = arrays(40, 200)
    plain = call(program, given, "--threads", "1")

    def no_threads() -> None:
        if os.getuid() == 0:  # limits are not for root
            os.setgid(65534)
            os.setuid(65534)
        limited(NPROC=0)()

    done = call(program, given, "--threads", "8", preexec_fn=no_threads)
    assert (done.returncode, done.stdout) == (OK, plain.stdout), done.stderr


@pytest.mark.parametrize("threads", ["0", "1", "2", "3", "7", "64", "1000"])
def test_any_number_of_threads_gives_the_same(program: Path, threads: str) -> None:
    given = arrays(40, 100)
    assert call(program, given, "--threads", threads).stdout == call(program, given, "--threads", "1").stdout


@pytest.mark.parametrize("option", ["--threads", "--repeat"])
@pytest.mark.parametrize("value", ["-1", "x", "", "1e3", "1000001", "99999999999999999999", "0x10", " 1"])
def test_absurd_numbers(program: Path, option: str, value: str) -> None:
    refused(call(program, arrays(), option, value), BAD_INPUT, option, "0 to 1000000")


def test_repeat_zero_runs_once(program: Path) -> None:
    assert call(program, arrays(), "--repeat", "0").stdout == call(program, arrays()).stdout


# Files ---------------------------------------------------------------------------------------------------------------


def closed(*files: int) -> Callable[[], None]:
    """For preexec_fn: without these files."""

    def close() -> None:
        for file in files:
            os.close(file)

    return close


def test_closed_standard_input(program: Path) -> None:
    refused(call(program, None, preexec_fn=closed(0)), BAD_INPUT, "standard input")


def test_closed_standard_files_get_no_data(program: Path, folder: Path) -> None:
    """What is opened later must not be taken for them."""
    given, answer = folder / "in.npz", folder / "out.npz"
    np.savez(given, **arrays())  # type: ignore[arg-type]
    before = given.read_bytes()
    done = call(program, None, str(given), preexec_fn=closed(0, 1))
    refused(done, BAD_INPUT, "standard output")
    assert given.read_bytes() == before
    assert call(program, None, str(given), "-o", str(answer), preexec_fn=closed(0, 1, 2)).returncode == OK
    with np.load(answer) as found:
        assert set(found.files) == {"rows", "lines", "scores"}


def test_reader_that_has_gone(program: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with tempfile.TemporaryFile() as file:
        np.savez(file, **arrays(40, 100))  # type: ignore[arg-type]
        file.seek(0)
        done = subprocess.run([program], stdin=file, stdout=write, stderr=subprocess.PIPE, timeout=60)
    os.close(write)
    refused(done, BAD_INPUT, "standard output", "reader has gone")


@pytest.mark.parametrize("path", ["/dev/full", "/proc/x.npz", "/nowhere/x.npz", "x" * 5000 + ".npz", "/x.npz/y.npz"])
def test_output_that_cannot_be_written(program: Path, path: str) -> None:
    refused(call(program, arrays(), "-o", path), BAD_INPUT)


def test_files_that_are_none(program: Path, folder: Path) -> None:
    for path in ("/", "/proc/self/mem", "/nowhere", str(folder), "/dev/null"):
        refused(call(program, None, path), BAD_INPUT)


# The C interface -----------------------------------------------------------------------------------------------------


class Library:
    """The functions of a library as C has them: what Model does not let one say."""

    def __init__(self, path: Path) -> None:
        self.model = Model(path, threads=1)
        self.functions: Any = self.model._library

    def status(self, function: str, *arguments: Any) -> tuple[int, str]:
        error = _Error()
        status = getattr(self.functions, f"hostile_{function}")(*arguments, c.byref(error))
        return int(status), error.text.decode()

    def session(self, threads: int) -> c.c_void_p:
        found = c.c_void_p()
        assert self.status("session_new", self.model._handle, c.c_int(threads), c.byref(found)) == (OK, "")
        return found

    def run(self, session: c.c_void_p, given: dict[str, np.ndarray]) -> list[bytes]:
        inputs, outputs = described(given["ids"], given["x"]), (_Array * 3)()
        assert self.status("session_run", session, inputs, outputs) == (OK, "")
        return [c.string_at(o.data, 4 * int(np.prod(o.dims[: o.rank]))) for o in outputs]

    def free(self, session: c.c_void_p) -> None:
        self.functions.hostile_session_free(session)


def described(ids: np.ndarray, x: np.ndarray, **dims: int) -> c.Array[_Array]:
    """ci_arrays of both inputs, with sizes that may be lies."""
    n, t = (dims.get(name, x.shape[dim]) for name, dim in (("N", 0), ("T", 2)))
    inputs = (_Array * 2)()
    inputs[0] = _Array(ids.ctypes.data, 7, 1, (c.c_int64 * 16)(n))
    inputs[1] = _Array(x.ctypes.data, 1, 3, (c.c_int64 * 16)(n, 2, t))
    return inputs


@pytest.mark.parametrize(
    ("dims", "status", "words"),
    [
        ({"T": 2**33}, NO_MEMORY, "larger than any memory"),
        ({"T": 2**23}, NO_MEMORY, "intermediate values"),
        ({"N": 0, "T": 2**44}, BAD_INPUT, "impossible shape"),
        ({"N": 2**44}, BAD_INPUT, "too large to exist"),
        ({"N": 2**63 - 1}, BAD_INPUT, "too large to exist"),
        ({"N": -1}, BAD_INPUT, "negative"),
        ({"T": -(2**63)}, BAD_INPUT, "negative"),
        ({"T": 1}, BAD_INPUT, "negative size"),
    ],
)
def test_sizes_that_no_memory_holds(library: Path, dims: dict[str, int], status: int, words: str) -> None:
    lib = Library(library)
    session = lib.session(1)
    given = arrays(1, 8)
    found, message = lib.status("session_run", session, described(given["ids"], given["x"], **dims), (_Array * 3)())
    assert found == status and words in message, message
    expected = lib.model(**given)
    assert lib.run(session, given) == [a.tobytes() for a in expected.values()]  # it is none the worse for it
    lib.free(session)


def test_an_empty_batch_takes_no_time_whatever_its_sizes(library: Path) -> None:
    lib = Library(library)
    given = arrays(0, 8)
    outputs = (_Array * 3)()
    inputs = described(given["ids"], given["x"], T=2**24)
    assert lib.status("session_run", lib.session(2), inputs, outputs) == (OK, "")
    assert list(outputs[1].dims[:3]) == [0, 3, 2**24 - 2]


def test_many_sessions_share_weights(library: Path) -> None:
    lib = Library(library)
    cases = [arrays(n, t, seed=n) for n, t in ((3, 8), (40, 60), (1, 3), (17, 33), (0, 5))]
    expected = [lib.run(lib.session(1), given) for given in cases]
    wrong: list[str] = []

    def use(number: int) -> None:
        session = lib.session(1 + number % 3)
        for turn in range(20):
            place = (number + turn) % len(cases)
            if lib.run(session, cases[place]) != expected[place]:
                wrong.append(f"user {number}, turn {turn}")
        lib.free(session)

    users = [threading.Thread(target=use, args=(n,)) for n in range(8)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert not wrong


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def held() -> list[int]:
    """Files, threads and mappings of this process."""
    gc.collect()
    maps = sum("hostile" in line for line in Path("/proc/self/maps").read_text().splitlines())
    return [len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), maps]


def test_nothing_is_left_behind(library: Path) -> None:
    """Loading, running and freeing a thousand times, with threads and faults, takes no more memory than fifty times."""
    given, bad = arrays(20, 40), arrays(20, 40)
    bad["ids"][3] = 99

    def cycle(turns: int) -> int:
        for turn in range(turns):
            model = castiron.load(library, threads=1 + turn % 2)
            model(**given)
            with pytest.raises(castiron.InputError):
                model(**bad)
            del model
        return resident()

    before = cycle(50), held()
    assert cycle(1000) - before[0] < 4 << 20
    assert held() == before[1]
