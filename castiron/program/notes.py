"""What passes and lowerings say of their choices, for `castiron explain`: what was not done, and why."""

from __future__ import annotations

from collections.abc import Callable

Note = Callable[[str, str], None]
"""Takes a subject (a node, a buffer) and one reason. A later reason for the same subject stands for the earlier one."""


def silent(subject: str, reason: str) -> None:
    """Nobody wants to know."""
