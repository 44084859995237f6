"""operators beyond the standard -> the standard operators that their files write them in, so that any runtime has them."""

from __future__ import annotations

import onnx_ir as ir

from castiron.graph.inline import inline
from castiron.graph.sizes import infer_sizes
from castiron.graph.upgrade import upgrade
from castiron.graph.written import names, write_out

_ROUNDS = 4


def in_standard(model: ir.Model) -> ir.Model:
    """`model`, in the newest opset, without operators of other domains as far as castiron writes them out."""
    model = infer_sizes(inline(upgrade(model)))
    for _ in range(_ROUNDS):
        taken = names(model.graph)
        written = [write_out(node, taken) for node in list(model.graph) if is_foreign(node)]
        if not any(written):
            break
        infer_sizes(model)
    return model


def is_foreign(node: ir.Node) -> bool:
    """Whether a node's operator is none of the standard."""
    return node.domain not in ("", "ai.onnx") or node.op_type == "SimplifiedLayerNormalization"
