"""torch's own databases of operators and modules as modules with inputs: the first sample of each, in float32."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class Entry:
    """name: `nn_functional_conv2d`, `module_LSTM`. make: the module in eval mode and its inputs, all of them tensors."""

    name: str
    make: Any


class Calls(nn.Module):
    """An operator with everything but the tensors of its arguments fixed."""

    def __init__(self, function: Any, arguments: Any) -> None:
        super().__init__()
        self.function = function
        self.leaves, self.shape = pytree.tree_flatten(arguments)

    def forward(self, *tensors: Tensor) -> Any:
        """tensors: those of the arguments, in their order."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.shape)
        return self.function(*args, **kwargs)


def entries() -> list[Entry]:
    """All of both databases that float32 has, operators first."""
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db

    found = [Entry(_name(o.name, o.variant_test_name), _Operator(o)) for o in op_db if torch.float32 in o.dtypes]
    found += [Entry(_name("module", m.name.removeprefix("nn.")), _Module(m)) for m in module_db]
    assert len({e.name for e in found}) == len(found), "two entries of one name"
    return found


def _name(*parts: str) -> str:
    return re.sub(r"\W+", "_", "_".join(p for p in parts if p))


@dataclass(frozen=True)
class _Operator:
    info: Any

    def __call__(self) -> tuple[nn.Module, tuple[Tensor, ...]]:
        torch.manual_seed(0)
        sample = next(iter(self.info.sample_inputs("cpu", torch.float32, requires_grad=False)))
        arguments = (sample.input, *sample.args), sample.kwargs
        return Calls(self.info.op, arguments).eval(), tuple(_tensors(arguments))


@dataclass(frozen=True)
class _Module:
    info: Any

    def __call__(self) -> tuple[nn.Module, tuple[Tensor, ...]]:
        torch.manual_seed(0)
        samples = self.info.module_inputs_func(
            self.info, device="cpu", dtype=torch.float32, requires_grad=False, training=False
        )
        first = samples[0]
        made, called = first.constructor_input, first.forward_input
        module = self.info.module_cls(*made.args, **made.kwargs).eval()
        arguments = called.args, called.kwargs
        return Calls(module, arguments).eval(), tuple(_tensors(arguments))


def _tensors(tree: Any) -> Iterator[Tensor]:
    return (leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor))
