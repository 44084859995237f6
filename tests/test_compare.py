"""`castiron compare`: every kind of file against every other, and what it says of each difference."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from castiron.errors import InputError
from castiron.lab.arrays import read
from castiron.lab.compare import Difference, compare_arrays, compare_files, ulps
from castiron.lab.verify import Verdict, verify

NAN, INF = float("nan"), float("inf")
Files = Callable[[str, Any], Path]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Writes an array (.npy), several by name (.npz), or a value (.json)."""

    def write(name: str, content: Any) -> Path:
        path = tmp_path / name
        if path.suffix == ".npy":
            np.save(path, content)
        elif path.suffix == ".npz":
            np.savez(path, **content)
        else:
            path.write_text(json.dumps(content))
        return path

    return write


def compared(a: Path, b: Path, atol: float = 1e-6, rtol: float = 1e-5) -> list[Difference]:
    """What `castiron compare A B` shows."""
    return compare_files(read(a), read(b), atol, rtol)


# Files ------------------------------------------------------------------------------------------------------


def test_every_kind_against_every_other(files: Files) -> None:
    x = np.array([[0.1, -2.5], [3e8, 0.0]], np.float32)
    kinds = [
        files("x.npy", x),
        files("x.npz", {"x": x}),
        files("named.json", {"x": x.tolist()}),
        files("x.json", x.tolist()),
    ]
    for a in kinds:
        for b in kinds:
            (found,) = compared(a, b, 0, 0)
            assert found.ok and found.n == 4 and found.max_diff == 0, (a, b)


def test_json_numbers_are_rounded_to_the_type_of_the_other(files: Files) -> None:
    x = np.float32([0.1, 1 / 3])
    shortest = files("x.json", [float(str(v)) for v in x])  # as executables print
    for pair in ((shortest, files("x.npy", x)), (files("y.npy", x), shortest)):
        assert compared(*pair)[0].max_diff == 0
    assert compared(shortest, files("wide.npy", x.astype(np.float64)))[0].max_diff > 0


def test_types_that_json_cannot_say(files: Files) -> None:
    arrays = {
        "half": np.array([NAN, INF, -INF, 1.5], np.float16),
        "whole": np.array([-(2**63), 2**63 - 1]),
        "byte": np.array([255], np.uint8),
        "truth": np.array([True, False]),
        "none": np.zeros((0, 3), np.float32),
        "rows": np.zeros((2, 0), np.float32),
        "words": np.array(["a", "ä"]),
        "one": np.array(2.5, np.float32),
    }
    a, b = files("a.npz", arrays), files("a.json", {n: x.tolist() for n, x in arrays.items()})
    assert all(d.ok and d.max_diff == 0 for pair in ((a, b), (b, a)) for d in compared(*pair))


def test_lone_and_numbered_arrays_need_no_names(files: Files) -> None:
    x, y = np.arange(3), np.arange(4)
    assert [d.name for d in compared(files("a.npz", {"arr_0": x, "arr_1": y}), files("b.npz", {"p": x, "q": y}))] == [
        "p",
        "q",
    ]
    assert compared(files("lone.npz", {"p": x}), files("other.npz", {"q": x}))[0].ok


def test_names_that_one_side_lacks(files: Files) -> None:
    x = np.arange(3.0)
    found = compared(files("a.npz", {"p": x, "q": x}), files("b.npz", {"p": x, "r": x}))
    assert [(d.name, d.ok) for d in found] == [("p", True), ("r", False), ("q", False)]
    assert found[1].reason == "only in the second file" and found[2].reason == "only in the first file"


def test_contents_tell_the_kind_not_names(files: Files) -> None:
    plain = files("x.npz", {"x": np.arange(3)}).rename(files("y.json", 0).with_name("z.txt"))
    assert list(read(plain).arrays) == ["x"]


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_every_cut_is_noticed(files: Files, name: str) -> None:
    x = np.arange(6, dtype=np.float32)
    path = files(name, x if name == "x.npy" else {"x": x})
    data = path.read_bytes()
    for end in range(len(data)):
        path.write_bytes(data[:end])
        with pytest.raises(InputError, match=r"x\.np"):
            read(path)


@pytest.mark.parametrize(
    "text", ["", " ", "[1, 2", "nonsense", "[[1], [2, 3]]", "null", "{}", '{"x": {"y": 1}}', "[" * 99999]
)
def test_json_that_is_no_array(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"x\.json"):
        read(path)


def test_arrays_of_objects_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError, match="no whole array"):
        read(tmp_path / "x.npy")
    np.save(tmp_path / "c.npy", np.zeros(2, np.complex64))
    with pytest.raises(InputError, match="complex64"):
        read(tmp_path / "c.npy")
    with pytest.raises(InputError, match="does not exist"):
        read(tmp_path / "nothing.npy")


# Differences ------------------------------------------------------------------------------------------------


def test_the_worst_place_and_what_is_there() -> None:
    a, b = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    a[1, 2], b[0, 0] = 2, 1e-7
    found = compare_arrays("y", a, b, 1e-6, 1e-5)
    assert (found.n, found.max_diff, found.worst, found.found, found.expected) == (6, 2.0, (1, 2), "2.0", "0.0")
    assert found.reason == "1 of 6 differ beyond 1e-06 + 1e-05·|expected|"


@pytest.mark.parametrize(
    ("a", "b", "ok", "largest"),
    [
        ([NAN], [NAN], True, 0),
        ([NAN], [1], False, INF),
        ([1], [NAN], False, INF),
        ([INF], [INF], True, 0),
        ([-INF], [INF], False, INF),
        ([1e30], [INF], False, INF),
        ([-0.0], [0.0], True, 0),
        ([1.00001], [1.0], True, 1e-5),
        ([1.0001], [1.0], False, 1e-4),
    ],
)
def test_floats(a: list[float], b: list[float], ok: bool, largest: float) -> None:
    found = compare_arrays("y", np.array(a), np.array(b), 1e-6, 1e-5)
    assert found.ok == ok and found.max_diff == pytest.approx(largest)


@pytest.mark.parametrize(("a", "b"), [(2**63 - 1, 2**63 - 2), (-(2**63), 2**63 - 1), (0, 1)])
def test_integers_are_compared_exactly(a: int, b: int) -> None:
    found = compare_arrays("y", np.array([a]), np.array([b]), 1e30, 1)
    assert not found.ok and found.max_diff == float(abs(a - b)) and found.ulp is None
    assert compare_arrays("y", np.array([a]), np.array([a]), 0, 0).ok


def test_unsigned_integers_do_not_wrap() -> None:
    assert compare_arrays("y", np.array([0], np.uint8), np.array([255], np.uint8), 0, 0).max_diff == 255
    assert compare_arrays("y", np.array([2**64 - 1], np.uint64), np.array([-1]), 0, 0).max_diff == 2.0**64


def test_shapes_must_be_equal() -> None:
    found = compare_arrays("y", np.zeros((2, 3)), np.zeros((3, 2)), 1, 1)
    assert found.reason == "shape [2, 3], expected [3, 2]" and found.worst is None


@given(st.lists(st.floats(width=32), min_size=1))
def test_arrays_equal_themselves(values: list[float]) -> None:
    array = np.array(values, np.float32)
    assert compare_arrays("y", array, array.copy(), 0, 0).ok


# Units of the last place ------------------------------------------------------------------------------------


def test_ulp_is_that_of_the_largest_value() -> None:
    b = np.array([1.0, 1e-20, 0.0], np.float32)
    assert ulps(b + np.array([0, 0, 2**-23], np.float32), b) == 1  # at 0, it would be 8e37 of its own
    assert ulps(np.nextafter(b, np.float32(2)), b) == 1
    assert ulps(b, b) == 0


@pytest.mark.parametrize("type", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_ulp_of_every_float(type: Any) -> None:
    b = np.array([1.5, -3.0], type)
    step = float(ml_dtypes.finfo(type).eps) * 2
    assert ulps(b + np.array([0, step], type), b) == 1


def test_ulp_where_there_is_none() -> None:
    assert ulps(np.array([1]), np.array([2])) is None
    assert ulps(np.array([1.0]), np.array([0.0])) is None
    assert ulps(np.array([1.0]), np.array([NAN])) is None
    assert ulps(np.array([NAN, 1.0]), np.array([1.0, 1.0])) == INF


# Verification -----------------------------------------------------------------------------------------------


def verdict(found: Any, source: Any, exact: Any = None) -> Verdict:
    """Of one output `y`, with the default budget."""
    return verify({"y": found}, {"y": source}, None if exact is None else {"y": exact}, 2.0)[0]


def test_error_is_allowed_in_units_of_the_sources_own() -> None:
    exact = np.array([1.0, -1.0])
    source = (exact + 1e-5).astype(np.float32)
    near, far = (exact - 1.9e-5).astype(np.float32), (exact - 2.1e-5).astype(np.float32)
    assert verdict(near, source, exact).ok and not verdict(far, source, exact).ok
    assert verdict(far, source, exact).reason.startswith("error 2.1e-05 against float64, 2e-05 allowed (2 ×")
    assert verdict(source, source, source.astype(np.float64)).allowed == pytest.approx(
        2**-22, rel=1e-4
    )  # where it is exact


def test_without_float64_a_small_part_of_the_range_is_allowed() -> None:
    source = np.array([100.0, 0.0], np.float32)
    assert verdict(source + np.float32([0, 0.009]), source).ok
    assert "differs by 0.011 from the source" in verdict(source + np.float32([0, 0.011]), source).reason


def test_what_is_never_allowed() -> None:
    source = np.array([1.0, NAN], np.float32)
    assert verdict(source, source).ok
    assert not verdict(np.float32([1, 1]), source).ok and not verdict(np.float32([NAN, NAN]), source).ok
    assert verdict(np.array([1, 2]), np.array([1, 3])).reason == "1 of 2 differ"
    assert verdict(source.astype(np.float64), source).reason == "got float64[2], expected float32[2]"
    assert verdict(None, source).reason == "got nothing, expected float32[2]"
    assert verdict(np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32)).ok


def test_bfloat16_comes_as_float32_from_files() -> None:
    source = np.array([1.0, 3.0], ml_dtypes.bfloat16)
    assert verdict(source.astype(np.float32), source).ok
