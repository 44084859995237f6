"""Random programs: printed, compiled, run; equal to what they mean. Values are small whole numbers: sums are exact."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from onnx_ir import DataType

from castiron.program.builder import Builder, Tensor
from castiron.program.expr import Expr, Reduce, Var, all_of, apply, cast, constant, select
from castiron.program.planned import Planned
from castiron.program.run import run as interpret
from castiron.program.types import Kind, Size
from tests.emit import harness

F32, I32 = DataType.FLOAT, DataType.INT32
EXTENTS = (1, 2, 3, 5, 17, 40, 70)


@dataclass
class Random:
    """Draws expressions of one program over its loop variables (name -> extent)."""

    draw: st.DrawFn
    build: Builder
    inputs: list[tuple[str, DataType, tuple[int, ...]]]
    symbols: dict[int, str]

    def pick(self, *choices: str) -> str:
        return self.draw(st.sampled_from(choices))

    def extent(self, size: int) -> Expr:
        """A size as a literal or, where it has one, by its symbol."""
        return Var(self.symbols[size]) if size in self.symbols and self.draw(st.booleans()) else constant(size)

    def value(self, axes: dict[str, int], depth: int, type: DataType = F32) -> Expr:
        if depth == 0:
            return self.load(axes, type)
        kind = self.pick("load", "binary", "binary", "unary", "select", "reduce", "cast", "twice")
        if kind == "binary":
            op = self.pick("add", "sub", "mul", "max", "min")
            return apply(op, self.value(axes, depth - 1, type), self.value(axes, depth - 1, type))
        if kind == "unary":
            return apply(self.pick("neg", "abs"), self.value(axes, depth - 1, type))
        if kind == "select":
            return self.choice(axes, depth, type)
        if kind == "reduce":
            return self.reduction(axes, depth, type)
        if kind == "cast":
            return cast(self.value(axes, depth - 1, I32 if type == F32 else F32), type)
        if kind == "twice":
            shared = self.value(axes, depth - 1, type)
            return shared * 2 - apply("max", shared, 1)
        return self.load(axes, type)

    def choice(self, axes: dict[str, int], depth: int, type: DataType) -> Expr:
        if axes and self.draw(st.booleans()):
            return self.shifted(axes, type)
        a, b = (self.value(axes, depth - 1, type) for _ in range(2))
        return select(apply(self.pick("lt", "ge", "eq"), a, b), a, self.value(axes, depth - 1, type))

    def shifted(self, axes: dict[str, int], type: DataType) -> Expr:
        """A load outside of whose border there is another value."""
        name = self.pick(*axes)
        size, shift = axes[name], self.draw(st.integers(-2, 2))
        source = self.input(type, (size, 7))
        at = Var(name) - shift if self.draw(st.booleans()) else constant(size - 1) - Var(name) + shift
        inner = self.load_index(axes, 7)
        return select(all_of([at >= 0, at < size]), source.load(at, inner) + 1, self.draw(st.integers(-1, 1)))

    def load_index(self, axes: dict[str, int], size: int) -> Expr:
        fitting = [n for n, extent in axes.items() if extent <= size]
        if fitting and self.draw(st.booleans()):
            return Var(self.pick(*fitting))
        if axes and self.draw(st.booleans()):
            return (Var(self.pick(*axes)) + self.draw(st.integers(0, 3))) % size
        return constant(self.draw(st.integers(0, size - 1)))

    def reduction(self, axes: dict[str, int], depth: int, type: DataType) -> Expr:
        op = self.pick("sum", "max", "min") if depth > 1 or type != F32 else self.pick("sum", "max", "min", "prod")
        sizes = self.draw(st.lists(st.sampled_from((1, 2, 3, 20)), min_size=1, max_size=2)) if op != "prod" else [3]
        inner = self.build.axes(sizes)
        value = self.value({**axes, **{a.name: s for a, s in zip(inner, sizes, strict=True)}}, depth - 1, type)
        return Reduce(op, inner, value)

    def load(self, axes: dict[str, int], type: DataType) -> Expr:
        """A new input over some of the variables in some order, or a larger one at an offset."""
        names = self.draw(st.permutations(list(axes)))[: self.draw(st.integers(0, len(axes)))]
        if self.draw(st.booleans()):
            names = [n for n in axes if n in names]
        step = self.draw(st.sampled_from((1, 1, 1, 2)))
        source = self.input(type, tuple(axes[n] * step for n in names))
        return source.load(*(Var(n) * step + (step - 1) for n in names))

    def input(self, type: DataType, shape: tuple[int, ...]) -> Tensor:
        for name, other, extents in self.inputs:
            if (other, extents) == (type, shape) and self.draw(st.booleans()):
                return Tensor(self.build.buffers[name])
        name = f"x{len(self.inputs)}"
        self.inputs.append((name, type, shape))
        return self.build.declare(name, type, tuple(self.extent(s) for s in shape), Kind.INPUT)


@st.composite
def programs(draw: st.DrawFn) -> tuple[Planned, dict[str, np.ndarray]]:
    build, inputs = Builder(), []
    symbols = {40: "N", 5: "M"} if draw(st.booleans()) else {}
    random = Random(draw, build, inputs, symbols)
    if symbols:
        for size, name in symbols.items():
            build.declare(f"of_{name}", F32, (Var(name),), Kind.INPUT)
            build.sizes.append(Size(name, f"of_{name}", 0))
            inputs.append((f"of_{name}", F32, (size,)))
    outs = []
    for number in range(2):
        shape = draw(st.lists(st.sampled_from(EXTENTS), max_size=3))
        axes = build.axes([random.extent(s) for s in shape])
        value = random.value({a.name: s for a, s in zip(axes, shape, strict=True)}, draw(st.integers(0, 3)))
        order = draw(st.permutations(range(len(shape))))
        kind = Kind.TEMP if number == 0 else Kind.OUTPUT
        out = build.declare(f"y{number}", F32, tuple(axes[i].extent for i in order), kind)
        build.store(out, axes, tuple(axes[i].var for i in order), value)
        outs.append(out)
    copy = build.compute(build.declare("z", F32, outs[0].shape, Kind.OUTPUT), lambda *i: outs[0].load(*i) + 1.0)
    arrays = {}
    for number, (name, type, shape) in enumerate(inputs):
        arrays[name] = np.random.default_rng(number).integers(-3, 4, shape).astype(type.numpy())
    program = build.program("forward", [n for n, _, _ in inputs], ["y1", copy.name])
    return harness.placed(program), arrays


# Shrinking compiles for minutes; the message names the program that failed.
@settings(max_examples=3, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(programs(), min_size=12, max_size=16))
def test_random_programs(cases: list[tuple[Planned, dict[str, np.ndarray]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        library = harness.build({f"m{i}": planned for i, (planned, _) in enumerate(cases)}, Path(folder))
    for i, (planned, arrays) in enumerate(cases):
        expected = interpret(planned.program, arrays)
        for name, found in harness.run(library, f"m{i}", planned, arrays).items():
            np.testing.assert_allclose(
                found, expected[name], rtol=2e-6, atol=1e-6, err_msg=f"{name}: {planned.program.steps}"
            )
