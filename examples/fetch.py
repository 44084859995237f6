"""Fetches a real model out of the PyPI package that carries it, once, and checks it against its recorded hash.

    python -m examples.fetch magika        prints the path of the file

The package is downloaded, not installed. Files are kept in the cache folder (CASTIRON_CACHE, else ~/.cache/castiron).
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

from castiron.options import environment

LIST = Path(__file__).with_name("models.toml")


class FetchError(Exception):
    """The package cannot be had, or the file in it is not the one recorded."""


def names() -> list[str]:
    """The models that can be fetched."""
    return list(tomllib.loads(LIST.read_text()))


def fetch(name: str) -> Path:
    """The file of a model of models.toml; FetchError says why it cannot be had."""
    entry = tomllib.loads(LIST.read_text())[name]
    target = environment().cache / "models" / entry["package"].replace("==", "-") / entry["path"]
    if not target.exists():
        data = _member(entry["package"], entry["path"])
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
            file.write(data)
        Path(file.name).replace(target)
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    if digest != entry["sha256"]:
        target.unlink()
        raise FetchError(f"{entry['package']}: {entry['path']} has sha256 {digest}, recorded is {entry['sha256']}")
    return target


def _member(package: str, path: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--disable-pip-version-check",
            "--dest",
            folder,
            package,
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        archives = list(Path(folder).glob("*.whl"))
        if done.returncode or not archives:
            raise FetchError(f"{package} could not be downloaded as a wheel: {done.stderr.strip()[-300:]}")
        with zipfile.ZipFile(archives[0]) as archive:
            return archive.read(path)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or names():
        print(fetch(wanted))
