"""Entries -> exported by torch -> compiled programs -> outcomes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from castiron.errors import Unsupported
from castiron.frontend.pytorch import from_module
from castiron.frontend.source import Source
from tests.node_suite.build import Built, broken, compile_case
from tests.node_suite.cases import Case
from tests.node_suite.outcome import Outcome, Status
from tests.node_suite.suite import run as run_cases

from .entries import Entry

EXPECTED = Path(__file__).parent / "expected.txt"
RTOL, ATOL = 1e-4, 1e-5
"""Relative, and absolute where the largest value of an output is 1 or less, else that many of it."""


@dataclass(frozen=True)
class Exported:
    """An entry as torch.onnx exports it, with what torch itself computes."""

    case: Case
    source: Source


def exported(entry: Entry) -> Exported | str:
    """Or the reason why torch cannot export it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            source = from_module(*entry.make(), name=entry.name)
            assert source.run is not None and source.inputs is not None
            outputs = source.run(source.inputs)
        except Exception as error:  # whatever torch raises, where the sample, the export or the operator itself fails
            lines = str(error).splitlines() or [""]
            return f"{type(error).__name__}: {' '.join(lines[:3])}"
    sizes = [
        np.abs(a[np.isfinite(a)].astype(np.float64)).max(initial=1) for a in outputs.values() if a.dtype.kind == "f"
    ]
    data = [(list(source.inputs.values()), list(outputs.values()))]
    model = ir.to_proto(source.model)
    return Exported(Case(entry.name, entry.name, model, data, RTOL, ATOL * max(sizes, default=1)), source)


def compiled(found: Exported) -> Built | Outcome:
    """Its program, from the module as a build takes it."""
    try:
        return compile_case(found.case, found.source, tuple(range(len(found.case.model.graph.input))))
    except Unsupported as refusal:
        return Outcome(Status.UNSUPPORTED, str(refusal))
    except Exception as error:
        return broken(error)


def run(
    chosen: Sequence[Entry], say: Callable[[str], None] = lambda text: None
) -> tuple[dict[str, Outcome], dict[str, str]]:
    """Outcomes of the entries that torch exports, by name, and the reasons of those that it does not."""
    made: dict[str, Exported] = {}
    refused: dict[str, str] = {}
    for number, entry in enumerate(chosen):
        if number % 50 == 0:
            say(f"exporting: {number} of {len(chosen)}")
        found = exported(entry)
        if isinstance(found, str):
            refused[entry.name] = found
        else:
            made[entry.name] = found
    outcomes = run_cases([e.case for e in made.values()], say, lambda case: compiled(made[case.name]))
    return outcomes, refused
