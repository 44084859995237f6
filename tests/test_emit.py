"""The printer: hand-made programs, printed, compiled, run, against what the program means in NumPy (program/run.py)."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx_ir import DataType

from castiron.emit.writer import comment, indented, quoted
from castiron.program.builder import Builder, Tensor
from castiron.program.expr import (
    Acc,
    Expr,
    Reduce,
    Var,
    all_of,
    apply,
    cast,
    constant,
    select,
    substitute,
)
from castiron.program.planned import Planned
from castiron.program.run import run as interpret
from castiron.program.types import Compute, Group, Kind, Size
from tests.emit import harness

F32, F64, F16, BF16 = DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16, DataType.BFLOAT16
I8, I32, I64, U8, BOOL = DataType.INT8, DataType.INT32, DataType.INT64, DataType.UINT8, DataType.BOOL
CASES: dict[str, tuple[Planned, dict[str, np.ndarray]]] = {}
RANDOM = np.random.default_rng(7)


def data(type: DataType, *shape: int) -> np.ndarray:
    if type == BOOL:
        return RANDOM.random(shape) < 0.5
    if type.is_integer():
        low = 0 if type.min == 0 else -100
        return RANDOM.integers(low, 100, shape).astype(type.numpy())
    return RANDOM.standard_normal(shape).astype(type.numpy())


def case(name: str, inputs: dict[str, tuple], body: Callable[..., Tensor | list[Tensor]], **plan) -> None:
    """A case of one program; inputs: name -> (type, extents…); `body` gets the Builder and the inputs."""
    build = Builder()
    tensors = [build.declare(n, t, shape, Kind.INPUT) for n, (t, *shape) in inputs.items()]
    out = body(build, *tensors)
    outs = out if isinstance(out, list) else [out]
    program = build.program("forward", list(inputs), [o.name for o in outs])
    CASES[name] = harness.placed(program, **plan), {n: data(t, *shape) for n, (t, *shape) in inputs.items()}


def output(build: Builder, type: DataType, *shape, name: str = "y") -> Tensor:
    return build.declare(name, type, shape, Kind.OUTPUT)


def total(op: str, build: Builder, extents, value: Callable[..., Expr]) -> Expr:
    axes = build.axes(extents)
    return Reduce(op, axes, value(*(a.var for a in axes)))


def unary(op: str) -> Callable[..., Tensor]:
    return lambda b, x: b.compute(output(b, x.type, *x.shape), lambda *i: apply(op, x.load(*i)))


# Movement and element-wise ------------------------------------------------------------------------------------------

case(
    "broadcast",
    {"x": (F32, 3, 1, 5), "z": (F32, 4, 1)},
    lambda b, x, z: b.compute(output(b, F32, 3, 4, 5), lambda *i: x.broadcast(i) * z.broadcast(i) - 2.0),
)
case(
    "flat",
    {"x": (F32, 3, 4, 5), "z": (F32, 3, 4, 5)},
    lambda b, x, z: b.compute(
        output(b, F32, 3, 4, 5), lambda *i: x.load(*i) - (z.load(*i) - x.load(*i)) / (z.load(*i) * z.load(*i) + 1.0)
    ),
)
case(
    "transpose", {"x": (F32, 3, 4, 5)}, lambda b, x: b.compute(output(b, F32, 5, 3, 4), lambda k, i, j: x.load(i, j, k))
)
case(
    "large",
    {"x": (F32, 4, 300, 40)},
    lambda b, x: b.compute(output(b, F32, 4, 40, 300), lambda n, j, i: apply("exp", x.load(n, i, j))),
)
case(
    "large_flat", {"x": (F32, 4, 30000)}, lambda b, x: b.compute(output(b, F32, 4, 30000), lambda *i: x.load(*i) * 3.0)
)
case("scalar", {"x": (F32,)}, lambda b, x: b.compute(output(b, F32), lambda: x.load() + 1.0))
case("empty", {"x": (F32, 0, 3)}, lambda b, x: b.compute(output(b, F32, 0, 3), lambda *i: x.load(*i) + 1.0))
case(
    "keyword names",
    {"int": (F32, 3), "x.y": (F32, 3), "x_y": (F32, 3), "linux": (F32, 3)},
    lambda b, *xs: b.compute(
        output(b, F32, 3), lambda i: xs[0].load(i) + xs[1].load(i) * xs[2].load(i) - xs[3].load(i)
    ),
)


def inside(*pairs: tuple[Expr, int]) -> Expr:
    return all_of([c for i, n in pairs for c in (i >= 0, i < n)])


case(
    "pad",
    {"x": (F32, 2, 5, 6, 8)},
    lambda b, x: b.compute(
        output(b, F32, 2, 7, 9, 8),
        lambda n, h, w, c: select(inside((h - 1, 5), (w - 2, 6)), x.load(n, h - 1, w - 2, c), 0.0),
    ),
)
case(
    "pad_last",
    {"x": (F32, 3, 5)},
    lambda b, x: b.compute(
        output(b, F32, 3, 9), lambda i, j: select(inside((j - 2, 5)), x.load(i, j - 2) * x.load(i, j - 2), -1.5)
    ),
)
case(
    "concat",
    {"x": (F32, 3, 5), "z": (F32, 3, 4)},
    lambda b, x, z: b.compute(
        output(b, F32, 3, 9), lambda i, j: select(j < 5, x.load(i, j), apply("tanh", z.load(i, j - 5)))
    ),
)
case(
    "reshape",
    {"x": (F32, 6, 10)},
    lambda b, x: b.compute(output(b, F32, 4, 15), lambda i, j: x.load((i * 15 + j) // 10, (i * 15 + j) % 10)),
)
case("flip", {"x": (F32, 6, 5)}, lambda b, x: b.compute(output(b, F32, 6, 5), lambda i, j: x.load(5 - i, 4 - j)))


def _gather(b: Builder, x: Tensor, at: Tensor) -> Tensor:
    return b.compute(
        output(b, F32, 7, 5),
        lambda i, j: x.load(apply("checked_index", cast(at.load(i), I64) % 12 - 6, constant(6)), j),
    )


case(
    "gather_any",
    {"x": (F32, 100), "at": (I64, 1)},
    lambda b, x, at: b.compute(
        output(b, F32, 1), lambda i: x.load(apply("checked_index", at.load(i) * 30 - at.load(i) * 29, constant(100)))
    ),
)
case("gather", {"x": (F32, 6, 5), "at": (I32, 7)}, _gather)


def _stores(b: Builder, x: Tensor, z: Tensor) -> Tensor:
    out = output(b, F32, 7, 4)
    for source, start in ((x, 0), (z, 3)):
        axes = b.axes(source.shape)
        i, j = (a.var for a in axes)
        b.store(out, axes, (i + start, j), source.load(i, j))
    return out


case("two_stores", {"x": (F32, 3, 4), "z": (F32, 4, 4)}, _stores)

# Types ----------------------------------------------------------------------------------------------------------------

for _op in ("neg", "abs", "sign", "floor", "round", "tanh"):
    for _type in (F32, F16, BF16, F64):
        if not (_op == "tanh" and _type in (F64, BF16)):
            case(f"{_op}_{_type.name}", {"x": (_type, 4, 9)}, unary(_op))
for _type in (I8, I32, I64, U8):
    case(
        f"wrap_{_type.name}",
        {"x": (_type, 50), "z": (_type, 50)},
        lambda b, x, z: b.compute(
            output(b, x.type, 50),
            lambda i: x.load(i) * z.load(i) - apply("div", x.load(i), z.load(i)) + apply("mod", z.load(i), 7),
        ),
    )
case(
    "halves",
    {"x": (F16, 5, 6), "z": (F16, 6)},
    lambda b, x, z: b.compute(output(b, F16, 5, 6), lambda *i: (x.load(*i) + z.broadcast(i)) * x.load(*i)),
)
case(
    "logic",
    {"x": (BOOL, 40), "z": (F32, 40)},
    lambda b, x, z: b.compute(
        output(b, BOOL, 40),
        lambda i: apply(
            "or", apply("and", x.load(i), z.load(i) > 0.0), apply("not", apply("eq", x.load(i), z.load(i) <= 0.5))
        ),
    ),
)
for _from, _to in ((F32, I32), (I64, F32), (F32, F16), (F16, F64), (BOOL, F32), (F32, BOOL), (I32, U8), (F64, BF16)):
    case(
        f"cast_{_from.name}_{_to.name}",
        {"x": (_from, 33)},
        lambda b, x, to=_to: b.compute(output(b, to, 33), lambda i: cast(x.load(i), to)),
    )
case(
    "literals",
    {"x": (F32, 3)},
    lambda b, x: b.compute(
        output(b, F32, 3),
        lambda i: (
            apply("min", x.load(i) * 1e-40 - -0.1, float("inf"))
            + select(x.load(i) < -3e38, float("nan"), constant(1 / 3, F32))
        ),
    ),
)

# Reductions -----------------------------------------------------------------------------------------------------------

for _op in ("sum", "prod", "max", "min"):
    for _n in (5, 100, 700):
        case(
            f"{_op}_lanes_{_n}",
            {"x": (F32, 6, _n)},
            lambda b, x, op=_op, n=_n: b.compute(
                output(b, F32, 6), lambda i: total(op, b, [n], lambda k: x.load(i, k))
            ),
        )
        case(
            f"{_op}_strip_{_n}",
            {"x": (F32, 2, _n, 70)},
            lambda b, x, op=_op, n=_n: b.compute(
                output(b, F32, 2, 70), lambda i, c: total(op, b, [n], lambda k: x.load(i, k, c)) + 1.0
            ),
        )
case(
    "sum_two_axes",
    {"x": (F32, 3, 20, 30)},
    lambda b, x: b.compute(
        output(b, F32, 3), lambda i: total("sum", b, [20, 30], lambda j, k: x.load(i, j, k) * x.load(i, j, k))
    ),
)
case(
    "sum_rows_apart",
    {"x": (F32, 20, 3, 300)},
    lambda b, x: b.compute(output(b, F32, 3), lambda i: total("sum", b, [20, 300], lambda j, k: x.load(j, i, k))),
)
case(
    "sum_nothing",
    {"x": (F32, 3, 0)},
    lambda b, x: b.compute(output(b, F32, 3), lambda i: total("max", b, [0], lambda k: x.load(i, k))),
)
case(
    "sum_all",
    {"x": (F32, 40, 50)},
    lambda b, x: b.compute(output(b, F32), lambda: total("sum", b, [40, 50], lambda j, k: x.load(j, k))),
)
case(
    "sum_int",
    {"x": (I32, 4, 30)},
    lambda b, x: b.compute(output(b, I32, 4), lambda i: total("sum", b, [30], lambda k: x.load(i, k))),
)
case(
    "sum_half",
    {"x": (F16, 4, 40)},
    lambda b, x: b.compute(output(b, F16, 4), lambda i: total("sum", b, [40], lambda k: x.load(i, k))),
)
case(
    "any",
    {"x": (BOOL, 4, 30)},
    lambda b, x: b.compute(output(b, BOOL, 4), lambda i: total("max", b, [30], lambda k: x.load(i, k))),
)
case(
    "variance",
    {"x": (F32, 5, 333)},
    lambda b, x: b.compute(
        output(b, F32, 5),
        lambda i: total(
            "sum",
            b,
            [333],
            lambda k: (x.load(i, k) - total("sum", b, [333], lambda m: x.load(i, m)) / 333.0) * (x.load(i, k) - 1.0),
        ),
    ),
)
case(
    "normalized",
    {"x": (F32, 5, 70)},
    lambda b, x: b.compute(
        output(b, F32, 5, 70), lambda i, j: x.load(i, j) - total("sum", b, [70], lambda k: x.load(i, k)) / 70.0
    ),
)
case(
    "strip_of_two",
    {"x": (F32, 4, 50, 100)},
    lambda b, x: b.compute(
        output(b, F32, 4, 100),
        lambda i, c: apply(
            "sqrt",
            apply(
                "abs",
                total("sum", b, [50], lambda k: x.load(i, k, c) * x.load(i, k, c))
                - total("sum", b, [50], lambda k: x.load(i, k, c)) / 50.0,
            ),
        ),
    ),
)
case(
    "lazy_sum",
    {"x": (F32, 4, 50)},
    lambda b, x: b.compute(
        output(b, F32, 6), lambda i: select(i < 4, total("sum", b, [50], lambda k: x.load(i, k)), 9.0)
    ),
)


def _depthwise(size: int) -> Callable[..., Tensor]:
    def body(b: Builder, x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        def value(n: Expr, h: Expr, v: Expr, c: Expr) -> Expr:
            def tap(i: Expr, j: Expr) -> Expr:
                y, z = h * 2 + i - 1, v + j - 1
                return select(inside((y, 9), (z, 8)), x.load(n, y, z, c), 0.0) * w.load(i, j, c)

            return apply("max", total("sum", b, [size, size], tap) + bias.load(c), 0.0)

        return b.compute(output(b, F32, 2, 4, 7, 66), value)

    return body


for _k in (3, 7):
    case(f"depthwise_{_k}", {"x": (F32, 2, 9, 8, 66), "w": (F32, _k, _k, 66), "bias": (F32, 66)}, _depthwise(_k))


def _pool(b: Builder, x: Tensor) -> Tensor:
    def value(n: Expr, c: Expr, h: Expr, w: Expr) -> Expr:
        def tap(i: Expr, j: Expr) -> Expr:
            y, z = h * 2 + i - 1, w * 2 + j - 1
            return select(inside((y, 20), (z, 20)), x.load(n, c, y, z), float("-inf"))

        return total("max", b, [7, 7], tap)

    return b.compute(output(b, F32, 2, 3, 10, 10), value)


case("pool_rows", {"x": (F32, 2, 3, 20, 20)}, _pool)

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


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    models = {_symbol(name): planned for name, (planned, _) in CASES.items()}
    return harness.build(models, tmp_path_factory.mktemp("emit"), ["matmul", "conv", "gru"])


def _symbol(name: str) -> str:
    return "m_" + name.replace(" ", "_")


@pytest.mark.parametrize("name", CASES)
def test_printed_c_computes_what_the_program_means(library: ctypes.CDLL, name: str) -> None:
    planned, inputs = CASES[name]
    expected = interpret(planned.program, inputs)
    for output_name, found in harness.run(library, _symbol(name), planned, inputs).items():
        wanted = expected[output_name]
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        near = {"float32": 3e-5, "float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-12}.get(found.dtype.name, 0)
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=near, atol=near)


def test_an_index_out_of_range_is_refused(library: ctypes.CDLL) -> None:
    planned, inputs = CASES["gather_any"]
    with pytest.raises(IndexError):
        harness.run(library, _symbol("gather_any"), planned, inputs | {"at": np.array([100], np.int64)})


def test_the_same_program_prints_the_same_bytes() -> None:
    planned = CASES["softmax"][0]
    assert harness.printed("m", planned) == harness.printed("m", planned)


def test_rows_of_a_convolution_of_one_tap_are_merged() -> None:
    text = harness.printed("m", CASES["conv_1_1_1"][0])["m.c"]
    assert "ci_matmul kernel" in text and ".m = 200" in text


def test_tables_and_header_compile_as_c_and_cpp(tmp_path: Path) -> None:
    for file, text in harness.printed("m", CASES["symbolic"][0]).items():
        (tmp_path / file).write_text(text)
    (tmp_path / "user.cpp").write_text('#include "m.h"\nint main() { return m_input_name(0) ? M_OK : M_INPUT_X; }\n')
    base = [sys.executable, "-m", "ziglang"]
    flags = ["-target", harness.TRIPLE, "-O1", "-Wall", "-Wextra", "-Werror", f"-I{harness.RUNTIME}", "-c"]
    for compiler, file, *more in (("cc", "m_api.c", "-DCI_SHARED", "-DCI_MAIN"), ("c++", "user.cpp")):
        command = [*base, compiler, *flags, *more, str(tmp_path / file), "-o", str(tmp_path / f"{file}.o")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_writer() -> None:
    assert indented(["int f(void)", "{", "if (a) {", "b();", "}", "else {", "c();", "}", "}"]) == (
        "int f(void)\n{\n    if (a) {\n        b();\n    }\n    else {\n        c();\n    }\n}\n"
    )
    assert quoted('a"\\é?\n') == r'"a\"\\\303\251\?\012"'
    assert comment("a */ b") == ["/* a * / b */"]
