"""PyTorch's and burn's ways to store the same layer: the weight of a Linear is transposed, [in, out] in burn; norms have
`gamma` and `beta` in place of `weight` and `bias`. All else is as it is (burn's own adapters do these two as well).

Files say names, types and shapes, never of what class a layer is. What follows from them is used: a bias as long as the
other side of a 2-D weight makes it a Linear, a 1-D weight beside a 1-D bias a norm. What does not (a 2-D weight without a
bias may be a Linear's or an Embedding's) is asked for: a PyTorch module, or patterns of the names of Linear layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from castiron.errors import InputError, WeightsError
from castiron.options import Adapter
from castiron.weights.stored import Stored


@dataclass(frozen=True)
class Layers:
    """What layers are, by their names. linear: patterns, or None to tell by shapes. norms: names, or None likewise;
    known: names of all layers of a module, or None where only files are at hand."""

    linear: Sequence[str] | None = None
    norms: frozenset[str] | None = None
    known: frozenset[str] | None = None

    @staticmethod
    def of_module(module: Any) -> Layers:
        """Those of an nn.Module. A class of another library counts as a norm by its name (`LlamaRMSNorm`)."""
        from torch import nn

        named = dict(module.named_modules())
        linear = [name for name, layer in named.items() if isinstance(layer, nn.Linear)]
        norms = frozenset(name for name, layer in named.items() if _is_norm_class(layer))
        return Layers(linear, norms, frozenset(named))


def _is_norm_class(layer: Any) -> bool:
    from torch import nn

    own = nn.modules.batchnorm._NormBase | nn.LayerNorm | nn.GroupNorm
    return isinstance(layer, own) or type(layer).__name__.rstrip("123d").endswith("Norm")


@dataclass(frozen=True)
class Adapted:
    """A tensor's new name, and whether it is transposed."""

    name: str
    transposed: bool = False


_RENAMED = {
    Adapter.PYTORCH_TO_BURN: {"weight": "gamma", "bias": "beta"},
    Adapter.BURN_TO_PYTORCH: {"gamma": "weight", "beta": "bias"},
}
_OTHERWISE = ("weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l", "in_proj_weight", "in_proj_bias")
_BURN_GATES = ("_gate.input_transform.", "_gate.hidden_transform.")


def adapted(tensors: Sequence[Stored], adapter: Adapter, layers: Layers) -> dict[str, Adapted]:
    """What becomes of each tensor, by name. Raises WeightsError where that cannot be told, or two get one name."""
    shapes = {t.name: t.shape for t in tensors}
    if layers.known is not None:
        _refuse_strangers(shapes, layers.known)
    _refuse_idle_patterns(shapes, layers)
    out = {t.name: _one(t, shapes, adapter, layers) for t in tensors}
    seen: dict[str, str] = {}
    for name, result in out.items():
        if result.name in seen:
            raise WeightsError(f"tensors {seen[result.name]!r} and {name!r} would both be called {result.name!r}")
        seen[result.name] = name
    return out


def _refuse_idle_patterns(names: Iterable[str], layers: Layers) -> None:
    if layers.known is None:  # patterns of the user, not names of a module
        own = {_parted(name)[0] for name in names}
        idle = [p for p in layers.linear or () if not any(fnmatchcase(layer, p) for layer in own)]
        if idle:
            raise InputError(
                f"--linear {idle[0]} matches no layer of the file; its layers are {', '.join(sorted(own))}"
            )


def otherwise(names: Iterable[str]) -> list[str]:
    """Tensors of layers that burn splits into other parameters; they stay as they are, under names the other does not know."""
    return [n for n in names if _parted(n)[1].startswith(_OTHERWISE) or any(gate in n for gate in _BURN_GATES)]


def _one(tensor: Stored, shapes: Mapping[str, tuple[int, ...]], adapter: Adapter, layers: Layers) -> Adapted:
    layer, own = _parted(tensor.name)
    renamed = _RENAMED[adapter].get(own)
    if renamed and _is_norm(layer, own, shapes, layers):
        return Adapted(_joined(layer, renamed))
    if own == "weight" and len(tensor.shape) == 2 and _is_linear(tensor, layer, shapes, adapter, layers):
        return Adapted(tensor.name, transposed=True)
    return Adapted(tensor.name)


def _is_norm(layer: str, own: str, shapes: Mapping[str, tuple[int, ...]], layers: Layers) -> bool:
    if own in ("gamma", "beta"):
        return True
    if layers.norms is not None:
        return layer in layers.norms
    weight, bias = shapes.get(_joined(layer, "weight")), shapes.get(_joined(layer, "bias"))
    if weight is None or len(weight) != 1:
        return False
    if bias is None:
        raise WeightsError(
            f"tensor {_joined(layer, 'weight')!r} may be of a norm without a bias (gamma in burn) or of another layer, "
            "such as PReLU; the file does not say: give the PyTorch model with --model"
        )
    return bias == weight


def _is_linear(
    tensor: Stored, layer: str, shapes: Mapping[str, tuple[int, ...]], adapter: Adapter, layers: Layers
) -> bool:
    if layers.linear is not None:
        return any(fnmatchcase(layer, pattern) for pattern in layers.linear)
    bias = shapes.get(_joined(layer, "bias"))
    outputs, other = tensor.shape if adapter is Adapter.PYTORCH_TO_BURN else tensor.shape[::-1]
    ask = "give the PyTorch model with --model, or the names of its Linear layers with --linear"
    if bias is None:
        raise WeightsError(
            f"tensor {tensor.name!r} may be of a Linear without a bias (transposed in burn) or of an Embedding (not); "
            f"the file does not say: {ask}"
        )
    if bias != (outputs,):
        what = f"its bias has {list(bias)}, a Linear would have [{outputs}]"
        hint = ", as if it were stored the other way already" if bias == (other,) else ""
        raise WeightsError(f"tensor {tensor.name!r} is {list(tensor.shape)}, {what}{hint}: {ask}")
    return True


def _refuse_strangers(shapes: Mapping[str, Any], known: frozenset[str]) -> None:
    strangers = [name for name in shapes if _parted(name)[0] not in known]
    if strangers:
        raise InputError(
            f"the model of --model has no layer of tensor {strangers[0]!r} ({len(strangers)} such tensors)"
        )


def _parted(name: str) -> tuple[str, str]:
    layer, _, own = name.rpartition(".")
    return layer, own


def _joined(layer: str, own: str) -> str:
    return f"{layer}.{own}" if layer else own
