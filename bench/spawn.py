"""Times whole processes, from start to exit, by a tiny program that starts them (spawn.c says why)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from castiron.toolchain import zig
from castiron.toolchain.targets import host

SOURCE = Path(__file__).with_name("spawn.c")


class Spawner:
    """Starts commands with an empty environment and reports what each run took."""

    def __init__(self, folder: Path) -> None:
        self.program = folder.resolve() / "spawn"
        zig.run(
            ["cc", "-target", host().static_triple, *zig.LINK, "-static", str(SOURCE), "-o", str(self.program)],
            SOURCE.name,
        )

    def measure(self, command: list[str], runs: int, cwd: Path | None = None) -> tuple[list[float], int]:
        """Milliseconds from start to exit of each run, and one run's peak KiB; AssertionError where one fails."""
        line = [str(self.program), str(runs), *command]
        *rows, peak = subprocess.run(line, capture_output=True, text=True, check=True, cwd=cwd).stdout.splitlines()
        assert all(row.split()[1] == "0" for row in rows), command
        return [int(row.split()[0]) / 1e6 for row in rows], int(peak)
