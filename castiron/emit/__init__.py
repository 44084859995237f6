"""Programs to C: NAME.c holds the steps, NAME_api.c the tables, NAME.h is for users."""

from __future__ import annotations

from castiron.emit.api import all_sizes, api_file
from castiron.emit.header import header_file
from castiron.emit.model import code_file
from castiron.emit.types import Files, ModelInfo, Port
from castiron.program.planned import Planned

__all__ = ["Files", "ModelInfo", "Port", "print_model"]


def print_model(name: str, prepare: Planned, forward: Planned, model: ModelInfo) -> Files:
    """The C of a model whose symbols start with `name` (a C identifier). The same input gives the same bytes.

    Raises Unsupported for element types without a C form, InternalError where the programs break their rules.
    """
    sizes = all_sizes(forward, model.outputs)
    numbers = {size.name: number for number, size in enumerate(sizes)}
    return {
        f"{name}.c": code_file(name, prepare, forward, model, numbers),
        f"{name}_api.c": api_file(name, prepare, forward, model, sizes),
        f"{name}.h": header_file(name, model),
    }
