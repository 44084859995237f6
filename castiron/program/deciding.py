"""What the kernels mean whose results tell sizes, in NumPy; the plain reference of `runtime/kernels/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

Arrays = Mapping[str, np.ndarray]
Reference = Callable[[Arrays, Arrays, Mapping[str, float]], None]


def _select(operands: Arrays, outputs: Arrays, params: Mapping[str, float]) -> None:
    found = np.flatnonzero(operands["flags"])
    outputs["positions"].reshape(-1)[: len(found)] = found
    outputs["count"].reshape(-1)[0] = len(found)


def _box(at: np.ndarray, centered: bool) -> np.ndarray:
    if centered:
        x, y, width, height = at
        half = np.float32(2)
        return np.array([y - height / half, x - width / half, y + height / half, x + width / half], np.float32)
    return np.concatenate([np.minimum(at[:2], at[2:]), np.maximum(at[:2], at[2:])])


def _overlap(a: np.ndarray, b: np.ndarray) -> float:
    """What two boxes share, of what they cover together."""
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    both = sides[0] * sides[1] if (sides > 0).all() else np.float32(0)
    either = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - both
    return float(both / either) if either > 0 else 0.0


def _nms(operands: Arrays, outputs: Arrays, params: Mapping[str, float]) -> None:
    boxes, scores, found = operands["boxes"], operands["scores"], []
    most, limit = (operands[n].item() if n in operands else 0 for n in ("most", "overlap"))
    for batch, kind in np.ndindex(*scores.shape[:2]):
        left = list(np.argsort(-scores[batch, kind], kind="stable"))
        if "threshold" in operands:
            left = [i for i in left if scores[batch, kind, i] > operands["threshold"].item()]
        for _ in range(most):
            if not left:
                break
            found.append((batch, kind, left[0]))
            kept = _box(boxes[batch, left[0]], bool(params["centered"]))
            left = [i for i in left[1:] if _overlap(kept, _box(boxes[batch, i], bool(params["centered"]))) <= limit]
    outputs["selected"][: len(found)] = np.array(found, np.int64).reshape(-1, 3)
    outputs["count"].reshape(-1)[0] = len(found)


DECIDING: Mapping[str, Reference] = {"select": _select, "nms_run": _nms}
