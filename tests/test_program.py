"""The program passes: each keeps what a program computes, and makes of it what it promises."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_ir import DataType

from castiron.errors import InputError, InternalError
from castiron.program.builder import Builder, Tensor
from castiron.program.check import check
from castiron.program.dead import dead
from castiron.program.edit import elements
from castiron.program.expr import Acc, Axis, Expr, Load, Reduce, Var, apply, cast, constant, select
from castiron.program.fuse import fuse
from castiron.program.group import group
from castiron.program.layout import layout
from castiron.program.pads import pads
from castiron.program.plan import placed, plan, storage
from castiron.program.planned import Planned, Storage
from castiron.program.run import run
from castiron.program.split import split
from castiron.program.text import text
from castiron.program.types import Compute, Group, Kernel, Kind, Program, Size, View, read, written
from castiron.program.views import reindex, resolve

FLOAT = DataType.FLOAT
Arrays = Mapping[str, np.ndarray]
Pass = Callable[[Program], Program]


class Net:
    """Small lowerings to build programs from."""

    def __init__(self) -> None:
        self.build = Builder()
        self.arrays: dict[str, np.ndarray] = {}
        self.random = np.random.default_rng(0)
        self.inputs: list[str] = []
        self.outputs: list[str] = []

    def input(self, name: str, *shape: int, symbols: Mapping[int, str] | None = None) -> Tensor:
        symbols = symbols or {}
        for dim, symbol in symbols.items():
            self.build.sizes.append(Size(symbol, name, dim))
        sizes = [Var(symbols[d]) if d in symbols else constant(n) for d, n in enumerate(shape)]
        self.arrays[name] = self.random.standard_normal(shape, np.float32)
        self.inputs.append(name)
        return self.build.declare(name, FLOAT, sizes, Kind.INPUT)

    def weight(self, name: str, *shape: int) -> Tensor:
        self.arrays[name] = self.random.standard_normal(shape, np.float32)
        return self.build.declare(name, FLOAT, shape, Kind.WEIGHT)

    def temp(self, name: str, *shape: int | Expr) -> Tensor:
        return self.build.temp(FLOAT, shape, name)

    def output(self, name: str, x: Tensor) -> None:
        out = self.build.declare(name, FLOAT, x.shape, Kind.OUTPUT)
        self.outputs.append(name)
        self.build.compute(out, lambda *i: x.load(*i))

    def output_view(self, name: str, x: Tensor, *shape: int | Expr) -> None:
        out = self.build.declare(name, FLOAT, shape, Kind.OUTPUT)
        self.outputs.append(name)
        self.build.view(out, x)

    def map(self, function: Callable[..., Expr], *xs: Tensor) -> Tensor:
        """Elementwise with broadcasting over the first operand's shape."""
        return self.build.compute(self.temp("map", *xs[0].shape), lambda *i: function(*(x.broadcast(i) for x in xs)))

    def relu(self, x: Tensor) -> Tensor:
        return self.map(lambda v: apply("max", v, 0.0), x)

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        return self.map(lambda v, w: v + w, a, b)

    def exp(self, x: Tensor) -> Tensor:
        return self.map(lambda v: apply("exp", v), x)

    def transpose(self, x: Tensor, *order: int) -> Tensor:
        out = self.temp("transposed", *(x.shape[d] for d in order))
        return self.build.compute(out, lambda *i: x.load(*(i[order.index(d)] for d in range(x.rank))))

    def view(self, x: Tensor, *shape: int | Expr) -> Tensor:
        return self.build.view(self.temp("view", *shape), x)

    def reduce(self, op: str, x: Tensor) -> Tensor:
        """Over the last dimension, which stays as 1."""
        out = self.temp(op, *x.shape[:-1], 1)

        def value(*i: Expr) -> Expr:
            (k,) = self.build.axes([x.shape[-1]])
            return Reduce(op, (k,), x.load(*i[:-1], k.var))

        return self.build.compute(out, value)

    def pad(self, x: Tensor, by: int) -> Tensor:
        """A border of zeros around the last two dimensions, filled by one step, and the middle by another."""
        n, c, h, w = x.shape

        def value(a: Expr, b: Expr, y: Expr, z: Expr) -> Expr:
            inside = (y >= by) & (y < h + by) & (z >= by) & (z < w + by)
            return select(inside, x.load(a, b, y - by, z - by), 0.0)

        return self.build.compute(self.temp("padded", n, c, h + 2 * by, w + 2 * by), value)

    def concat(self, a: Tensor, b: Tensor, dim: int) -> Tensor:
        out = self.temp(
            "concat", *(x + y if d == dim else x for d, (x, y) in enumerate(zip(a.shape, b.shape, strict=True)))
        )
        for x, start in ((a, constant(0)), (b, a.shape[dim])):
            axes = self.build.axes(x.shape)
            index = [axis.var for axis in axes]
            at = [i + start if d == dim else i for d, i in enumerate(index)]
            self.build.store(out, axes, at, x.load(*index))
        return out

    def panels(self, w: Tensor, batch: Sequence[Expr], k: Expr, n: Expr, load: Callable[..., Expr]) -> Tensor:
        """`load(*batch, k, n)` in panels of 16 columns."""
        out = self.temp("panels", *batch, (n + 15) // 16, k, 16)

        def value(*i: Expr) -> Expr:
            column = i[-3] * 16 + i[-1]
            return select(column < n, load(*i[:-3], i[-2], column), 0.0)

        return self.build.compute(out, value)

    def matmul(self, a: Tensor, b: Tensor, transposed: bool = False) -> Tensor:
        """[…, M, K] times […, K, N] (transposed: [..., N, K]); up to three batch dimensions."""
        k = a.shape[-1]
        n = b.shape[-2] if transposed else b.shape[-1]
        packed = self.panels(
            b, b.shape[:-2], k, n, lambda *i: b.load(*(i if not transposed else (*i[:-2], i[-1], i[-2])))
        )
        out = self.temp("product", *a.shape[:-1], n)
        ones = [constant(1)] * (3 - (a.rank - 2))
        axes = self.build.axes([*ones, *a.shape[:-2], a.shape[-2], n])
        (inner,) = self.build.axes([k])
        batch = [x.var for x in axes[len(ones) : 3]]
        zeros = [constant(0)] * 3
        operands = {
            "a": a.load(*batch, axes[3].var, inner.var),
            "b": packed.load(*(batch[len(batch) - (b.rank - 2) :] if b.rank > 2 else []), *zeros),
        }
        return self.build.tile_kernel("matmul", out, axes, (inner,), operands, [*batch, axes[3].var, axes[4].var])

    def conv(self, x: Tensor, filters: Tensor) -> Tensor:
        """Valid, stride 1, NCHW with [O, C, KH, KW]."""
        o, c, kh, kw = filters.shape
        packed = self.temp("filter", 1, (o + 15) // 16, 1, kh, kw, c, 16)

        def value(g: Expr, p: Expr, d: Expr, i: Expr, j: Expr, k: Expr, lane: Expr) -> Expr:
            return select(p * 16 + lane < o, filters.load(p * 16 + lane, k, i, j), 0.0)

        self.build.compute(packed, value)
        n, _, h, w = x.shape
        out = self.temp("conv", n, o, h - kh + 1, w - kw + 1)
        axes = self.build.axes([n, 1, 1, h - kh + 1, w - kw + 1, o])
        inner = self.build.axes([1, kh, kw, c])
        an, ag, _, ah, aw, ao = (a.var for a in axes)
        _, ih, iw, ic = (a.var for a in inner)
        operands = {"x": x.load(an, ic, ah + ih, aw + iw), "filter": packed.load(ag, *[constant(0)] * 6)}
        return self.build.tile_kernel("conv", out, axes, inner, operands, [an, ao, ah, aw])

    def program(self) -> Program:
        return self.build.program("forward", self.inputs, self.outputs)


def softmax(net: Net, x: Tensor) -> Tensor:
    top = net.reduce("max", x)
    e = net.map(lambda v, m: apply("exp", v - m), x, top)
    return net.map(lambda v, s: v / s, e, net.reduce("sum", e))


def layernorm(net: Net, x: Tensor) -> Tensor:
    width = float(x.shape[-1].value)  # type: ignore[attr-defined]
    mean = net.map(lambda s: s / width, net.reduce("sum", x))
    centred = net.map(lambda v, m: v - m, x, mean)
    square = net.reduce("sum", net.map(lambda v: v * v, centred))
    return net.map(lambda v, s: v / apply("sqrt", s / width + 1e-5), centred, square)


def mlp() -> Net:
    net = Net()
    x = net.input("x", 3, 20, symbols={0: "N"})
    hidden = net.relu(net.add(net.matmul(x, net.weight("w1", 33, 20), True), net.weight("b1", 33)))
    net.output("y", net.add(net.matmul(hidden, net.weight("w2", 7, 33), True), net.weight("b2", 7)))
    return net


def residual() -> Net:
    net = Net()
    x = net.input("x", 2, 3, 6, 5)
    bias = net.view(net.weight("bias", 4), 4, 1, 1)
    first = net.relu(net.add(net.conv(net.pad(x, 1), net.weight("w1", 4, 3, 3, 3)), bias))
    second = net.conv(net.pad(first, 1), net.weight("w2", 4, 4, 3, 3))
    joined = net.relu(net.add(net.add(second, bias), first))
    net.output_view("y", joined, 2, 4 * 30)
    return net


def attention() -> Net:
    net = Net()
    x = net.input("x", 2, 5, 8, symbols={1: "T"})
    time = x.shape[1]
    heads = []
    for name in "qkv":
        flat = net.add(net.matmul(x, net.weight(f"w{name}", 8, 8)), net.weight(f"b{name}", 8))
        heads.append(net.transpose(net.view(flat, 2, time, 2, 4), 0, 2, 1, 3))
    scores = net.map(lambda v: v * 0.5, net.matmul(heads[0], heads[1], True))
    mixed = net.transpose(net.matmul(softmax(net, scores), heads[2]), 0, 2, 1, 3)
    merged = net.view(mixed, 2, time, 8)
    net.output("y", layernorm(net, net.add(net.matmul(merged, net.weight("wo", 8, 8)), x)))
    return net


def views() -> Net:
    net = Net()
    x = net.input("x", 2, 6)
    twice = net.map(lambda v: v * 2.0, net.view(net.view(x, 3, 4), 12))
    net.output_view("a", twice, 4, 3)
    net.output_view("b", twice, 6, 2)
    net.output_view("c", x, 12)
    net.output("d", net.view(net.concat(x, net.view(twice, 2, 6), 1), 4, 6))
    return net


def tables() -> Net:
    """Weights alone make an output, a known blow-up, and a concatenation."""
    net = Net()
    x = net.input("x", 4, 6)
    w = net.weight("w", 6)
    wide = net.build.compute(net.temp("wide", 4, 6), lambda i, j: w.load(j))
    zeros = net.build.compute(net.temp("zeros", 4, 6), lambda i, j: constant(0.0, FLOAT))
    net.output("a", net.add(net.add(x, wide), zeros))
    net.output_view("b", net.exp(w), 2, 3)
    net.output("c", net.concat(net.exp(wide), x, 0))
    return net


NETS = {f.__name__: f for f in (mlp, residual, attention, views, tables)}
PASSES: dict[str, Pass] = {
    "dead": dead, "views": resolve, "layout": layout, "fuse": fuse,
    "views, fuse, group": lambda p: group(fuse(resolve(p))),
    "views, layout, fuse, group": lambda p: group(fuse(layout(resolve(p)))),
}  # fmt: skip


def same(a: Arrays, b: Arrays) -> None:
    for name, array in a.items():
        np.testing.assert_allclose(b[name], array, rtol=2e-5, atol=2e-5, err_msg=name)


def stages(program: Program) -> tuple[Program, Program]:
    """What the pipeline makes of a program."""
    prepare, forward = split(resolve(program))
    done = group(fuse(dead(prepare))), group(pads(fuse(layout(dead(forward)))))
    for p in done:
        check(p)
    return done


def run_planned(planned: Planned, inputs: Arrays) -> dict[str, np.ndarray]:
    """The outputs of a program whose TEMPs lie in one arena, where the plan puts them."""
    program = planned.program
    lives, sizes = [], []
    arena = np.zeros(planned.arena or 1 << 20, np.uint8)
    shapes = run_shapes(program, {s.name: inputs[s.input].shape[s.dim] for s in program.sizes})
    if planned.arena is None:
        lives = [(first, last) for _, first, last in planned.lives]
        sizes = [4 * int(np.prod(shapes[n])) for n, _, _ in planned.lives]
        slots, _ = placed(lives, sizes)

    def memory(name: str) -> np.ndarray | None:
        root = planned.roots[name]
        place = planned.places.get(root)
        if place is None or place.kind != Kind.TEMP:
            return None
        offset = slots[place.offset] if place.dynamic else place.offset
        size = int(np.prod(shapes[name])) * 4
        return arena[offset : offset + size].view(np.float32).reshape(shapes[name])

    return run(program, inputs, memory)


def run_shapes(program: Program, numbers: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    from castiron.program.expr import substitute

    known = {n: constant(v) for n, v in numbers.items()}
    return {b.name: tuple(substitute(d, known).value for d in b.shape) for b in program.buffers.values()}  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("passes", PASSES)
def test_a_pass_keeps_what_is_computed(name: str, passes: str) -> None:
    net = NETS[name]()
    program = net.program()
    check(program)
    changed = PASSES[passes](program)
    check(changed)
    same(run(program, net.arrays), run(changed, net.arrays))


@pytest.mark.parametrize("name", NETS)
def test_the_whole_line_in_planned_memory(name: str) -> None:
    net = NETS[name]()
    program = net.program()
    prepare, forward = stages(program)
    blobs = storage(prepare, forward)
    early = run_planned(plan(prepare, blobs), net.arrays)
    late = run_planned(plan(forward, blobs), {**net.arrays, **early})
    same(run(program, net.arrays), late)
    assert not any(forward.buffers[n].kind == Kind.WEIGHT for s in forward.steps for n in read(s))
    assert all(prepare.buffers[n].kind != Kind.INPUT for s in prepare.steps for n in read(s))


def kinds(program: Program) -> list[str]:
    return [type(s).__name__ for s in program.steps]


def test_mlp_is_two_kernels() -> None:
    prepare, forward = stages(mlp().program())
    assert kinds(forward) == ["Kernel", "Kernel"]
    assert {b.name for b in forward.of_kind(Kind.PACKED)} == {"panels", "panels.2", "b1.packed", "b2.packed"}
    assert prepare.inputs == ("w1", "b1", "w2", "b2") or set(prepare.inputs) == {"w1", "b1", "w2", "b2"}


def test_residual_block_is_two_kernels_and_its_pads() -> None:
    _, forward = stages(residual().program())
    assert kinds(forward) == ["Compute", "Compute", "Compute", "Kernel", "Kernel"]
    first = forward.steps[-2]
    assert isinstance(first, Kernel) and first.out == "padded.2"
    padded = forward.buffers["padded"]
    assert [d.value for d in padded.shape] == [2, 8, 7, 3]  # type: ignore[attr-defined]
    last = forward.steps[-1]
    assert isinstance(last, Kernel) and last.out == "y"


def test_attention_has_no_movement_left() -> None:
    _, forward = stages(attention().program())
    listing = text(forward)
    assert not any(isinstance(s, View) for s in forward.steps), listing
    kernels = [s for s in forward.steps if isinstance(s, Kernel)]
    groups = [s for s in forward.steps if isinstance(s, Group)]
    panels = [s for s in forward.steps if isinstance(s, Compute)]
    assert (len(kernels), len(groups), len(panels)) == (6, 2, 2), listing


def test_softmax_is_one_group_without_memory_for_its_scalars() -> None:
    net = Net()
    net.output("y", softmax(net, net.input("x", 4, 9)))
    _, forward = stages(net.program())
    (only,) = forward.steps
    assert isinstance(only, Group) and len(only.axes) == 1
    planned = plan(forward, Storage({}, {}, 0, 0))
    assert {n for n, p in planned.places.items() if p.kind == Kind.TEMP} == {"map"}


def test_a_result_used_twice_is_computed_once() -> None:
    net = Net()
    x = net.exp(net.input("x", 4, 4))
    net.output("y", net.add(net.exp(x), net.transpose(x, 1, 0)))
    net.output("z", net.exp(x))
    changed = fuse(net.program())
    assert kinds(changed) == ["Compute"] * 3


def test_operands_die_in_place() -> None:
    net = Net()
    a = net.exp(net.input("x", 64, 64))
    b = net.exp(net.map(lambda v, w: v + w, a, net.reduce("sum", a)))
    net.output("y", net.transpose(net.add(b, net.transpose(b, 1, 0)), 1, 0))
    program = fuse(net.program())
    assert (plan(program, Storage({}, {}, 0, 0)).arena or 0) <= 2 * 64 * 64 * 4


def test_an_index_needs_no_division_where_its_dimension_bounds_it() -> None:
    i, j, k = (Axis(n, constant(e)) for n, e in (("i", 2), ("j", 4), ("k", 16)))
    extents = {a.name: a.extent for a in (i, j, k)}
    shape, root = (constant(8), constant(8)), (constant(2), constant(32))
    found = reindex((i.var * 4 + j.var, k.var - 3), shape, root, extents)
    assert found == (i.var, j.var * 8 + k.var - 3)
    assert reindex((k.var - 3, k.var - 3), shape, root, extents) is None


def test_placing_is_tight_and_without_overlap() -> None:
    random = np.random.default_rng(1)
    lives = [(int(a), int(a + b)) for a, b in random.integers(0, 20, (60, 2))]
    sizes = [int(s) for s in random.integers(0, 5000, 60)]
    found, total = placed(lives, sizes)
    for i in range(60):
        assert found[i] % 64 == 0 and found[i] + sizes[i] <= total
        for j in range(i):
            if sizes[i] and sizes[j] and lives[i][0] <= lives[j][1] and lives[j][0] <= lives[i][1]:
                assert found[i] + sizes[i] <= found[j] or found[j] + sizes[j] <= found[i]


def test_long_chains_fuse_quickly() -> None:
    from time import perf_counter

    net = Net()
    x = net.input("x", 8, 8)
    for _ in range(1000):
        x = net.add(net.relu(net.exp(x)), x)
    net.output("y", x)
    program = net.program()
    begin = perf_counter()
    plan(group(fuse(layout(resolve(program)))), Storage({}, {}, 0, 0))
    assert perf_counter() - begin < 60


# Faults -------------------------------------------------------------------------------------------


def _two(value: Callable[[Tensor, Axis], Expr]) -> Program:
    build = Builder()
    x = build.declare("x", FLOAT, [4], Kind.INPUT)
    y = build.declare("y", FLOAT, [4], Kind.OUTPUT)
    axes = build.axes([4])
    build.steps.append(Compute("y", "y", axes, (axes[0].var,), value(x, axes[0])))
    build.temp(FLOAT, [4], "t")
    assert y.rank == 1
    return build.program("forward", ["x"], ["y"])


@pytest.mark.parametrize(
    ("fault", "value"),
    [
        ("read before it is stored", lambda x, a: Load("t", (a.var,), FLOAT)),
        ("does not exist", lambda x, a: Load("nowhere", (a.var,), FLOAT)),
        ("is not bound", lambda x, a: Load("x", (Var("k"),), FLOAT)),
        ("has 1 dimensions", lambda x, a: Load("x", (a.var, a.var), FLOAT)),
        ("loaded as DOUBLE", lambda x, a: cast(Load("x", (a.var,), DataType.DOUBLE), FLOAT)),
        ("a INT64 is stored", lambda x, a: a.var),
        ("acc stands outside", lambda x, a: Acc(FLOAT)),
        ("'y' is read before", lambda x, a: Load("y", (a.var,), FLOAT)),
    ],
)
def test_check_finds(fault: str, value: Callable[[Tensor, Axis], Expr]) -> None:
    with pytest.raises(InternalError, match=fault) as caught:
        check(_two(value))
    assert f"^^^^ {caught.value}".split(": ")[-1] in caught.value.dump


def test_run_refuses_loads_out_of_bounds() -> None:
    with pytest.raises(InternalError, match="out of bounds"):
        run(_two(lambda x, a: x.load(a.var + 1)), {"x": np.zeros(4, np.float32)})
    guarded = _two(lambda x, a: select(a.var < 3, x.load(a.var + 1), 7.0))
    assert run(guarded, {"x": np.arange(4, dtype=np.float32)})["y"].tolist() == [1, 2, 3, 7]
    with pytest.raises(InputError):
        run(_two(lambda x, a: x.load(apply("checked_index", a.var + 2, 4))), {"x": np.zeros(4, np.float32)})


# Any program --------------------------------------------------------------------------------------


@st.composite
def nets(draw: st.DrawFn) -> Net:
    """A random graph of elementwise steps, movement, reductions, views and products over few sizes."""
    net = Net()
    pool = [
        net.input("x", 2, 3, 4),
        net.input("s", 2, 3, 4, symbols={0: "N"}),
        net.weight("w", 2, 3, 4),
        net.weight("v", 3, 4),
    ]
    for _ in range(draw(st.integers(1, 9))):
        x = draw(st.sampled_from(pool))
        kind = draw(
            st.sampled_from(
                ("relu", "exp", "add", "transpose", "view", "reduce", "scale", "matmul", "concat", "softmax")
            )
        )
        peers = [t for t in pool if t.shape == x.shape]
        other = draw(st.sampled_from(peers))
        if kind in ("relu", "exp"):
            y = net.relu(x) if kind == "relu" else net.map(lambda v: apply("tanh", v), x)
        elif kind == "add":
            y = net.add(x, other)
        elif kind == "scale":
            y = net.map(lambda v, s: v * s, x, net.reduce(draw(st.sampled_from(("sum", "max"))), other))
        elif kind == "transpose" and x.rank > 1:
            y = net.transpose(x, *draw(st.permutations(range(x.rank))))
        elif kind == "view":
            shape = draw(
                st.sampled_from((x.shape, (elements(x.shape),), (1, *x.shape), (*x.shape[:-2], elements(x.shape[-2:]))))
            )
            y = net.view(x, *shape)
        elif kind == "reduce":
            y = net.reduce("sum", x)
        elif kind == "matmul" and 2 <= x.rank <= 4:
            y = net.matmul(x, other, True)
        elif kind == "softmax" and x.rank > 1:
            y = softmax(net, x)
        elif kind == "concat" and x.rank > 1:
            y = net.concat(x, other, x.rank - 1)
        else:
            continue
        pool.append(y)
    for number, x in enumerate(pool[-2:]):
        if draw(st.booleans()):
            net.output(f"y{number}", x)
        else:
            net.output_view(f"y{number}", x, *x.shape[::-1])
    return net


@given(nets(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_program_stays_what_it_is(net: Net, channels_last: bool) -> None:
    program = net.program()
    check(program)
    expected = run(program, net.arrays)
    if channels_last:
        same(expected, run(group(fuse(resolve(program))), net.arrays))
    prepare, forward = stages(program)
    blobs = storage(prepare, forward)
    early = run_planned(plan(prepare, blobs), net.arrays)
    same(expected, run_planned(plan(forward, blobs), {**net.arrays, **early}))
    assert all(n in forward.buffers for s in forward.steps for n in written(s))
