"""What a build is compared with: inputs, the source framework's outputs on them, and the same in float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx_ir as ir

from castiron.errors import CastironError, InputError
from castiron.frontend.examples import example_inputs, example_sizes
from castiron.frontend.source import Source, load
from castiron.graph.names import clean_names
from castiron.graph.nodes import constant_of
from castiron.graph.pin import pin
from castiron.lab.compare import largest
from castiron.lab.verify import distance
from castiron.ops.random import RANDOM

Arrays = Mapping[str, np.ndarray]

SLOW_FLOPS = 1e10
"""Beyond this many operations the float64 pass of an ONNX model (onnx.reference, NumPy) takes many seconds."""

REPEATED_FLOPS = 3e9
"""What further runs may take together."""

LARGE_BYTES = 256 << 20
"""Beyond this size of weights too: the pass holds them about nine times."""


MANY = 1000
"""Values from which on the largest error tells how exact the source is; that of fewer is luck."""

STEP = 1 / 32
"""The most that a rounding is taken to change in an output of a quantized model: what moves further is broken."""

REPEATS = 8
"""Further runs that make up for few values."""


@dataclass(frozen=True)
class Vectors:
    """`outputs` of `framework` on `inputs`; `exact`: in float64, or None where that is not at hand.

    `own`: the largest error of the source by output, from more inputs than these where some output has few values.
    `missing`: why there are no outputs to compare with, or empty."""

    inputs: Arrays
    outputs: Arrays
    exact: Arrays | None
    framework: str
    missing: str = ""
    own: Mapping[str, float] = field(default_factory=dict)


def reference_inputs(
    source: Source, shapes: Mapping[str, tuple[int, ...]], compiled: ir.Model | None = None
) -> dict[str, np.ndarray]:
    """The source's own example inputs where they have the sizes asked for, else generated ones.

    compiled: the same graph with all that was found out of its sizes: which symbols must be equal.
    Raises InputError where the sizes do not fit the model."""
    given = source.inputs
    if given is not None and all(n in given and given[n].shape == shape for n, shape in shapes.items()):
        return dict(given)
    return example_inputs(pin(clean_names(source.model), shapes), example_sizes(compiled) if compiled else None)


def vectors(source: Source, inputs: Arrays, flops: int, needed: bool = True) -> Vectors:
    """Runs the source. `flops`: how many operations a run takes; 0 asks for float64 however long it takes.

    Raises InputError where the source fails on the inputs and its outputs are needed."""
    if source.run is None:
        return Vectors(inputs, {}, None, "", "neither onnxruntime nor a reference can run it here")
    drawn = {n.op_type for n in ir.traversal.RecursiveGraphIterator(source.model.graph)} & RANDOM
    if drawn:
        return Vectors(inputs, {}, None, "", f"{', '.join(sorted(drawn))}: the source draws other numbers")
    shapes = " ".join(f"{name}={','.join(map(str, a.shape))}" for name, a in inputs.items())
    hint = f"\nThe inputs' sizes are {shapes}; where others are meant, give them with --shape NAME=…"
    try:
        outputs = run_source(source, inputs, hint)
    except InputError as error:
        if needed:
            raise
        return Vectors(inputs, {}, None, "", str(error))
    exact = _exact(source, inputs) if has_exact(source, flops) else None
    steps = _steps(source, inputs)
    if exact is None:
        return Vectors(inputs, outputs, None, source.framework, own=steps)
    own = _largest(_errors(outputs, exact), steps)
    repeats = min(REPEATS, int(REPEATED_FLOPS // max(flops, 1))) if any(outputs[n].size < MANY for n in own) else 0
    for sample in samples(source, inputs, repeats):
        if sample.exact is not None:
            own = _largest(own, _errors(sample.outputs, sample.exact))
    return Vectors(inputs, outputs, exact, source.framework, own=own)


def has_exact(source: Source, flops: int) -> bool:
    """Whether float64 outputs can be had in seconds."""
    quick = source.framework == "pytorch" or (flops <= SLOW_FLOPS and _weight_bytes(source) <= LARGE_BYTES)
    return source.run64 is not None and quick


def samples(source: Source, inputs: Arrays, count: int) -> Iterator[Vectors]:
    """The source on `count` more inputs like these, in float64 too."""
    for seed in range(count):
        near = _near(inputs, seed)
        yield Vectors(near, run_source(source, near), _exact(source, near), source.framework)


def _steps(source: Source, inputs: Arrays) -> dict[str, float]:
    """How far roundings move the outputs of a quantized model, within STEP of their range; nothing for others."""
    steps: dict[str, float] = {}
    if source.plain is not None:
        for near in (inputs, *(_near(inputs, seed) for seed in range(REPEATS))):
            outputs = run_source(source, near)
            moved = _errors(outputs, source.plain(near))
            steps = _largest(steps, {name: min(e, STEP * largest(outputs[name])) for name, e in moved.items()})
    return steps


def _largest(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
    return {name: max(a.get(name, 0.0), b.get(name, 0.0)) for name in (*a, *b)}


def _near(inputs: Arrays, seed: int) -> dict[str, np.ndarray]:
    """Inputs whose results are as exact as those of `inputs`, with other roundings."""
    random = np.random.default_rng(seed)
    near = dict(inputs)
    for name, array in inputs.items():
        if array.dtype.kind in "iu":
            near[name] = np.roll(array, seed + 1)
        elif array.dtype.kind in "fV":
            moved = array.astype(np.float64) * (1 + random.standard_normal(array.shape) / 256)
            near[name] = np.asarray(moved, np.float64).astype(array.dtype)  # of no dimensions it is a number
    return near


def _errors(outputs: Arrays, exact: Arrays) -> dict[str, float]:
    """The largest error by output."""
    return {
        name: distance(array, exact[name])
        for name, array in outputs.items()
        if array.dtype.kind in "fV" and name in exact and exact[name].shape == array.shape
    }


def _weight_bytes(source: Source) -> int:
    values = source.model.graph.initializers.values()
    return sum(v.const_value.nbytes for v in values if v.const_value is not None)


def run_source(source: Source, inputs: Arrays, hint: str = "") -> Arrays:
    """The source framework's outputs. Raises InputError with what the framework says, and a hint, where it fails."""
    if source.run is None:
        raise InputError(f"{source.name} cannot be run here")
    try:
        return source.run(inputs)
    except CastironError:
        raise
    except Exception as error:  # whatever the framework raises, in its own classes
        raise InputError(f"the source itself ({source.framework}) fails on these inputs: {error}{hint}") from error


def varies(model: str) -> bool:
    """Whether a function that makes a model gives it other weights at each call; of a file never."""
    if Path(model).is_file():
        return False
    first, second = (load(model).model.graph.initializers for _ in range(2))
    pairs = [(constant_of(value), constant_of(second.get(name))) for name, value in first.items()]
    return any(a is None or b is None or a.tobytes() != b.tobytes() for a, b in pairs)


def _exact(source: Source, inputs: Arrays) -> Arrays | None:
    """The float64 outputs; None where the framework has no float64 form of some operator."""
    if source.run64 is None:
        return None
    try:
        return source.run64(inputs)
    except Exception:  # a reference that cannot be had is no fault of the model: the comparison goes on without it
        return None
