"""Runs compiled cases in a process of their own, so that one that crashes or hangs is an outcome, not the end."""

from __future__ import annotations

import ctypes
import multiprocessing
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from castiron.artifact.load import Model
from castiron.errors import CastironError

from .build import Built
from .cases import Case
from .outcome import Outcome, Status

SECONDS = 60
RANDOM = {"Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"}


class _OneOfMany(Model):
    """A model of a library that holds several."""

    def __init__(self, library: ctypes.CDLL, name: str, weights: Path | None) -> None:
        self._handle, self._session = ctypes.c_void_p(), ctypes.c_void_p()
        self._busy = threading.Lock()
        self._library, self.name = library, name
        source = str(weights).encode() if weights else None
        self._call("load", source, ctypes.byref(self._handle))
        self.inputs, self.outputs = self._ports("input"), self._ports("output")
        self.about, self._types = {}, {}
        self._call("session_new", self._handle, ctypes.c_int(1), ctypes.byref(self._session))

    def __del__(self) -> None:
        """The library stays: others use it."""


def run_all(models: Sequence[Built], library: Path) -> list[Outcome]:
    """The outcome of each model of `library`."""
    outcomes: list[Outcome] = []
    context = multiprocessing.get_context("fork")
    while len(outcomes) < len(models):
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=_child, args=(models[len(outcomes) :], library, sender))
        child.start()
        sender.close()
        try:
            while len(outcomes) < len(models) and receiver.poll(SECONDS):
                outcomes.append(receiver.recv())
        except EOFError:
            pass
        child.kill()
        child.join()
        if len(outcomes) < len(models):
            number = child.exitcode or 0
            died = f"ended by signal {-number}" if number not in (0, -9) else "no answer in time"
            outcomes.append(Outcome(Status.FAILED, f"the process: {died}"))
    return outcomes


def _child(models: Sequence[Built], path: Path, sender: Connection) -> None:
    library = ctypes.CDLL(str(path))
    for model in models:
        sender.send(_outcome(model, library, path.parent))


def _outcome(model: Built, library: ctypes.CDLL, folder: Path) -> Outcome:
    case, name = model.case, model.parts.name
    try:
        native = _OneOfMany(library, name, folder / f"{name}.safetensors" if model.parts.packed_bytes else None)
        for inputs, outputs in case.data:
            got = native(*(inputs[i] for i in model.fed))
            for wanted, out in zip(outputs, got.values(), strict=True):
                _compare(out, np.asarray(wanted), case)
    except (CastironError, MemoryError, AssertionError) as error:
        return Outcome(Status.FAILED, f"{type(error).__name__}: {error}".strip())
    status = Status.BOUND if model.bound else Status.PASSED
    return Outcome(status, compared=case.operator not in RANDOM)


def _compare(got: np.ndarray, wanted: np.ndarray, case: Case) -> None:
    """As onnx.backend.test.runner: types and shapes equal, values within the case's tolerance."""
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        raise AssertionError(f"got {got.dtype}{list(got.shape)}, expected {wanted.dtype}{list(wanted.shape)}")
    if case.operator in RANDOM:
        return
    a, b = _wide(got), _wide(wanted)
    np.testing.assert_allclose(a, b, rtol=case.rtol, atol=case.atol)


def _wide(array: np.ndarray) -> Any:
    """Small floats as float64: NumPy compares those of ml_dtypes by no tolerance."""
    small = array.dtype.isbuiltin != 1 or array.dtype == np.float16
    return array.astype(np.float64) if small else array
