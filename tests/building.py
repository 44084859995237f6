"""Builds of models that tests share: each made once a session, run as a process, compared with float64."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import castiron
from castiron.dump import Dump
from castiron.frontend import source as frontend
from castiron.frontend.examples import example_inputs, example_sizes
from castiron.frontend.source import Run, Source
from castiron.lab.native import run_executable
from castiron.lab.verify import verify
from castiron.pipeline import compile_graph
from castiron.toolchain import targets
from examples.fetch import FetchError, fetch
from tests import zoo
from tests.artifacts.builds import ROOT, scratch

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Built:
    """An executable and what it was made of."""

    source: Source
    path: Path

    def of(self, module: torch.nn.Module) -> Built:
        """The same file, to be compared with another module of this architecture."""
        (output,) = self.source.model.graph.outputs

        def runner(own: torch.nn.Module) -> Run:
            kind = next(own.parameters()).dtype

            def run(inputs: Arrays) -> dict[str, np.ndarray]:
                given = [torch.from_numpy(a) for a in inputs.values()]
                with torch.no_grad():
                    found = own(*(t.to(kind) if t.is_floating_point() else t for t in given))
                return {str(output.name): found.numpy()}

            return run

        double = copy.deepcopy(module).double()
        return replace(self, source=replace(self.source, run=runner(module), run64=runner(double)))

    def run(self, inputs: Arrays, *options: str) -> dict[str, np.ndarray]:
        """The outputs by name."""
        return run_executable(self.path, inputs, options)

    def info(self) -> dict[str, Any]:
        """What `--info` says."""
        answer = subprocess.run([self.path, "--info"], capture_output=True, text=True, check=True).stdout
        return dict(json.loads(answer))

    def check(self, inputs: Arrays, *options: str) -> None:
        """Fails where the error against float64 is more than twice the source framework's own."""
        assert self.source.run is not None and self.source.run64 is not None
        verdicts = verify(self.run(inputs, *options), self.source.run(inputs), self.source.run64(inputs), budget=2.0)
        assert verdicts and all(v.ok for v in verdicts), verdicts


@cache
def source_of(name: str, *arguments: int) -> Source:
    """A model of zoo.py, exported; `arguments` are those of its function."""
    module, inputs, *shapes = getattr(zoo, name)(*arguments)
    return frontend.load(module, inputs, shapes[0] if shapes else None)


def built(name: str, *arguments: int, **shapes: tuple[int, ...]) -> Built:
    """An executable of a model of zoo.py for all `levels()`; not verified yet.

    shapes: sizes to pin, by input."""
    return _built(name, arguments, tuple(shapes.items()))


@cache
def _built(name: str, arguments: tuple[int, ...], shapes: Sequence[tuple[str, tuple[int, ...]]]) -> Built:
    source = source_of(name, *arguments)
    stem = "-".join([name, *map(str, arguments), *(str(n) for _, sizes in shapes for n in sizes)])
    options = {"shapes": dict(shapes), "cpu": levels(), "verify": False}
    return Built(source, castiron.build(source, scratch() / stem, **options).path)


@cache
def levels() -> tuple[str, ...]:
    """The instruction sets with fused multiply-add that this processor has, by the names that CASTIRON_CPU knows."""
    flags = Path("/proc/cpuinfo").read_text().split()
    needs = {"x86-64-v3": "avx2", "x86-64-v4": "avx512vl", "arm64": "asimd"}
    return tuple(isa.name for isa in targets.host().isas if needs.get(isa.name) in flags)


@cache
def public(name: str, target: str | None = None, **shapes: tuple[int, ...]) -> Built:
    """An executable of a model of examples/models.toml, for all `levels()` or for another machine; not verified yet.

    Skips the test where the package with the model cannot be downloaded."""
    try:
        source = frontend.load(fetch(name))
    except FetchError as error:
        pytest.skip(str(error))
    stem = "-".join([name, *([target] if target else []), *(str(n) for sizes in shapes.values() for n in sizes)])
    options = {"target": target, "cpu": None if target else levels(), "shapes": shapes, "verify": False}
    return Built(source, castiron.build(source, scratch() / stem, **options).path)


def random_inputs(source: Source, seed: int = 0, **sizes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Arrays like the example inputs, of other contents and (by input) other sizes.

    Integers stay below the largest in the example; a mask of ones becomes one that hides the end of the last row. A
    model that came without an example gets generated inputs."""
    if source.inputs is None:
        return example_inputs(source.model, _fitting_sizes(source, tuple(sizes.items())), seed)
    random = np.random.default_rng(seed)
    made = {}
    for name, example in source.inputs.items():
        shape = sizes.get(name, example.shape)
        if example.dtype.kind == "f":
            made[name] = random.standard_normal(shape).astype(example.dtype)
        elif example.max(initial=0) > 1:
            made[name] = random.integers(0, example.max() + 1, shape, example.dtype)
        else:
            made[name] = np.ones(shape, example.dtype)
            made[name][-1, shape[-1] // 2 + 1 :] = 0
    return made


@cache
def _fitting_sizes(source: Source, sizes: tuple[tuple[str, tuple[int, ...]], ...]) -> dict[str, list[int]]:
    """Of all inputs, those that must be equal so."""
    return example_sizes(compile_graph(source, dict(sizes), Dump(None)))


__all__ = ["ROOT", "Built", "built", "levels", "public", "random_inputs", "scratch", "source_of"]
