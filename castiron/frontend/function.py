"""`file.py:function` and `package.module:function` -> what the function returns."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from castiron.errors import InputError

_INSTALLED = tuple(sysconfig.get_paths()[kind] for kind in ("stdlib", "purelib", "platlib"))
TORCH_IS_MISSING = "PyTorch models need torch in the environment that castiron runs in: pip install torch"


def result_of(text: str) -> tuple[Any, ...]:
    """(module, example inputs) or (module, example inputs, dynamic shapes). InputError where it cannot be had."""
    where, _, name = text.rpartition(":")
    module = _module_of_file(Path(where)) if where.endswith(".py") else _module_of_name(where, text)
    function = getattr(module, name, None)
    if not callable(function):
        offered = ", ".join(n for n, v in vars(module).items() if n[0] != "_" and _is_own_function(v, module))
        raise InputError(f"{text}: {where} has no function {name!r}" + (f"; it has {offered}" if offered else ""))
    made = _of_the_user(function, f"{text} fails")
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise InputError(
            f"{text} must return (module, example_inputs) or (module, example_inputs, dynamic_shapes), not {_kind(made)}; "
            "for example `return Net(), (torch.randn(1, 3),)`"
        )
    return made


def _kind(made: Any) -> str:
    """What was returned instead: `Net`, `a tuple of 4`, `the class Net`."""
    if isinstance(made, tuple):
        return f"a tuple of {len(made)}"
    if made is None:
        return "None"
    return f"the class {made.__name__}" if isinstance(made, type) else type(made).__name__


def user_line(error: BaseException) -> str:
    """` (net.py:12)`: the last line of the user's own code that an error passed through, or ""."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if Path(f.filename).is_file() and not f.filename.startswith((*_INSTALLED, _castiron()))]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""


def _castiron() -> str:
    return str(Path(__file__).parent.parent)


def _of_the_user(work: Callable[[], Any], what: str) -> Any:
    """Runs the user's code; whatever it raises, an exit too, is an InputError that says where.

    What it prints goes to standard error: standard output is castiron's."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return work()
    except ImportError as error:
        missing = f". {TORCH_IS_MISSING}" if "torch" in str(error.name or error) else ""
        raise InputError(f"{what}: {type(error).__name__}: {error}{user_line(error)}{missing}") from error
    except (Exception, SystemExit) as error:
        raise InputError(f"{what}: {type(error).__name__}: {error}{user_line(error)}") from error


def _module_of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location(f"castiron_user_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look modules up there
    loader = spec.loader
    with _search_path(path.resolve().parent):
        _of_the_user(lambda: loader.exec_module(module), f"{path} fails when imported")
    return module


def _module_of_name(name: str, text: str) -> ModuleType:
    with _search_path(Path.cwd()):
        module: ModuleType = _of_the_user(lambda: importlib.import_module(name), f"{text}: cannot import {name!r}")
    return module


@contextlib.contextmanager
def _search_path(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _is_own_function(value: Any, module: ModuleType) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__
