"""Files of arrays: .npy, .npz, and JSON as executables print it. A file is known by its contents, not by its name."""

from __future__ import annotations

import json
import sys
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from castiron.errors import InputError

STANDARD_INPUT = Path("-")
KINDS = "biufUS"
"""Of NumPy's types: bool, integers, floats, strings."""
MODELS = (".onnx", ".pt2", ".pt")


@dataclass(frozen=True)
class ArrayFile:
    """The arrays of a file by name, in its order.

    typed: whether the file says of what type they are; numbers of JSON are float64, int64 or bool until they get the
    type of what they stand for. named: whether it says what they are called."""

    arrays: Mapping[str, np.ndarray]
    typed: bool
    named: bool

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray], typed: bool, named: bool) -> ArrayFile:
        """Names that numpy.savez makes up, `arr_0` and on, are none."""
        return ArrayFile(arrays, typed, named and any(name != f"arr_{i}" for i, name in enumerate(arrays)))


def read(path: Path) -> ArrayFile:
    """The arrays of a file (`-`: of standard input). InputError where it is none of the three kinds, or cut off."""
    try:
        data = sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    if data.startswith(b"\x93NUMPY"):
        return ArrayFile({path.stem: _npy(path, data)}, typed=True, named=False)
    if data.startswith(b"PK"):
        return _npz(path, data)
    return _json(path, data)


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """An .npz of these arrays under any names: `numpy.savez` takes none that its own parameters have."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, in_files(array), allow_pickle=False)


def in_files(array: np.ndarray) -> np.ndarray:
    """An array as files hold it: bfloat16, which .npy has not, as float32."""
    return array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else np.asarray(array)


def like(array: np.ndarray, model: np.ndarray) -> np.ndarray:
    """An array of JSON as what it stands for: in the type of `model`, floats rounded once, where that holds its values,

    and with the sizes of `model` where both are empty (`[]` stands for [0, 3] as well as for [0])."""
    found = of_type(array, model.dtype)
    if found.size == 0 and model.size == 0 and found.shape == model.shape[: model.shape.index(0) + 1]:
        return found.reshape(model.shape)
    return found


def of_type(array: np.ndarray, type: np.dtype[Any]) -> np.ndarray:
    """Numbers of JSON in another type; as they are where that cannot hold them."""
    if array.dtype == type or array.dtype.kind in "SU" or type.kind in "SU":
        return array
    with np.errstate(all="ignore"):
        cast = array.astype(type)
        same = array.dtype.kind in "biu" and np.array_equal(cast, array)
    return cast if type.kind in "fV" or same or not array.size else array


def _npy(path: Path, data: bytes, member: str = "") -> np.ndarray:
    where = f"{path} ({member})" if member else str(path)
    try:
        array: np.ndarray = np.lib.format.read_array(BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError, MemoryError, SyntaxError) as error:
        raise InputError(f"{where} is no whole array: {error}") from None
    if array.dtype.kind not in KINDS:
        raise InputError(f"{where} is of type {array.dtype}; save it as numbers, bool or strings")
    return array


def _npz(path: Path, data: bytes) -> ArrayFile:
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            members = {n.removesuffix(".npy"): archive.read(n) for n in archive.namelist() if n.endswith(".npy")}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError) as error:
        raise InputError(f"{path} is a cut off or damaged .npz: {error}") from None
    if not members:
        raise InputError(f"{path} holds no arrays")
    return ArrayFile.of({n: _npy(path, content, n) for n, content in members.items()}, typed=True, named=True)


def _json(path: Path, data: bytes) -> ArrayFile:
    try:
        value: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} {_not_json(path, data, error)}") from None
    named = value if isinstance(value, dict) else {path.stem: value}
    if not named:
        raise InputError(f"{path} holds no arrays")
    arrays = {name: _nested(path, name, v) for name, v in named.items()}
    return ArrayFile.of(arrays, typed=False, named=isinstance(value, dict))


def _not_json(path: Path, data: bytes, error: Exception) -> str:
    if not data.strip():
        return "is empty"
    what = "is neither .npy, .npz nor JSON"
    if path.suffix in MODELS:
        return f"{what}: a model has no arrays to compare; its outputs are what `castiron run {path} -o y.npz` writes"
    return what if isinstance(error, UnicodeDecodeError) else f"{what}: {error}"


def _nested(path: Path, name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError):
        raise InputError(f"{path}: {name!r} is no array: its lists differ in length or depth") from None
    if array.dtype.kind not in KINDS:
        raise InputError(f"{path}: {name!r} is no array of numbers, true and false, or strings")
    return array
