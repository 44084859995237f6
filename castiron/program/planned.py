"""What the memory plan gives and the printer takes: a program with a place for every buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from castiron.program.types import Kind, Program


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer's memory is.

    `offset` counts bytes from the start of the arena (static TEMP), the packed weights or the constants; for INPUT, OUTPUT
    and WEIGHT it is the port's number; where `dynamic`, the number of the slot in `run->offsets`."""

    kind: Kind
    offset: int
    dynamic: bool = False


@dataclass(frozen=True, slots=True)
class Planned:
    """A program with its memory placed.

    places: every buffer that has memory of its own. roots: buffer -> the buffer whose memory it is (views, in-place);
    itself where it has its own. lives: TEMP roots where sizes are symbolic: (name, first step, last step), in slot order.
    arena: bytes of the arena where all TEMP sizes are static; None: planned at run time over `lives`.
    If any TEMP size of a program is symbolic, all its TEMPs are dynamic."""

    program: Program
    places: Mapping[str, Place]
    roots: Mapping[str, str]
    lives: tuple[tuple[str, int, int], ...]
    arena: int | None


@dataclass(frozen=True, slots=True)
class Storage:
    """Offsets of the PACKED and CONSTANT buffers in their blobs, and the blobs' sizes, in bytes; the same for both programs."""

    packed: Mapping[str, int]
    constants: Mapping[str, int]
    packed_bytes: int
    constant_bytes: int
