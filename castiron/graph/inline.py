"""f(x) -> the body of f: functions that the model defines are put in place of their calls."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import PassError, PreconditionError, common

from castiron.errors import ModelError


def inline(model: ir.Model) -> ir.Model:
    """`model` without functions of its own. Functions and model must be of one opset (`upgrade` first)."""
    if not model.functions:
        return model
    everywhere: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for body in everywhere:
        for node in ir.traversal.RecursiveGraphIterator(body):
            _want_all_outputs(model, node)
    try:
        common.InlinePass()(model)
    except (ValueError, PassError, PreconditionError) as error:
        raise ModelError(f"the model's functions cannot be inlined: {error}") from error
    model.functions.clear()
    common.NameFixPass()(model)
    return model


def _want_all_outputs(model: ir.Model, node: ir.Node) -> None:
    """A call may leave out the last outputs; the inliner wants them all."""
    called = model.functions.get(node.op_identifier())
    if called is not None and len(node.outputs) < len(called.outputs):
        node.resize_outputs(len(called.outputs))
