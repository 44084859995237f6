"""castiron as a backend of ONNX, for `onnx.backend.test` and whatever else drives backends through `onnx.backend.base`.

    from castiron import onnx_backend
    outputs = onnx_backend.prepare(model).run([x])      compiled once, run often
    outputs = onnx_backend.run_model(model, [x])

Each model becomes a shared library in a folder of its own, which goes with the handle. Outputs are a named tuple, also
indexed by name. What castiron does not compile raises its `Unsupported`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

import castiron
from castiron.errors import InputError, Unsupported
from castiron.frontend.source import load

_SMALL = 64
"""Elements of an integer input that `run_node` makes known at build where castiron must know it."""


class CastironRep(BackendRep):
    """A compiled model, ready to run."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="castiron-backend-")
        library = Path(self._folder.name) / "libmodel.so"
        # the caller compares the outputs: nothing runs the source here
        source = replace(load(ir.from_proto(model)), run=None, run64=None, plain=None)
        castiron.build(source, library, form="shared", verify=False)
        self._model = castiron.load(library)
        self._outputs = namedtupledict("Outputs", list(self._model.outputs))

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """inputs: arrays in the model's order, by name, or one array alone. Raises InputError where they do not fit."""
        if isinstance(inputs, Mapping):
            found = self._model(**{str(name): np.asarray(value) for name, value in inputs.items()})
        elif isinstance(inputs, np.ndarray):
            found = self._model(inputs)
        else:
            found = self._model(*map(np.asarray, inputs))
        return self._outputs(*found.values())  # type: ignore[return-value]  # onnx wants a tuple of any


class CastironBackend(Backend):
    """What `onnx.backend.test.BackendTest` takes."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Processors only."""
        try:
            return bool(Device(device).type == DeviceType.CPU)
        except AttributeError:
            return False

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> BackendRep:
        """Checks and compiles a model. Raises onnx.checker.ValidationError, or castiron's errors."""
        if not cls.supports_device(device):
            raise InputError(f"device {device!r}: castiron compiles for CPU")
        super().prepare(model, device, **kwargs)
        return CastironRep(model)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Compiles and runs one node. opset_version: of its domain; default: the newest.

        inputs: arrays for those that the node names, in their order."""
        super().run_node(node, inputs, device, outputs_info, **kwargs)
        arrays = [np.asarray(a) for a in inputs]
        names = list(dict.fromkeys(name for name in node.input if name))
        if len(arrays) != len(names):
            raise InputError(f"{node.op_type}: {len(arrays)} inputs given, the node reads {', '.join(names)}")
        given = dict(zip(names, arrays, strict=True))
        try:
            return cls.run_model(_model_of(node, given, {}, **kwargs), list(given.values()), device)
        except Unsupported:
            known = {n: a for n, a in given.items() if a.dtype.kind in "iub" and a.ndim <= 1 and a.size <= _SMALL}
            if not known:
                raise
            free = {n: a for n, a in given.items() if n not in known}
            return cls.run_model(_model_of(node, free, known, **kwargs), list(free.values()), device)


def _model_of(
    node: onnx.NodeProto, free: Mapping[str, np.ndarray], known: Mapping[str, np.ndarray], **options: Any
) -> onnx.ModelProto:
    """A model of the node alone; `free`: its inputs, `known`: what is a constant in it."""
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in free.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    tensors = [numpy_helper.from_array(array, name) for name, array in known.items()]
    graph = helper.make_graph([node], node.op_type.lower(), inputs, outputs, tensors)
    version = options.get("opset_version", onnx.defs.onnx_opset_version() if not node.domain else 1)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])
    return onnx.shape_inference.infer_shapes(model)


prepare = CastironBackend.prepare
run_model = CastironBackend.run_model
run_node = CastironBackend.run_node
supports_device = CastironBackend.supports_device
is_compatible = CastironBackend.is_compatible
