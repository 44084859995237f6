"""f(x) -> the body of f: functions that the model defines are put in place of their calls."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import PassError, PreconditionError, common

from castiron.errors import ModelError


def inline(model: ir.Model) -> ir.Model:
    """`model` without functions of its own. Functions and model must be of one opset (`upgrade` first)."""
    if not model.functions:
        return model
    try:
        common.InlinePass()(model)
    except (ValueError, PassError, PreconditionError) as error:
        raise ModelError(f"the model's functions cannot be inlined: {error}") from error
    model.functions.clear()
    common.NameFixPass()(model)
    return model
