"""Cases of groups, kernels, views and sizes known at run time. Importing adds them to CASES."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from castiron.program.builder import Builder, Tensor
from castiron.program.expr import Acc, Var, apply, constant, select, substitute
from castiron.program.types import Compute, Group, Kind, Size
from tests.emit import harness
from tests.emit.case import CASES, F32, case, data, output, total

# Groups ---------------------------------------------------------------------------------------------------------------


def group(build: Builder, shared: int) -> None:
    """All steps so far as one group over the leading `shared` axes of the first."""
    axes = build.steps[0].axes[:shared]
    parts = []
    for step in build.steps:
        assert isinstance(step, Compute)
        rename = {old.name: new.var for old, new in zip(step.axes[:shared], axes, strict=True)}
        index = tuple(substitute(i, rename) for i in step.index)
        parts.append(
            replace(step, axes=(*axes, *step.axes[shared:]), index=index, value=substitute(step.value, rename))
        )
    build.steps = [Group("group", axes, tuple(parts))]


def _softmax(rows: tuple[int, ...], n: int) -> Callable[..., Tensor]:
    def body(b: Builder, x: Tensor) -> Tensor:
        high, exps, sums = b.temp(F32, rows, "high"), b.temp(F32, (*rows, n), "exps"), b.temp(F32, rows, "sums")
        b.compute(high, lambda *i: total("max", b, [n], lambda k: x.load(*i, k)))
        b.compute(exps, lambda *i: apply("exp", x.load(*i) - high.load(*i[:-1])))
        b.compute(sums, lambda *i: total("sum", b, [n], lambda k: exps.load(*i, k)))
        out = b.compute(output(b, F32, *rows, n), lambda *i: exps.load(*i) / sums.load(*i[:-1]))
        group(b, len(rows))
        return out

    return body


case("softmax", {"x": (F32, 2, 3, 5, 400)}, _softmax((2, 3, 5), 400), local=("high", "sums"))
case("softmax_one", {"x": (F32, 1, 12)}, _softmax((1,), 12), local=("high",))
case("softmax_memory", {"x": (F32, 40, 100)}, _softmax((40,), 100), same={"exps": "y"})

# Kernels --------------------------------------------------------------------------------------------------------------


def panels(build: Builder, w: Tensor, n: int, k: int, batch: int = 1) -> Tensor:
    """[batch, K, N] packed in panels."""
    packed = build.temp(F32, (batch, -(-n // 16), k, 16), "panels")
    return build.compute(packed, lambda g, p, i, c: select(p * 16 + c < n, w.load(g, i, p * 16 + c), 0.0))


def _matmul(
    batch: tuple[int, int], m: int, k: int, n: int, shared: bool, transposed: bool = False
) -> Callable[..., Tensor]:
    def body(b: Builder, x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        packed = panels(b, w, n, k, 1 if shared else batch[1])
        out = output(b, F32, *((batch[0], m, batch[1], n) if transposed else (*batch, m, n)))
        axes, (inner,) = b.axes((1, *batch, m, n)), b.axes((k,))
        _, b1, b2, row, col = (a.var for a in axes)
        zero = constant(0)
        operands = {"a": x.load(b1, b2, row, inner.var), "b": packed.load(zero if shared else b2, zero, zero, zero)}
        value = apply("max", Acc(F32) + bias.load(col), 0.0)
        index = (b1, row, b2, col) if transposed else (b1, b2, row, col)
        return b.tile_kernel("matmul", out, axes, (inner,), operands, index, value)

    return body


_SHAPES = {"x": (F32, 2, 3, 7, 10), "bias": (F32, 20)}
case("matmul", _SHAPES | {"w": (F32, 1, 10, 20)}, lambda b, x, bias, w: _matmul((2, 3), 7, 10, 20, True)(b, x, w, bias))
case(
    "matmul_batch",
    _SHAPES | {"w": (F32, 3, 10, 20)},
    lambda b, x, bias, w: _matmul((2, 3), 7, 10, 20, False)(b, x, w, bias),
)
case(
    "matmul_heads",
    _SHAPES | {"w": (F32, 1, 10, 20)},
    lambda b, x, bias, w: _matmul((2, 3), 7, 10, 20, True, True)(b, x, w, bias),
)


def _conv(groups: int, kernel: int, stride: int) -> Callable[..., Tensor]:
    """NHWC, no padding; channels 6 in, 20 out a group."""

    def body(b: Builder, x: Tensor, w: Tensor, skip: Tensor) -> Tensor:
        packed = b.temp(F32, (groups, 2, 1, kernel, kernel, 6, 16), "filter")
        b.compute(packed, lambda g, p, d, i, j, c, o: select(p * 16 + o < 20, w.load(g, p * 16 + o, c, i, j), 0.0))
        size = (10 - kernel) // stride + 1
        out = output(b, F32, 2, size, size, groups * 20)
        axes, inner = b.axes((2, groups, 1, size, size, 20)), b.axes((1, kernel, kernel, 6))
        n, g, _, h, v, o = (a.var for a in axes)
        _, i, j, c = (a.var for a in inner)
        zero = constant(0)
        operands = {"x": x.load(n, h * stride + i, v * stride + j, g * 6 + c), "filter": packed.load(g, *[zero] * 6)}
        index = (n, h, v, g * 20 + o)
        value = apply("tanh", Acc(F32) + skip.load(*index))
        return b.tile_kernel("conv", out, axes, inner, operands, index, value)

    return body


for _groups, _kernel, _stride in ((1, 3, 1), (1, 1, 1), (2, 3, 2), (2, 1, 1), (1, 1, 2)):
    _size = (10 - _kernel) // _stride + 1
    case(
        f"conv_{_groups}_{_kernel}_{_stride}",
        {
            "x": (F32, 2, 10, 10, 6 * _groups),
            "w": (F32, _groups, 20, 6, _kernel, _kernel),
            "skip": (F32, 2, _size, _size, 20 * _groups),
        },
        _conv(_groups, _kernel, _stride),
    )


def _gru(b: Builder, gates: Tensor, recurrent: Tensor) -> list[Tensor]:
    y, yh = output(b, F32, 3, 1, 2, 4), output(b, F32, 1, 2, 4, name="yh")
    scratch = b.temp(F32, (3 * 2 * 4 + 2 * 2 * 4,), "scratch")
    b.whole_kernel(
        "gru",
        {"y": y, "yh": yh, "scratch": scratch},
        {"gates": gates, "recurrent": recurrent},
        {
            "steps": 3,
            "batch": 2,
            "hidden": 4,
            "directions": 1,
            "direction": 0,
            "reverse": 0,
            "linear_before_reset": 0,
            "activations[0].kind": 0,
            "activations[1].kind": 1,
            "clip": 0.0,
        },
    )
    return [y, yh]


case("gru", {"gates": (F32, 3, 2, 12), "recurrent": (F32, 1, 4, 16)}, _gru)

# Memory and sizes -----------------------------------------------------------------------------------------------------


def _views(b: Builder, x: Tensor) -> Tensor:
    t = b.compute(b.temp(F32, (6, 4), "t"), lambda i, j: x.load(i, j) * 2.0)
    u = b.view(b.temp(F32, (3, 8), "u"), t)
    v = b.compute(b.temp(F32, (3, 8), "v"), lambda i, j: u.load(i, j) + 1.0)
    known = b.known(np.arange(8, dtype=np.float32), F32, "known")
    return b.compute(output(b, F32, 3, 8), lambda i, j: v.load(i, j) + known.load(j))


case("views_in_place", {"x": (F32, 6, 4)}, _views, same={"v": "t"})


def symbolic() -> None:
    """y = softmax over T of x[N, T] doubled through a temporary, and its length 2*T + 1 padded copy."""
    build = Builder()
    n, t = Var("N"), Var("T")
    build.sizes += [Size("N", "x", 0), Size("T", "x", 1), Size("T2", value=t * 2 + 1)]
    x = build.declare("x", F32, (n, t), Kind.INPUT)
    z = build.declare("z", F32, (n, 3, t), Kind.INPUT)
    twice = build.compute(build.temp(F32, (n, t), "twice"), lambda i, j: x.load(i, j) * 2.0)
    sums = build.compute(build.temp(F32, (n,), "sums"), lambda i: total("sum", build, [t], lambda k: twice.load(i, k)))
    out = build.compute(output(build, F32, n, 3, t), lambda i, j, k: z.load(i, j, k) + twice.load(i, k) / sums.load(i))
    wide = build.compute(
        output(build, F32, n, t * 2 + 1, name="wide"), lambda i, k: select(k < t, twice.load(i, k), -1.0)
    )
    flat = build.compute(output(build, F32, n * 3, t, name="flat"), lambda i, k: z.load(i // 3, i % 3, k))
    program = build.program("forward", ["x", "z"], [out.name, wide.name, flat.name])
    CASES["symbolic"] = harness.placed(program), {"x": data(F32, 5, 301), "z": data(F32, 5, 3, 301)}


symbolic()
