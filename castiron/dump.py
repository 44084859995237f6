"""`--dump DIR`: every stage as a file a person can open, numbered in the order of the line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from castiron.errors import InputError
from castiron.program.text import text
from castiron.program.types import Program


@dataclass(frozen=True)
class Dump:
    """Writes stages to `folder`, unless that is None, and shows them to `watch`, before a later stage changes them.

    Each method gives back the stage it was given."""

    folder: Path | None = None
    watch: Callable[[str, ir.Model | Program], None] = lambda stage, content: None

    def graph(self, stage: str, model: ir.Model) -> ir.Model:
        """`STAGE.onnx`; weights of more than 2 GB go to a file beside it."""
        self.watch(stage, model)
        if self.folder is not None:
            _make(self.folder)
            size = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)
            external = f"{stage}.onnx.data" if size > 1_500_000_000 else None
            ir.save(model, self.folder / f"{stage}.onnx", external_data=external)
        return model

    def program(self, stage: str, program: Program) -> Program:
        """`STAGE.txt`."""
        self.watch(stage, program)
        if self.folder is not None:
            (self.folder / f"{stage}.txt").write_text(text(program))
        return program

    def code(self, files: Mapping[str, str]) -> None:
        """The generated C, each file as `80-NAME`."""
        if self.folder is not None:
            for name, content in files.items():
                (self.folder / f"80-{name}").write_text(content)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--dump {folder}: the folder cannot be made ({error.strerror})") from None
