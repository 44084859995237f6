"""Cases -> outcomes, and what `expected.txt` says of them."""

from __future__ import annotations

import fnmatch
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from castiron.errors import ToolchainError

from .build import BATCH, Built, compiled, library
from .cases import Case
from .execute import run_all
from .outcome import Outcome, Status

EXPECTED = Path(__file__).parent / "expected.txt"


def run(
    cases: Sequence[Case],
    say: Callable[[str], None] = lambda text: None,
    compile: Callable[[Case], Built | Outcome] = compiled,
) -> dict[str, Outcome]:
    """The outcome of each case by name."""
    made: dict[str, Built | Outcome] = {}
    for number, case in enumerate(cases):
        if number % 200 == 0:
            say(f"compiling programs: {number} of {len(cases)}")
        made[case.name] = compile(case)
    outcomes = {name: m for name, m in made.items() if isinstance(m, Outcome)}
    built = [m for m in made.values() if isinstance(m, Built)]
    for start in range(0, len(built), BATCH):
        say(f"compiling C and running: {start} of {len(built)}")
        outcomes.update(_batch(built[start : start + BATCH]))
    return {case.name: outcomes[case.name] for case in cases}


def _batch(models: Sequence[Built]) -> dict[str, Outcome]:
    """Outcomes of the models of one library; where that does not compile, halves show which one is to blame."""
    with tempfile.TemporaryDirectory(prefix="castiron-node-suite-") as folder:
        try:
            path = library(models, Path(folder))
        except ToolchainError as error:
            if len(models) == 1:
                return {models[0].case.name: Outcome(Status.FAILED, f"{error}\n{error.output[:1000]}")}
            half = len(models) // 2
            return {**_batch(models[:half]), **_batch(models[half:])}
        found = run_all(models, path)
    return {m.case.name: outcome for m, outcome in zip(models, found, strict=True)}


def expectations(file: Path = EXPECTED) -> dict[str, str]:
    """Pattern of case names -> why they do not pass. One that starts with `failed: ` is a wrong result or a crash."""
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return {pattern.strip(): reason.strip() for pattern, _, reason in (line.partition(":") for line in lines)}


def surprises(outcomes: Mapping[str, Outcome], whole: bool, file: Path = EXPECTED) -> list[str]:
    """What differs from `expected.txt`; `whole`: all cases were run, so each of its lines must match some."""
    found, used = [], set()
    expected = expectations(file)
    for name, outcome in outcomes.items():
        matching = [p for p in expected if fnmatch.fnmatchcase(name, p)]
        used.update(matching)
        passed = outcome.status in (Status.PASSED, Status.BOUND)
        reason = expected[matching[0]] if matching else ""
        if passed and matching:
            found.append(f"{name} passes; take it out of expected.txt ({matching[0]}: {reason})")
        elif not passed and (not matching or (outcome.status == Status.FAILED) != reason.startswith("failed: ")):
            found.append(f"{name} {outcome.status}: {outcome.reason}")
    if whole:
        found += [f"expected.txt: {pattern} matches no case" for pattern in expected if pattern not in used]
    return found
