"""The geometry of sliding windows, for convolutions and pools: pads, strides, dilations, borders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from castiron.errors import Unsupported
from castiron.ops.common import ZERO, static
from castiron.ops.registry import Call
from castiron.program.builder import Builder, Tensor
from castiron.program.expr import Expr, all_of, apply, constant, select


@dataclass(frozen=True)
class Window:
    """Windows along one spatial dimension: window `o` covers `o*stride - before + t*dilation` for t < taps."""

    size: Expr
    out: Expr
    taps: int
    stride: int
    dilation: int
    before: Expr
    after: Expr

    @property
    def reach(self) -> int:
        """Distance from a window's first element to behind its last."""
        return (self.taps - 1) * self.dilation + 1

    def at(self, o: Expr, t: Expr) -> Expr:
        """Element t of window o, possibly in the border."""
        return o * self.stride + t * self.dilation - self.before

    def inside(self, i: Expr, overhang: bool = False) -> list[Expr]:
        """Conditions for element `i` not to be in the border; `overhang`: windows may end beyond the pad."""
        lower = [] if self.before is ZERO else [i >= 0]
        return lower + ([i < self.size] if overhang or self.after is not ZERO else [])

    def count(self, o: Expr, before: Expr, end: Expr) -> Expr:
        """How many elements of window o lie in [-before, end)."""
        start = o * self.stride - self.before
        first = apply("max", (-before - start + (self.dilation - 1)) // self.dilation, 0)
        last = apply("min", (end - start + (self.dilation - 1)) // self.dilation, self.taps)
        return apply("max", last - first, 0)


def windows(call: Call, x: Tensor, kernel: Sequence[Expr], out: Sequence[Expr]) -> list[Window]:
    """The windows of a Conv or a pool over x's dimensions from 2 on."""
    rank = len(kernel)
    strides = call.attribute("strides") or [1] * rank
    dilations = call.attribute("dilations") or [1] * rank
    taps = [_taps(call, k) for k in kernel]
    found = []
    for d in range(rank):
        reach = (taps[d] - 1) * dilations[d] + 1
        before, after = _pads(call, d, rank, x.shape[2 + d], strides[d], reach)
        found.append(Window(x.shape[2 + d], out[d], taps[d], strides[d], dilations[d], before, after))
    return found


def _taps(call: Call, size: Expr) -> int:
    taps = static(size)
    if taps is None:
        raise Unsupported(f"{call.node.op_type} {call.node.name!r}: the size of the kernel must be known at build")
    return taps


def _pads(call: Call, d: int, rank: int, size: Expr, stride: int, reach: int) -> tuple[Expr, Expr]:
    """The border before and after: as given, or such that ceil(size / stride) windows fit (auto_pad SAME_*)."""
    auto = call.attribute("auto_pad", "NOTSET")
    if auto == "VALID":
        return ZERO, ZERO
    if auto == "NOTSET":
        pads = call.attribute("pads") or [0] * (2 * rank)
        return constant(pads[d]), constant(pads[rank + d])
    total = apply("max", ((size + (stride - 1)) // stride - 1) * stride + reach - size, 0)
    small = total // 2
    return (small, total - small) if auto == "SAME_UPPER" else (total - small, small)


def bordered(build: Builder, x: Tensor, borders: Sequence[tuple[Expr, Expr]]) -> Tensor:
    """x with zeros around its dimensions from 2 on; x itself where there is no border."""
    if all(b is ZERO and a is ZERO for b, a in borders):
        return x
    spatial = [size + b + a for size, (b, a) in zip(x.shape[2:], borders, strict=True)]
    padded = build.temp(x.type, (*x.shape[:2], *spatial), f"{x.name}.padded")

    def value(*index: Expr) -> Expr:
        place, conditions = list(index[:2]), []
        for i, size, (before, after) in zip(index[2:], x.shape[2:], borders, strict=True):
            own = i - before
            place.append(own)
            conditions += [] if before is ZERO else [own >= 0]
            conditions += [] if after is ZERO else [own < size]
        return select(all_of(conditions), x.load(*place), constant(0, x.type))

    return build.compute(padded, value)
