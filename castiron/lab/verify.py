"""Whether an artifact computes what its source computes: the check that ends every build.

Where a float64 reference is at hand, castiron's error against it may be at most `budget` times the source framework's
own. Else the outputs may differ from the framework's by a small part of their range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from castiron.lab.compare import distances, largest, ulps

RELATIVE = 1e-4
"""Largest difference from the source framework where no float64 reference is at hand, in units of the largest value."""

ROUNDINGS = 4
"""An error of this many roundings of the largest value is always allowed: where the framework happens to be exact,
twice its error would allow nothing."""


@dataclass(frozen=True)
class Verdict:
    """One output.

    max_diff: from the source. ulp: that in units of the last place of the output's largest value. error, source_error:
    castiron's and the source's own difference from float64, where that is at hand (the source's: on several inputs
    where an output is small). allowed: the largest `error`, or
    else `max_diff`, that is accepted."""

    name: str
    n: int
    max_diff: float
    ulp: float | None = None
    error: float | None = None
    source_error: float | None = None
    allowed: float = 0.0
    reason: str = ""

    @property
    def ok(self) -> bool:
        return not self.reason


def verify(
    found: Mapping[str, np.ndarray],
    source: Mapping[str, np.ndarray],
    exact: Mapping[str, np.ndarray] | None,
    budget: float,
    own: Mapping[str, float] | None = None,
) -> list[Verdict]:
    """A verdict for each output of the source. `exact`: the outputs in float64. `own`: the source's errors by output,
    where they are known from more inputs than these."""
    known, typical = exact or {}, own or {}
    return [
        _verdict(name, found.get(name), array, known.get(name), budget, typical.get(name, 0.0))
        for name, array in source.items()
    ]


def _verdict(
    name: str, found: np.ndarray | None, source: np.ndarray, exact: np.ndarray | None, budget: float, typical: float
) -> Verdict:
    if found is not None and source.dtype == ml_dtypes.bfloat16 and found.dtype == np.float32:
        found = found.astype(ml_dtypes.bfloat16)  # as files hold it
    if found is None or found.shape != source.shape or found.dtype != source.dtype:
        got = "nothing" if found is None else f"{found.dtype}{list(found.shape)}"
        reason = f"got {got}, expected {source.dtype}{list(source.shape)}"
        return Verdict(name, source.size, float("nan"), reason=reason)
    difference, ulp = distance(found, source), ulps(found, source)
    if source.dtype.kind not in "fV":
        wrong = int((found != source).sum())
        return Verdict(name, source.size, difference, reason=f"{wrong:,} of {source.size:,} differ" if wrong else "")
    if exact is None or exact.shape != source.shape:
        allowed = tolerance(source, None, budget, typical)
        reason = "" if difference <= allowed else f"differs by {difference:.3g} from the source, {allowed:.3g} allowed"
        return Verdict(name, source.size, difference, ulp, allowed=allowed, reason=reason)
    error, own = distance(found, exact), max(distance(source, exact), typical)
    allowed = max(budget * own, ROUNDINGS * rounding(source))
    reason = "" if error <= allowed else error_reason(error, allowed, budget)
    return Verdict(name, source.size, difference, ulp, error, own, allowed, reason)


def error_reason(error: float, allowed: float, budget: float) -> str:
    """Why an output is not exact enough."""
    return f"error {error:.3g} against float64, {allowed:.3g} allowed ({budget:g} × the source's own)"


def tolerance(source: np.ndarray, exact: np.ndarray | None, budget: float, typical: float = 0.0) -> float:
    """How far an output may be from the source's: what is allowed from float64, and the source's own error."""
    if source.size == 0 or source.dtype.kind not in "fV":
        return 0.0
    floor = ROUNDINGS * rounding(source)
    if exact is None or exact.shape != source.shape:
        return max(RELATIVE * largest(source), budget * typical) + floor
    own = max(distance(source, exact), typical)
    return max(budget * own, floor) + own


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """max |a - b| in float64; two NaNs and equal infinities are 0 apart, one of them is infinitely far from others."""
    return float(distances(a, b).max(initial=0.0))


def rounding(a: np.ndarray) -> float:
    """Half a unit in the last place of the largest value, in the array's own type."""
    bits = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}[a.dtype.name]
    return largest(a) * 2.0**-bits
