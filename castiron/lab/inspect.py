"""What a file is, as a dictionary: its kind and what can be said of it without running anything but castiron's own files."""

from __future__ import annotations

import json
import struct
from collections import Counter
from pathlib import Path
from typing import Any

from castiron.artifact.files import PACKED_HEADER, PACKED_MAGIC
from castiron.artifact.identify import Artifact
from castiron.artifact.load import load
from castiron.artifact.process import call
from castiron.errors import InputError, ModelError, WeightsError
from castiron.options import Form
from castiron.toolchain import targets


def describe(file: Path) -> dict[str, Any]:
    """`kind` and its facts; InputError where castiron knows no such file."""
    if file.is_dir():
        raise InputError(f"{file} is a folder; name a model, a weights file or an artifact")
    with file.open("rb") as stream:
        start = stream.read(PACKED_HEADER.size)
    if start.startswith(PACKED_MAGIC):
        return _packed(file, start)
    if Artifact.is_binary(start):
        return _artifact(file)
    if file.suffix == ".safetensors":
        return _safetensors(file)
    return _model(file)


def _packed(file: Path, start: bytes) -> dict[str, Any]:
    if len(start) < PACKED_HEADER.size:
        raise WeightsError(f"{file}: the header is cut off: {len(start)} bytes of {PACKED_HEADER.size}")
    _, version, header, digest, size = PACKED_HEADER.unpack(start)
    there = file.stat().st_size - header
    state = "whole" if there == size else f"cut off or padded: {there} bytes of {size}"
    return {"kind": "packed weights", "version": version, "model": digest.decode(errors="replace"), "bytes": size, "state": state}


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
            ports = {"inputs": list(model.inputs), "outputs": list(model.outputs)}
        return {"kind": "shared library", "target": found.target, "name": model.name, **ports}
    kind = "executable" if found.form == Form.EXE else "shared library"
    return {"kind": kind, "target": found.target, "about": "runs on another machine; nothing more can be told here"}


def _safetensors(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        head = stream.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not length or length > file.stat().st_size - 8:
            raise WeightsError(f"{file}: the safetensors header is cut off or not one")
        try:
            header = json.loads(stream.read(length))
        except ValueError as error:
            raise WeightsError(f"{file}: the safetensors header is not JSON: {error}") from None
    rows = [
        {"name": name, "type": entry["dtype"], "shape": entry["shape"], "bytes": entry["data_offsets"][1] - entry["data_offsets"][0]}
        for name, entry in header.items()
        if name != "__metadata__"
    ]
    return {"kind": "raw weights (safetensors)", "tensors": rows}


def _model(file: Path) -> dict[str, Any]:
    from castiron.frontend import source as frontend

    try:
        source = frontend.load(str(file))
    except ModelError as error:
        raise ModelError(f"{file} is no model, weights file or artifact that castiron knows: {error}") from None
    graph = source.model.graph
    counts = Counter(node.op_type if not node.domain else f"{node.domain}::{node.op_type}" for node in graph.all_nodes())
    ports = {
        kind: [{"name": v.name, "type": v.dtype.name.lower() if v.dtype else "?", "shape": str(v.shape)} for v in values]
        for kind, values in (("inputs", graph.inputs), ("outputs", graph.outputs))
    }
    weights = sum(v.const_value.nbytes for v in graph.initializers.values() if v.const_value is not None)
    return {
        "kind": f"model ({source.framework})",
        "opsets": {domain or "ai.onnx": version for domain, version in source.model.opset_imports.items()},
        **ports,
        "weights": {"tensors": len(graph.initializers), "bytes": weights},
        "operators": dict(counts.most_common()),
    }
