"""castiron compiles PyTorch and ONNX models into one native file, and proves that it computes the same.

    castiron.build("model.onnx", "model")        an executable; also from an nn.Module with example inputs
    castiron.load("libmodel.so")(x)               a library of `build(..., form="shared")`, on NumPy arrays

Names are imported when they are used: `load` needs NumPy only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from castiron.errors import (
    CastironError,
    InputError,
    InternalError,
    MismatchError,
    ModelError,
    ToolchainError,
    Unsupported,
    WeightsError,
)

if TYPE_CHECKING:
    from castiron.artifact.load import load
    from castiron.lab.capture import capture
    from castiron.pipeline import build

__version__ = "0.1.0"

__all__ = [
    "CastironError", "InputError", "InternalError", "MismatchError", "ModelError", "ToolchainError", "Unsupported",
    "WeightsError", "__version__", "build", "capture", "load",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "build":
        from castiron.pipeline import build

        return build
    if name == "capture":
        from castiron.lab.capture import capture

        return capture
    if name == "load":
        from castiron.artifact.load import load

        return load
    raise AttributeError(f"module 'castiron' has no attribute {name!r}")
