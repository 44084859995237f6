"""Two graphs side by side: what they compute by structure, and their parameters by value."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from castiron.frontend.source import Source
from castiron.graph.listing import listing, prints
from castiron.lab.compare import Difference, compare_sets


@dataclass(frozen=True)
class GraphsApart:
    """How two graphs differ. lines: of their listings, `-` what only A has, `+` what only B has; none where both compute
    the same by the same operators, whatever their values are called and in which order they stand.
    parameters: of each name, the values of A against B's."""

    lines: tuple[str, ...]
    parameters: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        return not self.lines and all(p.ok for p in self.parameters)


def compare_graphs(a: Source, b: Source, atol: float, rtol: float) -> GraphsApart:
    """A against B; atol and rtol are for the parameters' values."""
    same = _ports(a.model.graph) == _ports(b.model.graph) and prints(a.model.graph) == prints(b.model.graph)
    return GraphsApart(() if same else _lines(a.model, b.model), _parameters(a.model.graph, b.model.graph, atol, rtol))


def _ports(graph: ir.Graph) -> tuple[list[str | None], list[str | None]]:
    own = graph.initializers
    return [v.name for v in graph.inputs if v.name not in own], [v.name for v in graph.outputs]


def _lines(a: ir.Model, b: ir.Model) -> tuple[str, ...]:
    before, after = (_plain(listing(model, "graph")) for model in (a, b))
    found = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    return tuple(found) or ("- the graphs read alike, but compute differently: long constants differ",)


def _plain(text: str) -> list[str]:
    """Lines without where they come from."""
    return [line.partition("  # ")[0] for line in text.splitlines()]


def _parameters(a: ir.Graph, b: ir.Graph, atol: float, rtol: float) -> tuple[Difference, ...]:
    return tuple(compare_sets(_held(a), _held(b), atol, rtol))


def _held(graph: ir.Graph) -> Mapping[str, np.ndarray]:
    tensors = {str(v.name): v.const_value for v in graph.initializers.values()}
    return {name: tensor.numpy() for name, tensor in tensors.items() if tensor is not None}
