"""Generated C and the runtime under sanitizers of gcc and clang: nothing to report at any size, and the same bits."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.sanitizers.compile import (
    CLANG_ADDRESS_V2,
    CLANG_ADDRESS_V4,
    CLANG_VALUES,
    GCC_ADDRESS,
    GCC_THREADS,
    PLAIN,
    Compiler,
    program,
)
from tests.sanitizers.models import MODELS

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="written for the sanitizers of x86-64 Linux"
)

QUICK = {"convolutions", "tagger_lstm", "transformer"}
OPTIONS = {"ASAN_OPTIONS": "detect_stack_use_after_return=1", "UBSAN_OPTIONS": "print_stacktrace=1"}


def several(slow: set[str], names: Iterable[str] = MODELS) -> list[Any]:
    """Models by name; those of `slow` are left to the slow tests."""
    return [pytest.param(name, marks=[pytest.mark.slow] if name in slow else []) for name in names]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sanitizers")


@cache
def source(name: str, folder: Path) -> Path:
    """The model's C, built once."""
    (folder / name).mkdir()
    return MODELS[name].source(name, folder / name)


@cache
def built(name: str, compiler: Compiler, folder: Path) -> Path:
    """Its program, compiled once a compiler."""
    if compiler.missing:
        pytest.skip(f"{compiler.command[0]} is not installed")
    kind = compiler.sanitizer.replace(",", "-") or "plain"
    return program(source(name, folder), compiler, folder / name / f"{kind}-{compiler.march}")


def run(path: Path, threads: int, runs: tuple[str, ...], **environment: str) -> subprocess.CompletedProcess[str]:
    """What the program says; a sanitizer's finding makes it fail."""
    command = [str(path), str(threads), "7", *runs]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **OPTIONS, **environment})
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this sanitizer does not run with this kernel's address layout")
    return done


def ordinary(compiler: Compiler) -> Compiler:
    """The build with the same bits: those of x86-64-v2, which multiplies and then adds, are its own."""
    return replace(PLAIN, march=compiler.march) if compiler.march.endswith("v2") else PLAIN


def check(name: str, compiler: Compiler, threads: int, runs: tuple[str, ...], folder: Path) -> None:
    """Nothing reported, and the lines (statuses, hashes, messages) of the ordinary build."""
    done = run(built(name, compiler, folder), threads, runs)
    assert done.returncode == 0 and not done.stderr, done.stderr
    plain = run(built(name, ordinary(compiler), folder), 1, runs)
    assert plain.returncode == 0, plain.stderr
    assert done.stdout == plain.stdout


@pytest.mark.parametrize("name", several(set(MODELS) - QUICK))
def test_addresses_and_behaviour(name: str, folder: Path) -> None:
    check(name, GCC_ADDRESS, 2, MODELS[name].runs, folder)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", [CLANG_ADDRESS_V2, CLANG_ADDRESS_V4], ids=lambda c: c.march)
@pytest.mark.parametrize("name", MODELS)
def test_other_instruction_sets(name: str, compiler: Compiler, folder: Path) -> None:
    if compiler.march.endswith("v4") and " avx512vl " not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor has no AVX-512")
    check(name, compiler, 1, MODELS[name].runs, folder)


@pytest.mark.parametrize("name", several(set(MODELS) - {"tagger_lstm"}))
def test_nothing_is_read_before_it_is_written(name: str, folder: Path) -> None:
    check(name, CLANG_VALUES, 1, MODELS[name].runs, folder)


@pytest.mark.parametrize(
    "name", several(set(MODELS) - {"transformer"}, [name for name in MODELS if MODELS[name].parallel])
)
def test_threads(name: str, folder: Path) -> None:
    check(name, GCC_THREADS, 3, MODELS[name].parallel, folder)


def test_the_watch_sees_the_last_element_of_an_intermediate_value(folder: Path) -> None:
    path = built("transformer", GCC_ADDRESS, folder)
    done = run(path, 1, ("batch=2,length=5",), WATCH_SHORTER="4")
    assert done.returncode != 0 and "use-after-poison" in done.stderr
