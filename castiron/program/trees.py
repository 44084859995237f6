"""What the kernel `trees` of kernels.py computes, in NumPy: one level of all walks after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

NAN_HOLDS = 8
"""CI_NAN_HOLDS of castiron.h."""

COMPARISONS = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
"""In the order of enum ci_comparison."""


def run_trees(operands: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
    """Fills `leaf` by the operands of ci_trees_of."""
    x, split, nodes = operands["x"], operands["split"].reshape(-1), operands["nodes"].reshape(-1, 4)
    at = np.broadcast_to(operands["roots"].reshape(1, -1), (len(x), operands["roots"].size)).copy()
    while (inside := np.argwhere(at >= 0)).size:
        rows, trees = inside.T
        here = at[rows, trees]
        feature, below, above, comparison = nodes[here].T
        value, other = x[rows, feature], split[here]
        held = np.select([(comparison & 7) == n for n in range(6)], [f(value, other) for f in COMPARISONS])
        held = held.astype(bool) | (np.isnan(value) & ((comparison & NAN_HOLDS) != 0))
        at[rows, trees] = np.where(held, above, below)
    outputs["leaf"].reshape(at.shape)[...] = ~at
