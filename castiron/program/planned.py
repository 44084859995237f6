"""What the memory plan gives and the printer takes: a program with a place for every buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from castiron.program.types import Kind, Program


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer's memory is.

    `offset` counts bytes from the start of the arena (static TEMP), the packed weights or the constants; for INPUT, OUTPUT
    and WEIGHT it is the port's number, for STATE its number; where `dynamic`, the number of the slot in `run->offsets`.
    stage: of a TEMP, whose arena it lies in (stages.py)."""

    kind: Kind
    offset: int
    dynamic: bool = False
    stage: int = 0


Lives = tuple[tuple[str, int, int], ...]
"""(name, first step, last step) of TEMP roots, in the order of their slots."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A program with its memory placed.

    places: every buffer that has memory of its own. roots: buffer -> the buffer whose memory it is (views, in-place);
    itself where it has its own. lives: TEMP roots of stage 0 where sizes are symbolic.
    arena: bytes of the arena of stage 0 where all its TEMP sizes are static; None: planned at run time over `lives`.
    If any TEMP size of stage 0 is symbolic, all its TEMPs are dynamic.
    later: the TEMP roots of each further stage, all dynamic; their slots follow those of the stage before."""

    program: Program
    places: Mapping[str, Place]
    roots: Mapping[str, str]
    lives: Lives
    arena: int | None
    later: tuple[Lives, ...] = ()


@dataclass(frozen=True, slots=True)
class Storage:
    """Offsets of the PACKED and CONSTANT buffers in their blobs, and the blobs' sizes, in bytes; the same for both programs."""

    packed: Mapping[str, int]
    constants: Mapping[str, int]
    packed_bytes: int
    constant_bytes: int
