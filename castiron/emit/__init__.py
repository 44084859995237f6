"""Programs to C: NAME.c holds the steps, NAME_api.c the tables, NAME.h is for users."""

from __future__ import annotations

from castiron.emit.api import all_sizes, api_file
from castiron.emit.header import header_file
from castiron.emit.model import code_file
from castiron.emit.types import Files, ModelInfo, Port
from castiron.program.planned import Planned

__all__ = ["Files", "ModelInfo", "Port", "print_steps", "print_tables"]


def print_steps(name: str, prepare: Planned, forward: Planned, model: ModelInfo) -> Files:
    """NAME.c, of a model whose symbols start with `name` (a C identifier); the same input gives the same bytes.

    It takes nearly all of the time, and is the same for all instruction sets and ways weights arrive. Raises Unsupported
    for element types without a C form, InternalError where the programs break their rules."""
    numbers = {size.name: number for number, size in enumerate(all_sizes(forward, model.outputs))}
    return {f"{name}.c": code_file(name, prepare, forward, model, numbers)}


def print_tables(name: str, prepare: Planned, forward: Planned, model: ModelInfo) -> Files:
    """NAME_api.c and NAME.h, which go with it."""
    sizes = all_sizes(forward, model.outputs)
    return {f"{name}_api.c": api_file(name, prepare, forward, model, sizes), f"{name}.h": header_file(name, model)}
