"""What a file is, as a dictionary: its kind, and what can be said of it without running anybody else's program."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import onnx_ir as ir

from castiron import weights
from castiron.artifact.files import PACKED_HEADER, PACKED_MAGIC
from castiron.artifact.identify import Artifact, what_folder
from castiron.artifact.load import load
from castiron.artifact.process import call
from castiron.artifact.staging import MARK
from castiron.errors import InputError, ModelError, WeightsError
from castiron.graph.nodes import operator_name
from castiron.options import Form
from castiron.toolchain import targets


def describe(file: Path) -> dict[str, Any]:
    """`kind` and its facts. Raises InputError where castiron knows no such file, else the error of its kind."""
    if file.is_dir():
        return _folder(file)
    if not file.exists():
        return _model(file)  # `file.py:function`, or an error that says what is missing
    with file.open("rb") as stream:
        start = stream.read(PACKED_HEADER.size)
    if start.startswith(PACKED_MAGIC):
        return _packed(file, start)
    if Artifact.is_binary(start):
        return _artifact(file)
    if file.suffix.lower() in weights.FORMATS:
        return _raw(file)
    return _model(file)


def _folder(folder: Path) -> dict[str, Any]:
    if not (folder / MARK).is_file():
        raise InputError(f"{folder} is a folder{what_folder(folder)}")
    files = [f for f in folder.rglob("*") if f.is_file() and f.name != MARK]
    header = next(f for f in folder.glob("*.h"))
    return {
        "kind": "model as C, to be built as its README.md says",
        "name": header.stem,
        "files": len(files),
        "bytes": sum(f.stat().st_size for f in files),
    }


def _packed(file: Path, start: bytes) -> dict[str, Any]:
    if len(start) < PACKED_HEADER.size:
        raise WeightsError(f"{file}: the header is cut off: {len(start)} bytes of {PACKED_HEADER.size}")
    _, version, header, digest, size = PACKED_HEADER.unpack(start)
    there = file.stat().st_size - header
    state = "whole" if there == size else f"cut off or padded: {there} bytes of {size}"
    return {
        "kind": "packed weights",
        "version": version,
        "model": digest.decode(errors="replace"),
        "bytes": size,
        "state": state,
    }


def _artifact(file: Path) -> dict[str, Any]:
    found = Artifact.of(file)
    emulator = targets.find(found.target).emulator
    if found.form == Form.STATIC:
        return {"kind": "static library", "target": found.target, "name": found.name}
    if found.form == Form.EXE and emulator is not None:
        told = json.loads(call([*([emulator] if emulator else []), str(file.resolve()), "--info"]))
        return {"kind": "executable", "target": found.target, **told}
    if found.form == Form.SHARED and emulator == "":
        with load(file) as model:
            return {"kind": "shared library", "target": found.target, "name": model.name, **model.about}
    kind = "executable" if found.form == Form.EXE else "shared library"
    return {"kind": kind, "target": found.target, "about": "runs on another machine; nothing more can be told here"}


def _raw(file: Path) -> dict[str, Any]:
    index = weights.read(file)
    told: dict[str, Any] = {"kind": f"raw weights ({index.kind})"}
    if index.metadata:
        told["metadata"] = dict(index.metadata)
    if index.dropped:
        told["more"] = list(index.dropped)
    rows = [{"name": t.name, "type": t.dtype, "shape": list(t.shape), "bytes": t.size} for t in index.tensors]
    return {**told, "tensors": rows}


def _model(file: Path) -> dict[str, Any]:
    from castiron.frontend import source as frontend

    try:
        source = frontend.load(str(file))
    except ModelError as error:
        raise ModelError(f"{file} is no model, weights file or artifact that castiron knows: {error}") from None
    graph = source.model.graph
    held = [v.const_value for v in graph.initializers.values() if v.const_value is not None]
    return {
        "kind": f"model ({source.framework})",
        "producer": f"{source.model.producer_name or ''} {source.model.producer_version or ''}".strip(),
        "opsets": {domain or "ai.onnx": version for domain, version in source.model.opset_imports.items()},
        "inputs": [_port(v) for v in graph.inputs if v.name not in graph.initializers],
        "outputs": [_port(v) for v in graph.outputs],
        "weights": {"tensors": len(held), "bytes": sum(t.nbytes for t in held)},
        "operators": dict(Counter(operator_name(node) for node in graph.all_nodes()).most_common()),
    }


def _port(value: ir.Value) -> dict[str, Any]:
    dtype = "?" if value.dtype is None else value.dtype.numpy().name if value.dtype != ir.DataType.STRING else "string"
    shape = "?" if value.shape is None else [d if isinstance(d, int) else str(d.value or "?") for d in value.shape]
    return {"name": value.name, "type": dtype, "shape": shape}
