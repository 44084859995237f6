"""Operators of onnx.reference that it computes too slowly for whole models, or wrongly (release 1.23), in plain NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from onnx.reference.op_run import OpRun


def _pads(auto_pad: str, pads: Sequence[int] | None, size: Sequence[int], reach: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Padding before and after each spatial dimension; `reach`: how far the dilated kernel extends."""
    rank = len(size)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        total = [max(0, (-(-n // s) - 1) * s + r - n) for n, r, s in zip(size, reach, strides, strict=True)]
        small = [(t // 2, t - t // 2) for t in total]
        return small if auto_pad == "SAME_UPPER" else [(b, a) for a, b in small]
    if auto_pad == "VALID" or not pads:
        return [(0, 0)] * rank
    return list(zip(pads[:rank], pads[rank:], strict=True))


def _windows(x: np.ndarray, kernel: Sequence[int], pads: Sequence[tuple[int, int]], strides: Sequence[int], dilations: Sequence[int], fill: float) -> np.ndarray:
    """[N, C, out…, kernel…]: what each output element sees."""
    rank = len(kernel)
    padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=fill)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    every = sliding_window_view(padded, reach, axis=tuple(range(2, 2 + rank)))
    steps = [slice(None, None, s) for s in strides] + [slice(None, None, d) for d in dilations]
    return every[(slice(None), slice(None), *steps)]


class Conv(OpRun):
    """Convolution as one matrix product a group."""

    def _run(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None, auto_pad: str = "NOTSET", dilations: Any = None,
             group: int = 1, kernel_shape: Any = None, pads: Any = None, strides: Any = None) -> tuple[np.ndarray]:  # fmt: skip
        rank = x.ndim - 2
        kernel, strides, dilations = w.shape[2:], strides or [1] * rank, dilations or [1] * rank
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        border = _pads(auto_pad, pads, x.shape[2:], reach, strides)
        parts = []
        for xs, ws in zip(np.split(x, group, axis=1), np.split(w, group, axis=0), strict=True):
            seen = _windows(xs, kernel, border, strides, dilations, 0)
            seen = np.moveaxis(seen, 1, 1 + rank)  # [N, out…, C, kernel…]
            rows = seen.reshape(*seen.shape[: 1 + rank], -1)
            parts.append(np.moveaxis(rows @ ws.reshape(ws.shape[0], -1).T, -1, 1))
        y = np.concatenate(parts, axis=1)
        return ((y if b is None else y + b.reshape(-1, *[1] * rank)).astype(x.dtype),)


class GlobalMaxPool(OpRun):
    """onnx.reference reduces the wrong axes where there are not two spatial ones."""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


OPERATORS = [Conv, GlobalMaxPool]
