"""The official ONNX node tests through native code: a sample, and (slow) all of them."""

from __future__ import annotations

import json

import pytest
from node_suite.cases import Case, official
from node_suite.recorded import RESULTS, expected, rows
from node_suite.suite import run, surprises

WHOLE = {"Gemm", "Slice", "Softmax"}
"""Operators of which the sample has every case."""
EVERY = 10


def sample() -> list[Case]:
    """Each tenth case, and all of a few operators that other tests lean on."""
    return [case for number, case in enumerate(official()) if number % EVERY == 0 or case.operator in WHOLE]


def test_sample() -> None:
    cases = sample()
    assert not surprises(run(cases), whole=False)


@pytest.mark.slow
def test_all() -> None:
    assert not surprises(run(official()), whole=True)


@pytest.mark.slow
def test_the_recorded_results_are_what_is_expected() -> None:
    """Else docs/operators.md says what no longer holds."""
    held = json.loads(RESULTS.read_text())["operators"]
    assert held == rows(official(), expected()), "run python -m tests.node_suite.recorded, then python3 dev.py docs"
