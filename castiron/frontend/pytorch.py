"""PyTorch -> Source, by torch.onnx's exporter over torch.export. Torch is imported here, when it is needed."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir

from castiron.errors import InputError, ModelError, Unsupported
from castiron.frontend.function import TORCH_IS_MISSING, result_of, user_line
from castiron.frontend.source import Arrays, Run, Source
from castiron.frontend.untranslated import untranslated

_UNTRANSLATED = ("DispatchError", "GraphConstructionError")
"""Errors of torch.onnx that tell of an operator without an ONNX form."""


def from_module(
    module: Any, example_inputs: Any, dynamic_shapes: Any = None, name: str = "", origin: Path | None = None
) -> Source:
    """An nn.Module. example_inputs: a tuple of arguments of `forward`, or a dictionary of its keyword arguments."""
    torch = _torch()
    if isinstance(module, type) and issubclass(module, torch.nn.Module):
        raise InputError(f"{module.__name__} is a class; give an instance of it, such as {module.__name__}()")
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"a model is a file, `file.py:function` or an nn.Module, not {type(module).__name__}")
    if example_inputs is None:
        raise InputError(
            f"{type(module).__name__}: exporting needs example inputs; give a tuple of tensors as `forward` takes them"
        )
    name = name or type(module).__name__
    if isinstance(module, torch.jit.ScriptModule):
        return _from_script(torch, module, example_inputs, dynamic_shapes, name, origin)
    args, kwargs = _arguments(torch, example_inputs)
    try:
        with _inference(module):
            program = _quietly(lambda: torch.onnx.export(
                module, args, kwargs=kwargs, dynamo=True, optimize=False, verbose=False, dynamic_shapes=dynamic_shapes
            ))  # fmt: skip
    except Exception as error:  # the exporter wraps whatever the user's forward raised; its message says where
        raise _export_error(type(module).__name__, error, lambda: torch.export.export(
            module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False
        )) from error  # fmt: skip
    made = _source(torch, name, program.model, module, set(module.state_dict()), args, kwargs, origin)
    return replace(made, exported=program.exported_program)


@contextlib.contextmanager
def _inference(module: Any) -> Iterator[None]:
    """Meanwhile the module computes as it does in use: dropout lets all through, norms of batches keep their statistics."""
    training = [m for m in module.modules() if m.training]
    for m in training:  # not `eval`, which the modules of torch.export refuse
        m.training = False
    try:
        yield
    finally:
        for m in training:
            m.training = True


def from_function(text: str) -> Source:
    """`file.py:function` or `package.module:function`."""
    made, example_inputs, *dynamic = result_of(text)
    where, _, name = text.rpartition(":")
    origin = Path(where) if where.endswith(".py") else None
    return from_module(made, example_inputs, dynamic[0] if dynamic else None, name=name, origin=origin)


def from_exported(path: Path) -> Source:
    """A `.pt2` that torch.export.save wrote."""
    torch = _torch()
    try:
        exported = _quietly(lambda: torch.export.load(path))
    except Exception as error:  # zip, pickle and JSON errors of a damaged archive; the cause is kept
        raise ModelError(f"{path} is not a whole .pt2 of this torch ({_first_line(error)}); export it again") from error
    if exported.example_inputs is None:
        raise ModelError(f"{path} holds no example inputs; save it with the ExportedProgram's example inputs")
    args, kwargs = exported.example_inputs
    try:
        program = _quietly(lambda: torch.onnx.export(exported, dynamo=True, optimize=False, verbose=False))
    except Exception as error:
        raise _export_error(str(path), error, lambda: exported) from error
    made = _source(torch, path.stem, program.model, exported.module(), set(exported.state_dict), args, kwargs, path)
    return replace(made, exported=exported)


def from_torchscript(path: Path, example_inputs: Any, dynamic_shapes: Any) -> Source:
    """A TorchScript file, by the older exporter."""
    torch = _torch()
    try:
        module = _quietly(lambda: torch.jit.load(str(path), map_location="cpu"))
    except Exception as error:  # torch raises RuntimeError, ValueError and pickle errors alike
        what = _first_line(error).partition(". ")[0]
        raise ModelError(
            f"{path} is no TorchScript module ({what}). A checkpoint of torch.save holds no model: give "
            "`file.py:function` that makes the module and loads it"
        ) from error
    if example_inputs is None:
        raise InputError(
            f"{path}: TorchScript does not say what its inputs are; write `file.py:function` that returns "
            "(torch.jit.load(path), example_inputs)"
        )
    return _from_script(torch, module, example_inputs, dynamic_shapes, path.stem, path)


def _from_script(
    torch: ModuleType, module: Any, example_inputs: Any, dynamic_shapes: Any, name: str, origin: Path | None
) -> Source:
    args, kwargs = _arguments(torch, example_inputs)
    data = io.BytesIO()
    names = [value.debugName() for value in module.graph.inputs()][1:]  # the first is the module itself
    options = {
        "dynamo": False,
        "input_names": names,
        "dynamic_axes": _dynamic_axes(names, dynamic_shapes),
        "do_constant_folding": False,
    }
    try:
        with _inference(module):
            _quietly(lambda: torch.onnx.export(module, args, data, **options))
        model = ir.from_proto(onnx.load_from_string(data.getvalue()))
    except Exception as error:
        raise Unsupported(
            f"{origin or name}: torch {torch.__version__} cannot turn this TorchScript into ONNX "
            f"({_first_line(error)}); export the original nn.Module with torch.export instead"
        ) from error
    return _source(torch, name, model, module, set(module.state_dict()), args, kwargs, origin)


def _dynamic_axes(names: list[str], dynamic_shapes: Any) -> dict[str, dict[int, str]]:
    """What the older exporter takes for the `dynamic_shapes` of torch.export."""
    shapes = dynamic_shapes.values() if isinstance(dynamic_shapes, Mapping) else dynamic_shapes or ()
    return {n: {i: getattr(d, "__name__", str(d)) for i, d in (dims or {}).items()} for n, dims in zip(names, shapes)}


def _source(
    torch: ModuleType,
    name: str,
    model: ir.Model,
    module: Any,
    state: set[str],
    args: Any,
    kwargs: Any,
    origin: Path | None,
) -> Source:
    _name_outputs(torch, model.graph, module, args, kwargs)
    inputs, outputs = [str(v.name) for v in model.graph.inputs], [str(v.name) for v in model.graph.outputs]
    leaves = _tensors(torch, (args, kwargs))
    if len(leaves) != len(inputs):
        raise Unsupported(
            f"{name}: {len(leaves)} example tensors became {len(inputs)} graph inputs ({', '.join(inputs)})"
        )
    examples = {n: _numpy(torch, t) for n, t in zip(inputs, leaves, strict=True)}
    parameters = frozenset(
        n for n in model.graph.initializers if n in state and _is_floating(model.graph.initializers[n])
    )
    run = _runner(torch, module, args, kwargs, inputs, outputs, double=False)
    run64 = _runner(torch, module, args, kwargs, inputs, outputs, double=True)
    return Source(name, model, parameters, examples, run, run64, "pytorch", origin)


def _name_outputs(torch: ModuleType, graph: ir.Graph, module: Any, args: Any, kwargs: Any) -> None:
    """Gives outputs the keys or fields under which the module returns them; the exporter names them by their last node."""
    with torch.no_grad(), _inference(module):
        leaves, _ = torch.utils._pytree.tree_flatten_with_path(module(*args, **kwargs))
    paths = [path for path, leaf in leaves if isinstance(leaf, torch.Tensor)]
    if len(paths) != len(graph.outputs) or len(set(graph.outputs)) != len(paths):
        return
    taken = {v.name for node in graph for v in node.outputs} | {v.name for v in graph.inputs} | set(graph.initializers)
    for path, value in zip(paths, graph.outputs, strict=True):
        keys = [getattr(k, "key", getattr(k, "name", getattr(k, "idx", ""))) for k in path]
        name = ".".join(map(str, keys))
        if any(isinstance(k, str) for k in keys) and name not in taken:
            value.name = name


def _is_floating(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def _runner(
    torch: ModuleType, module: Any, args: Any, kwargs: Any, inputs: list[str], outputs: list[str], double: bool
) -> Run:
    """The module on arrays by the graph's input names; what is no tensor stays as in the example."""
    pytree = torch.utils._pytree
    made: list[Any] = []

    def run(arrays: Arrays) -> dict[str, np.ndarray]:
        if not made:
            made.append(copy.deepcopy(module).double() if double else module)
        flat, spec = pytree.tree_flatten((args, kwargs))
        names = iter(inputs)
        given = [_like(torch, x, arrays[next(names)], double) if isinstance(x, torch.Tensor) else x for x in flat]
        own_args, own_kwargs = pytree.tree_unflatten(given, spec)
        with torch.no_grad(), _inference(made[0]):
            results = _tensors(torch, made[0](*own_args, **own_kwargs))
        return {n: _numpy(torch, t) for n, t in zip(outputs, results, strict=True)}

    return run


def _arguments(torch: ModuleType, example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of `forward`; NumPy's arrays become tensors, one alone is the only argument."""
    tensors = torch.utils._pytree.tree_map(
        lambda leaf: _tensor(torch, leaf, double=False) if isinstance(leaf, np.ndarray) else leaf, example_inputs
    )
    if isinstance(tensors, dict):
        return (), tensors
    if isinstance(tensors, torch.Tensor):
        return (tensors,), {}
    if not isinstance(tensors, tuple | list):
        kind = type(tensors).__name__
        raise InputError(f"example inputs are a tuple of tensors, or a dictionary of keyword arguments, not {kind}")
    return tuple(tensors), {}


def _tensors(torch: ModuleType, tree: Any) -> list[Any]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _tensor(torch: ModuleType, array: np.ndarray, double: bool) -> Any:
    given = np.array(array)  # a copy: a module may write into its input
    is_bfloat = given.dtype == ml_dtypes.bfloat16
    tensor = torch.from_numpy(given.view(np.int16)).view(torch.bfloat16) if is_bfloat else torch.from_numpy(given)
    return tensor.double() if double and tensor.is_floating_point() else tensor


def _like(torch: ModuleType, example: Any, array: np.ndarray, double: bool) -> Any:
    """The tensor that an array stands for, where the module takes one like `example`."""
    tensor = _tensor(torch, array, double)
    return torch.view_as_complex(tensor) if example.is_complex() else tensor


def _numpy(torch: ModuleType, tensor: Any) -> np.ndarray:
    """Complex numbers as the exporter has them: pairs of real ones in a last dimension."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    if plain.dtype == torch.bfloat16:
        bits: np.ndarray = plain.view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    result: np.ndarray = plain.numpy()
    return result


def _torch() -> ModuleType:
    try:
        import torch
        import torch.export
        import torch.onnx
    except ImportError as error:
        raise InputError(TORCH_IS_MISSING) from error
    return torch


def _export_error(name: str, error: Exception, export: Callable[[], Any]) -> Exception:
    """What the exporter could not do. `export` gives the ExportedProgram, to ask what is in it."""
    version, cause = _torch().__version__, _cause(error)
    lines = _quietly(lambda: untranslated(export)) if type(cause).__name__ in _UNTRANSLATED else []
    if lines:
        return Unsupported(
            f"{name}: torch {version} has no ONNX form of these operators:\n"
            + "\n".join(lines)
            + "\nWrite these modules with other operators, or export a part of the model without them."
        )
    what = f"{type(cause).__name__}: {_first_line(cause).rstrip('.')}{user_line(cause)}"
    return Unsupported(
        f"{name}: torch {version} cannot export it: {what}. "
        "See that `torch.export.export(module, example_inputs, dynamic_shapes=…)` succeeds"
    )


def _cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _quietly(work: Callable[[], Any]) -> Any:
    """The exporter warns and logs about its own insides; none of it is for users of castiron."""
    before = logging.root.manager.disable
    logging.disable()
    nowhere = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            warnings.simplefilter("ignore")
            return work()
    finally:
        logging.disable(before)
