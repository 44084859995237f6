"""Where steps stand among branches and loops: the one place that pairs the markers of a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from castiron.errors import InternalError
from castiron.program.types import Control, Flow, Step


@dataclass(frozen=True, slots=True)
class Nesting:
    """within: for each step the markers (IF, ELSE, WHILE) that it stands behind and whose END is ahead, outermost first;
    a marker itself stands outside. ends: marker -> its END (of an IF with an ELSE: the ELSE)."""

    within: tuple[tuple[int, ...], ...]
    ends: dict[int, int]
    loops: frozenset[int]

    def last(self, first: int, number: int) -> int:
        """The last step before which what is there from step `first` on must stay, if step `number` uses it: the END of
        the outermost loop around `number` that `first` stands outside of."""
        around = self.within[number] if number not in self.loops else (*self.within[number], number)
        entered = [m for m in around if m in self.loops and first < m]
        return self.ends[entered[0]] if entered else number


def nesting(steps: Sequence[Step]) -> Nesting:
    """The nesting of a program's steps. Raises InternalError where markers do not pair."""
    within: list[tuple[int, ...]] = []
    ends: dict[int, int] = {}
    open_: list[int] = []
    for number, step in enumerate(steps):
        closes = isinstance(step, Control) and step.flow in (Flow.ELSE, Flow.END)
        if closes:
            if not open_:
                raise InternalError(f"step {number} ({step.name}) ends what has not begun")
            ends[open_.pop()] = number
        within.append(tuple(open_))
        if isinstance(step, Control) and step.flow != Flow.END:
            open_.append(number)
    if open_:
        raise InternalError(f"step {open_[-1]} ({steps[open_[-1]].name}) does not end")
    loops = frozenset(n for n, s in enumerate(steps) if isinstance(s, Control) and s.flow == Flow.WHILE)
    return Nesting(tuple(within), ends, loops)
