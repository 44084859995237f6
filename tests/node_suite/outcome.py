"""What can come of a case."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """`BOUND`: as PASSED, with small inputs (axes, shapes) known at build, without which castiron refuses the model."""

    PASSED = "passed"
    BOUND = "bound"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True)
class Outcome:
    """`compared`: whether the values were compared (not only types and shapes, as of random numbers)."""

    status: Status
    reason: str = ""
    compared: bool = True
