"""Where buffers and sizes are at run time: the C that finds them in a `ci_run`."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_ir import DataType

from castiron.emit.expr_c import stored
from castiron.errors import InternalError
from castiron.program.planned import Planned
from castiron.program.types import Buffer, Kind


class Memory:
    """Addresses of one planned program. `numbers` gives each size its place in `run->sizes`."""

    def __init__(self, planned: Planned, numbers: Mapping[str, int]) -> None:
        self.planned = planned
        self.buffers: Mapping[str, Buffer] = planned.program.buffers
        self._numbers = numbers

    def number(self, size: str) -> int:
        """The place of a size in `run->sizes`."""
        return self._numbers[size]

    def root(self, buffer: str) -> str:
        """The buffer whose memory `buffer` is."""
        while (of := self.planned.roots.get(buffer, buffer)) != buffer:
            buffer = of
        return buffer

    def has_place(self, buffer: str) -> bool:
        """Whether `buffer` is in memory at all."""
        return self.root(buffer) in self.planned.places

    def type(self, buffer: str) -> DataType:
        return self.buffers[buffer].type

    def size(self, name: str) -> str:
        """A run-time size as C."""
        if name not in self._numbers:
            raise InternalError(f"{self.planned.program.name}: no size or axis is called {name!r}")
        return f"run->sizes[{self._numbers[name]}]"

    def address(self, root: str, type: DataType, writable: bool) -> str:
        """A pointer to the start of a root buffer as C."""
        if root not in self.planned.places:
            raise InternalError(f"{self.planned.program.name}: the memory plan has no place for {root!r}")
        place = self.planned.places[root]
        cast = f"({'' if writable else 'const '}{stored(type)} *)"
        if place.kind in (Kind.INPUT, Kind.WEIGHT):
            return f"{cast}run->inputs[{place.offset}]"
        if place.kind == Kind.OUTPUT:
            return f"{cast}run->outputs[{place.offset}]"
        if place.kind == Kind.STATE:
            return f"{cast}run->states[{place.offset}].data"
        if place.stage:
            return f"{cast}(run->arenas[{place.stage - 1}].data + run->offsets[{place.offset}])"
        base = {Kind.TEMP: "arena", Kind.PACKED: "packed", Kind.CONSTANT: "constants"}[place.kind]
        where = f"run->offsets[{place.offset}]" if place.dynamic else str(place.offset)
        return f"{cast}(run->{base} + {where})" if where != "0" else f"{cast}run->{base}"
