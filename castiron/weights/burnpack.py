"""`.bpk`, the weights of models of burn (burnpack, version 1): a header of 10 bytes, CBOR that says where the tensors are,
the tensors. From burn 0.20 on data begin at a multiple of 256 bytes, each tensor too; in 0.19 right behind the CBOR.

burn's own reader checks neither that tensors keep apart nor that their lengths agree with their shapes; this one does."""

from __future__ import annotations

import itertools
import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import cbor2

from castiron.errors import WeightsError
from castiron.weights.stored import (
    LARGEST_INDEX,
    Index,
    Stored,
    extent,
    in_order,
    opened,
    refuse_wrong_length,
    short,
)

MAGIC = b"NRUB"
ALIGNMENT = 256
"""Bytes; the data and each tensor of a new file begin at a multiple."""
_HEADER = struct.Struct("<4sHI")
_VERSION = 1
_DEPTH = 5  # of lists and maps: the whole, tensors, a tensor, its type, what that says
_MOST_TENSORS = 100_000
_LARGEST_TENSOR = 10 << 30

_PLAIN = {name: name for name in ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8")}
_TYPES = {**_PLAIN, "Flex32": "FLEX32", "Bool": "BOOL"}
_BOOLS = {"Native": "BOOL", "U8": "BOOL", "U32": "BOOL32"}
_WRITTEN: dict[str, Any] = {**_PLAIN, "BOOL": {"Bool": "Native"}}


def read(path: Path) -> Index:
    """Where each tensor lies. Raises WeightsError for what is no whole file of this format."""
    with opened(path) as stream:
        length = path.stat().st_size
        head = stream.read(_HEADER.size)
        if len(head) < _HEADER.size or not head.startswith(MAGIC):
            raise WeightsError(f"{path}: not a burnpack file: it does not begin with {MAGIC.decode()}")
        _, version, size = _HEADER.unpack(head)
        if version != _VERSION:
            raise WeightsError(f"{path}: burnpack version {version}; castiron reads version {_VERSION}")
        if size > min(length - _HEADER.size, LARGEST_INDEX):
            raise WeightsError(f"{path} is cut off: its metadata take {size:,} bytes, the file has {length:,} in all")
        said = _decoded(path, stream.read(size))
    entries = said.get("tensors")
    if not isinstance(entries, dict) or not all(isinstance(name, str) for name in entries):
        raise WeightsError(f"{path}: its metadata have no table of tensors")
    if len(entries) > _MOST_TENSORS:
        raise WeightsError(f"{path}: {len(entries):,} tensors; burn's limit is {_MOST_TENSORS:,}")
    tensors = _placed(path, length, _HEADER.size + size, [_tensor(path, n, e) for n, e in entries.items()])
    return Index(path, f"burnpack {version}", tensors, _metadata(path, said), _dropped(path, said))


def _decoded(path: Path, data: bytes) -> Mapping[str, Any]:
    def refuse(*_: Any) -> NoReturn:
        raise ValueError("burnpack has no tags")

    stream = BytesIO(data)
    decoder = cbor2.CBORDecoder(
        stream, max_depth=_DEPTH, allow_indefinite=False, allow_duplicate_keys=False, strict_hashable_types=True,
        tag_hook=refuse, semantic_decoders=defaultdict(lambda: refuse),
    )  # fmt: skip
    try:
        said = decoder.decode()
    except cbor2.CBORDecodeError as error:
        cause = f": {error.__cause__}" if error.__cause__ else ""
        raise WeightsError(f"{path}: its metadata are no CBOR as burn writes it ({error}{cause})") from None
    if stream.tell() != len(data):
        raise WeightsError(f"{path}: {len(data) - stream.tell():,} bytes follow its metadata within their length")
    if not isinstance(said, dict):
        raise WeightsError(f"{path}: its metadata are not a table")
    return said


def _tensor(path: Path, name: str, entry: Any) -> Stored:
    """A tensor at its offsets from the start of the data."""
    where = f"{path}: tensor {name!r}"
    if not isinstance(entry, dict):
        raise WeightsError(f"{where}: the metadata say nothing sensible of it: {short(entry)}")
    dtype = _dtype(where, entry.get("dtype"))
    return Stored(name, dtype, *extent(where, dtype, entry.get("shape"), entry.get("data_offsets")))


def _dtype(where: str, said: Any) -> str:
    if isinstance(said, str) and said in _TYPES:
        return _TYPES[said]
    if isinstance(said, dict) and len(said) == 1:
        (kind, store), *_ = said.items()
        if kind == "Bool" and isinstance(store, str) and store in _BOOLS:
            return _BOOLS[store]
        if kind == "QFloat":
            raise WeightsError(
                f"{where} is quantized (QFloat), in a way that changes with burn's version; save the model in burn "
                "before quantization, or dequantize it there"
            )
    raise WeightsError(f"{where}: its type {short(said)} is not known")


def _placed(path: Path, length: int, behind: int, tensors: Sequence[Stored]) -> tuple[Stored, ...]:
    """Tensors at their bytes of the file; `behind`: where the metadata end. The length tells the two layouts apart."""
    ordered = in_order(path, tensors)
    largest = max((t.end for t in ordered), default=0)
    packed = all(after.start == before.end for before, after in itertools.pairwise(ordered))
    old = length == behind + largest and (behind % ALIGNMENT != 0 or packed)
    first = behind if old else _aligned(behind)
    moved = tuple(Stored(t.name, t.dtype, t.shape, first + t.start, first + t.end) for t in ordered)
    refuse_wrong_length(path, length, moved)
    if not old:
        _refuse_unaligned(path, ordered)
    if not moved and length not in (behind, first):
        raise WeightsError(f"{path} is too long: it has no tensors, {length - behind:,} bytes follow the metadata")
    return moved


def _refuse_unaligned(path: Path, tensors: Sequence[Stored]) -> None:
    for tensor in tensors:
        if tensor.start % ALIGNMENT:
            raise WeightsError(
                f"{path}: tensor {tensor.name!r} begins at byte {tensor.start:,} of the data; "
                f"burn begins each at a multiple of {ALIGNMENT}"
            )


def _metadata(path: Path, said: Mapping[str, Any]) -> Mapping[str, str]:
    found = said.get("metadata", {})
    if not isinstance(found, dict) or not all(isinstance(x, str) for item in found.items() for x in item):
        raise WeightsError(f"{path}: its metadata of the user are not text by name")
    return found


def _dropped(path: Path, said: Mapping[str, Any]) -> tuple[str, ...]:
    scalars = said.get("scalars", {})
    if not isinstance(scalars, dict):
        raise WeightsError(f"{path}: its scalars are not a table")
    return tuple(f"scalar {name!r}" for name in scalars)


def laid_out(tensors: Sequence[Stored]) -> list[Stored]:
    """The order of tensors in a new file: as they came."""
    return list(tensors)


def write_header(out: BinaryIO, tensors: Sequence[Stored], metadata: Mapping[str, str]) -> None:
    """All before the data, for tensors at multiples of 256 bytes from 0. Raises WeightsError for what burn would not read."""
    for t in tensors:
        if t.dtype not in _WRITTEN:
            raise WeightsError(f"tensor {t.name!r} is {t.dtype}; burnpack has no such type")
        if t.size > _LARGEST_TENSOR:
            raise WeightsError(f"tensor {t.name!r} takes {t.size:,} bytes; burn reads {_LARGEST_TENSOR:,} at most")
    entries = {
        t.name: {"dtype": _WRITTEN[t.dtype], "shape": list(t.shape), "data_offsets": [t.start, t.end]}
        for t in sorted(tensors, key=lambda t: t.name.encode())
    }
    text = cbor2.dumps({"tensors": entries, **({"metadata": dict(metadata)} if metadata else {})})
    if len(entries) > _MOST_TENSORS or len(text) > LARGEST_INDEX:
        raise WeightsError(
            f"{len(entries):,} tensors with {len(text):,} bytes of names and shapes: more than burn reads"
        )
    head = _HEADER.pack(MAGIC, _VERSION, len(text)) + text
    out.write(head + bytes(_aligned(len(head)) - len(head)))


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
