"""Operators of onnx.reference (release 1.23) that are too slow for whole models there, or wrong, in plain NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_batch_normalization import BatchNormalization_14
from onnx.reference.ops.op_dequantize_linear import _CommonDequantizeLinear
from onnx.reference.ops.op_max_pool import MaxPool as _SlowMaxPool


def _pads(
    auto_pad: str | None, pads: Sequence[int] | None, size: Sequence[int], reach: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int]]:
    """Padding before and after each spatial dimension; `reach`: how far the dilated kernel extends."""
    rank = len(size)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        total = [max(0, (-(-n // s) - 1) * s + r - n) for n, r, s in zip(size, reach, strides, strict=True)]
        small = [(t // 2, t - t // 2) for t in total]
        return small if auto_pad == "SAME_UPPER" else [(b, a) for a, b in small]
    if auto_pad == "VALID" or not pads:
        return [(0, 0)] * rank
    return list(zip(pads[:rank], pads[rank:], strict=True))


def _windows(x: np.ndarray, kernel: Sequence[int], attributes: Mapping[str, Any], fill: float) -> np.ndarray:
    """[N, C, out…, kernel…]: what each output element sees. `attributes`: strides, dilations, pads, auto_pad."""
    rank = len(kernel)
    strides, dilations = (attributes.get(name) or [1] * rank for name in ("strides", "dilations"))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    border = _pads(attributes.get("auto_pad"), attributes.get("pads"), x.shape[2:], reach, strides)
    padded = np.pad(x, [(0, 0), (0, 0), *border], constant_values=fill)
    every = sliding_window_view(padded, reach, axis=tuple(range(2, 2 + rank)))
    steps = [slice(None, None, s) for s in strides] + [slice(None, None, d) for d in dilations]
    return every[(slice(None), slice(None), *steps)]


class Conv(OpRun):
    """Convolution as one matrix product a group, or a sum over the taps where a group has one channel."""

    def _run(
        self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None, group: int = 1, **attributes: Any
    ) -> tuple[np.ndarray]:
        rank = x.ndim - 2
        kernel = w.shape[2:]
        seen = _windows(x, kernel, attributes, 0)
        if group == x.shape[1] == w.shape[0]:
            y = sum(
                seen[(..., *tap)] * w[(slice(None), 0, *tap)].reshape(-1, *[1] * rank) for tap in np.ndindex(*kernel)
            )
        else:
            parts = zip(np.split(seen, group, axis=1), np.split(w, group, axis=0), strict=True)
            y = np.concatenate([_products(xs, ws) for xs, ws in parts], axis=1)
        return ((y if b is None else y + b.reshape(-1, *[1] * rank)).astype(x.dtype),)


def _products(seen: np.ndarray, w: np.ndarray) -> np.ndarray:
    """[N, C, out…, kernel…], [O, C, kernel…] -> [N, O, out…]."""
    rank = w.ndim - 2
    columns = np.moveaxis(seen, 1, 1 + rank)  # [N, out…, C, kernel…]
    y = columns.reshape(-1, w[0].size) @ w.reshape(len(w), -1).T
    return np.moveaxis(y.reshape(*columns.shape[: 1 + rank], -1), -1, 1)


class MaxPool(_SlowMaxPool):  # type: ignore[misc]  # onnx.reference has no types
    """The maximum over the taps; pools with `ceil_mode` or indices stay with onnx.reference."""

    def _run(self, x: np.ndarray, **attributes: Any) -> tuple[np.ndarray, ...]:  # type: ignore[override]  # as OpRun's are
        if attributes.get("ceil_mode") or len(self.onnx_node.output) > 1:
            return tuple(super()._run(x, **attributes))  # type: ignore[no-untyped-call]  # it has no types
        kernel = attributes["kernel_shape"]
        lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        seen = _windows(x, kernel, attributes, lowest)
        return (reduce(np.maximum, (seen[(..., *tap)] for tap in np.ndindex(*kernel))),)


class GlobalMaxPool(OpRun):
    """onnx.reference reduces the wrong axes where there are not two spatial ones."""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class BatchNormalization(BatchNormalization_14):  # type: ignore[misc]  # likewise
    """onnx.reference takes the statistics of the batch before opset 14 although only the first output is asked for."""

    def _run(  # type: ignore[override]  # likewise
        self, *inputs: np.ndarray, epsilon: float = 1e-5, momentum: float = 0.9, **flags: Any
    ) -> Any:
        training = int(bool(flags.get("training_mode")) and len(self.onnx_node.output) > 1)
        return super()._run(*inputs, epsilon, momentum, training)  # type: ignore[no-untyped-call, call-arg]  # likewise


class DequantizeLinear(_CommonDequantizeLinear):  # type: ignore[misc]  # onnx.reference has no types
    """onnx.reference does not know it before opset 19."""


OPERATORS = [BatchNormalization, Conv, DequantizeLinear, GlobalMaxPool, MaxPool]
