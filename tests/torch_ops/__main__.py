"""torch's database of operators and of modules through native code: `python -m tests.torch_ops [--only TEXT] [--every N]
[--json] [--reasons]`.

Each entry is exported by torch.onnx, compiled with many others into one library, and compared with torch itself.
`not exportable` is torch's limit. What does not pass beyond that stands in `expected.txt` with its reason; an entry there that
passes is as much a failure as one that fails and is not there."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import asdict

from tests.node_suite.outcome import Status
from tests.node_suite.suite import surprises

from .entries import entries
from .suite import EXPECTED, run


def main() -> int:
    """0 where all is as `expected.txt` says."""
    parser = argparse.ArgumentParser(prog="tests.torch_ops", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="entries whose name holds this text")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th entry")
    parser.add_argument("--json", action="store_true", help="outcomes as JSON")
    parser.add_argument("--reasons", action="store_true", help="each entry that does not pass, with its reason")
    options = parser.parse_args()
    every = entries()
    chosen = [e for e in every if options.only in e.name][:: options.every]
    started = time.monotonic()
    outcomes, refused = run(chosen, lambda text: print(text, file=sys.stderr))
    wrong = surprises(outcomes, len(chosen) == len(every), EXPECTED)
    counts = Counter(str(o.status) for o in outcomes.values())
    if options.json:
        print(
            json.dumps({"outcomes": {n: asdict(o) for n, o in outcomes.items()}, "not exportable": refused}, indent=1)
        )
    else:
        lines = {n: f"{o.status}: {o.reason}" for n, o in outcomes.items() if o.status != Status.PASSED}
        lines |= {n: f"not exportable: {reason}" for n, reason in refused.items()}
        print("\n".join(f"{n}: {text}" for n, text in lines.items() if options.reasons))
        print(
            f"{len(chosen)} entries: {counts['passed']} passed, {len(refused)} not exportable by torch, "
            f"{counts['unsupported']} unsupported, {counts['failed']} failed in {time.monotonic() - started:.0f} s"
        )
    for line in wrong:
        print(f"unexpected: {line}", file=sys.stderr)
    return int(bool(wrong))


sys.exit(main())
