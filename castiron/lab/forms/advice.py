"""How to choose: rules that follow from the figures of a report, each stated with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from castiron.lab.figures import milliseconds, size, times
from castiron.lab.forms.types import Row

ALIKE = 1.2
"""Where the worst form is within this factor of the best, there is nothing to choose by."""


@dataclass(frozen=True)
class Rule:
    """`need`: what somebody wants; `text`: which form gives it, with the figures."""

    need: str
    text: str


def choose(rows: tuple[Row, ...]) -> list[Rule]:
    """Rules over the forms that compute the right thing and work where they are copied to."""
    good = [row for row in rows if row.state == "ok" and (row.moved is None or row.moved.ok)]
    return [*_best(good), *_without_python(good), *_other_weights(good), *_warnings(rows)]


def _best(good: list[Row]) -> Iterator[Rule]:
    measures: tuple[tuple[str, Callable[[Row], float | None], Callable[[float], str]], ...] = (
        ("the least to install", lambda r: r.ships.total if r.ships else None, size),
        ("an answer soon after the start", lambda r: r.start.median if r.start else None, milliseconds),
        ("little memory", lambda r: r.memory.peak if r.memory else None, size),
        ("fast calls in a process that stays", lambda r: r.steady.median if r.steady else None, milliseconds),
    )
    for need, measure, text in measures:
        known = sorted((value, row.title) for row in good if (value := measure(row)) is not None)
        if len(known) > 1:
            (least, best), (second, next_best), (most, worst) = known[0], known[1], known[-1]
            if most < ALIKE * least:
                continue
            ratio = f", {times(most / least)} as much" if least > 0 else ""
            others = f"; then {next_best}: {text(second)}" if len(known) > 2 else ""
            yield Rule(need, f"{best}: {text(least)}{others}; the most is {worst}: {text(most)}{ratio}")


def _without_python(good: list[Row]) -> Iterator[Rule]:
    free = sorted((row.ships.total, row.title) for row in good if row.ships and "Python" not in row.runs)
    if free and len(free) < len(good):
        yield Rule("no Python where it runs", "; ".join(f"{title}: {size(total)} in all" for total, title in free))


def _other_weights(good: list[Row]) -> Iterator[Rule]:
    beside = [(row, row.ships) for row in good if row.ships and row.ships.program and "itself" in row.runs]
    if beside:
        listed = "; ".join(f"{row.title}: replace {size(ships.model)}" for row, ships in beside if ships.model)
        if listed:
            yield Rule("other weights without building anew", listed)


def _warnings(rows: tuple[Row, ...]) -> Iterator[Rule]:
    wrong = [row.title for row in rows if row.state == "mismatch"]
    if wrong:
        yield Rule("not to ship", f"{', '.join(wrong)}: runs, and computes something else")
    stuck = [f"{row.title} ({row.moved.reason})" for row in rows if row.moved and not row.moved.ok]
    if stuck:
        yield Rule("not to copy elsewhere", "; ".join(stuck))
    native = [row.title for row in rows if row.moved and row.moved.native]
    if native:
        yield Rule(
            "machines of other kinds",
            f"{', '.join(native)} {'were' if len(native) > 1 else 'was'} compiled for the processor of the build machine "
            "(-march=native): build on the oldest machine that is to run it",
        )
