"""A module's forward pass as a graph file: ONNX, with parameters by their own names, and no path of this machine in it."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path
from typing import Any

import onnx_ir as ir

from castiron.artifact.files import whole
from castiron.errors import InputError
from castiron.frontend import source as frontend
from castiron.frontend.source import Source
from castiron.graph.nodes import graphs

_KEPT = {"pkg.torch.onnx.name_scopes", "pkg.torch.onnx.fx_node"}
_TRACE = "pkg.torch.onnx.stack_trace"
_LARGE = 1_500_000_000
"""Bytes of parameters from which on they lie in a file of their own: protobuf ends at 2 GB."""


def capture(
    module: Any, example_inputs: Any = None, output: str | Path | None = None, *, dynamic_shapes: Any = None
) -> ir.Model:
    """Records the forward pass of `module` on `example_inputs`, as torch.export sees it, in ONNX operators.

    module, example_inputs, dynamic_shapes: as `castiron.build` takes them. output: an `.onnx` file to write; parameters of
    more than 1.5 GB go to `OUTPUT.data` beside it. Raises Unsupported for what torch cannot export, InputError for what is
    a graph already; then no file has been written.
    """
    return record(frontend.load(module, example_inputs, dynamic_shapes), output)


def record(source: Source, output: str | Path | None) -> ir.Model:
    """The same of a module that is loaded already."""
    if source.framework != "pytorch":
        raise InputError(f"{source.origin or source.name} is a graph already; capture records PyTorch modules")
    model = source.model.clone()
    model.graph.name = source.name
    for graph in [*graphs(model.graph), *(f.graph for f in model.functions.values())]:
        graph.metadata_props.clear()
        for value in [*graph.inputs, *graph.outputs, *graph.initializers.values()]:
            value.metadata_props.clear()
        for node in graph:
            _keep_origin(node)
    if output is not None:
        _write(model, Path(output))
    return model


def _keep_origin(node: ir.Node) -> None:
    """Of what the exporter says of a node: the layer, torch's operator, and the line of the user's own code."""
    own = [
        (f, n) for f, n in re.findall(r'File "([^"]+)", line (\d+)', node.metadata_props.get(_TRACE, "")) if _is_own(f)
    ]
    kept = {k: v for k, v in node.metadata_props.items() if k in _KEPT}
    node.metadata_props.clear()
    node.metadata_props.update(kept)
    if own:
        node.metadata_props[_TRACE] = "\n".join(f'File "{near(file)}", line {line}' for file, line in own)
    for value in node.outputs:
        value.metadata_props.clear()


def _is_own(file: str) -> bool:
    return not file.startswith(tuple(sysconfig.get_paths()[kind] for kind in ("stdlib", "purelib", "platlib")))


def near(file: str) -> str:
    """A path without what this machine alone knows: from the packages or the working folder on, else its last part."""
    path = Path(file)
    packages = (Path(sysconfig.get_paths()[kind]) for kind in ("purelib", "platlib", "stdlib"))
    for root in (*packages, Path.cwd()):  # an environment may lie in the working folder
        if path.is_relative_to(root):
            return path.relative_to(root).as_posix()
    return path.name


def aten_listing(source: Source) -> str:
    """torch.export's listing of the module, with the paths in it shortened. InputError where there is none."""
    if source.exported is None:
        raise InputError(f"{source.origin or source.name}: only modules and .pt2 files have a graph of torch.export")
    text = re.sub(r"(# File: )(\S.*?)(:\d+ in )", lambda m: m[1] + near(m[2]) + m[3], str(source.exported))
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines()) + "\n"


def _write(model: ir.Model, output: Path) -> None:
    if output.suffix.lower() != ".onnx":
        raise InputError(f"{output}: a graph file is ONNX; give a name that ends in .onnx")
    size = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)
    if size <= _LARGE:
        with whole(output) as temporary:
            ir.save(model, temporary)
        return
    beside = output.with_name(f"{output.name}.data")
    with whole(output) as temporary, whole(beside) as data:
        ir.save(model, temporary, external_data=beside.name)
        temporary.with_name(beside.name).replace(data)
