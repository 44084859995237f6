#!/usr/bin/env python3
"""The workshop: one command for each habit. Needs Python 3.11+ and pip; makes its own environment in .venv.

    python3 dev.py demo        set up, build two models into executables, run them from an empty folder, show that they match
    python3 dev.py test        set up, check (format, lint, types, house rules) and run all tests; what CI runs
    python3 dev.py check       format, lint and types only
    python3 dev.py test-all    the slow tests too (every real model, every boundary of every file)
    python3 dev.py bench       size, start-up and memory of the MLP, build times, speed of the kernels
    python3 dev.py docs        regenerate the generated pages of docs/
    python3 dev.py setup       only the environment (--torch: with PyTorch)

Further arguments go to the command (`python3 dev.py test -k weights`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
# The exporters and the processors' builds of PyTorch differ by version: tests run on this one.
TORCH = ("torch==2.13.0", "transformers>=4.50,<6")


def say(text: str) -> None:
    """A line of progress, flushed at once."""
    print(f"\033[1m▸ {text}\033[0m" if sys.stdout.isatty() else f"▸ {text}", flush=True)


def run(*command: str | Path) -> int:
    """The exit status of a command run in the repository."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{ENVIRONMENT / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run([str(c) for c in command], cwd=ROOT, env=environment).returncode


def must(*command: str | Path) -> None:
    """Runs a command that the rest depends on."""
    status = run(*command)
    if status:
        sys.exit(status)


def setup(extras: str, *packages: str) -> None:
    """The environment with castiron in it (editable); what is there already is left alone."""
    if not PYTHON.exists():
        say("making a virtual environment in .venv")
        venv.create(ENVIRONMENT, with_pip=True)
    stamp = ENVIRONMENT / f"ready-{extras}-{len(packages)}"
    project = ROOT / "pyproject.toml"
    if stamp.exists() and stamp.stat().st_mtime > project.stat().st_mtime:
        return
    started = time.monotonic()
    say(f"installing castiron[{extras}] {' '.join(packages)} and what it needs (from PyPI, once)")
    must(PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-e", f".[{extras}]", *packages)
    say(f"installed in {time.monotonic() - started:.0f} s")
    stamp.touch()


def c_files() -> list[str]:
    """Every tracked file of C and C++."""
    patterns = ("*.c", "*.h", "*.cpp", "*.hpp")
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


def check() -> int:
    """Format (of Python and C), lint and types; all are run, the first failure is the status."""
    say("format, lint, types")
    results = [
        run(PYTHON, "-m", "ruff", "format", "--check", "--quiet", "."),
        run(ENVIRONMENT / "bin" / "clang-format", "--dry-run", "-Werror", *c_files()),
        run(PYTHON, "-m", "ruff", "check", "--quiet", "."),
        run(PYTHON, "-m", "mypy"),
    ]
    return next((status for status in results if status), 0)


def test(arguments: list[str], slow: bool) -> int:
    """All tests, on all processors."""
    say("tests")
    marks = [] if slow else ["-m", "not slow"]
    return run(PYTHON, "-m", "pytest", "-n", "auto", "--dist", "worksteal", *marks, *arguments)


def main() -> int:
    """Runs the command named on the command line."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) > 1 else 2
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "demo":
        setup("lab")
        return run(PYTHON, "-m", "examples.demo", *arguments)
    if command == "setup":
        setup("lab,dev", *(TORCH if "--torch" in arguments else ()))
        return 0
    if command in ("check", "test", "test-all", "bench", "docs"):
        setup("lab,dev", *(TORCH if command.startswith("test") or command == "bench" else ()))
    if command == "check":
        return check()
    if command in ("test", "test-all"):
        status = check() if not arguments else 0
        return test(arguments, slow=command == "test-all") or status
    if command == "bench":
        return run(PYTHON, "-m", "bench", *arguments)
    if command == "docs":
        return run(PYTHON, "docs/generate.py", *arguments)
    print(f"dev.py: there is no command {command!r}; see python3 dev.py --help", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
