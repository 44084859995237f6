"""Models exported from PyTorch: their artifacts compute what PyTorch computes, at every size, with any weights."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from castiron.errors import InputError
from examples.fetch import FetchError, fetch
from tests import zoo
from tests.building import Built, built, random_inputs, scratch

SMALL = {
    "mlp": ("mlp",),
    "resnet18": ("resnet18", 64),
    "mobilenet_v2": ("mobilenet_v2", 64),
    "unet": ("unet", 8, 64),
    "vit": ("vit_small", 96, 3, 3, 16, 64),
    "bert": ("bert", 2),
    "lstm": ("lstm_tagger",),
    "gru": ("gru_tagger",),
    "transformer": ("transformer_layer",),
}
LARGE = {
    "resnet18 at 224": ("resnet18",),
    "resnet18 of any batch": ("resnet18_batch",),
    "resnet50 at 224": ("resnet50",),
    "mobilenet_v2 at 224": ("mobilenet_v2",),
    "unet of 256": ("unet",),
    "ViT-S/16": ("vit_small",),
}
SIZES = {
    "mlp": [(1, 4), (7, 4), (100, 4)],
    "bert": [(1, 1), (1, 16), (3, 33)],
    "lstm": [(1, 1), (1, 40), (5, 9)],
    "gru": [(1, 1), (1, 40), (5, 9)],
    "transformer": [(1, 1, 32), (3, 17, 32)],
}
"""Sizes of each input, besides the example's."""


@pytest.fixture(scope="module", params=SMALL)
def small(request: pytest.FixtureRequest) -> tuple[str, Built]:
    """A model quick to build, by its name."""
    return request.param, built(*SMALL[request.param])


def sized(model: Built, sizes: tuple[int, ...], seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs of these sizes."""
    assert model.source.inputs is not None
    return random_inputs(model.source, seed, **dict.fromkeys(model.source.inputs, sizes))


def test_small_model_is_as_exact_as_pytorch(small: tuple[str, Built]) -> None:
    _, model = small
    assert model.source.inputs is not None
    for inputs in (model.source.inputs, random_inputs(model.source, 1), random_inputs(model.source, 2)):
        model.check(inputs)


def test_symbolic_sizes_are_symbolic_in_the_artifact(small: tuple[str, Built]) -> None:
    name, model = small
    for seed, sizes in enumerate(SIZES.get(name, [])):
        model.check(sized(model, sizes, seed))


def test_parameter_names_survive(small: tuple[str, Built]) -> None:
    """All but what the graph does not read (counters, position numbers) is a weight under PyTorch's own name."""
    name, model = small
    module, *_ = getattr(zoo, SMALL[name][0])(*SMALL[name][1:])
    known = {n for n, t in module.state_dict().items() if t.is_floating_point()}
    assert {w["name"] for w in model.info()["parameters"]} == known


@pytest.mark.parametrize("name", SIZES)
def test_pinned_sizes(name: str) -> None:
    """A static build of the same model; it refuses other sizes."""
    sizes = SIZES[name][-1]
    symbolic = built(*SMALL[name])
    assert symbolic.source.inputs is not None
    pinned = built(*SMALL[name], **dict.fromkeys(symbolic.source.inputs, sizes))
    pinned.check(sized(symbolic, sizes))
    with pytest.raises(InputError, match=re.escape(f"[{','.join(map(str, sizes))}]")):
        pinned.run(symbolic.source.inputs)


@pytest.mark.parametrize("name", ["lstm", "mobilenet_v2", "gru"])
def test_raw_weights(name: str, tmp_path: Path) -> None:
    """The state dict at run time gives the same bits as when embedded; another one gives what PyTorch gives with it."""
    model = built(*SMALL[name])
    module, *_ = getattr(zoo, SMALL[name][0])(*SMALL[name][1:])
    inputs = random_inputs(model.source)
    save_file(module.state_dict(), tmp_path / "same.safetensors")
    given = model.run(inputs, "--weights", str(tmp_path / "same.safetensors"))
    assert {n: a.tobytes() for n, a in given.items()} == {n: a.tobytes() for n, a in model.run(inputs).items()}
    other = disturbed(module)
    save_file(other.state_dict(), tmp_path / "other.safetensors")
    model.of(other).check(inputs, "--weights", str(tmp_path / "other.safetensors"))


def disturbed(module: torch.nn.Module) -> torch.nn.Module:
    """The module with all weights changed a little."""
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(5)
        for value in module.state_dict().values():
            if value.is_floating_point():
                value.mul_(1 + 0.1 * torch.rand_like(value))
    return module


def test_mlp_on_its_four_samples() -> None:
    from examples.mlp import mlp

    module, (x,), _ = mlp()
    save_file(module.state_dict(), scratch() / "four.safetensors")
    model = built("mlp")
    (found,) = model.run({"x": x.numpy()}, "--weights", str(scratch() / "four.safetensors")).values()
    assert np.abs(found - module(x).detach().numpy()).max() <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_large_model_is_as_exact_as_pytorch(name: str) -> None:
    model = built(*LARGE[name])
    for inputs in (model.source.inputs, random_inputs(model.source, 1)):
        assert inputs is not None
        model.check(inputs)


@pytest.mark.slow
def test_minilm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The public all-MiniLM-L6-v2, its published weights in transformers' BertModel."""
    try:
        fetch("minilm_config")
        folder = fetch("minilm_weights").parent
    except FetchError as error:
        pytest.skip(f"it cannot be fetched: {error}")
    monkeypatch.setenv("CASTIRON_MINILM", str(folder))
    model = built("bert")
    for seed, sizes in enumerate([(2, 7), (1, 128), (4, 20)]):
        model.check(sized(model, sizes, seed))
