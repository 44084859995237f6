"""How a printer case is made: a program built by hand, its plain memory plan and its inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx_ir import DataType

from castiron.program.builder import Builder, Tensor
from castiron.program.expr import Expr, Reduce, all_of, apply
from castiron.program.planned import Planned
from castiron.program.types import Kind
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


def inside(*pairs: tuple[Expr, int]) -> Expr:
    return all_of([c for i, n in pairs for c in (i >= 0, i < n)])
