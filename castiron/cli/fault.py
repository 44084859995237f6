"""What is said of an error that castiron did not foresee: that it is castiron's fault, and how to report it."""

from __future__ import annotations

import platform
import sys
import tempfile
import traceback
from importlib.metadata import PackageNotFoundError, version

from castiron import __version__

_LIBRARIES = ("onnx", "onnx-ir", "onnx-shape-inference", "onnxscript", "numpy", "sympy", "ziglang", "torch")


def fault_message(error: Exception) -> str:
    """The message for the user; what a report needs is in the file that it names."""
    report = _report(error)
    try:
        with tempfile.NamedTemporaryFile("w", prefix="castiron-fault-", suffix=".txt", delete=False) as file:
            file.write(report)
        where = f"Report it with {file.name}, which holds the details, and the model if you can share it."
    except OSError:
        where = f"Report it with these details:\n{report}"
    first = (str(error).splitlines() or [""])[0]
    return f"this is a fault of castiron, not of your model: {type(error).__name__}: {first}\n{where}"


def _report(error: Exception) -> str:
    trace = "".join(traceback.format_exception(error))
    dump = getattr(error, "dump", "")
    versions = "\n".join(f"{name} {_version(name)}" for name in _LIBRARIES)
    return (
        f"castiron {__version__}, Python {platform.python_version()}, {platform.platform()}\n{versions}\n\n"
        f"command: {sys.argv}\n\n{trace}" + (f"\n{dump}\n" if dump else "")
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "is not installed"
