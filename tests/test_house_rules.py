"""The rules of the house, as commands: import direction, sizes of files and functions, paths and names in the docs."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "castiron"

# The straight line: a folder may import itself, what is before it, and what serves all (errors, options).
LINE = ["program", "ops", "graph", "frontend", "emit", "toolchain", "artifact", "weights", "lab"]
EVERYONE = {"errors", "options"}
# lab and what joins the stages may see everything but the command line
JOINING = {"pipeline", "assemble", "dump", "onnx_backend", "cli", "__init__", "__main__"}

CLANG_FORMAT = shutil.which(
    "clang-format", path=str(Path(sys.executable).parent)
)  # the version that pyproject.toml pins

FILE_LINES, FUNCTION_LINES = 450, 60
# file or file:function -> why it may be longer
LONGER: dict[str, str] = {
    "castiron/program/expr.py": "the whole scalar language, one idea",
    "tests/test_program.py": "one small network after the other through all passes, on shared helpers",
    "tests/test_runtime_core.py": "every boundary of every weights file, on one driver",
    "tests/test_runtime_exe.py": "every reader of the executable, on one driver",
}


def modules() -> list[Path]:
    """Every Python file of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Parts of castiron that a file imports, at top level or within functions: `program`, `errors`, …"""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
        found |= {n.split(".")[1] for n in names if n.startswith("castiron.")}
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_backwards(path: Path) -> None:
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    used = imported(path)
    if part in JOINING:
        assert "cli" not in used or part in {"cli", "__init__", "__main__"}
        return
    if part in EVERYONE:
        assert used <= EVERYONE
        return
    allowed = set(LINE[: LINE.index(part) + 1]) | EVERYONE
    assert used <= allowed, f"{path.name} imports {used - allowed}, which comes after {part} on the line"


def test_nothing_imports_the_ends() -> None:
    for path in modules():
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if part not in {"cli", "__init__", "__main__"}:
            assert not imported(path) & {"cli", "pipeline"}, path


def sources() -> list[Path]:
    """Every tracked file of code that people write."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.c", "*.h"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / line for line in listed.stdout.split()]


def test_files_are_short() -> None:
    long = {str(p.relative_to(ROOT)): n for p in sources() if (n := len(p.read_text().splitlines())) > FILE_LINES}
    assert not set(long) - set(LONGER), "split these, or give the reason in LONGER"


def test_functions_are_short() -> None:
    long = []
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.FunctionDef)
                and node.end_lineno
                and node.end_lineno - node.lineno >= FUNCTION_LINES
            ):
                long.append(f"{path.relative_to(ROOT)}:{node.name}")
    assert not set(long) - set(LONGER)


def test_exceptions_are_needed() -> None:
    for name in LONGER:
        path = ROOT / name.partition(":")[0]
        assert path.exists(), f"{name} is gone: take it off the list"


def test_paths_in_docs_exist() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for path in re.findall(r"`((?:castiron|tests|docs|examples|bench)/[\w./-]*)`", page.read_text()):
            assert (ROOT / path).exists(), f"{page.name} names {path}, which does not exist"


@pytest.mark.skipif(CLANG_FORMAT is None, reason="clang-format is not installed")
def test_the_c_is_formatted() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.c", "*.h", "*.cpp", "*.hpp"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    done = subprocess.run(
        [str(CLANG_FORMAT), "--dry-run", "-Werror", *listed.stdout.split()], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, f"run clang-format -i on these:\n{done.stderr}"


def test_exceptions_from_types_have_reasons() -> None:
    bare = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in modules()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"#\s*type:\s*ignore(?!\[[\w-]+(, [\w-]+)*\]  # \w)", line)
    ]
    assert not bare, "say behind each `type: ignore[code]` why"


def test_no_path_of_a_machine() -> None:
    for path in sources():
        if path != Path(__file__):
            assert not re.search(r"/(?:work|root)/\w", path.read_text()), (
                f"{path} names a path of the machine it was written on"
            )
