"""What a build is compared with: inputs, the source framework's outputs on them, and the same in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from castiron.errors import CastironError, InputError
from castiron.frontend.examples import example_inputs
from castiron.frontend.source import Source
from castiron.graph.names import clean_names
from castiron.graph.pin import pin

Arrays = Mapping[str, np.ndarray]

SLOW_FLOPS = 3e9
"""Beyond this many operations the float64 pass of an ONNX model (onnx.reference, NumPy) takes many seconds."""

LARGE_BYTES = 256 << 20
"""Beyond this size of weights too: the pass holds them about nine times."""


@dataclass(frozen=True)
class Vectors:
    """`outputs` of `framework` on `inputs`; `exact`: in float64, or None where that is not at hand.

    `missing`: why there are no outputs to compare with, or empty."""

    inputs: Arrays
    outputs: Arrays
    exact: Arrays | None
    framework: str
    missing: str = ""


def reference_inputs(source: Source, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """The source's own example inputs where they have the sizes asked for, else generated ones.

    Raises InputError where the sizes do not fit the model."""
    given = source.inputs
    if given is not None and all(n in given and given[n].shape == shape for n, shape in shapes.items()):
        return dict(given)
    return example_inputs(pin(clean_names(source.model), shapes))


def vectors(source: Source, inputs: Arrays, flops: int) -> Vectors:
    """Runs the source. `flops`: how many operations a run takes; 0 asks for float64 however long it takes."""
    if source.run is None:
        return Vectors(inputs, {}, None, "", "neither onnxruntime nor a reference can run it here")
    outputs = run_source(source, inputs)
    quick = source.framework == "pytorch" or (flops <= SLOW_FLOPS and _weight_bytes(source) <= LARGE_BYTES)
    return Vectors(inputs, outputs, _exact(source, inputs) if quick else None, source.framework)


def _weight_bytes(source: Source) -> int:
    values = source.model.graph.initializers.values()
    return sum(v.const_value.nbytes for v in values if v.const_value is not None)


def run_source(source: Source, inputs: Arrays) -> Arrays:
    """The source framework's outputs. Raises InputError with what the framework says where it fails."""
    if source.run is None:
        raise InputError(f"{source.name} cannot be run here")
    try:
        return source.run(inputs)
    except CastironError:
        raise
    except Exception as error:  # whatever the framework raises, in its own classes
        raise InputError(f"the source itself ({source.framework}) fails on these inputs: {error}") from error


def _exact(source: Source, inputs: Arrays) -> Arrays | None:
    """The float64 outputs; None where the framework has no float64 form of some operator."""
    if source.run64 is None:
        return None
    try:
        return source.run64(inputs)
    except Exception:  # a reference that cannot be had is no fault of the model: the comparison goes on without it
        return None
