"""any names -> every node, value and dimension has a name of its own that C and people can read.

Exporters leave dimensions called `?`, `unk__749` or `p2o.DynamicDimension.0`, list initializers as inputs (IR version
3) and record sizes of inner values under names that mean nothing: all that goes, sizes are inferred anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import onnx_ir as ir
from onnx_ir.passes import common

from castiron.graph.nodes import graphs

_MEANINGLESS = re.compile(r"^(|\?|-\d+|None|unk__\d+|dynamic_axes_\d+|(p2o\.)?DynamicDimension\.\d+)$")
_IDENTIFIER = re.compile(r"^[A-Za-z_]\w*$")
_EXPRESSION = re.compile(r"^[\w\s+*/(),-]+$")
_FUNCTIONS = {"max", "Max", "min", "Min", "floor", "ceiling", "sqrt", "mod", "Mod"}  # of the language of sizes
_ALWAYS_NEW = ("", "?", "None")  # unlike `unk__1`, these say nothing about equality


def clean_names(model: ir.Model) -> ir.Model:
    """A clone of `model` (weights are shared) with clean names and without recorded sizes of inner values."""
    model = model.clone()
    common.RemoveInitializersFromInputsPass()(model)
    for graph in graphs(model.graph):
        _name_nodes(graph)
    common.NameFixPass()(model)
    for graph in graphs(model.graph):
        for value in [*(v for node in graph for v in node.outputs), *graph.outputs]:
            if not value.is_graph_input() and not value.is_initializer():
                value.shape = None
    _clean_dimensions(model.graph.inputs)
    return model


def _name_nodes(graph: ir.Graph) -> None:
    """Nodes that have no name are called after their first output, which viewers show and messages can point at."""
    for node in graph:
        if not node.name:
            node.name = next((v.name for v in node.outputs if v.name), None)


def _clean_dimensions(inputs: Iterable[ir.Value]) -> None:
    """Renames the symbols of the inputs' dimensions; the same old name (if it was one) gives the same new name."""
    inputs = list(inputs)
    written = [str(d) for v in inputs if v.shape is not None for d in v.shape if not isinstance(d, int)]
    taken = {name for name in written if _IDENTIFIER.match(name) and not _MEANINGLESS.match(name)} | _FUNCTIONS
    renamed: dict[str, str] = {}
    for value in inputs:
        if value.shape is not None:
            dims = [_clean(value.name or "", i, d, renamed, taken) for i, d in enumerate(value.shape)]
            value.shape = ir.Shape(dims)


def _clean(
    value: str, position: int, dim: int | ir.SymbolicDim, renamed: dict[str, str], taken: set[str]
) -> int | ir.SymbolicDim:
    if isinstance(dim, int) and dim >= 0:
        return dim
    old = str(dim.value or "") if isinstance(dim, ir.SymbolicDim) else ""
    if old in renamed:
        return ir.SymbolicDim(renamed[old])
    if _IDENTIFIER.match(old) and not _MEANINGLESS.match(old) and old not in _FUNCTIONS:
        return ir.SymbolicDim(old)
    symbols = set(re.findall(r"[A-Za-z_]\w*", old)) - _FUNCTIONS
    if _EXPRESSION.match(old) and symbols and symbols <= taken:
        return ir.SymbolicDim(old)
    base = f"{value}_{position}" if _MEANINGLESS.match(old) else old
    new = _unique(re.sub(r"\W+", "_", base).strip("_"), taken)
    if old not in _ALWAYS_NEW and not old.startswith("-"):
        renamed[old] = new
    return ir.SymbolicDim(new)


def _unique(base: str, taken: set[str]) -> str:
    base = base if base and not base[0].isdigit() else f"d{base}"
    name, number = base, 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    taken.add(name)
    return name
