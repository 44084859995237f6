"""Models that together use every kind of step, and the sizes to run them at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import castiron

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Model:
    """`make` gives what `castiron.build` takes: a path, or (module, example inputs, dynamic shapes).

    `runs`: sizes by name, as driver.c reads them: none, one, odd, larger, smaller again; `ints` is where integers end,
    beyond the table they index in the last ones. `parallel`: runs long enough to be shared out among threads."""

    make: Callable[[], Any]
    runs: tuple[str, ...]
    parallel: tuple[str, ...] = ()

    def source(self, name: str, folder: Path) -> Path:
        """The model's C in a new folder."""
        made = self.make()
        module, inputs, *shapes = made if isinstance(made, tuple) else (made, None)
        out = folder / "source"
        castiron.build(
            module,
            out,
            example_inputs=inputs,
            dynamic_shapes=shapes[0] if shapes else None,
            form="source",
            name=name,
            verify=False,
        )
        return out


def _zoo(name: str, *arguments: Any) -> Callable[[], Any]:
    def make() -> Any:
        from tests import zoo

        return getattr(zoo, name)(*arguments)

    return make


def _public(name: str) -> Callable[[], Any]:
    def make() -> Any:
        from examples.fetch import fetch

        return fetch(name)

    return make


def _convolutions() -> Any:
    import torch
    from torch import nn
    from torch.export import Dim
    from torch.nn import functional as f

    class Convolutions(nn.Module):
        """Strides, pads, groups, depth-wise, dilated, transposed; pools of all kinds; batch norm; activations."""

        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 20, 3, stride=2, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(20)
            self.depthwise = nn.Conv2d(20, 20, 3, padding=1, groups=20)
            self.grouped = nn.Conv2d(20, 12, 3, padding=2, dilation=2, groups=4)
            self.up = nn.ConvTranspose2d(12, 7, 3, stride=2, padding=1, output_padding=1)
            self.wider = nn.ConvTranspose2d(7, 6, 2)
            self.pointwise = nn.Conv2d(6, 33, 1)
            self.head = nn.Linear(33, 5)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x = f.max_pool2d(torch.relu(self.norm(self.first(x))), 3, 2, 1)
            x = torch.sigmoid(self.grouped(f.silu(self.depthwise(x))))
            x = torch.tanh(self.up(f.avg_pool2d(x, 2, 1, 1, count_include_pad=False)))
            y = f.pad(self.pointwise(f.leaky_relu(self.wider(x))), (1, 2, 0, 1))
            return self.head(f.adaptive_avg_pool2d(y, 1).flatten(1)), y

    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = {0: Dim("batch"), 2: Dim("h"), 3: Dim("w")}
        return Convolutions().eval(), (torch.randn(2, 3, 33, 29),), (sizes,)


_TAGGER = (
    "batch=0,length=3,ints=50",
    "batch=3,length=0,ints=50",
    "batch=1,length=1,ints=50",
    "batch=3,length=7,ints=50,low=-50",
    "batch=17,length=9,ints=50",
    "batch=2,length=5,ints=50",
    "batch=1,length=5,ints=70",
    "batch=0,length=0",
)
_TAGGER_PARALLEL = ("batch=64,length=33,ints=50,users=3", "batch=3,length=9,users=3")

MODELS = {
    "mlp": Model(lambda: ROOT / "examples/mlp.onnx", ("batch=0", "batch=1", "batch=33", "batch=2")),
    "convolutions": Model(
        _convolutions,
        (
            "batch=0,h=9,w=9",
            "batch=1,h=1,w=1",
            "batch=2,h=33,w=29",
            "batch=3,h=17,w=64",
            "batch=1,h=0,w=5",
            "batch=1,h=12,w=5",
        ),
        ("batch=4,h=63,w=64,users=2", "batch=1,h=9,w=9", "batch=8,h=44,w=64"),
    ),
    "tagger_lstm": Model(_zoo("lstm_tagger", 50, 12, 20, 5), _TAGGER, _TAGGER_PARALLEL),
    "tagger_gru": Model(_zoo("gru_tagger", 50, 12, 20, 5), _TAGGER, _TAGGER_PARALLEL),
    "transformer": Model(
        _zoo("transformer_layer"),
        ("batch=0,length=3", "batch=3,length=0", "batch=1,length=1", "batch=2,length=33", "batch=3,length=5"),
        ("batch=16,length=33,users=3", "batch=3,length=7,users=2", "batch=32,length=40"),
    ),
    "attacut_c": Model(
        _public("attacut_c"),
        ("seq_len=0,ints=20", "seq_len=1,ints=20", "seq_len=133,ints=20", "seq_len=5,ints=20", "seq_len=9,ints=2000"),
    ),
    "silero_vad": Model(_public("silero_vad"), ("seed=0", "seed=1")),
    "decoder": Model(
        _public("romanize_arabic_decoder"),
        (
            "batch=1,tgt_len=1,src_len=1,ints=20",
            "batch=0,tgt_len=2,src_len=5,ints=20",
            "batch=2,tgt_len=0,src_len=5,ints=20",
            "batch=2,tgt_len=3,src_len=0,ints=20",
            "batch=4,tgt_len=19,src_len=23,ints=20",
            "batch=2,tgt_len=3,src_len=4,ints=20",
            "batch=1,tgt_len=2,src_len=2,ints=2000",
        ),
    ),
}
