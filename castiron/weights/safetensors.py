"""`.safetensors`: u64 length of the header, the header as JSON, the tensors without a gap. Its own library reads whole
tensors; here they are found without reading them, so that they can be streamed."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from castiron.errors import WeightsError
from castiron.weights.stored import (
    LARGEST_INDEX,
    SIZES,
    Index,
    Stored,
    extent,
    in_order,
    opened,
    refuse_wrong_length,
    short,
)

_OWN = set(SIZES) - {"FLEX32", "BOOL32"}


def read(path: Path) -> Index:
    """Where each tensor lies. Raises WeightsError for what is no whole file of this format."""
    with opened(path) as stream:
        length = path.stat().st_size
        head = stream.read(8)
        size = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not size or size > min(length - 8, LARGEST_INDEX):
            raise WeightsError(f"{path}: the safetensors header is cut off or not one")
        text = stream.read(size)
    header = _parsed(path, text)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise WeightsError(f"{path}: its __metadata__ is not text by name")
    start = 8 + size
    tensors = in_order(path, [_tensor(path, name, entry, start) for name, entry in header.items()])
    for tensor in tensors:
        if tensor.start != start:
            raise WeightsError(f"{path}: {tensor.start - start:,} unused bytes before tensor {tensor.name!r}")
        start = tensor.end
    refuse_wrong_length(path, length, tensors)
    if not tensors and length != start:
        raise WeightsError(f"{path} is too long: it has no tensors, {length - start:,} bytes follow the header")
    return Index(path, "safetensors", tensors, metadata)


def _parsed(path: Path, text: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]  # None, which is false
            raise WeightsError(f"{path}: the safetensors header has {twice!r} twice")
        return found

    try:
        header = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path}: the safetensors header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise WeightsError(f"{path}: the safetensors header is not a table of tensors")
    return header


def _tensor(path: Path, name: str, entry: Any, start: int) -> Stored:
    where = f"{path}: tensor {name!r}"
    if not isinstance(entry, dict):
        raise WeightsError(f"{where}: the safetensors header says nothing sensible of it: {short(entry)}")
    dtype = entry.get("dtype")
    if not isinstance(dtype, str) or dtype not in _OWN:
        raise WeightsError(f"{where}: its type {short(dtype)} is not known")
    shape, first, end = extent(where, dtype, entry.get("shape"), entry.get("data_offsets"))
    return Stored(name, dtype, shape, start + first, start + end)


def laid_out(tensors: Sequence[Stored]) -> list[Stored]:
    """The order of tensors in a new file: the widest elements first, so that all are aligned."""
    return sorted(tensors, key=lambda t: -SIZES[t.dtype])


def write_header(out: BinaryIO, tensors: Sequence[Stored], metadata: Mapping[str, str]) -> None:
    """All before the data, for tensors that begin at 0 and follow each other."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    for t in tensors:
        header[t.name] = {"dtype": t.dtype, "shape": list(t.shape), "data_offsets": [t.start, t.end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    out.write(struct.pack("<Q", len(text)) + text)
