"""Calls a castiron shared library from Python with NumPy arrays; needs neither torch nor the compiler."""

from __future__ import annotations

import _ctypes
import ctypes
import json
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from castiron.errors import CastironError, InputError, WeightsError

MAX_RANK = 16

# ONNX type numbers (TensorProto.DataType) of the arrays that cross the C interface
_NUMPY: dict[int, np.dtype[Any]] = {
    1: np.dtype("float32"), 2: np.dtype("uint8"), 3: np.dtype("int8"), 4: np.dtype("uint16"), 5: np.dtype("int16"),
    6: np.dtype("int32"), 7: np.dtype("int64"), 9: np.dtype("bool"), 10: np.dtype("float16"), 11: np.dtype("float64"),
    12: np.dtype("uint32"), 13: np.dtype("uint64"),
}  # fmt: skip
_NUMBERS = {dtype: number for number, dtype in _NUMPY.items()}
_ML_DTYPES = {
    16: "bfloat16", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4",
    22: "int4", 23: "float4_e2m1fn", 25: "uint2", 26: "int2",
}  # fmt: skip
"""Types that the package of this name adds to NumPy."""


class _Array(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("type", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("dims", ctypes.c_int64 * MAX_RANK),
    )


class _Error(ctypes.Structure):
    _fields_ = (("text", ctypes.c_char * 512),)


class Model:
    """A loaded library. Call it with arrays by position or by name; it returns a dict of outputs by name.

    Inputs that are C-contiguous and of the right type are read in place, outputs are written straight into the arrays
    returned. One Model holds one session: threads that call it take turns; load one for each to have them run at once.
    `close` frees it before Python would.
    inputs, outputs: names; about: what `castiron inspect` shows of it.
    """

    def __init__(
        self, path: str | os.PathLike[str], weights: str | os.PathLike[str] | None = None, threads: int = 0
    ) -> None:
        self._handle, self._session = ctypes.c_void_p(), ctypes.c_void_p()
        self._busy = threading.Lock()
        self._library: ctypes.CDLL | None = _open(Path(path))
        self.name = self._name(Path(path))
        source = os.fsencode(weights) if weights is not None else None
        self._call("load", source, ctypes.byref(self._handle))
        self.about = self._about()
        self.inputs, self.outputs = self._ports("input"), self._ports("output")
        self._types = {port["name"]: str(port["type"]) for port in self.about.get("inputs", ())}
        self._call("session_new", self._handle, ctypes.c_int(threads), ctypes.byref(self._session))

    def __call__(self, /, *arrays: Any, **named: Any) -> dict[str, np.ndarray]:
        """Runs the model. Shapes and types are checked; a misfit is an InputError that names the input."""
        given = self._bind(arrays, named)
        with self._busy:
            return self._run(given)

    def _run(self, given: list[np.ndarray]) -> dict[str, np.ndarray]:
        inputs = (_Array * max(1, len(given)))(*(_described(a) for a in given))
        outputs = (_Array * max(1, len(self.outputs)))()
        self._call("session_shape", self._session, inputs, outputs)
        slots = outputs[: len(self.outputs)]
        made = [None if min(s.dims[: s.rank], default=0) < 0 else _empty(s) for s in slots]
        for slot, array in zip(slots, made, strict=True):
            slot.data = None if array is None else array.ctypes.data  # None: only the run tells the shape
        self._call("session_run", self._session, inputs, outputs)
        found = (_copied(s) if array is None else array for s, array in zip(slots, made, strict=True))
        return dict(zip(self.outputs, found, strict=True))

    def _bind(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> list[np.ndarray]:
        if len(arrays) > len(self.inputs):
            raise InputError(
                f"{self.name} takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), {len(arrays)} were given"
            )
        given = dict(zip(self.inputs, arrays))
        for name in named:
            if name not in self.inputs or name in given:
                fault = "given twice" if name in given else "unknown"
                raise InputError(f"input {name!r} is {fault}; the inputs are {', '.join(self.inputs)}")
        given.update(named)
        missing = [name for name in self.inputs if name not in given]
        if missing:
            raise InputError(f"input {missing[0]!r} is missing; the inputs are {', '.join(self.inputs)}")
        return [self._fitting(name, given[name]) for name in self.inputs]

    def _fitting(self, name: str, given: Any) -> np.ndarray:
        array: np.ndarray = np.require(given, requirements=("C", "A"))
        _number(array)
        type = self._types.get(name, array.dtype.name)
        if array.dtype.name != type:
            convert = f"np.{type}" if hasattr(np, type) else f"ml_dtypes.{type}"
            raise InputError(
                f"input {name!r}: expected {type}, got {array.dtype.name}{list(array.shape)}; convert it with "
                f".astype({convert})"
            )
        return array

    def _about(self) -> dict[str, Any]:
        """What the library says of itself; nothing of libraries from before they did."""
        get = getattr(self._library, "castiron_about", None)
        if get is None:
            return {}
        get.restype = ctypes.c_char_p
        return dict(json.loads(get()))

    def _ports(self, kind: str) -> tuple[str, ...]:
        get = getattr(self._library, f"{self.name}_{kind}_name")
        get.restype = ctypes.c_char_p
        names: list[str] = []
        while (name := get(len(names))) is not None:
            names.append(name.decode())
        return tuple(names)

    def _name(self, path: Path) -> str:
        get = getattr(self._library, "castiron_name", None)
        if get is None:
            raise InputError(f"{path} is a shared library, but not one that castiron built")
        get.restype = ctypes.c_char_p
        return str(get().decode())

    def _call(self, function: str, *arguments: Any) -> None:
        if self._library is None:
            raise InputError(f"{self.name} has been closed")
        error = _Error()
        status = getattr(self._library, f"{self.name}_{function}")(*arguments, ctypes.byref(error))
        if status:
            message = error.text.decode(errors="replace")
            raise {2: InputError, 3: WeightsError, 4: MemoryError}.get(status, CastironError)(message)

    def close(self) -> None:
        """Frees session, weights and library. A later `load` of the same path then reads the file anew."""
        library, self._library = self._library, None
        if library is None:
            return
        if self._session:
            getattr(library, f"{self.name}_session_free")(self._session)
        if self._handle:
            getattr(library, f"{self.name}_weights_free")(self._handle)
        _ctypes.dlclose(library._handle)

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_library", None) is not None:
            self.close()


def _dtype(number: int) -> np.dtype[Any]:
    if number in _ML_DTYPES:
        import ml_dtypes  # takes long to import, and few models need it

        added: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[number]))
        return added
    return _NUMPY[number]


def _number(array: np.ndarray) -> int:
    number = _NUMBERS.get(array.dtype) or next((n for n, name in _ML_DTYPES.items() if array.dtype.name == name), None)
    if number is None:
        raise InputError(f"arrays of type {array.dtype} cannot be passed; convert to a numeric type first")
    return number


def _empty(slot: _Array) -> np.ndarray:
    return np.empty(tuple(slot.dims[: slot.rank]), _dtype(slot.type))


def _copied(slot: _Array) -> np.ndarray:
    """What lies in memory of the session, until its next run."""
    array = _empty(slot)
    ctypes.memmove(array.ctypes.data, slot.data, array.nbytes)
    return array


def _described(array: np.ndarray) -> _Array:
    if array.ndim > MAX_RANK:
        raise InputError(f"an array of {array.ndim} dimensions cannot be passed; at most {MAX_RANK}")
    return _Array(array.ctypes.data, _number(array), array.ndim, (ctypes.c_int64 * MAX_RANK)(*array.shape))


def _open(path: Path) -> ctypes.CDLL:
    if not path.exists():
        raise InputError(f"{path} does not exist")
    try:
        return ctypes.CDLL(str(path.resolve()))
    except OSError as error:
        hint = (
            "; build it with --as shared"
            if re.search(r"invalid ELF|cannot dynamically load|ELF header", str(error))
            else ""
        )
        raise InputError(f"{path} cannot be loaded: {error}{hint}") from None


def load(path: str | os.PathLike[str], weights: str | os.PathLike[str] | None = None, threads: int = 0) -> Model:
    """A shared library made by `castiron build --as shared`, ready to call.

    weights: a packed, .safetensors or .bpk file to use instead of the default. threads: 0 for all this process may use.
    Threads that call one Model take turns. Raises InputError, WeightsError or MemoryError.
    """
    return Model(path, weights, threads)
