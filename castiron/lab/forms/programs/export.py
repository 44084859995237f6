"""Exports a PyTorch model in one form: export.py KIND MODEL TARGET. Prints a line of JSON about its arguments.

KIND: source (its state dict), script, trace, export, aotinductor, onnx. A process of its own, so that warnings,
caches and crashes of an exporter are this form's and nobody else's.
"""

from __future__ import annotations

import json
import sys
import sysconfig
import warnings
from pathlib import Path
from typing import Any

import torch

from castiron.frontend.function import result_of


def main() -> None:
    """One export."""
    kind, model, target = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module, args, kwargs, dynamic = read(model)
        example = list(kwargs.values()) if kwargs else list(args)
        if not all(isinstance(x, torch.Tensor) for x in example) or (args and kwargs):
            sys.exit("arguments other than tensors (or in lists) cannot be passed to this form by the lab")
        KINDS[kind](module, args, kwargs, dynamic, target)
    deprecated = [str(w.message) for w in caught if issubclass(w.category, DeprecationWarning | FutureWarning)]
    own = [text for text in deprecated if "torch.jit" in text]
    print()
    print(json.dumps({
        "types": ",".join(str(x.dtype).removeprefix("torch.") for x in example),
        "keywords": ",".join(kwargs),
        "code": own_files(model),
        "remark": own[0].strip().splitlines()[0] if own and kind in ("script", "trace") else "",
    }))  # fmt: skip


def own_files(model: str) -> list[str]:
    """The user's Python files that are loaded, relative to the folder of `file.py` or, of a package, the current one."""
    where = model.rpartition(":")[0]
    root = Path(where).resolve().parent if where.endswith(".py") else Path.cwd()
    named = [Path(file) for m in list(sys.modules.values()) if (file := getattr(m, "__file__", None))]
    files = [file.resolve() for file in named if file.is_absolute() and file.is_file()]  # torch makes modules of none
    installed = [Path(sysconfig.get_paths()[kind]).resolve() for kind in ("stdlib", "purelib", "platlib")]
    installed.append(Path(__file__).resolve().parents[3])  # castiron itself
    own = [f for f in files if f.is_relative_to(root) and not any(f.is_relative_to(folder) for folder in installed)]
    return sorted({str(file.relative_to(root)) for file in own if file.suffix == ".py"})


def read(model: str) -> tuple[Any, tuple[Any, ...], dict[str, Any], Any]:
    """The module, its arguments, and its dynamic shapes as torch.export takes them."""
    if ":" in model and not Path(model).is_file():
        module, example, *dynamic = result_of(model)
        keywords = example if isinstance(example, dict) else {}
        positional = () if keywords else (example,) if isinstance(example, torch.Tensor) else tuple(example)
        return module.eval(), positional, keywords, dynamic[0] if dynamic else None
    exported = torch.export.load(model)
    assert exported.example_inputs is not None
    args, kwargs = exported.example_inputs
    return exported.module(), args, kwargs, None


def source(module: Any, args: Any, kwargs: Any, dynamic: Any, target: Path) -> None:
    """The state dict; tensors that share memory are written once."""
    from safetensors.torch import save_model

    save_model(module, str(target))


def script(module: Any, args: Any, kwargs: Any, dynamic: Any, target: Path) -> None:
    """torch.jit.script."""
    torch.jit.save(torch.jit.script(module), target)


def trace(module: Any, args: Any, kwargs: Any, dynamic: Any, target: Path) -> None:
    """torch.jit.trace."""
    given = {"example_kwarg_inputs": kwargs} if kwargs else {"example_inputs": args}
    # strict would refuse outputs in dictionaries; whether the trace is right is what the lab looks at next
    made = torch.jit.trace(module, strict=False, **given)  # type: ignore[no-untyped-call]  # it has no types
    torch.jit.save(made, target)


def exported_program(module: Any, args: Any, kwargs: Any, dynamic: Any) -> Any:
    """torch.export.export; sizes that have only a name are torch's to find out."""
    auto = torch.export.Dim.AUTO
    shapes = torch.utils._pytree.tree_map(lambda d: auto if isinstance(d, str) else d, dynamic)
    return torch.export.export(module, args, kwargs, dynamic_shapes=shapes)


def export(module: Any, args: Any, kwargs: Any, dynamic: Any, target: Path) -> None:
    """torch.export.save."""
    torch.export.save(exported_program(module, args, kwargs, dynamic), target)


def aotinductor(module: Any, args: Any, kwargs: Any, dynamic: Any, target: Path) -> None:
    """torch._inductor.aoti_compile_and_package."""
    program = exported_program(module, args, kwargs, dynamic)
    torch._inductor.aoti_compile_and_package(program, package_path=str(target))


def onnx(module: Any, args: Any, kwargs: Any, dynamic: Any, target: Path) -> None:
    """torch.onnx.export(dynamo=True)."""
    program = torch.onnx.export(module, args, kwargs=kwargs, dynamo=True, dynamic_shapes=dynamic, verbose=False)
    assert program is not None
    program.save(target)


KINDS = {
    "source": source,
    "script": script,
    "trace": trace,
    "export": export,
    "aotinductor": aotinductor,
    "onnx": onnx,
}

if __name__ == "__main__":
    main()
