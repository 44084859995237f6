"""`castiron convert IN OUT`."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from castiron.cli.show import size
from castiron.errors import InputError
from castiron.frontend.function import result_of
from castiron.options import Adapter
from castiron.weights import convert


def convert_command(
    source: Path, target: Path, adapter: Adapter | None, model: str | None, linear: Sequence[str] | None, json: bool
) -> None:
    """Writes the file and prints what was done."""
    done = convert(source, target, adapter, module=_module(model) if model is not None else None, linear=linear)
    if json:
        print(json_module.dumps(asdict(done)))
        return
    changed = [f"{len(done.transposed)} transposed"] if done.transposed else []
    changed += [f"{len(done.renamed)} renamed"] if done.renamed else []
    print(f"{target}  {', '.join([f'{done.tensors:,} tensors', size(done.bytes), *changed])}")
    for note in done.notes:
        print(f"note: {note}")


def _module(text: str) -> Any:
    from torch import nn

    module = result_of(text)[0] if ":" in text else None
    if not isinstance(module, nn.Module):
        raise InputError(
            f"--model {text}: layers are known of a PyTorch module; give `file.py:function` that makes one"
        )
    return module
