"""Whether a form computes what the source computes."""

from __future__ import annotations

import math

from castiron.lab.arrays import ArrayFile
from castiron.lab.compare import Difference, compare_files
from castiron.lab.forms.types import Agreement
from castiron.lab.reference import Vectors
from castiron.lab.verify import tolerance


def agreement(found: ArrayFile, vectors: Vectors, budget: float = 2.0) -> tuple[Agreement, ...]:
    """A verdict for each output, by the rule that `castiron build` applies to its own artifacts.

    An output may be as far from the source's as the source itself is from float64, and `budget` times that on top;
    without a float64 reference, 1e-4 of its largest value."""
    expected = ArrayFile(vectors.outputs, typed=True, named=True)
    return tuple(_one(d, vectors, budget) for d in compare_files(found, expected, 0.0, 0.0))


def _one(difference: Difference, vectors: Vectors, budget: float) -> Agreement:
    name, output = difference.name, vectors.outputs.get(difference.name)
    if output is None or math.isnan(difference.max_diff):
        return Agreement(name, math.nan, None, 0.0, difference.reason)
    exact = (vectors.exact or {}).get(name)
    allowed = tolerance(output, exact, budget, vectors.own.get(name, 0.0))
    reason = "" if difference.max_diff <= allowed else f"differs by {difference.max_diff:.3g}, {allowed:.3g} allowed"
    return Agreement(name, difference.max_diff, difference.ulp, allowed, reason)
