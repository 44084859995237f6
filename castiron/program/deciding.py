"""What the kernels mean whose results tell sizes, in NumPy; the plain reference of `runtime/kernels/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

Arrays = Mapping[str, np.ndarray]
Reference = Callable[[Arrays, Arrays, Mapping[str, float]], None]


def _select(operands: Arrays, outputs: Arrays, params: Mapping[str, float]) -> None:
    found = np.flatnonzero(operands["flags"])
    outputs["positions"].reshape(-1)[: len(found)] = found
    outputs["count"].reshape(-1)[0] = len(found)


DECIDING: Mapping[str, Reference] = {"select": _select}
