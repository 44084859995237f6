"""`results.json`: what came of the official cases the last time, by operator; docs/operators.md shows it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from .cases import Case, official
from .outcome import Outcome, Status

RESULTS = Path(__file__).parent / "results.json"


def record(cases: Sequence[Case], outcomes: Mapping[str, Outcome]) -> None:
    """Writes down the operators of which all cases were run; what is known of the others stays."""
    whole = Counter(c.operator for c in official())
    ran = Counter(c.operator for c in cases)
    held = json.loads(RESULTS.read_text())["operators"] if RESULTS.exists() else {}
    found = {name: row for name, row in held.items() if name in whole}
    found |= {n: _row([c for c in cases if c.operator == n], outcomes) for n in ran if ran[n] == whole[n]}
    rows = ",\n".join(f"{json.dumps(n)}: {json.dumps(found[n])}" for n in sorted(found))
    RESULTS.write_text(f'{{"onnx": "{onnx.__version__}", "operators": {{\n{rows}\n}}}}\n')


def _row(cases: Sequence[Case], outcomes: Mapping[str, Outcome]) -> dict[str, object]:
    """types: of the cases that pass, in the order of ONNX's numbers."""
    counts = Counter(outcomes[c.name].status for c in cases)
    passed = [c for c in cases if outcomes[c.name].status in (Status.PASSED, Status.BOUND)]
    types = sorted({c.type for c in passed} - {"other"}, key=onnx.TensorProto.DataType.Value)
    compared = sum(outcomes[c.name].compared for c in passed)
    return {"cases": len(cases), **{str(s): n for s, n in counts.items() if n}, "compared": compared, "types": types}
