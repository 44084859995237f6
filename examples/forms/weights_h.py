"""Writes weights.h: weights_h.py MLP.safetensors WEIGHTS.H. With --random, other weights of the same shapes."""

from __future__ import annotations

import sys

import numpy as np
from safetensors.numpy import load_file


def main() -> None:
    """One array of C a tensor."""
    tensors = load_file(sys.argv[1])
    random = np.random.default_rng(0)
    with open(sys.argv[2], "w") as out:
        for name, array in tensors.items():
            values = random.standard_normal(array.shape) if "--random" in sys.argv else array
            numbers = ", ".join(
                f"{value:.9g}f" if "." in f"{value:.9g}" else f"{value:.9g}.0f" for value in values.ravel()
            )
            out.write(f"static const float {name.replace('.', '_')}[] = {{{numbers}}};\n")


if __name__ == "__main__":
    main()
