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
        self.program = folder / "spawn"
        zig.run(
            ["cc", "-target", host().static_triple, *zig.LINK, "-static", str(SOURCE), "-o", str(self.program)],
            SOURCE.name,
        )

    def measure(self, command: list[str], runs: int, cwd: Path | None = None) -> list[tuple[float, int]]:
        """(milliseconds from start to exit, peak KiB) of each run; AssertionError where one fails."""
        out = subprocess.run(
            [str(self.program), str(runs), *command], capture_output=True, text=True, check=True, cwd=cwd
        )
        rows = [line.split() for line in out.stdout.splitlines()]
        assert all(status == "0" for _, _, status in rows), command
        return [(int(wall) / 1e6, int(peak)) for wall, peak, _ in rows]
