"""Starts a castiron executable and turns its exit status into the error that it stands for."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from castiron.errors import CastironError, InputError, WeightsError
from castiron.toolchain.zig import how_it_ended


def call(command: Sequence[str], folder: Path | None = None) -> str:
    """What the executable printed; what it said on stderr becomes the message of the error of its exit status.

    folder: where it runs (None: here)."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    if done.returncode == 0:
        return done.stdout
    message = done.stderr.strip() or f"{Path(command[0]).name} {how_it_ended(done.returncode)} and said nothing"
    raise {2: InputError, 3: WeightsError, 4: MemoryError}.get(done.returncode, CastironError)(message)
