"""Runs the suite and reports: `python -m tests.node_suite [--only TEXT] [--every N] [--json] [--reasons]`.

What came of operators that were run whole goes to results.json; `python3 dev.py docs` then renews docs/operators.md."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from .cases import Case, official
from .outcome import Outcome, Status
from .recorded import record
from .suite import run, surprises

PASSED = (Status.PASSED, Status.BOUND)


def main() -> int:
    """0 where all is as `expected.txt` says."""
    parser = argparse.ArgumentParser(prog="tests.node_suite", description=__doc__)
    parser.add_argument("--only", metavar="OPERATOR", help="cases of this operator, or whose name holds this text")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th case")
    parser.add_argument("--json", action="store_true", help="outcomes as JSON")
    parser.add_argument("--reasons", action="store_true", help="each case that does not pass, with its reason")
    options = parser.parse_args()
    only = options.only or ""
    cases = [c for c in official() if only == c.operator or only in c.name][:: options.every]
    started = time.monotonic()
    outcomes = run(cases, lambda text: print(text, file=sys.stderr))
    record(cases, outcomes)
    wrong = surprises(outcomes, len(cases) == len(official()))
    if options.json:
        print(json.dumps(_json(cases, outcomes), indent=1))
    else:
        print("\n".join(_table(cases, outcomes)))
        if options.reasons:
            print("\n".join(f"{n}: {o.status}: {o.reason}" for n, o in outcomes.items() if o.status not in PASSED))
        print(_summary(outcomes), f"in {time.monotonic() - started:.0f} s")
    for line in wrong:
        print(f"unexpected: {line}", file=sys.stderr)
    return int(bool(wrong))


def _json(cases: Sequence[Case], outcomes: Mapping[str, Outcome]) -> list[dict[str, object]]:
    return [{"name": c.name, "operator": c.operator, "type": c.type, **asdict(outcomes[c.name])} for c in cases]


def _table(cases: Sequence[Case], outcomes: Mapping[str, Outcome]) -> list[str]:
    """A row an operator, then a row a data type; columns are the statuses."""
    lines = []
    for title, key in (("operator", lambda c: c.operator), ("type", lambda c: c.type)):
        counts = Counter((key(case), outcomes[case.name].status) for case in cases)
        lines.append(f"{title:<28}" + "".join(f"{status:>12}" for status in Status))
        for row in sorted({r for r, _ in counts}):
            lines.append(f"{row:<28}" + "".join(f"{counts[row, status] or '':>12}" for status in Status))
        lines.append("")
    return lines


def _summary(outcomes: Mapping[str, Outcome]) -> str:
    counts = Counter(o.status for o in outcomes.values())
    compared = sum(o.compared and o.status in PASSED for o in outcomes.values())
    return (
        f"{len(outcomes)} cases: {counts[Status.PASSED]} passed, {counts[Status.BOUND]} more with small inputs known "
        f"at build ({compared} of both compared numerically), {counts[Status.FAILED]} failed, "
        f"{counts[Status.UNSUPPORTED]} unsupported"
    )


sys.exit(main())
