"""What a reader must know of the machine and the versions behind figures."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

from castiron import __version__

PACKAGES = ("torch", "onnxruntime", "onnx", "numpy", "safetensors", "ziglang")


def versions() -> dict[str, str]:
    """Of castiron, Python, what is installed of the packages that forms use, and the C++ compiler."""
    found = {"castiron": __version__, "Python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    try:
        compiler = os.environ.get("CXX") or "g++"
        told = subprocess.run([compiler, "-dumpfullversion"], capture_output=True, text=True)
        found["g++"] = told.stdout.strip() or "unknown"
    except OSError:
        pass
    return found


def machine() -> dict[str, str]:
    """Processor, how many of them this process may use, memory, system."""
    found = {"processor": _line("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()}
    found["processors"] = str(len(os.sched_getaffinity(0)))
    kib = re.search(r"\d+", _line("/proc/meminfo", "MemTotal"))
    if kib:
        found["memory"] = f"{int(kib[0]) / (1 << 20):.0f} GiB"
    found["system"] = f"{platform.system()} {platform.release()}"
    return found


def _line(file: str, key: str) -> str:
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")
