"""`results.json`: what came of the official cases, by operator; docs/operators.md shows it.

`python -m tests.node_suite.recorded` writes it from `expected.txt`, which a run of the whole suite upholds."""

from __future__ import annotations

import fnmatch
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from .cases import Case, official
from .execute import RANDOM
from .outcome import Outcome, Status
from .suite import expectations

RESULTS = Path(__file__).parent / "results.json"


def record(cases: Sequence[Case], outcomes: Mapping[str, Outcome]) -> None:
    """Writes down the operators of which all cases were run; what is known of the others stays."""
    whole = Counter(c.operator for c in official())
    held = json.loads(RESULTS.read_text())["operators"] if RESULTS.exists() else {}
    found = {name: row for name, row in held.items() if name in whole}
    found |= {name: row for name, row in rows(cases, outcomes).items() if row["cases"] == whole[name]}
    lines = ",\n".join(f"{json.dumps(n)}: {json.dumps(found[n])}" for n in sorted(found))
    RESULTS.write_text(f'{{"onnx": "{onnx.__version__}", "operators": {{\n{lines}\n}}}}\n')


def rows(cases: Sequence[Case], outcomes: Mapping[str, Outcome]) -> dict[str, dict[str, object]]:
    """What is recorded of each operator."""
    return {n: _row([c for c in cases if c.operator == n], outcomes) for n in dict.fromkeys(c.operator for c in cases)}


def expected() -> dict[str, Outcome]:
    """The outcome of each official case as `expected.txt` has it."""
    patterns = expectations()
    reasons = {c.name: [r for p, r in patterns.items() if fnmatch.fnmatchcase(c.name, p)] for c in official()}
    return {c.name: _outcome(reasons[c.name], c.operator) for c in official()}


def _outcome(reasons: Sequence[str], operator: str) -> Outcome:
    if not reasons:
        return Outcome(Status.PASSED, compared=operator not in RANDOM)
    return Outcome(Status.FAILED if reasons[0].startswith("failed: ") else Status.UNSUPPORTED, reasons[0])


def _row(cases: Sequence[Case], outcomes: Mapping[str, Outcome]) -> dict[str, object]:
    """types: of the cases that pass, in the order of ONNX's numbers; compared: how many of these by their values."""
    passed = [c for c in cases if outcomes[c.name].status in (Status.PASSED, Status.BOUND)]
    failed = sum(outcomes[c.name].status == Status.FAILED for c in cases)
    types = sorted({c.type for c in passed} - {"other"}, key=onnx.TensorProto.DataType.Value)
    compared = sum(outcomes[c.name].compared for c in passed)
    return {"cases": len(cases), "passed": len(passed), "compared": compared, "failed": failed, "types": types}


if __name__ == "__main__":
    record(official(), expected())
