"""The smallest useful model, in PyTorch: 4 → 8 → 3 with a ReLU. `mlp.onnx` beside this file is its export.

castiron build examples/mlp.py:mlp -o mlp
python -m examples.mlp                     writes mlp.onnx and mlp.safetensors anew
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """Two linear layers with a ReLU between them: [batch, 4] → [batch, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(4, 8)
        self.fc2 = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        """x: [batch, 4] float32."""
        y: Tensor = self.fc2(torch.relu(self.fc1(x)))
        return y


def mlp() -> tuple[nn.Module, tuple[Tensor, ...], dict[str, dict[int, str]]]:
    """The module with seeded weights, its example input (x[k] = 0.1 k - 0.5) and its symbolic batch."""
    torch.manual_seed(0)
    x = torch.from_numpy((0.1 * np.arange(16) - 0.5).astype(np.float32).reshape(4, 4))
    return MLP().eval(), (x,), {"x": {0: "batch"}}


def main() -> None:
    """Exports the model."""
    from safetensors.torch import save_file

    module, arguments, shapes = mlp()
    here = Path(__file__).parent
    program = torch.onnx.export(
        module,
        arguments,
        dynamo=True,
        optimize=False,
        dynamic_shapes=shapes,
        input_names=["x"],
        output_names=["y"],
        verbose=False,
    )
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.pop("pkg.torch.onnx.stack_trace", None)  # it names files of the machine that exports
    program.save(here / "mlp.onnx")
    save_file(module.state_dict(), here / "mlp.safetensors")


if __name__ == "__main__":
    main()
