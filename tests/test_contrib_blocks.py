"""Weights of few bits of `com.microsoft`, natively, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from contrib.check import case, check

_RANDOM = np.random.default_rng(17)
NEAR = {"rtol": 1e-3, "atol": 1e-3}
"""onnxruntime sums in another order; with `accuracy_level` 0 it computes in float32."""


def f(*shape: int) -> np.ndarray:
    return _RANDOM.standard_normal(shape, np.float32)


def u(*shape: int) -> np.ndarray:
    return _RANDOM.integers(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_matmul_bits(bits: int) -> None:
    n, block = 5, 16
    cases = []
    for k in (48, 40):
        blocks = -(-k // block)
        at = {"K": k, "N": n, "bits": bits, "block_size": block, **NEAR}
        a = [f(m, 3, k) for m in (1, 4)]
        held = {1: u(n, blocks, block * bits // 8), 2: f(n * blocks)}
        zeros = u(n * -(-blocks * bits // 8))
        groups = _RANDOM.integers(0, blocks, k).astype(np.int32)
        cases.append(case(f"bits{bits}_{k}", "MatMulNBits", [[x, None, None] for x in a], known=held, **at))
        cases.append(
            case(f"zeros{bits}_{k}", "MatMulNBits", [[x, *[None] * 3] for x in a], known={**held, 3: zeros}, **at)
        )
        if bits == 4:
            full = {**held, 3: zeros, 5: f(n)}
            cases.append(case(f"bias_{k}", "MatMulNBits", [[x, *[None] * 5] for x in a], known=full, **at))
            real = {**held, 3: f(n * blocks)}
            cases.append(case(f"real_{k}", "MatMulNBits", [[x, *[None] * 3] for x in a], known=real, **at))
            grouped = {**held, 4: groups}
            cases.append(case(f"groups_{k}", "MatMulNBits", [[x, *[None] * 4] for x in a], known=grouped, **at))
    check(cases)


@pytest.mark.parametrize("kind", [0, 1])
def test_matmul_bnb4(kind: int) -> None:
    k, n, block = 32, 6, 16
    held = {1: u(n * k // 2), 2: np.abs(f(n * k // block))}
    sets = [[f(m, k), None, None] for m in (1, 5)]
    at = {"K": k, "N": n, "block_size": block, "quant_type": kind, **NEAR}
    check([case(f"bnb4_{kind}", "MatMulBnb4", sets, known=held, **at)])


def test_gather_blocks() -> None:
    places = [_RANDOM.integers(0, 7, s) for s in ((2, 3), (1, 4))]
    at = {"block_size": 16, "gather_axis": 0, "quantize_axis": 1, "types": [1]}
    eight, four = {0: u(7, 40), 2: f(7, 3), 3: u(7, 3)}, {0: u(7, 20), 2: f(7, 3)}
    check(
        [
            case("rows8", "GatherBlockQuantized", [[None, p, None, None] for p in places], known=eight, bits=8, **at),
            case("rows4", "GatherBlockQuantized", [[None, p, None] for p in places], known=four, bits=4, **at),
        ]
    )
