"""The official cases: a model, arrays that go in, arrays that must come out, and the tolerance of the suite."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

Value = Any
"""An array, or what is none: a list (sequence), a dictionary, None (optional)."""


@dataclass(frozen=True)
class Case:
    """`data`: pairs (inputs, outputs), in the order of the graph's. `operator`: what the case is about."""

    name: str
    operator: str
    model: onnx.ModelProto
    data: Sequence[tuple[Sequence[Value], Sequence[Value]]]
    rtol: float
    atol: float

    @property
    def type(self) -> str:
        """The element type of the first input that is a tensor, else of the output."""
        ports = [*self.model.graph.input, *self.model.graph.output]
        kinds = [p.type.tensor_type.elem_type for p in ports if p.type.HasField("tensor_type")]
        return onnx.TensorProto.DataType.Name(kinds[0]) if kinds else "other"


@cache
def official() -> tuple[Case, ...]:
    """All node tests of the installed onnx."""
    from onnx.backend.test.case.node import collect_testcases

    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = collect_testcases()
    finally:
        logging.disable(logging.NOTSET)
    operators = {t.name: t.model.graph.node[0].op_type for t in found if len(t.model.graph.node) == 1}
    return tuple(
        Case(
            t.name,
            _operator(t.name, t.model, operators),
            t.model,
            [([_value(v) for v in inputs], [_value(v) for v in outputs]) for inputs, outputs in t.data_sets],
            t.rtol,
            t.atol,
        )
        for t in found
    )


def _operator(name: str, model: onnx.ModelProto, operators: dict[str, str]) -> str:
    """The operator of a case; of one that is an operator written out, that operator."""
    whole = re.sub(r"_expanded(_function)?(_ver\d+)?$", "", name)
    return operators.get(name) or operators.get(whole) or model.graph.node[0].op_type


def _value(value: Value) -> Value:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.ndarray | np.generic) else value
