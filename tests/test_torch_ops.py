"""torch's own databases of operators and modules through native code: a sample, and (slow) all of them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's databases import it")

from tests.node_suite.suite import surprises
from tests.torch_ops.entries import Entry, entries
from tests.torch_ops.suite import EXPECTED, run

EVERY = 60


def check(chosen: list[Entry], whole: bool) -> int:
    """Nothing differs from the file of reasons; how many were compiled."""
    outcomes, _ = run(chosen)
    assert not surprises(outcomes, whole, EXPECTED)
    return len(outcomes)


def test_sample() -> None:
    assert check(entries()[::EVERY], whole=False) > 5


@pytest.mark.slow
def test_all() -> None:
    assert check(entries(), whole=True) > 400
