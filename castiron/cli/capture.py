"""`castiron capture MODULE -o GRAPH`, `castiron show MODEL`, and `castiron compare` of two graphs."""

from __future__ import annotations

from pathlib import Path

from castiron.cli.compare import difference_entry, difference_table
from castiron.cli.show import conclude, size
from castiron.errors import InputError
from castiron.frontend.source import load
from castiron.graph.listing import listing
from castiron.lab.capture import aten_listing, record
from castiron.lab.graphs import compare_graphs


def capture_command(module: str, output: Path | None) -> None:
    """Writes the graph and prints what it holds."""
    source = load(module)
    target = output or Path(f"{source.name}.onnx")
    if source.origin is not None and target.exists() and target.samefile(source.origin):
        raise InputError(f"{target} is the module itself; give another file with -o")
    model = record(source, target)
    held = [v.const_value for v in model.graph.initializers.values() if v.const_value is not None]
    print(f"{target}  {len(model.graph):,} nodes, {len(held):,} parameters ({size(sum(t.nbytes for t in held))})")


def show_command(model: str, aten: bool) -> None:
    """Prints the listing."""
    source = load(model)
    if aten:
        print(aten_listing(source), end="")
        return
    graph = record(source, None) if source.framework == "pytorch" else source.model
    print(listing(graph, source.name), end="")


def compare_graphs_command(a: str, b: str, atol: float, rtol: float, json: bool) -> None:
    """Prints what differs; ends with status 1 where something does."""
    found = compare_graphs(load(a), load(b), atol, rtol)
    apart = [d for d in found.parameters if not d.ok]
    structure = {"name": "graph", "ok": not found.lines, "lines": list(found.lines)}
    shown = [*found.lines] or ["the same operators on the same values"]
    shown += [difference_table(apart)] if apart else [f"{len(found.parameters)} parameters with the same values"]
    conclude(found.ok, [structure, *map(difference_entry, found.parameters)], "\n".join(shown), json)


def is_graph(name: Path) -> bool:
    """Whether this names a model, not a file of arrays."""
    return name.suffix.lower() in (".onnx", ".pt2") or (":" in name.name and not name.exists())
