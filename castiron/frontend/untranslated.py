"""PyTorch operators that torch.onnx has no ONNX form for, listed all at once (the exporter stops at the first)."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

PLACES = 5
"""Nodes that are named of each operator."""


def untranslated(export: Callable[[], Any]) -> list[str]:
    """Two lines an operator, its name and how often it occurs, then where; the most frequent first.

    export: gives the module's torch.export.ExportedProgram. Empty where this torch does not tell.
    """
    try:
        nodes = _nodes_without_form(export())
    except Exception:  # torch's own parts are asked, which change with its versions; then its one message must do
        return []
    groups: dict[str, list[Any]] = {}
    for node in nodes:
        groups.setdefault(str(node.target), []).append(node)
    return [_group(name, found) for name, found in sorted(groups.items(), key=lambda item: -len(item[1]))]


def _nodes_without_form(program: Any) -> list[Any]:
    parts = "torch.onnx._internal.exporter"
    core, dispatching, registration = (
        importlib.import_module(f"{parts}.{name}") for name in ("_core", "_dispatching", "_registration")
    )
    registry = registration.ONNXRegistry.from_torchlib()
    lowered = core._prepare_exported_program_for_export(program, registry=registry)
    calls = [n for n in lowered.graph.nodes if n.op == "call_function" and "getitem" not in str(n.target)]
    return [n for n in calls if dispatching.dispatch(n, registry)[0] is None]


def _group(name: str, nodes: list[Any]) -> str:
    times = f"{len(nodes)} time{'s' if len(nodes) > 1 else ''}"
    more = f" and {len(nodes) - PLACES} more" if len(nodes) > PLACES else ""
    return f"  {name}, {times}\n    " + ", ".join(map(_place, nodes[:PLACES])) + more


def _place(node: Any) -> str:
    modules = [path for path, _ in node.meta.get("nn_module_stack", {}).values() if path]
    lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    origin = [*modules[-1:], *(f"{file}:{line}" for file, line in lines[-1:])]
    return f"{node.name!r}" + (f" ({', '.join(origin)})" if origin else "")
