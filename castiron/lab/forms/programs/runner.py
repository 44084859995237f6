"""Runs a model file in Python: runner.py KIND MODEL INPUTS.npz OUTPUTS.npz [option=value...].

threads=N; calls=N: so many more calls after the first; types=float32,…, keywords=x,…: of the arguments of `forward`;
code=file.py:function: what makes the module; files=1: list the files of all modules that it loads. Prints one line of
JSON: seconds for import, load and first call, those of the further calls, how many modules were loaded before and after.
It needs what the KIND needs, and nothing of castiron's compiler.
"""

from __future__ import annotations

import sys
import time

BEFORE, STARTED = set(sys.modules), time.perf_counter()

import importlib  # noqa: E402  what is imported when is what this program measures
import importlib.util  # noqa: E402
import json  # noqa: E402
from collections.abc import Callable, Mapping, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

Run = Callable[[Sequence[Any]], Mapping[str, Any]]

KIND, MODEL, INPUTS, OUTPUTS = sys.argv[1:5]
OPTIONS = dict(word.split("=", 1) for word in sys.argv[5:])
THREADS, CALLS = int(OPTIONS.get("threads", "1")), int(OPTIONS.get("calls", "0"))


def words(name: str) -> list[str]:
    """A list of the command line."""
    return [word for word in OPTIONS.get(name, "").split(",") if word]


def load_source() -> Run:
    """The user's own code makes the module, then its weights are read."""
    import safetensors.torch

    where, _, name = OPTIONS["code"].rpartition(":")
    module = function(where, name)()[0]
    safetensors.torch.load_model(module, MODEL)
    return on_tensors(module.eval())


def function(where: str, name: str) -> Any:
    """Of a file beside the model, or of an installed module."""
    if not where.endswith(".py"):
        return getattr(importlib.import_module(where), name)
    path = Path(MODEL).parent / where
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


def load_torchscript() -> Run:
    """A file of torch.jit.save."""
    import torch

    return on_tensors(torch.jit.load(MODEL))  # type: ignore[no-untyped-call]  # it has no types


def load_export() -> Run:
    """A file of torch.export.save."""
    import torch

    return on_tensors(torch.export.load(MODEL).module())


def load_aotinductor() -> Run:
    """A package of AOTInductor."""
    import torch

    return on_tensors(torch._inductor.aoti_load_package(MODEL))


def on_tensors(module: Any) -> Run:
    """A module of tensors as a function of arrays."""
    import torch

    torch.set_num_threads(THREADS)
    types, names = words("types"), words("keywords")

    def run(arrays: Sequence[Any]) -> Mapping[str, Any]:
        given = [torch.from_numpy(a).to(getattr(torch, t)) for a, t in zip(arrays, types)]
        with torch.no_grad():
            result = module(**dict(zip(names, given))) if names else module(*given)
        leaves = [t.detach() for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        return {f"arr_{i}": (t.float() if t.dtype == torch.bfloat16 else t).numpy() for i, t in enumerate(leaves)}

    return run


def load_onnx() -> Run:
    """An ONNX file, in onnxruntime. Outputs by number: PyTorch's exporter makes names of its own."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
    inputs = [i.name for i in session.get_inputs()]
    return lambda arrays: {f"arr_{i}": a for i, a in enumerate(session.run(None, dict(zip(inputs, arrays))))}


def load_castiron() -> Run:
    """A shared library that castiron built, through the files of castiron beside this one."""
    from castiron.artifact.load import load

    model = load(MODEL, threads=THREADS)
    types = words("types")
    return lambda arrays: model(*(of_type(a, t) for a, t in zip(arrays, types)))


def of_type(array: Any, type: str) -> Any:
    """As the model takes it: bfloat16, which files have as float32, is a type of another package."""
    if type == array.dtype.name:
        return array
    return array.astype(getattr(importlib.import_module("ml_dtypes"), type))


KINDS: dict[str, tuple[tuple[str, ...], Callable[[], Run]]] = {
    "source": (("torch", "safetensors.torch"), load_source),
    "torchscript": (("torch",), load_torchscript),
    "export": (("torch", "torch.export"), load_export),
    "aotinductor": (("torch", "torch._inductor"), load_aotinductor),
    "onnx": (("onnxruntime",), load_onnx),
    "castiron": (("castiron.artifact.load",), load_castiron),
}
"""What is imported, and what makes a function of it."""


def main() -> None:
    """One run, timed."""
    modules, load = KINDS[KIND]
    for module in modules:
        importlib.import_module(module)
    imported = time.perf_counter()
    run = load()
    loaded = time.perf_counter()
    with np.load(INPUTS) as archive:
        arrays = [archive[name] for name in archive.files]
    told: dict[str, Any] = {"import": imported - STARTED, "load": loaded - imported}
    start = time.perf_counter()
    outputs = run(arrays)
    told |= {"first": time.perf_counter() - start, "modules": [len(BEFORE), len(sys.modules)], "calls": []}
    for _ in range(CALLS):
        start = time.perf_counter()
        run(arrays)
        told["calls"].append(time.perf_counter() - start)
    plain = {n: a.astype(np.float32) if getattr(a, "dtype", None) == "bfloat16" else a for n, a in outputs.items()}
    np.savez(OUTPUTS, **plain)
    if OPTIONS.get("files"):
        told["files"] = {n: getattr(m, "__file__", None) for n, m in list(sys.modules.items()) if n not in BEFORE}
    print(json.dumps(told))


main()
