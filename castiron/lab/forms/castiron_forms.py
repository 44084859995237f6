"""castiron's own forms: weights embedded, beside the executable, raw at run time; and the library, from Python."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any

import castiron
from castiron.artifact.files import write_safetensors
from castiron.lab.forms.python_forms import in_python
from castiron.lab.forms.types import Form, LeftOut, Missing, Produced, Setting

LOADER = ("castiron/__init__.py", "castiron/errors.py", "castiron/artifact/__init__.py", "castiron/artifact/load.py")
"""What `castiron.load` consists of; it needs NumPy only."""


def built(setting: Setting, here: Path, **options: Any) -> None:
    """An artifact in `here`. It is compared with its source here, not by the build: a mismatch is a row."""
    setting.build(setting.source, here / "model", verify=False, **options)


def executable(
    setting: Setting, here: Path, *more: str, model: tuple[str, ...] = ("model",), program: tuple[str, ...] = ()
) -> Produced:
    """The command of an executable; `more` options. A model without inputs takes no file of them."""
    given = ("{inputs}",) if setting.vectors.inputs else ()
    run = ("{here}/model", *given, "-o", "{outputs}", "--threads", "{threads}", *more)
    return Produced(here, run, model, program, (*run, "--repeat", "{calls}"))


def embedded(setting: Setting, here: Path) -> Produced:
    """One file."""
    built(setting, here)
    return executable(setting, here)


def beside(setting: Setting, here: Path) -> Produced:
    """An executable and its packed weights."""
    built(setting, here, weights="file")
    beside_it = "model.weights"
    if not (here / beside_it).exists():
        raise LeftOut("the model has no weights")
    return executable(setting, here, model=(beside_it,), program=("model",))


def safetensors(setting: Setting, here: Path) -> Produced:
    """An executable that packs a checkpoint at each start."""
    return raw(setting, here, "weights.safetensors")


def raw(setting: Setting, here: Path, name: str) -> Produced:
    """An executable without weights of its own, and a raw file of them."""
    checkpoint(setting, here / "weights.safetensors")
    built(setting, here, weights="file")
    (here / "model.weights").unlink(missing_ok=True)
    return executable(setting, here, "--weights", f"{{here}}/{name}", model=(name,), program=("model",))


def checkpoint(setting: Setting, target: Path) -> None:
    """The source's parameters under their own names."""
    held = setting.source.model.graph.initializers
    tensors = {name: held[name].const_value for name in held if name in setting.source.parameters}
    known = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    if not known:
        raise LeftOut("the model has no weights")
    write_safetensors(target, known)


def burnpack(setting: Setting, here: Path) -> Produced:
    """The same from a file of burn's format."""
    try:
        convert = importlib.import_module("castiron.weights").convert
    except (ImportError, AttributeError):
        raise Missing("this castiron does not write burnpack files") from None
    made = raw(setting, here, "weights.bpk")
    convert(here / "weights.safetensors", here / "weights.bpk")
    return made


def library(setting: Setting, here: Path) -> Produced:
    """A shared library, called through `castiron.load`."""
    setting.build(setting.source, here / "libmodel.so", form="shared", verify=False)
    with_loader(here)
    types = ",".join(array.dtype.name for array in setting.vectors.inputs.values())
    return in_python("castiron", here, "libmodel.so", f"types={types}", program=LOADER)


def with_loader(here: Path) -> None:
    """The files of castiron that `castiron.load` consists of."""
    for file in LOADER:
        (here / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(castiron.__file__).parent.parent / file, here / file)


FORMS = (
    Form("castiron", "castiron, weights embedded", "itself", embedded),
    Form("castiron-file", "castiron, weights beside it", "itself", beside),
    Form("castiron-safetensors", "castiron, safetensors at run time", "itself", safetensors),
    Form("castiron-burnpack", "castiron, burnpack at run time", "itself", burnpack),
    Form("castiron-library", "castiron library from Python", "Python + NumPy", library),
)
