"""What a lowering writes into: a Builder makes buffers and steps for one graph, a Tensor is a value on the way."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count

import numpy as np
from onnx_ir import DataType

from castiron.program.expr import Acc, Axis, Const, Expr, Load, Var, constant, free_variables, loads
from castiron.program.notes import Note, silent
from castiron.program.types import (
    Assign,
    Buffer,
    Compute,
    Control,
    Equal,
    Flow,
    Kernel,
    Kind,
    Origin,
    Program,
    Require,
    Shape,
    Size,
    Step,
    View,
)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A buffer seen by a lowering. `value` is there where the contents are known at build (small constants).

    `elements` of an integer tensor: its contents in row-major order, where they follow from sizes (as Shape gives them)."""

    buffer: Buffer
    elements: tuple[Expr, ...] | None = None

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def type(self) -> DataType:
        return self.buffer.type

    @property
    def shape(self) -> Shape:
        return self.buffer.shape

    @property
    def rank(self) -> int:
        return len(self.buffer.shape)

    @property
    def value(self) -> np.ndarray | None:
        return self.buffer.value

    def load(self, *index: Expr) -> Expr:
        """The element at `index`; a known single element is a literal."""
        if len(index) != self.rank:
            raise IndexError(f"{self.name} has {self.rank} dimensions, the index has {len(index)}")
        if self.value is not None and self.value.size == 1 and self.buffer.kind == Kind.CONSTANT:
            return constant(self.value.reshape(()).item(), self.type)
        return Load(self.name, tuple(index), self.type)

    def broadcast(self, index: Sequence[Expr]) -> Expr:
        """The element that NumPy broadcasting puts at `index` of a shape of equal or higher rank."""
        own = index[len(index) - self.rank :]
        zero = constant(0)
        return self.load(*(zero if _is_one(d) else i for i, d in zip(own, self.shape, strict=True)))


def _is_one(size: Expr) -> bool:
    return isinstance(size, Const) and size.value == 1


class Builder:
    """Collects buffers and steps. Names stay unique: a taken name gets a number behind it.

    note: takes the remarks of lowerings."""

    def __init__(self, note: Note = silent, reserved: Iterable[str] = ()) -> None:
        """reserved: names that only `declare` gives, those of outputs."""
        self.note = note
        self.reserved = frozenset(reserved)
        self.buffers: dict[str, Buffer] = {}
        self.steps: list[Step] = []
        self.sizes: list[Size] = []
        self.requires: list[Equal] = []
        self.origin: tuple[Origin, ...] = ()
        self.late: set[str] = set()  # sizes that only the run tells
        self.pending: set[str] = set()  # those of them that no step has assigned yet
        self._roots: dict[str, str] = {}
        self._depth = 0  # of branches and loops
        self._axes = 0
        self._steps: set[str] = set()

    def remark(self, reason: str) -> None:
        """Says why the node at hand is not computed the best way there is."""
        for origin in self.origin:
            self.note(f"{origin.op} {origin.node}", reason)

    # buffers

    def declare(
        self, name: str, type: DataType, shape: Sequence[Expr | int], kind: Kind, value: np.ndarray | None = None
    ) -> Tensor:
        """A buffer under exactly this name (its ONNX value's)."""
        buffer = Buffer(name, type, tuple(constant(d) for d in shape), kind, value)
        self.buffers[name] = buffer
        return Tensor(buffer)

    def temp(self, type: DataType, shape: Sequence[Expr | int], hint: str) -> Tensor:
        """A new intermediate array; `hint` is what its name starts with."""
        return self.declare(self._fresh(hint), type, shape, Kind.TEMP)

    def known(self, value: np.ndarray, type: DataType, hint: str) -> Tensor:
        """A new constant array."""
        return self.declare(self._fresh(hint), type, value.shape, Kind.CONSTANT, np.asarray(value, order="C"))

    def _fresh(self, hint: str) -> str:
        """A buffer's name that starts with `hint`."""
        return self._unique(hint, self.buffers, self.reserved)

    # steps

    def axes(self, shape: Sequence[Expr | int]) -> tuple[Axis, ...]:
        """Fresh loop axes over `shape`."""
        out = []
        for extent in shape:
            out.append(Axis(f"i{self._axes}", constant(extent)))
            self._axes += 1
        return tuple(out)

    def compute(self, out: Tensor, value: Callable[..., Expr]) -> Tensor:
        """`out[i, j, …] = value(i, j, …)` over all of `out`."""
        axes = self.axes(out.shape)
        index = tuple(a.var for a in axes)
        return self.store(out, axes, index, value(*index))

    def store(self, out: Tensor, axes: tuple[Axis, ...], index: Sequence[Expr], value: Expr) -> Tensor:
        """`out[index] = value` over `axes`: for outputs that several steps fill (Concat, Pad)."""
        self._check_type(out, value.type)
        self.steps.append(Compute(self._name(out.name), out.name, axes, tuple(index), value, self.origin))
        return out

    def view(self, out: Tensor, of: Tensor) -> Tensor:
        """`out` is `of` under another shape."""
        self._check_type(out, of.type)
        self.steps.append(View(self._name(out.name), out.name, of.name, self.origin))
        self._roots[out.name] = self._roots.get(of.name, of.name)
        return out

    # what data decide

    def late_size(self, name: str) -> Expr:
        """A size of this name that a later `assign` sets."""
        self.sizes.append(Size(name, late=True))
        self.late.add(name)
        self.pending.add(name)
        return Var(name)

    def new_size(self, hint: str) -> Expr:
        """The same under a name that starts with `hint`."""
        return self.late_size(self._unique(hint, {s.name for s in self.sizes}))

    def natural(self, value: Expr, hint: str) -> Expr:
        """`value`, which is not negative and holds elements of tensors, as a size: computed once, here."""
        if not loads(value):
            return value
        size = self.new_size(hint)
        self.assign({size: value})
        return size

    def assign(
        self,
        sizes: Mapping[Expr, Expr],
        moves: Sequence[tuple[Tensor, Tensor]] = (),
        appends: Sequence[tuple[Tensor, Tensor]] = (),
        hint: str = "sizes",
    ) -> None:
        """Gives sizes and states new values, all at once (types.Assign)."""
        named = tuple((size.name, value) for size, value in sizes.items() if isinstance(size, Var))
        pairs = [tuple((to.name, self._movable(of).name) for to, of in p) for p in (moves, appends)]
        if named or any(pairs):
            self.steps.append(Assign(self._name(hint), named, pairs[0], pairs[1], self.origin))
        self.pending.difference_update(name for name, _ in named)

    def _movable(self, tensor: Tensor) -> Tensor:
        """A tensor of these elements that is no state: states move all at once, none reads another's new elements."""
        if self.buffers[self._roots.get(tensor.name, tensor.name)].kind != Kind.STATE:
            return tensor
        return self.compute(self.temp(tensor.type, tensor.shape, f"{tensor.name}.old"), tensor.load)

    def state(self, type: DataType, shape: Sequence[Expr | int], hint: str) -> Tensor:
        """Memory that `assign` stores into."""
        return self.declare(self._fresh(hint), type, shape, Kind.STATE)

    def require(self, equal: Equal) -> None:
        """Ends the run where two sizes differ: before it starts, or, in a branch or loop or where data tell a size, here."""
        early = (free_variables(equal.left) | free_variables(equal.right)).isdisjoint(self.late)
        if early and not self._depth:
            self.requires.append(equal)
        else:
            self.steps.append(Require(self._name("require"), equal, self.origin))

    def control(self, flow: Flow, condition: Expr | None = None) -> None:
        """A border of a branch or loop."""
        self.steps.append(Control(self._name(flow.value), flow, condition, self.origin))
        self._depth += {Flow.IF: 1, Flow.ELSE: 0, Flow.WHILE: 1, Flow.END: -1}[flow]

    def tile_kernel(
        self,
        kernel: str,
        out: Tensor,
        axes: tuple[Axis, ...],
        inner: tuple[Axis, ...],
        operands: dict[str, Expr],
        index: Sequence[Expr] | None = None,
        value: Expr | None = None,
    ) -> Tensor:
        """A kernel with an epilogue: `out[index] = value`; by default the sum itself (`Acc`) at `out[axes]`."""
        index = tuple(Var(a.name) for a in axes) if index is None else tuple(index)
        value = Acc(out.type) if value is None else value
        self._check_type(out, value.type)
        name = self._name(out.name)
        self.steps.append(
            Kernel(
                name, kernel, (out.name,), tuple(operands.items()), (), axes, inner, index, value, origins=self.origin
            )
        )
        return out

    def whole_kernel(
        self,
        kernel: str,
        outputs: dict[str, Tensor],
        operands: dict[str, Tensor],
        params: dict[str, Expr | int | float],
    ) -> None:
        """A kernel that reads and writes whole buffers, keyed by the fields of its C struct (so are `params`)."""
        numbers = tuple(
            (k, constant(v, DataType.FLOAT if isinstance(v, float) else DataType.INT64)) for k, v in params.items()
        )
        reads = tuple((k, t.name) for k, t in operands.items())
        writes = tuple(t.name for t in outputs.values())
        name = self._name(writes[0])
        self.steps.append(Kernel(name, kernel, writes, reads, numbers, fields=tuple(outputs), origins=self.origin))

    def program(self, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> Program:
        """What has been built."""
        ports = tuple(inputs), tuple(outputs)
        return Program(name, tuple(self.sizes), dict(self.buffers), tuple(self.steps), *ports, tuple(self.requires))

    def _check_type(self, out: Tensor, type: DataType) -> None:
        if out.type != type:
            raise TypeError(f"{out.name} holds {out.type.name}, the step gives {type.name}")

    def _name(self, hint: str) -> str:
        name = self._unique(hint, self._steps)
        self._steps.add(name)
        return name

    @staticmethod
    def _unique(hint: str, *taken: Container[str]) -> str:
        """`hint`, or with the first number that none of `taken` has. Not their union: that would be made for each buffer."""
        names = chain([hint], (f"{hint}.{number}" for number in count(2)))
        return next(name for name in names if not any(name in own for own in taken))
