"""What the printer is told about a model beyond its two programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from castiron.program.types import Buffer

Files = Mapping[str, str]
"""File name -> text: NAME.c, NAME_api.c, NAME.h."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input, output or weight: its name as the user knows it, and its buffer."""

    name: str
    buffer: Buffer


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model's tables.

    hash: 64 hex digits; version: castiron's; info: members of a JSON object, without braces; options: for the comment
    that says what made the file. packed_bytes, constant_bytes: sizes of the two blobs; embedded: whether the packed
    weights are inside the artifact (else in `weights_file`); selftest_bytes: 0 where nothing is recorded. isas: best
    first, as CI_ISA spells them (`x86_64_v3`)."""

    hash: str
    version: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    weights: tuple[Port, ...]
    packed_bytes: int
    constant_bytes: int
    embedded: bool
    isas: tuple[str, ...]
    weights_file: str = ""
    selftest_bytes: int = 0
    info: str = ""
    options: str = ""
