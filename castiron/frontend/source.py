"""Anything a user calls a model -> `Source`: the ONNX graph, its parameters, how to run the original."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from castiron.errors import InputError

Arrays = Mapping[str, np.ndarray]
Run = Callable[[Arrays], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Source:
    """A model as it came.

    name: from the file, function or class. parameters: names of initializers that can be replaced at run time
    (of a PyTorch model the names in its state dict). inputs: example arrays by name, or None. run: the source
    framework's own forward pass; run64: the same in float64; None where there is none. framework: `pytorch` or `onnx`.
    origin: the file. plain: of a quantized model the forward pass without the framework's optimizations: where the two
    differ, a rounding has moved a value to the next step of quantization. exported: the torch.export.ExportedProgram that
    the model was made of, or None.
    """

    name: str
    model: ir.Model
    parameters: frozenset[str]
    inputs: Arrays | None
    run: Run | None
    run64: Run | None
    framework: str
    origin: Path | None = None
    plain: Run | None = None
    exported: Any = None


def load(
    model: Any,
    example_inputs: Sequence[Any] | None = None,
    dynamic_shapes: Any = None,
) -> Source:
    """Reads a model.

    model: a path (`.onnx`, `.pt2`, TorchScript `.pt`/`.jit`), `file.py:function` or `package.module:function`
    (returning `(module, example_inputs)` or `(module, example_inputs, dynamic_shapes)`), an `nn.Module` or an
    `onnx_ir.Model`; a Source comes back as it is.
    example_inputs, dynamic_shapes: of an nn.Module, as `torch.export.export` takes them.
    Raises ModelError for a file that is not what its name says, InputError for what cannot be found.
    """
    if isinstance(model, Source):
        return model
    if isinstance(model, ir.Model):
        from castiron.frontend.onnx_file import from_model

        return from_model(model)
    if isinstance(model, str | Path):
        return _from_text(str(model), example_inputs, dynamic_shapes)
    from castiron.frontend import pytorch

    return pytorch.from_module(model, example_inputs, dynamic_shapes)


def _from_text(text: str, example_inputs: Sequence[Any] | None, dynamic_shapes: Any) -> Source:
    path = Path(text)
    if not text:
        raise InputError("the name of the model is empty")
    if path.is_dir():
        raise InputError(f"{text} is a folder; give the model file in it")
    if path.is_file():
        return _from_file(path, example_inputs, dynamic_shapes)
    if ":" in text and path.suffix.lower() not in _READERS:
        from castiron.frontend import pytorch

        return pytorch.from_function(text)
    if path.suffix.lower() in _READERS or "/" in text or not _looks_dotted(text):
        raise InputError(f"{text}: no such file (working folder: {Path.cwd().name}/)")
    raise InputError(f"{text}: neither a file nor `package.module:function`")


def _looks_dotted(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _from_file(path: Path, example_inputs: Sequence[Any] | None, dynamic_shapes: Any) -> Source:
    suffix = path.suffix.lower()
    if suffix == ".py":
        raise InputError(f"{path} is Python: name the function that makes the model, `{path}:function`")
    if suffix not in _READERS:
        known = ", ".join(_READERS)
        raise InputError(
            f"{path}: castiron reads {known} and `file.py:function`, not {suffix or 'files without a suffix'}"
        )
    return _READERS[suffix](path, example_inputs, dynamic_shapes)


def _onnx(path: Path, example_inputs: Sequence[Any] | None, dynamic_shapes: Any) -> Source:
    from castiron.frontend.onnx_file import from_file

    return from_file(path)


def _exported(path: Path, example_inputs: Sequence[Any] | None, dynamic_shapes: Any) -> Source:
    from castiron.frontend import pytorch

    return pytorch.from_exported(path)


def _scripted(path: Path, example_inputs: Sequence[Any] | None, dynamic_shapes: Any) -> Source:
    from castiron.frontend import pytorch

    return pytorch.from_torchscript(path, example_inputs, dynamic_shapes)


_READERS: dict[str, Callable[[Path, Sequence[Any] | None, Any], Source]] = {
    ".onnx": _onnx,
    ".pt2": _exported,
    ".pt": _scripted,
    ".pth": _scripted,
    ".jit": _scripted,
    ".ts": _scripted,
}
