"""`.onnx` -> Source. Weights, inside or beside the file, are mapped, not copied; torch is never imported."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from castiron.errors import ModelError
from castiron.frontend.maps import load_tables
from castiron.frontend.source import Arrays, Run, Source
from castiron.graph.nodes import bodies, graphs, is_standard, operator_name
from castiron.graph.standard import in_standard, is_foreign

_SETTINGS = {
    ("Clip", 1), ("Clip", 2), ("Dropout", 1), ("OneHot", 2), ("Pad", 2), ("Pow", 1), ("Resize", 1), ("Resize", 2),
    ("Upsample", 1),
}  # fmt: skip
"""(operator, input) of floating-point inputs that steer an operator: no parameters, they must be known at build."""
_QUANTIZES = re.compile("Quant|Integer|QLinear|^Q[A-Z]")
"""In names of operators that round to few values."""
_TWO_GIB = (1 << 31) - 1


def from_file(path: Path) -> Source:
    """Reads `path`. Raises ModelError where it is cut off, no ONNX, inconsistent, or its weights file is missing."""
    try:
        model = ir.load(path)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # protobuf and onnx_ir raise many kinds for damaged files; the cause is kept
        tables = load_tables(path)
        if tables is not None:
            _check(tables, str(path))
            return _source(tables, path.stem, None)
        raise ModelError(f"{path} is not a whole ONNX model ({error}); fetch or export it again") from error
    if not len(model.graph) and not model.graph.outputs:
        raise ModelError(f"{path} holds no graph; it is not an ONNX model, or is cut off")
    _check(model, str(path))
    return _source(model, path.stem, path)


def from_model(model: ir.Model) -> Source:
    """A Source of a model in memory."""
    name = model.graph.name or "model"
    _check(model, name)
    return _source(model, name, None)


def parameters_of(model: ir.Model) -> frozenset[str]:
    """Initializers that a user may replace: floating-point ones of 16 bits and more with a dimension or more, except
    settings of operators.

    Where a model keeps its weights in Constant nodes only (PaddlePaddle's exporter), these count likewise.
    """
    values: Iterable[ir.Value] = model.graph.initializers.values()
    found = frozenset(str(v.name) for v in values if _is_parameter(v))
    if found:
        return found
    constants = [n.outputs[0] for n in model.graph if is_standard(n, "Constant") and "value" in n.attributes]
    return frozenset(str(v.name) for v in constants if _is_parameter(v))


def _is_parameter(value: ir.Value) -> bool:
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is None or not tensor.dtype.is_floating_point() or tensor.dtype.bitwidth < 16 or len(tensor.shape) == 0:
        return False
    return not any((use.node.op_type, use.idx) in _SETTINGS for use in value.uses())


def _source(model: ir.Model, name: str, path: Path | None) -> Source:
    plain = _runner(model, path, optimized=False) if _is_quantized(model) else None
    run, run64 = _runner(model, path), _runner64(model, path)
    return Source(name, model, parameters_of(model), None, run, run64, "onnx", path, plain)


def _is_quantized(model: ir.Model) -> bool:
    """Whether some node rounds to few values, so that an error of rounding can become one of a whole step."""
    return any(_QUANTIZES.search(node.op_type) for graph in graphs(model.graph) for node in graph)


def _check(model: ir.Model, where: str) -> None:
    """Raises ModelError for values that nothing makes and for external data that is not there."""
    for graph in graphs(model.graph):
        for tensor in (v.const_value for v in graph.initializers.values()):
            if isinstance(tensor, ir.ExternalTensor):
                _check_external(tensor, where)
    _check_defined(model.graph, set(), where)


def _check_external(tensor: ir.ExternalTensor, where: str) -> None:
    path = Path(tensor.path)
    if not path.is_file():
        raise ModelError(
            f"{where}: the weights of {tensor.name!r} are in {path}, which is missing; put it beside the model"
        )
    end = (tensor.offset or 0) + (tensor.length if tensor.length is not None else tensor.nbytes)
    if path.stat().st_size < end:
        raise ModelError(f"{path} is cut off: {tensor.name!r} ends at byte {end}, the file has {path.stat().st_size}")


def _check_defined(graph: ir.Graph, outer: set[ir.Value], where: str) -> None:
    defined = outer | set(graph.inputs) | set(graph.initializers.values())
    for node in graph:
        for value in node.inputs:
            if value is not None and value not in defined:
                raise ModelError(
                    f"{where}: {operator_name(node)} {node.name!r} reads {value.name!r}, which nothing before it makes"
                )
        for body in bodies(node):
            _check_defined(body, defined, where)
        defined.update(node.outputs)
    for value in graph.outputs:
        if value not in defined:
            raise ModelError(f"{where}: nothing makes the output {value.name!r}")


def _runner(model: ir.Model, path: Path | None, optimized: bool = True) -> Run:
    """The model under onnxruntime where it is installed, else under onnx.reference; made at the first call."""
    made: list[Run] = []

    def run(inputs: Arrays) -> dict[str, np.ndarray]:
        if not made:
            made.append(_onnxruntime(model, path, optimized) or _reference(_proto(model, path)))
        return made[0](inputs)

    return run


def _runner64(model: ir.Model, path: Path | None) -> Run:
    """The model with float64 in place of float32 under onnx.reference: exact enough to judge float32, and slow."""
    made: list[Run] = []

    def run(inputs: Arrays) -> dict[str, np.ndarray]:
        from castiron.frontend.float64 import in_float64

        if not made:
            made.append(_reference(in_float64(_standard(_proto(model, path)))))
        wide = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in inputs.items()}
        return made[0](wide)

    return run


def _onnxruntime(model: ir.Model, path: Path | None, optimized: bool) -> Run | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what goes wrong comes as an exception
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if path is not None:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    else:
        session = _session_of(model, options)
    names = [o.name for o in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def _session_of(model: ir.Model, options: object) -> object:
    import onnxruntime

    if sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None) < _TWO_GIB:
        data = ir.to_proto(model).SerializeToString()
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        ir.save(model.clone(), file, external_data="model.data")
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def interpreter(model: ir.Model, path: Path | None = None) -> Run:
    """The model under onnx.reference, an operator after the other. path: where it came from, if from a file."""
    return _reference(_proto(model, path))


def _reference(proto: onnx.ModelProto) -> Run:
    from onnx.reference import ReferenceEvaluator

    from castiron.frontend.reference_ops import OPERATORS

    evaluator = ReferenceEvaluator(proto, new_ops=OPERATORS)
    names = [str(n) for n in evaluator.output_names]
    return lambda inputs: dict(zip(names, map(np.asarray, evaluator.run(None, dict(inputs))), strict=True))


def _standard(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model without operators that onnx.reference lacks: what they are written in is at hand."""
    model = ir.serde.deserialize_model(proto)
    return ir.to_proto(in_standard(model)) if any(map(is_foreign, model.graph)) else proto


def _proto(model: ir.Model, path: Path | None) -> onnx.ModelProto:
    return onnx.load(path) if path is not None else ir.to_proto(model)
