"""Start-up, memory and steady state of forms that run, side by side: a round is one run of each."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from castiron.lab.forms.process import Desk, checked, told, words
from castiron.lab.forms.types import Failed, Memory, Produced, Progress, Start, Steady

PHASES = ("import", "load", "first")
RESIDENT_ROUNDS = 2
SECONDS, LEAST, MOST = 0.25, 5, 5000
"""Of calls in one resident process: about so long, and so many."""

_REPEATED = re.compile(r"runs: min ([\d.]+) ms, median ([\d.]+) ms")


@dataclass
class Tally:
    """What the rounds have given so far of one form; `failure` ends its part in them."""

    made: Produced
    walls: list[float] = field(default_factory=list)
    told: list[Mapping[str, Any]] = field(default_factory=list)
    peak: int = 0
    least: list[float] = field(default_factory=list)
    calls: int = 0
    medians: dict[int, list[float]] = field(default_factory=dict)
    failure: str = ""


def rounds(desk: Desk, made: Mapping[str, Produced], runs: int, say: Progress) -> dict[str, Tally]:
    """`runs` times one run of each form, whole processes from start to exit. Each has run before: files are cached."""
    tallies = {name: Tally(form) for name, form in made.items()}
    with tempfile.TemporaryDirectory(prefix="castiron-forms-") as folder:
        for number in range(runs):
            say(f"start-up: round {number + 1} of {runs}")
            for tally in (t for t in tallies.values() if not t.failure):
                try:
                    _start(desk, tally, Path(folder) / "outputs.npz")
                except Failed as error:
                    tally.failure = str(error)
    return tallies


def _start(desk: Desk, tally: Tally, outputs: Path) -> None:
    line = words(tally.made.command, tally.made.here, desk.inputs, outputs, desk.threads)
    runs = checked(desk.spawner.measure(line))
    tally.walls += runs.walls
    tally.peak = max(tally.peak, runs.peak)
    tally.told.append(told(desk.spawner.output))


def start(tally: Tally) -> Start:
    """Of a form's rounds."""
    phases = {p: [float(t[p]) * 1e3 for t in tally.told if isinstance(t.get(p), int | float)] for p in PHASES}
    counts = next((t["modules"] for t in tally.told if isinstance(t.get("modules"), list)), None)
    split = {phase: median(times) for phase, times in phases.items() if times}
    return Start(tuple(tally.walls), split, (int(counts[0]), int(counts[1])) if counts else None)


def memory(desk: Desk, tally: Tally) -> Memory:
    """One more run, looked at when it exits."""
    with tempfile.TemporaryDirectory(prefix="castiron-forms-") as folder:
        line = words(tally.made.command, tally.made.here, desk.inputs, Path(folder) / "outputs.npz", desk.threads)
        runs = checked(desk.spawner.measure(line, runs=0, memory=True))
    known = runs.private + runs.shared > 0
    parts = (runs.private << 10, runs.shared << 10) if known else (None, None)
    return Memory(max(tally.peak, runs.peak) << 10, runs.peak << 10 if known else None, *parts)


def resident(desk: Desk, tallies: Sequence[Tally], threads: Sequence[int], say: Progress) -> None:
    """Many calls in one process, by number of threads, a few rounds of it; into the tallies."""
    able = [t for t in tallies if t.made.resident and not t.failure]
    for tally in able:
        say("steady state: how long a call takes")
        _, once = _calls(desk, tally, threads[0], LEAST) or (0.0, 0.0)
        tally.calls = max(LEAST, min(MOST, int(SECONDS / (once / 1e3)))) if once > 0 else 0
    for number in range(RESIDENT_ROUNDS):
        say(f"steady state: round {number + 1} of {RESIDENT_ROUNDS}")
        for count in threads:
            for tally in (t for t in able if t.calls):
                times = _calls(desk, tally, count, tally.calls)
                if times:
                    tally.medians.setdefault(count, []).append(times[1])
                    tally.least += [times[0]] if count == threads[0] else []


def _calls(desk: Desk, tally: Tally, threads: int, calls: int) -> tuple[float, float] | None:
    """Least and median milliseconds of `calls` calls; None where the form does not tell."""
    with tempfile.TemporaryDirectory(prefix="castiron-forms-") as folder:
        outputs = Path(folder) / "outputs.npz"
        line = words(tally.made.resident, tally.made.here, desk.inputs, outputs, threads, calls)
        runs = desk.spawner.measure(line)
    if runs.failure:
        return None
    times = told(desk.spawner.output).get("calls")
    if isinstance(times, list) and times:
        return min(times) * 1e3, median(times) * 1e3
    found = _REPEATED.search(runs.said)
    return (float(found[1]), float(found[2])) if found else None


def steady(tally: Tally, threads: Sequence[int]) -> Steady | None:
    """Of a form's resident rounds; None where it has none."""
    if not tally.medians.get(threads[0]):
        return None
    throughput = {count: 1e3 / median(times) for count, times in tally.medians.items()}
    return Steady(min(tally.least), median(tally.medians[threads[0]]), tally.calls, throughput)
