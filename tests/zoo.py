"""Models in plain PyTorch to compile: a function gives (module, example inputs) and, where sizes vary, dynamic shapes.

Weights are random but seeded, and batch-norm statistics are not trivial, so that a wrong fold shows.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

Made = tuple[Any, ...]


def _seeded(make: Callable[..., Made]) -> Callable[..., Made]:
    @functools.wraps(make)
    def seeded(*args: Any, **kwargs: Any) -> Made:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            module, *rest = make(*args, **kwargs)
            _settle(module)
        return module.eval(), *rest

    return seeded


def _settle(module: nn.Module) -> None:
    """Statistics and scales as after some training."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(part.running_mean, -0.2, 0.2)
            nn.init.uniform_(part.running_var, 0.6, 1.4)
            nn.init.uniform_(part.weight, 0.7, 1.3)
            nn.init.uniform_(part.bias, -0.1, 0.1)


# Perceptrons ------------------------------------------------------------------------------------------------


class Mlp(nn.Module):
    """Fully connected layers with ReLU between them."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(sizes[0], sizes[1])
        self.fc2 = nn.Linear(sizes[1], sizes[2])

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


@_seeded
def mlp() -> Made:
    """4-8-3, any batch."""
    return Mlp(4, 8, 3), (torch.randn(2, 4),), ({0: Dim("batch")},)


# Convolutional networks -------------------------------------------------------------------------------------


def _conv(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and the identity (He et al. 2015, ResNet-18 and -34)."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = _conv(inputs, width, 3, stride), _conv(width, width)
        same = stride == 1 and inputs == width
        self.downsample = nn.Identity() if same else _conv(inputs, width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.conv2(torch.relu(self.conv1(x))) + self.downsample(x))


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 and the identity (ResNet-50; the stride is at the 3x3)."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        out = width * self.expansion
        self.conv1, self.conv2, self.conv3 = (
            _conv(inputs, width, 1),
            _conv(width, width, 3, stride),
            _conv(width, out, 1),
        )
        self.downsample = nn.Identity() if stride == 1 and inputs == out else _conv(inputs, out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv3(torch.relu(self.conv2(torch.relu(self.conv1(x)))))
        return torch.relu(y + self.downsample(x))


class ResNet(nn.Module):
    """A stem, four stages of `depths` blocks, a classifier of 1000 classes."""

    def __init__(self, block: type[BasicBlock | Bottleneck], depths: tuple[int, ...]) -> None:
        super().__init__()
        self.stem = _conv(3, 64, 7, 2)
        self.pool = nn.MaxPool2d(3, 2, 1)
        inputs, stages = 64, []
        for stage, depth in enumerate(depths):
            width = 64 << stage
            for i in range(depth):
                stages.append(block(inputs, width, 2 if i == 0 and stage > 0 else 1))
                inputs = width * block.expansion
        self.stages = nn.Sequential(*stages)
        self.fc = nn.Linear(inputs, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.pool(torch.relu(self.stem(x))))
        return self.fc(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


@_seeded
def resnet18(size: int = 224) -> Made:
    """ResNet-18, one image."""
    return ResNet(BasicBlock, (2, 2, 2, 2)), (torch.randn(1, 3, size, size),)


@_seeded
def resnet50(size: int = 224) -> Made:
    """ResNet-50, one image."""
    return ResNet(Bottleneck, (3, 4, 6, 3)), (torch.randn(1, 3, size, size),)


@_seeded
def resnet18_batch() -> Made:
    """ResNet-18, any batch."""
    return ResNet(BasicBlock, (2, 2, 2, 2)), (torch.randn(2, 3, 224, 224),), ({0: Dim("batch")},)


class InvertedResidual(nn.Module):
    """Expand, depthwise, project (Sandler et al. 2018)."""

    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        inner = inputs * expand
        layers: list[nn.Module] = [] if expand == 1 else [_conv(inputs, inner, 1), nn.ReLU6()]
        layers += [_conv(inner, inner, 3, stride, inner), nn.ReLU6(), _conv(inner, outputs, 1)]
        self.layers = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


@_seeded
def mobilenet_v2(size: int = 224) -> Made:
    """MobileNetV2, width 1, one image."""
    layers: list[nn.Module] = [_conv(3, 32, 3, 2), nn.ReLU6()]
    inputs = 32
    settings = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expand, outputs, repeats, stride in settings:
        for i in range(repeats):
            layers.append(InvertedResidual(inputs, outputs, stride if i == 0 else 1, expand))
            inputs = outputs
    layers += [
        _conv(inputs, 1280, 1),
        nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(1280, 1000),
    ]
    return nn.Sequential(*layers), (torch.randn(1, 3, size, size),)


class UNet(nn.Module):
    """Four levels down and up with skips (Ronneberger et al. 2015); transposed convolutions go up."""

    def __init__(self, channels: int = 32, classes: int = 2) -> None:
        super().__init__()
        widths = [channels << i for i in range(5)]
        self.down = nn.ModuleList(self._double(a, b) for a, b in zip([3, *widths], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.merge = nn.ModuleList(self._double(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(channels, classes, 1)

    @staticmethod
    def _double(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(_conv(inputs, outputs), nn.ReLU(), _conv(outputs, outputs), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for level, down in enumerate(self.down):
            x = down(x if level == 0 else nn.functional.max_pool2d(x, 2))
            skips.append(x)
        for up, merge, skip in zip(self.up, self.merge, reversed(skips[:-1])):
            x = merge(torch.cat([skip, up(x)], 1))
        return self.head(x)


@_seeded
def unet(channels: int = 32, size: int = 256) -> Made:
    """U-Net with 32 channels at the top, one image."""
    return UNet(channels), (torch.randn(1, 3, size, size),)


# Transformers -----------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Self-attention of several heads, one projection for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(batch, tokens, width))


class EncoderBlock(nn.Module):
    """Pre-norm attention and perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """Patches, a class token, learnt positions, `depth` blocks (Dosovitskiy et al. 2021)."""

    def __init__(self, width: int, depth: int, heads: int, patch: int, size: int, classes: int = 1000) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(EncoderBlock(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


@_seeded
def vit_small(width: int = 384, depth: int = 12, heads: int = 6, patch: int = 16, size: int = 224) -> Made:
    """ViT-S/16, one image."""
    return VisionTransformer(width, depth, heads, patch, size), (torch.randn(1, 3, size, size),)


@_seeded
def transformer_layer() -> Made:
    """torch's own encoder layer, any batch and length."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    return layer, (torch.randn(2, 5, 32),), ({0: Dim("batch"), 1: Dim("length")},)


@_seeded
def bert(layers: int | None = None) -> Made:
    """all-MiniLM-L6-v2's encoder: fetched weights where CASTIRON_MINILM names their folder, else random ones."""
    from transformers import BertConfig, BertModel

    folder = Path(os.environ.get("CASTIRON_MINILM", ""))
    fetched = (folder / "config.json").is_file() and bool(folder.name)
    known = json.loads((folder / "config.json").read_text()) if fetched else _MINILM
    config = BertConfig(
        **{**known, **({} if layers is None else {"num_hidden_layers": layers})}, attn_implementation="sdpa"
    )
    model = BertModel(config, add_pooling_layer=False)
    if fetched:
        from safetensors.torch import load_file

        model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    ids = torch.randint(0, config.vocab_size, (2, 7))
    sizes = {0: Dim("batch"), 1: Dim("tokens", max=config.max_position_embeddings)}
    return _LastHidden(model), (ids, torch.ones_like(ids)), (sizes, sizes)


_MINILM = {
    "hidden_size": 384,
    "intermediate_size": 1536,
    "num_attention_heads": 12,
    "num_hidden_layers": 6,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
}


class _LastHidden(nn.Module):
    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


# Recurrent networks -----------------------------------------------------------------------------------------


class Tagger(nn.Module):
    """Embedding, a bidirectional recurrent layer, a class for each token."""

    def __init__(self, cell: type[nn.LSTM | nn.GRU], words: int, width: int, hidden: int, tags: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.rnn = cell(width, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, tags)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.rnn(self.embedding(tokens))[0])


@_seeded
def lstm_tagger(words: int = 1000, width: int = 64, hidden: int = 96, tags: int = 17) -> Made:
    """LSTM tagger, any batch and length."""
    return _tagger(nn.LSTM, words, width, hidden, tags)


@_seeded
def gru_tagger(words: int = 1000, width: int = 64, hidden: int = 96, tags: int = 17) -> Made:
    """GRU tagger, any batch and length."""
    return _tagger(nn.GRU, words, width, hidden, tags)


def _tagger(cell: type[nn.LSTM | nn.GRU], words: int, width: int, hidden: int, tags: int) -> Made:
    sizes = {0: Dim("batch"), 1: Dim("length")}
    return Tagger(cell, words, width, hidden, tags), (torch.randint(0, words, (2, 5)),), (sizes,)
