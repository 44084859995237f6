"""Tensors as files of weights hold them: where each lies, of what type; the checks that all such files share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from castiron.errors import InputError, WeightsError

SIZES = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
    "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "C64": 8,
    "FLEX32": 4, "BOOL32": 4,
}  # fmt: skip
"""Bytes of an element by type, under safetensors' names; the last two are burn's own: float32 that may be computed in
less, and bool in four bytes."""

LARGEST_INDEX = 100 << 20
"""Bytes that both formats allow for what they say of their tensors (safetensors a little less)."""


@dataclass(frozen=True)
class Stored:
    """A tensor in a file. dtype: of SIZES; start, end: bytes from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Index:
    """What a file of weights says of itself. tensors: in the order of their data. metadata: free text by name.
    dropped: what the file holds beyond tensors and metadata, in words."""

    path: Path
    kind: str
    tensors: tuple[Stored, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file to read. Raises InputError for what is no readable file."""
    try:
        if not path.exists():
            raise InputError(f"{path} does not exist")
        if not path.is_file():
            raise InputError(f"{path} is not a file of weights, it is a {'folder' if path.is_dir() else 'device'}")
        with path.open("rb") as stream:
            yield stream
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def extent(where: str, dtype: str, shape: Any, offsets: Any) -> tuple[tuple[int, ...], int, int]:
    """Shape, start and end of a tensor as a header states them; WeightsError where they are none, or disagree."""
    if not is_list_of_sizes(shape):
        raise WeightsError(f"{where}: its shape is not a list of sizes: {short(shape)}")
    if not is_list_of_sizes(offsets) or len(offsets) != 2 or offsets[1] < offsets[0]:
        raise WeightsError(f"{where}: its data_offsets are not [start, end]: {short(offsets)}")
    start, end = offsets
    wanted = math.prod(shape) * SIZES[dtype]
    if end - start != wanted:
        raise WeightsError(
            f"{where}: {dtype} {short(list(shape))} takes {wanted:,} bytes, the file has {end - start:,}"
        )
    return tuple(shape), start, end


def is_list_of_sizes(value: Any) -> bool:
    """Whether this is a list of integers of 64 bits, none negative."""
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 64 for n in value)


def in_order(path: Path, tensors: Iterable[Stored]) -> tuple[Stored, ...]:
    """Tensors by the order of their data. Raises WeightsError where two overlap."""
    ordered = tuple(sorted(tensors, key=lambda t: (t.start, t.end)))
    for before, after in itertools.pairwise(ordered):
        if after.start < before.end:
            raise WeightsError(f"{path}: the tensors {before.name!r} and {after.name!r} overlap")
    return ordered


def refuse_wrong_length(path: Path, length: int, tensors: Sequence[Stored]) -> None:
    """WeightsError where the file does not end with its last tensor; names the first one that it cuts off."""
    wanted = max((t.end for t in tensors), default=length)
    if length > wanted:
        raise WeightsError(f"{path} is too long: {length - wanted:,} bytes follow its last tensor")
    for tensor in tensors:
        if tensor.end > length:
            raise WeightsError(
                f"{path} is cut off: tensor {tensor.name!r} ends at byte {tensor.end:,}, the file at {length:,}"
            )


def short(value: Any) -> str:
    """A value out of a file, for a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
