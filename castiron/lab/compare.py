"""How far apart two sets of arrays are, and whether that is near enough."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from castiron.errors import InputError


@dataclass(frozen=True)
class Difference:
    """One output compared. `worst`: the index of the largest difference; `ulp`: the largest distance in units of the last
    place of the reference's type (float types, else None); `reason`: why it is a mismatch, or empty."""

    name: str
    n: int
    max_diff: float
    worst: tuple[int, ...]
    ulp: float | None
    reason: str = ""

    @property
    def ok(self) -> bool:
        return not self.reason


def compare_arrays(name: str, found: np.ndarray, expected: np.ndarray, atol: float, rtol: float) -> Difference:
    """NaN equals NaN and infinities equal their like; elsewhere |found - expected| <= atol + rtol * |expected|."""
    if found.shape != expected.shape:
        return Difference(name, found.size, float("nan"), (), None, f"shape {list(found.shape)}, expected {list(expected.shape)}")
    if found.size == 0:
        return Difference(name, 0, 0.0, (), None)
    if found.dtype.kind in "USO" or expected.dtype.kind in "USO":
        same = np.asarray(found == expected)
        worst = np.unravel_index(int(np.argmin(same)), same.shape)
        return Difference(name, found.size, float(not same.all()), tuple(map(int, worst)), None, "" if same.all() else "strings differ")
    a, b = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        distance = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        distance = np.where(np.isnan(distance), np.inf, distance)
        allowed = distance <= atol + rtol * np.abs(np.where(np.isfinite(b), b, 0))
    if found.dtype.kind in "iub" and expected.dtype.kind in "iub":
        allowed = (found == expected) | (allowed & (distance > 0))
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(distance)), distance.shape))
    largest = float(distance[worst])
    reason = "" if allowed.all() else f"{int((~allowed).sum())} of {found.size} beyond atol {atol:g} + rtol {rtol:g}"
    return Difference(name, found.size, largest, worst, ulps(found, expected), reason)


def ulps(found: np.ndarray, expected: np.ndarray) -> float | None:
    """The largest distance in ulp of `expected`'s type; infinity where one is NaN or infinite and the other is not."""
    if expected.dtype.kind != "f" or found.dtype != expected.dtype or not expected.size:
        return None
    with np.errstate(all="ignore"):
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        step = np.spacing(np.abs(expected)).astype(np.float64)
        distance = np.abs(found.astype(np.float64) - expected.astype(np.float64)) / step
    return float(np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance)).max())


def compare_sets(
    found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], atol: float, rtol: float
) -> list[Difference]:
    """Each expected array against the found one of its name; two single unnamed arrays are compared with each other.

    A name that only one side has is a mismatch."""
    if len(found) == len(expected) == 1 and set(found) != set(expected):
        found = dict(zip(expected, found.values()))
    out = []
    for name in dict.fromkeys((*expected, *found)):
        if name in found and name in expected:
            out.append(compare_arrays(name, found[name], expected[name], atol, rtol))
        else:
            side = "the first" if name in found else "the second"
            array = found.get(name, expected.get(name))
            assert array is not None
            out.append(Difference(name, array.size, float("nan"), (), None, f"only in {side}"))
    return out


def read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a .npy, .npz or JSON file (as executables print it); InputError where it is none of these."""
    try:
        if path.suffix == ".npy":
            return {path.stem: np.load(path, allow_pickle=False)}
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        text = path.read_text()
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    return _from_json(path, text)


def _from_json(path: Path, text: str) -> dict[str, np.ndarray]:
    try:
        value: Any = json.loads(text)
        named = value if isinstance(value, dict) else {path.stem: value}
        return {name: np.asarray(v) for name, v in named.items()}
    except ValueError as error:
        raise InputError(f"{path} is neither .npy, .npz nor JSON of nested lists: {error}") from None
