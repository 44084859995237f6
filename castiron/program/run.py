"""Program, arrays -> arrays: what a program means, in NumPy. Sums are taken in float64 and rounded once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np
from onnx_ir import DataType

from castiron.errors import InputError, InternalError
from castiron.program import scalar
from castiron.program.deciding import DECIDING
from castiron.program.edit import bound
from castiron.program.expr import Acc, Apply, Axis, Const, Expr, Load, Reduce, Var, free_variables, nodes
from castiron.program.flow import nesting
from castiron.program.kernels import FOUR, KERNELS, MATMULS, PANEL
from castiron.program.recurrent import run_recurrent
from castiron.program.trees import run_trees
from castiron.program.types import (
    Assign,
    Buffer,
    Compute,
    Control,
    Equal,
    Flow,
    Group,
    Kernel,
    Kind,
    Program,
    Require,
    Step,
    View,
)
from castiron.program.winograd import filter_of

Arrays = dict[str, np.ndarray]
Value = tuple[np.ndarray, np.ndarray | None]
"""An array over the axes, and where it stands for a load out of bounds (None: nowhere)."""

BLOCK = 1 << 22
"""Iterations a Compute evaluates at once, so that a large reduction does not fill the memory."""


def run(
    program: Program, inputs: Mapping[str, np.ndarray], allocate: Callable[[str], np.ndarray | None] = lambda name: None
) -> Arrays:
    """The outputs of `program`, and of what it stores of kind PACKED, by buffer name.

    Args:
        inputs: arrays by buffer name, for INPUT, WEIGHT and PACKED buffers; a CONSTANT has its own.
        allocate: memory for a buffer by name, to try a memory plan with; None: memory of its own.
    Raises:
        InputError: an input is missing, has another shape or type, or an index in the data is out of bounds.
        InternalError: the program loads or stores outside a buffer.
    """
    sizes = _sizes(program, inputs)
    memory = {b.name: _given(b, inputs, sizes) for b in program.buffers.values() if _is_given(b, inputs)}
    machine = _Machine(program, sizes, memory, allocate)
    machine.run()
    packed = [b.name for b in program.of_kind(Kind.PACKED) if b.name not in inputs and b.name in memory]
    return {name: memory[name] for name in dict.fromkeys((*program.outputs, *packed))}


def _sizes(program: Program, inputs: Mapping[str, np.ndarray]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for size in program.sizes:
        if size.late:
            sizes[size.name] = 0
        elif size.value is not None:
            sizes[size.name] = _number(size.value, sizes)
        elif size.input in inputs:
            sizes[size.name] = inputs[size.input].shape[size.dim]
        else:
            raise InputError(f"input {size.input!r} is missing")
    for equal in program.requires:
        _hold(equal, sizes)
    return sizes


def _hold(equal: Equal, sizes: Mapping[str, int], memory: Arrays | None = None) -> None:
    if _number(equal.left, sizes, memory) != _number(equal.right, sizes, memory):
        raise InputError(f"these input shapes do not fit the model: {equal.message}")


def _number(e: Expr, sizes: Mapping[str, int], memory: Arrays | None = None) -> int:
    return int(_Grid((), sizes, memory or {}).value(e)[0].reshape(()))


def _is_given(buffer: Buffer, inputs: Mapping[str, np.ndarray]) -> bool:
    return buffer.kind in (Kind.INPUT, Kind.WEIGHT, Kind.CONSTANT) or (
        buffer.kind == Kind.PACKED and buffer.name in inputs
    )


def _given(buffer: Buffer, inputs: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> np.ndarray:
    found = buffer.value if buffer.kind == Kind.CONSTANT else inputs.get(buffer.name, buffer.value)
    if found is None:
        raise InputError(f"{buffer.kind.value} {buffer.name!r} is missing")
    shape = tuple(_number(d, sizes) for d in buffer.shape)
    array = np.asarray(found)
    if array.shape != shape or array.dtype != buffer.type.numpy():
        expected = f"{buffer.type.numpy()}{list(shape)}"
        raise InputError(f"{buffer.kind.value} {buffer.name!r} is {expected}, got {array.dtype}{list(array.shape)}")
    return array


class _Machine:
    """Runs steps over a memory of arrays."""

    def __init__(
        self, program: Program, sizes: dict[str, int], memory: Arrays, allocate: Callable[[str], np.ndarray | None]
    ) -> None:
        self.program = program
        self.sizes = sizes
        self.nest = nesting(program.steps)
        self.memory = memory
        self.allocate = allocate

    def run(self) -> None:
        """All steps, as branches and loops say."""
        begins = {end: marker for marker, end in self.nest.ends.items()}
        number = 0
        while number < len(self.program.steps):
            step = self.program.steps[number]
            number += 1
            if not isinstance(step, Control):
                self.step(step)
            elif step.flow == Flow.ELSE:  # reached from the branch before it
                number = self.nest.ends[number - 1]
            elif step.flow == Flow.END and begins[number - 1] in self.nest.loops:
                number = begins[number - 1]
            elif step.condition is not None and not self.number(step.condition):
                number = self.nest.ends[number - 1] + 1

    def number(self, e: Expr) -> int:
        """One scalar of sizes and data."""
        return _number(e, self.sizes, self.memory)

    def assign(self, step: Assign) -> None:
        sources = {name: self.memory[name] for _, name in (*step.moves, *step.appends)}
        sizes = {name: self.number(value) for name, value in step.sizes}
        for name, value in sizes.items():
            if value < 0:
                raise InputError(f"step {step.name}: {name} would be {value}")
        self.sizes.update(sizes)
        for buffer in self.program.buffers.values():  # new sizes, new memory
            if buffer.kind == Kind.TEMP and any(free_variables(d) & sizes.keys() for d in buffer.shape):
                self.memory.pop(buffer.name, None)
        for state, source in step.moves:
            self.memory[state] = sources[source].reshape(self.shape(state)).copy()
        for state, source in step.appends:
            shape = self.shape(state)
            before = self.memory[state] if shape[0] > 1 else np.zeros((0, *shape[1:]), sources[source].dtype)
            self.memory[state] = np.concatenate([before, sources[source].reshape((1, *shape[1:]))])

    def step(self, step: Step) -> None:
        if isinstance(step, Group):
            for part in step.parts:
                self.step(part)
        elif isinstance(step, View):
            self.memory[step.out] = self.memory[step.of].reshape(self.shape(step.out))
        elif isinstance(step, Assign):
            self.assign(step)
        elif isinstance(step, Require):
            _hold(step.equal, self.sizes, self.memory)
        elif isinstance(step, Kernel) and step.kernel in DECIDING:
            self.decide(step)
        elif isinstance(step, Kernel) and step.value is None:
            self.recurrent(step)
        elif isinstance(step, Kernel):
            self.tile(step)
        elif isinstance(step, Compute):
            self.compute(step)

    def decide(self, step: Kernel) -> None:
        """A kernel whose results tell sizes."""
        operands = {n: self.memory[o] for n, o in step.operands if isinstance(o, str)}
        outputs = {f: self.array(o) for f, o in zip(step.fields, step.outputs, strict=True)}
        DECIDING[step.kernel](operands, outputs, {n: self.param(v) for n, v in step.params})

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(_number(d, self.sizes) for d in self.program.buffers[name].shape)

    def array(self, name: str) -> np.ndarray:
        """The array of a buffer, made at its first store."""
        if name not in self.memory:
            given = self.allocate(name)
            new = np.zeros(self.shape(name), self.program.buffers[name].type.numpy()) if given is None else given
            self.memory[name] = new
        return self.memory[name]

    def grid(self, step: Compute | Kernel, begin: int = 0, end: int | None = None) -> _Grid:
        axes = tuple(dict.fromkeys(bound(step)))
        return _Grid(axes, self.sizes, self.memory, begin, end)

    def compute(self, step: Compute) -> None:
        """In blocks of the outermost axis."""
        self.array(step.out)
        grid = self.grid(step)
        count = prod(grid.extents[a.name] for a in step.axes)
        if not count:
            return
        if not step.axes:
            self.store(step, step.value, grid)
            return
        outer = grid.extents[step.axes[0].name]
        rows = max(1, BLOCK * outer // max(1, prod(grid.extents.values())))
        for begin in range(0, outer, rows):
            self.store(step, step.value, self.grid(step, begin, min(outer, begin + rows)))

    def store(self, step: Compute | Kernel, value: Expr, grid: _Grid) -> None:
        """`out[index] = value` over the step's axes, which come first among the grid's."""
        out = self.array(step.out)
        shape = grid.shape(step.axes)
        data = np.broadcast_to(grid.checked(value, step.name), shape)
        index = tuple(np.broadcast_to(grid.checked(i, step.name), shape) for i in step.index)
        for i, extent in zip(index, out.shape, strict=True):
            if i.size and (i.min() < 0 or i.max() >= extent):
                raise InternalError(f"step {step.name}: stores {step.out!r} at {i.min()}…{i.max()} of {extent}")
        out[index] = data if index else data.reshape(())

    def tile(self, step: Kernel) -> None:
        grid = self.grid(step)
        grid.acc = (_matmul if step.kernel in MATMULS else _conv if step.kernel == "conv" else _winograd)(self, step)
        assert step.value is not None
        self.store(step, step.value, grid)

    def recurrent(self, step: Kernel) -> None:
        operands = {n: self.memory[o] for n, o in step.operands if isinstance(o, str)}
        outputs = {f: self.array(o) for f, o in zip(step.fields, step.outputs, strict=True)}
        params = {n: self.param(v) for n, v in step.params}
        if step.kernel == "trees":
            run_trees(operands, outputs)
        else:
            run_recurrent(step.kernel, operands, outputs, params)

    def param(self, e: Expr) -> float:
        return float(e.value) if isinstance(e, Const) else _number(e, self.sizes)


# Expressions --------------------------------------------------------------------------------------


class _Grid:
    """Evaluates expressions over axes: each axis is a dimension of every array. `begin` and `end` cut the first one."""

    def __init__(
        self, axes: Sequence[Axis], sizes: Mapping[str, int], memory: Arrays, begin: int = 0, end: int | None = None
    ) -> None:
        self.sizes = sizes
        self.memory = memory
        self.acc: np.ndarray | None = None
        self.rank = len(axes)
        self.extents: dict[str, int] = {}
        self.ranges: Arrays = {}
        self.dims = {a.name: d for d, a in enumerate(axes)}
        for dim, axis in enumerate(axes):
            extent = _number(axis.extent, sizes)
            values = np.arange(extent) if dim else np.arange(begin, extent if end is None else end)
            self.extents[axis.name] = len(values)
            self.ranges[axis.name] = values.reshape([-1 if d == dim else 1 for d in range(self.rank)])
        self._known: dict[Expr, Value] = {}

    def shape(self, axes: Sequence[Axis]) -> tuple[int, ...]:
        """Of an array over `axes`: 1 along all others."""
        names = {a.name for a in axes}
        return tuple(n if name in names else 1 for name, n in self.extents.items())

    def checked(self, e: Expr, step: str) -> np.ndarray:
        """The array of `e`, which must not depend on a load out of bounds."""
        array, bad = self.value(e)
        if bad is not None and bad.any():
            data = any(isinstance(n, Apply) and n.op == "checked_index" for n in nodes(e))
            raise (InputError if data else InternalError)(f"step {step}: an index is out of bounds")
        return array

    def value(self, e: Expr) -> Value:
        """The array of `e` and where it is out of bounds."""
        for node in nodes(e):
            if node not in self._known:
                with np.errstate(all="ignore"):
                    self._known[node] = self._evaluate(node)
        return self._known[e]

    def _evaluate(self, node: Expr) -> Value:
        if isinstance(node, Const):
            return np.full((1,) * self.rank, node.value, node.type.numpy()), None
        if isinstance(node, Var):
            found = self.ranges.get(node.name)
            return (np.full((1,) * self.rank, self.sizes[node.name]) if found is None else found), None
        if isinstance(node, Acc):
            assert self.acc is not None
            return self.acc.reshape(self.acc.shape + (1,) * (self.rank - self.acc.ndim)), None
        operands = [self._known[o] for o in node.operands]
        if isinstance(node, Load):
            return self._load(node, operands)
        if isinstance(node, Reduce):
            return self._reduce(node, *operands[0])
        assert isinstance(node, Apply)
        return _apply(node, operands)

    def _load(self, node: Load, operands: list[Value]) -> Value:
        array = self.memory[node.buffer]
        bad = _either(*(b for _, b in operands))
        index = []
        for (i, _), extent in zip(operands, array.shape, strict=True):
            outside = (i < 0) | (i >= extent)
            if outside.any():
                bad = _either(bad, outside)
            index.append(np.clip(i, 0, max(extent - 1, 0)))
        if not array.size:
            shape = np.broadcast_shapes((1,) * self.rank, *(i.shape for i in index))
            return np.zeros(shape, array.dtype), np.ones(shape, bool)
        return (array[tuple(index)] if index else array.reshape((1,) * self.rank)), bad

    def _reduce(self, node: Reduce, array: np.ndarray, bad: np.ndarray | None) -> Value:
        names = {a.name for a in node.axes}
        shape = tuple(n if name in names else m for (name, n), m in zip(self.extents.items(), array.shape, strict=True))
        dims = tuple(self.dims[a.name] for a in node.axes)
        wide = node.op in ("sum", "prod") and node.type in scalar.FLOATS
        full = np.broadcast_to(array.astype(np.float64) if wide else array, shape)
        function = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[node.op]
        if 0 in [shape[d] for d in dims]:
            reduced = tuple(1 if d in dims else n for d, n in enumerate(shape))
            return np.full(reduced, scalar.neutral(node.op, node.type), array.dtype), None
        total = full
        for dim in dims:
            # NumPy would widen integer sums
            same = total.dtype if node.op in ("sum", "prod") else None
            total = function.reduce(total, axis=dim, dtype=same, keepdims=True)
        wrong = None if bad is None else np.asarray(np.broadcast_to(bad, shape).any(dims, keepdims=True))
        return total.astype(array.dtype), wrong


def _apply(node: Apply, operands: list[Value]) -> Value:
    arrays = [a for a, _ in operands]
    if node.op == "select":
        then, other = (b if b is not None else np.zeros((), bool) for _, b in operands[1:])
        chosen = np.where(arrays[0], then, other) if operands[1][1] is not None or operands[2][1] is not None else None
        return np.where(*arrays), _either(operands[0][1], chosen)
    bad = _either(*(b for _, b in operands))
    if node.op == "checked_index":
        i, extent = arrays
        outside = (i < -extent) | (i >= extent)
        return np.where(i < 0, i + extent, i), _either(bad, outside if outside.any() else None)
    return scalar.evaluate(node.op, arrays, [a.type for a in node.args], node.type), bad


def _either(*bad: np.ndarray | None) -> np.ndarray | None:
    found: np.ndarray | None = None
    for b in bad:
        if b is not None:
            found = b if found is None else found | b
    return found if found is not None and found.any() else None


# Tile kernels -------------------------------------------------------------------------------------


def _operand(machine: _Machine, step: Kernel, name: str) -> np.ndarray:
    """An operand over the kernel's axes and inner axes, dimension 1 where it does not depend on one."""
    grid = _Grid((*step.axes, *step.inner), machine.sizes, machine.memory)
    return grid.checked(dict(step.operands)[name], step.name).astype(np.float64)  # type: ignore[arg-type]  # tile kernels have every operand


def _panels(machine: _Machine, step: Kernel, name: str, inner: int, columns: int, together: int = 1) -> np.ndarray:
    """A packed operand: [axes but the last…, inner, columns], from panels that start where its load says; in these,

    so many terms of a column are neighbours."""
    load = dict(step.operands)[name]
    assert isinstance(load, Load)
    array = machine.memory[load.buffer]
    grid = _Grid(step.axes, machine.sizes, machine.memory)
    start = np.zeros((1,) * grid.rank, np.int64)
    for i, extent in zip(load.index, array.shape, strict=True):
        start = start * extent + grid.checked(i, step.name)
    k, n = np.meshgrid(np.arange(inner), np.arange(columns), indexing="ij")
    at = ((n // PANEL * (inner // together) + k // together) * PANEL + n % PANEL) * together + k % together
    return array.reshape(-1)[start[..., None] + at].astype(np.float64)


def _matmul(machine: _Machine, step: Kernel) -> np.ndarray:
    *_, n = _extents(machine, step.axes)
    (k,) = _extents(machine, step.inner)
    (left, _), (right, _) = step.operands
    integer = KERNELS[step.kernel].integer
    a = _operand(machine, step, left)[..., 0, :]
    b = _panels(machine, step, right, k, n, FOUR if integer else 1)[..., 0, :, :]
    total = np.matmul(a, b)
    return _filled(total.astype(np.int64) if integer else total, machine, step)


def _conv(machine: _Machine, step: Kernel) -> np.ndarray:
    out = _extents(machine, step.axes)
    kd, kh, kw, c = _extents(machine, step.inner)
    x = np.broadcast_to(_operand(machine, step, "x"), (*out[:-1], 1, kd, kh, kw, c))
    filters = _panels(machine, step, "filter", kd * kh * kw * c, out[-1])[0, :, 0, 0, 0]
    filters = filters.reshape(-1, kd, kh, kw, c, out[-1])
    total = np.zeros(out)
    for d, h, w in np.ndindex(kd, kh, kw):
        total += np.einsum(
            "ngdhwc,gco->ngdhwo",
            x[:, :, :, :, :, 0, d, h, w],
            np.broadcast_to(filters[:, d, h, w], (out[1], c, out[-1])),
        )
    return _filled(total, machine, step)


def _winograd(machine: _Machine, step: Kernel) -> np.ndarray:
    out = _extents(machine, step.axes)
    x = np.broadcast_to(_operand(machine, step, "x"), (*out[:-1], 1, *_extents(machine, step.inner)))
    load = dict(step.operands)["filter"]
    assert isinstance(load, Load)
    filters = filter_of(machine.memory[load.buffer])[..., : out[-1]]
    return _filled(np.einsum("ngdefxhwc,hwco->ngdefo", x[:, :, :, :, :, 0], filters), machine, step)


def _filled(total: np.ndarray, machine: _Machine, step: Kernel) -> np.ndarray:
    acc = (
        next((n.type for n in nodes(step.value) if isinstance(n, Acc)), DataType.FLOAT)
        if step.value is not None
        else DataType.FLOAT
    )
    return np.broadcast_to(total, _extents(machine, step.axes)).astype(acc.numpy())


def _extents(machine: _Machine, axes: Sequence[Axis]) -> tuple[int, ...]:
    return tuple(_number(a.extent, machine.sizes) for a in axes)
