"""sizes that an operator needs to be equal -> one size: `Concat(x[N, 8], y[M, 8], axis=1)` makes M another name of N.

Exporters often give each input a batch size of its own. A symbol that must equal a number becomes that number; what
else must be equal is required of the inputs at run time (lower.py).
"""

from __future__ import annotations

import onnx_ir as ir

from castiron.graph.equal import Dim, equal_sizes
from castiron.graph.sizes import infer_sizes, symbols


def unify(model: ir.Model) -> ir.Model:
    """`model` (with sizes) whose inputs share one symbol for sizes that must be equal; sizes are inferred anew."""
    while True:
        names = symbols(model.graph)
        order = list(names)
        renamed: dict[str, Dim] = {}
        for pair in (pair for node in model.graph for pair in equal_sizes(node)):
            a, b = (d if isinstance(d, int) else str(d.value) for d in pair)
            if any(isinstance(d, str) and (d not in names or d in renamed) for d in (a, b)) or a == b:
                continue
            if isinstance(a, str) and isinstance(b, str):
                first, second = sorted((a, b), key=order.index)
                renamed[second] = ir.SymbolicDim(first)
            elif isinstance(a, str) or isinstance(b, str):
                symbol, number = (a, b) if isinstance(a, str) else (b, a)
                renamed[str(symbol)] = int(number)
        if not renamed:
            return model
        for value in model.graph.inputs:
            value.shape = ir.Shape([_renamed(d, renamed) for d in value.shape or ()])
        infer_sizes(model)


def _renamed(dim: Dim, renamed: dict[str, Dim]) -> Dim:
    return dim if isinstance(dim, int) or not dim.value else renamed.get(str(dim.value), dim)
