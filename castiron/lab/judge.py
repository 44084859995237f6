"""The verdict on an artifact: on the inputs at hand, and on more of them where one sample may have been luck.

The largest error of one run is one draw. A model that ends in few values, or scales everything by one of them (a
minimum, a norm), can draw well for the source and badly for the artifact, so a near miss is judged on several draws of
both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from castiron.frontend.source import Source
from castiron.lab.reference import REPEATS, Vectors, samples
from castiron.lab.verify import Verdict, error_reason, verify

NEAR = 8
"""A miss by more than this factor is no luck."""

Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


def judge(run: Run, source: Source, references: Vectors, budget: float, say: Callable[[str], None]) -> list[Verdict]:
    """A verdict for each output of the source. run: the artifact's outputs on inputs by name."""
    verdicts = verify(run(references.inputs), references.outputs, references.exact, budget, references.own)
    if all(v.ok for v in verdicts) or not all(v.ok or _near(v) for v in verdicts):
        return verdicts
    say(f"comparing on {REPEATS} more inputs")
    for sample in samples(source, references.inputs, REPEATS):
        more = verify(run(sample.inputs), sample.outputs, sample.exact, budget)
        verdicts = [_pooled(a, b, budget) for a, b in zip(verdicts, more, strict=True)]
    return verdicts


def _near(verdict: Verdict) -> bool:
    return verdict.error is not None and verdict.error <= NEAR * verdict.allowed


def _pooled(a: Verdict, b: Verdict, budget: float) -> Verdict:
    """Both draws of an output as one: the largest error of each side. What is no matter of exactness stays wrong."""
    if a.error is None or b.error is None or a.source_error is None or b.source_error is None:
        return b if a.ok else a
    error, allowed = max(a.error, b.error), max(a.allowed, b.allowed)
    return replace(
        a,
        max_diff=max(a.max_diff, b.max_diff),
        ulp=max(a.ulp or 0.0, b.ulp or 0.0),
        error=error,
        source_error=max(a.source_error, b.source_error),
        allowed=allowed,
        reason="" if error <= allowed else error_reason(error, allowed, budget),
    )
