"""The forms that run in Python on PyTorch: source with safetensors, TorchScript, torch.export, AOTInductor."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from castiron.lab.forms.types import Exported, Failed, Form, LeftOut, Missing, Produced, Setting

PROGRAMS = Path(__file__).with_name("programs")
EXPORTS = ".exports"
"""In the lab's folder: what exporters make, and their caches."""

PATIENCE = 900
"""Seconds after which a tool that produces a form is given up."""


def needs(*packages: str) -> None:
    """Raises Missing for the first of these that is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise Missing(f"{package} is not installed: pip install {package}")


def runs_in_python(kind: str, model: str, here: Path, *options: str) -> tuple[str, ...]:
    """The command of runner.py, which it puts into the form's folder."""
    shutil.copy(PROGRAMS / "runner.py", here)
    return (sys.executable, "{here}/runner.py", kind, f"{{here}}/{model}", "{inputs}", "{outputs}", *options)


def in_python(
    kind: str, here: Path, model: str, *options: str, program: tuple[str, ...] = (), remark: str = ""
) -> Produced:
    """The form of a model file that runner.py runs."""
    command = (*runs_in_python(kind, model, here, *options), "threads={threads}")
    return Produced(
        here, command, (model,), ("runner.py", *program), (*command, "calls={calls}"), python=True, remark=remark
    )


def export(setting: Setting, kind: str, target: Path) -> Exported:
    """Puts what programs/export.py makes at `target`, with the files beside it.

    It runs in a process of its own, once for all forms of the same kind: a crash of an exporter is a row, and its caches
    stay in the lab's folder, where a form that only works beside them can be told."""
    if setting.source.framework != "pytorch":
        raise LeftOut("the source is ONNX: there is no PyTorch module to export")
    needs("torch")
    if kind not in setting.exports:
        setting.exports[kind] = _exported(setting, kind, setting.folder / EXPORTS / kind / target.name)
    made = setting.exports[kind]
    for file in made.file.parent.glob(f"{made.file.name}*"):
        shutil.copy(file, target.parent)
    return made


def _exported(setting: Setting, kind: str, file: Path) -> Exported:
    caches = file.parent / "caches"
    caches.mkdir(parents=True)
    root = str(Path(__file__).parents[3])
    environment = {
        **os.environ,
        "TMPDIR": str(caches),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "PYTHONPATH": os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH")) if p),
    }
    command = [sys.executable, str(PROGRAMS / "export.py"), kind, setting.model, str(file)]
    told = json.loads(tool(command, environment).splitlines()[-1])
    return Exported(file, told["types"], told["keywords"], told["remark"], tuple(told["code"]))


def tool(command: list[str], environment: dict[str, str] | None = None) -> str:
    """What a tool printed; Failed with its last words. Its whole process group goes where it takes too long."""
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env=environment,
        start_new_session=True,
    )  # fmt: skip
    try:
        out, err = child.communicate(timeout=PATIENCE)
    except BaseException as error:  # of what is interrupted nothing goes on
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            raise Failed(f"{Path(command[0]).name} took more than {PATIENCE} s and was ended") from None
        raise
    if child.returncode:
        raise Failed(last_words(err, child.returncode))
    return out


def last_words(text: str, status: int) -> str:
    """The line of an error output that says most: of a compiler its first error, of Python the exception."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line and "Error:" not in line]
    if errors:
        return errors[0]
    named = [line for line in lines if line.partition(":")[0].rpartition(".")[2].endswith(("Error", "Exception"))]
    return named[-1] if named else lines[-1] if lines else f"ended with status {status} and said nothing"


def source_form(setting: Setting, here: Path) -> Produced:
    """A state dict, and the user's own code."""
    if setting.source.framework == "pytorch" and not (setting.source.origin or Path("x.py")).suffix == ".py":
        raise LeftOut(f"{setting.model} holds no Python source of the module; give file.py:function")
    needs("safetensors")
    told = export(setting, "source", here / "model.safetensors")
    where, _, name = setting.model.rpartition(":")
    root = Path(where).resolve().parent if where.endswith(".py") else Path.cwd()
    for file in told.code:
        (here / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / file, here / file)
    options = (*told.options, f"code={Path(where).name}:{name}")
    return in_python("source", here, "model.safetensors", *options, program=told.code, remark=told.remark)


def torchscript_script(setting: Setting, here: Path) -> Produced:
    """torch.jit.script."""
    told = export(setting, "script", here / "model.pt")
    return in_python("torchscript", here, "model.pt", *told.options, remark=told.remark)


def torchscript_trace(setting: Setting, here: Path) -> Produced:
    """torch.jit.trace."""
    told = export(setting, "trace", here / "model.pt")
    return in_python("torchscript", here, "model.pt", *told.options, remark=told.remark)


def exported_form(setting: Setting, here: Path) -> Produced:
    """torch.export.save."""
    told = export(setting, "export", here / "model.pt2")
    return in_python("export", here, "model.pt2", *told.options, remark=told.remark)


def aotinductor_form(setting: Setting, here: Path) -> Produced:
    """torch._inductor.aoti_compile_and_package, which compiles with g++."""
    needs_compiler()
    told = export(setting, "aotinductor", here / "model.pt2")
    return in_python("aotinductor", here, "model.pt2", *told.options, remark=told.remark)


def needs_compiler() -> str:
    """The C++ compiler; Missing where there is none."""
    found = shutil.which(os.environ.get("CXX") or "g++")
    if found is None:
        raise Missing("g++ is not installed: AOTInductor and libtorch need a C++ compiler (apt install g++)")
    return found


def onnx_form(setting: Setting, here: Path) -> Produced:
    """torch.onnx.export(dynamo=True), or the source itself where it is ONNX; in onnxruntime."""
    needs("onnxruntime")
    target = here / "model.onnx"
    if setting.source.framework == "pytorch":
        told = export(setting, "onnx", target)
        remark = told.remark
    else:
        import onnx

        onnx.save(onnx.load(setting.model), target)  # with the weights of files beside it
        remark = ""
    made = in_python("onnx", here, "model.onnx", remark=remark)
    beside = tuple(path.name for path in here.glob("model.onnx?*"))
    return replace(made, model=(*made.model, *beside))


FORMS = (
    Form("source", "source + safetensors", "Python + torch, the user's module code", source_form),
    Form("torchscript", "TorchScript (script)", "Python + torch", torchscript_script),
    Form("torchscript-trace", "TorchScript (trace)", "Python + torch", torchscript_trace),
    Form("export", "torch.export .pt2", "Python + torch", exported_form),
    Form("aotinductor", "AOTInductor .pt2", "Python + torch", aotinductor_form),
)
ONNX = (Form("onnx", "ONNX", "Python + onnxruntime", onnx_form),)
