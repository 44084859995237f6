"""Real ONNX models from PyPI packages: as exact as onnxruntime at every size; sizes that do not fit are refused."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from castiron.errors import InputError
from castiron.lab.verify import ROUNDINGS, distance, rounding
from tests.building import Built, public, random_inputs

Shapes = Mapping[str, tuple[int, ...]]

QUICK: dict[str, list[Shapes]] = {
    "silero_vad": [{}],
    "attacut_c": [{}, {"input": (1, 1)}, {"input": (1, 80)}],
    "attacut_sc": [{}, {"input": (1, 2, 1)}, {"input": (1, 2, 80)}],
    "magika": [{}, {"bytes": (1, 2048)}],
    "romanize_arabic_encoder": [{}, {"src": (1, 1)}, {"src": (1, 14)}, {"src": (3, 17)}],
    "romanize_arabic_decoder": [
        {},
        {"prefix": (1, 1), "memory": (1, 9, 256)},
        {"prefix": (1, 5), "memory": (1, 14, 256)},
        {"prefix": (3, 12), "memory": (3, 4, 256)},
    ],
}
SLOW: dict[str, list[Shapes]] = {
    "romanize_persian_encoder": QUICK["romanize_arabic_encoder"],
    "romanize_persian_decoder": QUICK["romanize_arabic_decoder"],
    "basic_pitch": [{}, {"serving_default_input_2:0": (1, 43844, 1)}],
    "ocr_turn": [{}, {"x": (1, 3, 48, 192)}, {"x": (3, 3, 33, 47)}],
    "ocr_read": [{}, {"x": (1, 3, 48, 320)}, {"x": (3, 3, 48, 100)}],
    "ocr_detect": [{}, {"x": (1, 3, 96, 160)}, {"x": (3, 3, 64, 32)}, {"x": (1, 3, 480, 640)}],
    "open_nsfw": [{}, {"input_0": (1, 224, 224, 3)}],
}
"""Sizes to run a model at; {}: those that a build generates. The first of each list is run on more inputs."""

MODELS = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
FEW = 64
"""Values of an output below which several inputs are needed: the largest of a few errors is luck."""


def check(model: Built, shapes: Shapes) -> None:
    """castiron's largest error against float64 is at most twice onnxruntime's, on the same inputs: on several of them
    where one could be luck."""
    errors: dict[str, list[float]] = {}
    allowed: dict[str, list[float]] = {}
    done, seed = 0, 0

    def wrong() -> list[str]:
        return [name for name in errors if max(errors[name]) > 2 * max(allowed[name])]

    while (done < FEW or wrong()) and seed < 8:
        inputs = random_inputs(model.source, seed, **shapes)
        found, source, exact = model.run(inputs), *_references(model, inputs)
        assert {n: (a.shape, a.dtype) for n, a in found.items()} == {n: (a.shape, a.dtype) for n, a in source.items()}
        for name, array in source.items():
            if array.dtype.kind == "f":
                errors.setdefault(name, []).append(distance(found[name], exact[name]))
                allowed.setdefault(name, []).append(distance(array, exact[name]))
                allowed[name].append(ROUNDINGS / 2 * rounding(array))
            else:
                np.testing.assert_array_equal(found[name], array)
        done += min(a.size for a in source.values())
        seed += 1
    assert not wrong(), f"at {dict(shapes)}: {errors} against {allowed}"


def _references(model: Built, inputs: Mapping[str, np.ndarray]) -> tuple[Mapping[str, np.ndarray], ...]:
    assert model.source.run is not None and model.source.run64 is not None
    return model.source.run(inputs), model.source.run64(inputs)


@pytest.mark.parametrize("name", MODELS)
def test_public_model_is_as_exact_as_onnxruntime_at_all_sizes(name: str) -> None:
    for shapes in (QUICK | SLOW)[name]:
        check(public(name), shapes)


PINNED: dict[str, Shapes] = {
    "attacut_c": {"input": (1, 40)},
    "romanize_arabic_encoder": {"src": (2, 9)},
    "ocr_read": {"x": (1, 3, 48, 320)},
    "ocr_turn": {"x": (1, 3, 48, 192)},
}


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in PINNED])
def test_sizes_that_are_pinned(name: str) -> None:
    """A static file is as exact (not of the same bits: short sums are written out), and takes these sizes alone."""
    (port, sizes), *_ = PINNED[name].items()
    pinned = public(name, **PINNED[name])
    check(pinned, PINNED[name])
    with pytest.raises(InputError, match=f"input '{port}': expected"):
        pinned.run(random_inputs(pinned.source, 3, **{port: (*sizes[:-1], sizes[-1] + 1)}))


REFUSED = [
    ("magika", {"bytes": (1, 100)}, "expected int32.*2048"),
    ("attacut_c", {"input": (2, 9)}, "expected int64"),
    ("romanize_arabic_decoder", {"memory": (3, 9, 256)}, "with batch"),
    pytest.param("ocr_read", {"x": (1, 3, 32, 100)}, "do not fit the model", marks=pytest.mark.slow),
    pytest.param("ocr_detect", {"x": (1, 3, 33, 47)}, "do not fit the model", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("name, shapes, message", REFUSED)
def test_sizes_that_do_not_fit_are_refused(name: str, shapes: Shapes, message: str) -> None:
    model = public(name)
    inputs = random_inputs(model.source)
    inputs |= {port: np.resize(inputs[port], sizes) for port, sizes in shapes.items()}
    with pytest.raises(InputError, match=message):
        model.run(inputs)
