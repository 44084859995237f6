"""`--dump DIR`: every stage as a file a person can open, numbered in the order of the line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
            size = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)
            external = f"{stage}.onnx.data" if size > 1_500_000_000 else None
            with _into(self.folder) as folder:
                ir.save(model, folder / f"{stage}.onnx", external_data=external)
        return model

    def program(self, stage: str, program: Program) -> Program:
        """`STAGE.txt`."""
        self.watch(stage, program)
        if self.folder is not None:
            with _into(self.folder) as folder:
                (folder / f"{stage}.txt").write_text(text(program))
        return program

    def code(self, files: Mapping[str, str]) -> None:
        """The generated C, each file as `80-NAME`."""
        if self.folder is not None:
            with _into(self.folder) as folder:
                for name, content in files.items():
                    (folder / f"80-{name}").write_text(content)


@contextmanager
def _into(folder: Path) -> Iterator[Path]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    except OSError as error:
        raise InputError(f"--dump {folder}: cannot be written to ({error.strerror or error})") from None
