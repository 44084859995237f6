"""The forms that run in C++: programs compiled against the libtorch that PyTorch's wheel carries."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from castiron.lab.forms.python_forms import PROGRAMS, export, needs, needs_compiler, tool
from castiron.lab.forms.types import Form, Missing, Produced, Setting
from castiron.options import environment

LIBRARIES = ("torch", "torch_cpu", "c10")


def in_cpp(setting: Setting, here: Path, kind: str, program: str, model: str) -> Produced:
    """A file of PyTorch's beside the program that runs it, and libtorch in `lib`, where the program looks for it."""
    compiler = needs_compiler()
    needs("torch")
    told = export(setting, kind, here / model)
    shutil.copy(compiled(setting, program, compiler), here / program)
    with_libraries(here / "lib")
    command = (f"{{here}}/{program}", f"{{here}}/{model}", "{outputs}", "{threads}")
    return Produced(
        here, (*command, "0", "{files}"), (model,), (program,), (*command, "{calls}", "{files}"), "lib",
        remark=told.remark,
    )  # fmt: skip


def compiled(setting: Setting, program: str, compiler: str) -> Path:
    """The program, from castiron's cache where it has been compiled with this PyTorch before."""
    from torch import __version__ as version

    source = PROGRAMS / f"{program}.cpp"
    key = hashlib.sha256(
        source.read_bytes() + (PROGRAMS / "arrays.hpp").read_bytes() + f"{version} {torch_folder()} {compiler}".encode()
    )
    target = environment().cache / "forms" / f"{program}-{key.hexdigest()[:16]}"
    if not target.exists():
        setting.say("compiling the C++ program (once for each version of PyTorch)")
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{target.name}.{os.getpid()}")
        tool([*command(source, compiler), "-o", str(temporary)])
        os.replace(temporary, target)
    return target


def command(source: Path, compiler: str) -> list[str]:
    """Of the compiler. The program looks for libtorch in `lib` beside itself, wherever that is."""
    include, lib = torch_folder() / "include", torch_folder() / "lib"
    if not (include / "torch" / "script.h").exists():
        raise Missing(f"this build of PyTorch has no headers of libtorch ({include}); install the wheel from PyPI")
    folders = [f"-I{include}", f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}", f"-L{lib}"]
    linked = ["-Wl,--no-as-needed", *(f"-l{name}" for name in LIBRARIES), "-Wl,-rpath,$ORIGIN/lib"]
    return [compiler, "-std=c++20", "-O2", "-s", str(source), *folders, *linked]


def torch_folder() -> Path:
    """Where PyTorch is installed."""
    import torch

    return Path(torch.__file__).parent


def with_libraries(folder: Path) -> None:
    """The shared libraries of the wheel, as links: a copy of half a gigabyte tells no more."""
    folder.mkdir()
    for library in (torch_folder() / "lib").glob("*.so*"):
        (folder / library.name).symlink_to(library)


def torchscript_cpp(setting: Setting, here: Path) -> Produced:
    """torch::jit::load."""
    return in_cpp(setting, here, "trace", "torchscript", "model.pt")


def aotinductor_cpp(setting: Setting, here: Path) -> Produced:
    """torch::inductor::AOTIModelPackageLoader."""
    return in_cpp(setting, here, "aotinductor", "aotinductor", "model.pt2")


FORMS = (
    Form("torchscript-cpp", "TorchScript in C++", "a C++20 program with libtorch", torchscript_cpp),
    Form("aotinductor-cpp", "AOTInductor in C++", "a C++20 program with libtorch", aotinductor_cpp),
)
