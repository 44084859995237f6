"""How far apart two sets of arrays are, and whether that is near enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from castiron.lab.arrays import ArrayFile, like


@dataclass(frozen=True)
class Difference:
    """One output compared.

    max_diff: max |found - expected|, infinite where one is NaN or infinite and the other is not, NaN where the two
    cannot be compared. worst: where that is, with the values found and expected there; None where nothing is
    compared. ulp: see `ulps`. reason: why it is a mismatch, or empty."""

    name: str
    n: int
    max_diff: float
    worst: tuple[int, ...] | None = None
    found: str = ""
    expected: str = ""
    ulp: float | None = None
    reason: str = ""

    @property
    def ok(self) -> bool:
        return not self.reason


def compare_arrays(name: str, found: np.ndarray, expected: np.ndarray, atol: float, rtol: float) -> Difference:
    """NaN equals NaN and infinities equal their like; elsewhere |found - expected| <= atol + rtol * |expected|.

    Integers and bools are compared exactly with each other, strings for equality; types need not be the same."""
    if found.shape != expected.shape:
        reason = f"shape {list(found.shape)}, expected {list(expected.shape)}"
        return Difference(name, found.size, float("nan"), reason=reason)
    if found.size == 0:
        return Difference(name, 0, 0.0)
    distance = distances(found, expected)
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(distance)), distance.shape))
    wrong = distance > allowances(found, expected, atol, rtol)
    tolerance = "" if _is_exact(found, expected) else f" beyond {atol:g} + {rtol:g}·|expected|"
    return Difference(
        name,
        found.size,
        float(distance[worst]),
        worst,
        str(found[worst]),
        str(expected[worst]),
        ulps(found, expected),
        f"{int(wrong.sum()):,} of {found.size:,} differ{tolerance}" if wrong.any() else "",
    )


def distances(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """|found - expected| of each element in float64: 0 where both are NaN or the same infinity, infinite where only one

    is; of integers never 0 unless they are equal; of strings 0 or infinity."""
    if found.dtype.kind in "US" or expected.dtype.kind in "US":
        return np.where(np.asarray(found.astype(object) == expected.astype(object)), 0.0, np.inf)
    if _is_whole(found) and _is_whole(expected):
        exact: type = np.float64 if max(found.dtype.itemsize, expected.dtype.itemsize) < 8 else object
        apart: np.ndarray = np.abs(found.astype(exact) - expected.astype(exact)).astype(np.float64)
        return apart
    x, y = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
    return np.where(np.isnan(apart), np.inf, apart)


def allowances(found: np.ndarray, expected: np.ndarray, atol: float, rtol: float) -> np.ndarray:
    """The distance that is allowed at each element; nothing at a NaN or an infinity."""
    if _is_exact(found, expected):
        return np.zeros(expected.shape)
    magnitude = np.abs(expected.astype(np.float64))
    return np.where(np.isfinite(magnitude), atol + rtol * np.where(np.isfinite(magnitude), magnitude, 0), 0)


def _is_whole(array: np.ndarray) -> bool:
    return array.dtype.kind in "biu"


def _is_exact(found: np.ndarray, expected: np.ndarray) -> bool:
    return (_is_whole(found) and _is_whole(expected)) or found.dtype.kind in "US" or expected.dtype.kind in "US"


def ulps(found: np.ndarray, expected: np.ndarray) -> float | None:
    """max |found - expected| in units of the last place of the largest |expected|, in the type of `expected`.

    One is the smallest step between numbers of the output's own size. Counted at each element instead, the figure
    would tell nothing: where a sum cancels to almost 0, an error that is tiny for its terms is millions of the result's
    own ulp. None for types other than floats, and where all of `expected` is 0, NaN or infinite."""
    step = spacing(expected)
    if step is None or not expected.size:
        return None
    return float(distances(found, expected).max() / step)


def spacing(array: np.ndarray) -> float | None:
    """The distance from the largest finite magnitude to the next number of its type; None for other types than floats

    and where there is no such magnitude but 0."""
    if array.dtype.kind not in "fV":
        return None
    info: Any = ml_dtypes.finfo(array.dtype)  # type: ignore[no-untyped-call]  # it has no types
    top = largest(array)
    return 2.0 ** (np.frexp(max(top, float(info.smallest_normal)))[1] - 1 - info.nmant) if top else None


def largest(array: np.ndarray) -> float:
    """The largest finite magnitude."""
    values = np.abs(array.astype(np.float64))
    return float(values[np.isfinite(values)].max(initial=0.0))


def compare_sets(
    found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], atol: float, rtol: float
) -> list[Difference]:
    """Each expected array against the found one of its name. A name that only one side has is a mismatch."""
    out = []
    for name in dict.fromkeys((*expected, *found)):
        if name in found and name in expected:
            out.append(compare_arrays(name, found[name], expected[name], atol, rtol))
        else:
            array = found[name] if name in found else expected[name]
            side = "the first file" if name in found else "the second file"
            out.append(Difference(name, array.size, float("nan"), reason=f"only in {side}"))
    return out


def compare_files(found: ArrayFile, expected: ArrayFile, atol: float, rtol: float) -> list[Difference]:
    """The arrays of two files. Those without names of their own stand for the other file's in their order; JSON numbers

    take the type that the other file has."""
    first, second = dict(found.arrays), dict(expected.arrays)
    if len(first) == len(second) and (len(first) == 1 or not (found.named and expected.named)):
        names = second if expected.named or not found.named else first
        first, second = dict(zip(names, first.values())), dict(zip(names, second.values()))
    for name in first.keys() & second.keys():
        if not found.typed and expected.typed:
            first[name] = like(first[name], second[name])
        elif found.typed and not expected.typed:
            second[name] = like(second[name], first[name])
    return compare_sets(first, second, atol, rtol)
