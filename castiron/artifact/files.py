"""The byte formats around an artifact (docs/architecture.md): raw weights, packed weights, the self-test record."""

from __future__ import annotations

import json
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from castiron.errors import InputError, WeightsError

PACKED_MAGIC = b"CASTIRON"
PACKED_HEADER = struct.Struct("<8sII64sQ40x")
SELFTEST_MAGIC = b"CIST"

# safetensors' names of types
_DTYPES = {
    ir.DataType.FLOAT: "F32", ir.DataType.DOUBLE: "F64", ir.DataType.FLOAT16: "F16", ir.DataType.BFLOAT16: "BF16",
    ir.DataType.INT8: "I8", ir.DataType.INT16: "I16", ir.DataType.INT32: "I32", ir.DataType.INT64: "I64",
    ir.DataType.UINT8: "U8", ir.DataType.UINT16: "U16", ir.DataType.UINT32: "U32", ir.DataType.UINT64: "U64",
    ir.DataType.BOOL: "BOOL",
}  # fmt: skip


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well, and goes when it does not.

    Raises InputError where the folder of `path` is not there, or cannot be written to."""
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent.resolve()))
    except FileNotFoundError:
        raise InputError(f"{path.parent} does not exist; make that folder, or write somewhere else") from None
    except OSError as error:
        raise InputError(f"{path.parent} cannot be written to: {error.strerror}") from None
    try:
        yield temporary / path.name
        os.replace(temporary / path.name, path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_safetensors(path: Path, tensors: Mapping[str, ir.TensorProtocol]) -> None:
    """Raw weights under their own names, streamed a tensor at a time (so that memory does not grow with their size)."""
    header: dict[str, object] = {}
    offset = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPES:
            raise WeightsError(f"weight {name!r}: safetensors has no type for {tensor.dtype.name}")
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape.numpy()),
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            # as bytes: bfloat16 has no buffer of its own type
            out.write(np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8).data if tensor.size else b"")


@dataclass(frozen=True)
class Recorded:
    """One array of the self-test: input or output number `port`; `tolerance` of outputs: largest difference allowed."""

    role: str
    port: int
    type: ir.DataType
    array: np.ndarray
    tolerance: float = 0.0


def selftest_record(arrays: Sequence[Recorded]) -> bytes:
    """The bytes that travel inside an artifact for `--selftest`."""
    out = bytearray(SELFTEST_MAGIC + struct.pack("<I", len(arrays)))
    for item in arrays:
        data = np.ascontiguousarray(item.array).tobytes()
        role = 0 if item.role == "input" else 1
        out += struct.pack("<IIII", role, item.port, int(item.type), item.array.ndim)
        out += struct.pack(f"<{item.array.ndim}QQ", *item.array.shape, len(data))
        out += bytes(-len(out) % 64) + data
    for item in arrays:
        if item.role == "output":
            out += struct.pack("<d", item.tolerance)
    return bytes(out)
