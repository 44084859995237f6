"""One file of weights as another: .safetensors and .bpk, streamed, whole or not at all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np

from castiron.artifact.files import whole
from castiron.errors import InputError, WeightsError
from castiron.options import Adapter
from castiron.weights import burnpack, safetensors
from castiron.weights.adapters import Adapted, Layers, adapted, otherwise
from castiron.weights.stored import SIZES, Index, Stored, opened

FORMATS: Mapping[str, tuple[ModuleType, int]] = {
    ".safetensors": (safetensors, 1),
    ".bpk": (burnpack, burnpack.ALIGNMENT),
}
"""By suffix: what reads and writes it, and the multiple at which its tensors begin."""
_CHUNK = 8 << 20
_REPLACED = {"FLEX32": "F32", "BOOL32": "BOOL"}


@dataclass(frozen=True)
class Converted:
    """What was done. tensors, bytes: of the new file's data. transposed: new names; renamed: old name -> new.
    notes: what the new file says otherwise or not at all, a sentence each."""

    tensors: int
    bytes: int
    transposed: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def convert(
    source: str | Path,
    target: str | Path,
    adapter: Adapter | str | None = None,
    *,
    module: Any = None,
    linear: Sequence[str] | None = None,
) -> Converted:
    """Writes the tensors of `source` to `target`, each of them `.safetensors` or `.bpk` by its suffix.

    adapter: `pytorch-to-burn` or `burn-to-pytorch`; without it names and bytes stay. module: the PyTorch module, which says
    what each layer is; linear: or patterns of the names of its Linear layers (`layers.*.up`, `head`).
    Memory does not grow with the files. Raises WeightsError for a file that is not whole or holds what `target` cannot,
    or where an adapter cannot tell what a tensor is; each names the tensor. InputError for paths and options.
    """
    source, target = Path(source), Path(target)
    format, alignment = _format(target)
    if adapter is None and (module is not None or linear is not None):
        raise InputError("a model or Linear layers say what an adapter does; give an adapter with them")
    index = read(source)
    plan = _plan(index, adapter, module, linear)
    olds = {plan[t.name].name: t for t in index.tensors}
    placed = _placed(format.laid_out([_anew(t, plan[t.name]) for t in index.tensors]), alignment)
    with whole(target) as temporary, opened(source) as stream, temporary.open("wb") as out:
        format.write_header(out, placed, index.metadata)
        start = out.tell()
        for new in placed:
            out.write(bytes(start + new.start - out.tell()))
            old = olds[new.name]
            for piece in _pieces(index, stream, old, plan[old.name].transposed):
                out.write(piece)
    return Converted(
        tensors=len(placed),
        bytes=sum(t.size for t in placed),
        transposed=tuple(new.name for new in plan.values() if new.transposed),
        renamed={old: new.name for old, new in plan.items() if old != new.name},
        notes=tuple(_notes(index, adapter)),
    )


def read(path: Path) -> Index:
    """Where each tensor of a `.safetensors` or `.bpk` lies. Raises WeightsError for what is no whole file of its format."""
    index: Index = _format(path)[0].read(path)
    return index


def _format(path: Path) -> tuple[ModuleType, int]:
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: files of weights are {' or '.join(FORMATS)}")
    return FORMATS[path.suffix.lower()]


def _plan(index: Index, adapter: Adapter | str | None, module: Any, linear: Sequence[str] | None) -> dict[str, Adapted]:
    """What becomes of each tensor."""
    if adapter is None:
        if module is not None or linear is not None:
            raise InputError(
                "a model, or names of Linear layers, tell an adapter what to do; give an adapter with them"
            )
        return {t.name: Adapted(t.name) for t in index.tensors}
    if module is not None and linear is not None:
        raise InputError("a model says which layers are Linear; leave out their names")
    if adapter not in list(Adapter):
        raise InputError(f"no adapter {str(adapter)!r}; there are {' and '.join(Adapter)}")
    layers = Layers.of_module(module) if module is not None else Layers(linear)
    return adapted(index.tensors, Adapter(adapter), layers)


def _anew(tensor: Stored, result: Adapted) -> Stored:
    """The tensor of the new file; its place is not decided yet."""
    dtype = _REPLACED.get(tensor.dtype, tensor.dtype)
    shape = tensor.shape[::-1] if result.transposed else tensor.shape
    return Stored(result.name, dtype, shape, 0, math.prod(shape) * SIZES[dtype])


def _placed(tensors: Sequence[Stored], alignment: int) -> list[Stored]:
    """Tensors one behind the other, from 0, each at a multiple of `alignment`."""
    out, end = [], 0
    for t in tensors:
        start = -(-end // alignment) * alignment
        end = start + t.size
        out.append(replace(t, start=start, end=end))
    return out


def _pieces(index: Index, stream: BinaryIO, tensor: Stored, transposed: bool) -> Iterator[bytes | memoryview]:
    """The bytes of a tensor as the new file has them."""
    if tensor.dtype == "BOOL32":
        return (_narrowed(index, tensor, piece) for piece in _read(index, stream, tensor))
    if transposed and tensor.size:
        return _turned(index, tensor)
    return _read(index, stream, tensor)


def _read(index: Index, stream: BinaryIO, tensor: Stored) -> Iterator[bytes]:
    stream.seek(tensor.start)
    left = tensor.size
    while left:
        piece = stream.read(min(left, _CHUNK))
        if not piece:
            raise WeightsError(f"{index.path} became shorter while tensor {tensor.name!r} was read")
        left -= len(piece)
        yield piece


def _turned(index: Index, tensor: Stored) -> Iterator[memoryview]:
    """A matrix by its columns, as many at a time as fit in a piece."""
    rows, columns = tensor.shape
    element = SIZES[tensor.dtype]
    matrix = np.memmap(index.path, f"V{element}", "r", tensor.start, (rows, columns))
    step = max(1, _CHUNK // (rows * element))
    for at in range(0, columns, step):
        yield np.ascontiguousarray(matrix[:, at : at + step].T).view(np.uint8).reshape(-1).data


def _narrowed(index: Index, tensor: Stored, piece: bytes) -> bytes:
    values = np.frombuffer(piece, "<u4")
    if values.max(initial=0) > 1:
        raise WeightsError(f"{index.path}: tensor {tensor.name!r} is Bool, but has {values.max()} among its values")
    return values.astype(np.uint8).tobytes()


def _notes(index: Index, adapter: Adapter | str | None) -> Iterator[str]:
    flex = [t.name for t in index.tensors if t.dtype == "FLEX32"]
    if flex:
        yield f"{_some(flex)} of type Flex32 became F32, which it is in memory"
    if index.dropped:
        yield f"{', '.join(index.dropped)}: only burnpack has these; left out"
    others = otherwise(t.name for t in index.tensors) if adapter is not None else []
    if others:
        yield (
            f"{_some(others)} stayed as it is: burn splits recurrent and attention layers into other parameters, "
            "which its own adapters do not convert either"
        )


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"
