"""What keeps a model from being compiled, listed all at once: why, how often, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from castiron.errors import Unsupported
from castiron.graph.nodes import operator_name, place

PLACES = 5
"""Nodes that are named of each kind of fault."""

NO_LOWERING = "there is no lowering for this operator"

_ADVICE = {
    NO_LOWERING: "Write these modules with standard operators, or export a part of the model without them; "
    "an operator is added to castiron by a file in castiron/ops.",
}


@dataclass(frozen=True)
class Fault:
    """A node that cannot be compiled, and why."""

    node: ir.Node
    reason: str

    @staticmethod
    def of(node: ir.Node, error: Unsupported) -> Fault:
        """Of an error that names the node, or not, before it says why."""
        return Fault(node, str(error).removeprefix(f"{node.op_type} {node.name!r}: "))


def unsupported(faults: Iterable[Fault]) -> Unsupported:
    """One error that names them all, grouped by operator and reason, the most frequent first."""
    groups: dict[tuple[str, str], list[ir.Node]] = {}
    for fault in faults:
        groups.setdefault((operator_name(fault.node), fault.reason), []).append(fault.node)
    lines = [_group(*key, nodes) for key, nodes in sorted(groups.items(), key=lambda item: -len(item[1]))]
    total = sum(map(len, groups.values()))
    advice = [text for reason, text in _ADVICE.items() if any(reason == r for _, r in groups)]
    first = f"{total} node{'s' if total > 1 else ''} of this model cannot be compiled:"
    return Unsupported("\n".join([first, *lines, *advice]))


def _group(operator: str, reason: str, nodes: list[ir.Node]) -> str:
    more = f" and {len(nodes) - PLACES} more" if len(nodes) > PLACES else ""
    times = f"{len(nodes)} time{'s' if len(nodes) > 1 else ''}"
    return f"  {operator}, {times}: {reason}\n    " + ", ".join(map(place, nodes[:PLACES])) + more
