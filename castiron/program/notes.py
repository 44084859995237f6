"""What passes and lowerings say of their choices, for `castiron explain`: what was not done, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Note = Callable[[str, str], None]
"""Takes a subject and a reason. A later reason for the same subject stands for the earlier one."""


def silent(subject: str, reason: str) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True)
class Notes:
    """Who is told. nodes: of a node (operator and name) that is not computed the best way there is; buffers: of a

    buffer that fusion leaves in memory."""

    nodes: Note = silent
    buffers: Note = silent


NOBODY = Notes()
