"""The law of bits: one result on every instruction set, with any number of threads and however a batch is split."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import castiron
from castiron.lab.native import run_executable
from tests.artifacts.builds import QEMU
from tests.building import Built, built, levels, public, random_inputs, scratch

CI: dict[str, Callable[[], Built]] = {
    "silero_vad": lambda: public("silero_vad"),  # convolution, LSTM, sigmoid, tanh, square root
    "romanize_arabic_decoder": lambda: public("romanize_arabic_decoder"),  # GRU, attention: matmul, softmax, exp
    "magika": lambda: public("magika"),  # gelu of tanh, layer norm, maxima, softmax
    "transformer": lambda: built("transformer_layer"),  # gelu of erf, layer norm, attention
}
ALL: dict[str, Callable[[], Built]] = CI | {
    **{name: lambda name=name: public(name) for name in (
        "attacut_c", "attacut_sc", "basic_pitch", "ocr_detect", "ocr_read", "ocr_turn", "open_nsfw",
        "romanize_arabic_encoder", "romanize_persian_decoder", "romanize_persian_encoder",
    )},
    "mlp": lambda: built("mlp"),
    "resnet18": lambda: built("resnet18", 64),
    "mobilenet_v2": lambda: built("mobilenet_v2", 64),
    "unet": lambda: built("unet", 8, 64),
    "vit": lambda: built("vit_small", 96, 3, 3, 16, 64),
    "bert": lambda: built("bert", 2),
    "lstm": lambda: built("lstm_tagger"),
    "gru": lambda: built("gru_tagger"),
}  # fmt: skip
FIXED_BATCH = ("silero_vad", "attacut_c", "attacut_sc", "resnet18", "mobilenet_v2", "unet", "vit")
HEAVY = ("basic_pitch", "ocr_detect", "ocr_read", "open_nsfw")
"""Too slow under emulation."""


def marked(names: list[str]) -> list[object]:
    """Models beyond the sample are slow."""
    return [name if name in CI else pytest.param(name, marks=pytest.mark.slow) for name in names]


@cache
def reference(name: str) -> tuple[dict[str, np.ndarray], dict[str, bytes]]:
    """Inputs, and the bits of a run on one thread."""
    model = ALL[name]()
    inputs = random_inputs(model.source, 5)
    return inputs, bits(model.run(inputs, "--threads", "1"))


def bits(arrays: dict[str, np.ndarray]) -> dict[str, bytes]:
    """The bytes of each array."""
    return {name: array.tobytes() for name, array in arrays.items()}


@pytest.mark.parametrize("name", marked([*ALL]))
def test_same_bits_on_every_instruction_set(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, expected = reference(name)
    assert levels(), "no instruction set with fused multiply-add"
    for level in levels():
        monkeypatch.setenv("CASTIRON_CPU", level)
        assert bits(ALL[name]().run(inputs, "--threads", "1")) == expected, level


@pytest.mark.parametrize("name", marked([*ALL]))
def test_same_bits_with_any_number_of_threads(name: str) -> None:
    inputs, expected = reference(name)
    for threads in ("2", "3"):
        assert bits(ALL[name]().run(inputs, "--threads", threads)) == expected, threads


@pytest.mark.parametrize("name", marked([n for n in ALL if n not in FIXED_BATCH]))
def test_same_bits_alone_and_in_a_batch(name: str) -> None:
    model = ALL[name]()
    whole = {n: np.concatenate([a, a, a])[:3] for n, a in random_inputs(model.source, 6).items()}
    together = model.run(whole)
    for row in range(3):
        alone = model.run({n: a[row : row + 1] for n, a in whole.items()})
        assert bits(alone) == bits({n: a[row : row + 1] for n, a in together.items()}), row


@pytest.mark.skipif(QEMU is None, reason="needs qemu-aarch64")
@pytest.mark.parametrize("name", marked([n for n in ALL if n not in HEAVY]))
def test_same_bits_on_arm64(name: str) -> None:
    inputs, expected = reference(name)
    source = ALL[name]().source
    program = castiron.build(source, scratch() / f"{name}-arm64", target="aarch64-linux", verify=False).path
    assert bits(run_executable(Path(program), inputs, emulator=str(QEMU))) == expected
