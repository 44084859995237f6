"""Commands run in the test's own process, in an empty folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from castiron import cli

Result = tuple[int, str, str]
Command = Callable[..., Result]
"""Runs `castiron ARGUMENTS`; gives its status and what it printed on the two outputs."""


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """Runs `castiron ARGUMENTS` in an empty folder; gives its status and what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["castiron", *map(str, arguments)])
        status = cli.status()
        return status, *capfd.readouterr()

    return run


def one_line(text: str) -> bool:
    """Whether a message is one, begins as castiron's do, and is no traceback."""
    return text.startswith("castiron: ") and "Traceback" not in text and text.count("castiron: ") == 1


def errors_of(text: str) -> str:
    """What standard error holds beside the lines of progress, which are indented."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("  "))
