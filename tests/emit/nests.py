"""Cases of loop nests: movement, types, reductions. Importing adds them to CASES."""

from __future__ import annotations

from collections.abc import Callable

from castiron.program.builder import Builder, Tensor
from castiron.program.expr import Expr, apply, cast, constant, select
from tests.emit.case import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, case, inside, output, total, unary

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
