"""Times whole processes, from start to exit, by a tiny program that starts them (spawn.c says why)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from castiron.toolchain import zig
from castiron.toolchain.targets import host
from castiron.toolchain.zig import how_it_ended

SOURCE = Path(__file__).with_name("spawn.c")
PATIENCE = 300
"""Seconds for one run."""


@dataclass(frozen=True)
class Runs:
    """What the runs of a command took. walls: milliseconds from start to exit; peak: KiB, the highest of all runs;
    private, shared: KiB at the exit of one more run, 0 where that was not asked for or the system does not tell;
    failure: how the first run that failed ended, or empty; said: what they all wrote to standard error."""

    walls: tuple[float, ...]
    peak: int
    private: int = 0
    shared: int = 0
    failure: str = ""
    said: str = ""


class Spawner:
    """Starts commands; `folder` is for the program that does it and what the commands print."""

    def __init__(self, folder: Path, say: zig.Progress = lambda text: None) -> None:
        self.program, self.output = folder.resolve() / "spawn", folder.resolve() / "spawn-output"
        zig.ready(host().static_triple, say)
        zig.run(
            ["cc", "-target", host().static_triple, *zig.LINK, "-static", str(SOURCE), "-o", str(self.program)],
            SOURCE.name,
        )

    def measure(
        self,
        command: Sequence[str],
        runs: int = 1,
        memory: bool = False,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Runs:
        """Runs a command. env: its whole environment; None: this process's. What the last run printed is in `output`."""
        line = [str(self.program), str(self.output), str(runs), str(int(memory)), *command]
        child = subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd, env=env,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        try:
            out, err = child.communicate(timeout=PATIENCE * (runs + 1))
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            return Runs((), 0, failure=f"a run takes more than {PATIENCE} s")
        except BaseException:  # of an interrupted measurement nothing goes on
            os.killpg(child.pid, signal.SIGKILL)
            raise
        rows = [[int(word) for word in row.split()] for row in out.splitlines()]
        if child.returncode:
            return Runs((), 0, failure=err.strip() or f"{command[0]} cannot be started", said=err)
        last = rows.pop() if memory else [0, 0, 0]
        walls = tuple(wall / 1e6 for wall, _, _ in rows)
        ended = next((os.waitstatus_to_exitcode(status) for _, status, _ in rows if status), 0)
        failure = how_it_ended(ended) if ended else ""
        return Runs(walls, max([last[0], *(peak for _, _, peak in rows)]), last[1], last[2], failure, err)
