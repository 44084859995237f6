"""Program -> nothing: raises InternalError where a program breaks a rule, with the fault at its line."""

from __future__ import annotations

from collections.abc import Iterable

from castiron.errors import InternalError
from castiron.program import scalar
from castiron.program.edit import bound, elements, leaves, writers
from castiron.program.expr import BOOL, INT64, Acc, Apply, Axis, Expr, Load, Reduce, Var, free_variables, linear, nodes
from castiron.program.flow import nesting
from castiron.program.kernels import KERNELS
from castiron.program.stages import assigned
from castiron.program.text import text
from castiron.program.types import (
    Assign,
    Buffer,
    Compute,
    Control,
    Flow,
    Group,
    Kernel,
    Kind,
    Program,
    Require,
    Step,
    View,
    expressions,
    late_sizes,
    read,
    written,
)


class _Fault(Exception):
    """A broken rule; `check` adds the place."""


def check(program: Program) -> None:
    """Checks every rule of types.py.

    Raises:
        InternalError: a rule is broken; its `dump` is the program with the fault below the step at fault.
    """
    try:
        _check_declarations(program)
    except _Fault as fault:
        raise InternalError(f"program {program.name}: {fault}", f"{text(program)}\n{fault}\n") from None
    nesting(program.steps)
    checker = _Checker(program)
    for number, step in enumerate(program.steps):
        try:
            checker.step(number, step)
        except _Fault as fault:
            message = f"program {program.name}, step {number} ({step.name}): {fault}"
            raise InternalError(message, _marked(program, number, str(fault))) from None
    missing = [n for n in program.outputs if n not in checker.stored]
    if missing:
        raise InternalError(f"program {program.name}: output {missing[0]!r} is never stored", text(program))


def _marked(program: Program, number: int, fault: str) -> str:
    lines = text(program).splitlines()
    starts = [i for i, line in enumerate(lines) if line[2:7] == f"{number:4} "]
    end = starts[-1] + 1 if starts else len(lines)
    return "\n".join([*lines[:end], f"  ^^^^ {fault}", *lines[end:]]) + "\n"


def _require(holds: bool, fault: str) -> None:
    if not holds:
        raise _Fault(fault)


def _check_declarations(program: Program) -> None:
    sizes: set[str] = set()
    for size in program.sizes:
        _require(size.name not in sizes, f"size {size.name!r} is declared twice")
        if size.value is not None:
            _require(not size.late, f"size {size.name!r} is assigned and computed")
            _require(free_variables(size.value) <= sizes, f"size {size.name!r} depends on sizes that come later")
        sizes.add(size.name)
    for equal in program.requires:
        _require(free_variables(equal.left) | free_variables(equal.right) <= sizes, "a requirement of unknown sizes")
    for name, buffer in program.buffers.items():
        _require(name == buffer.name, f"buffer {buffer.name!r} is kept under the name {name!r}")
        _require(
            buffer.type in scalar.C_TYPES, f"buffer {name!r} has type {buffer.type.name}, which no program can hold"
        )
        for extent in buffer.shape:
            _require(
                extent.type == INT64 and free_variables(extent) <= sizes, f"shape of {name!r}: a size is not known"
            )
        if buffer.kind == Kind.CONSTANT:
            _require(buffer.value is not None, f"constant {name!r} has no value")
    for name in (*program.inputs, *program.outputs):
        _require(name in program.buffers, f"{name!r} is an input or output, but not a buffer")


class _Checker:
    """Goes through the steps in order and knows what has been stored so far."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.sizes = frozenset(s.name for s in program.sizes)
        self.last_store = {name: found[-1] for name, found in writers(program.steps).items()}
        required = [*program.requires, *(s.equal for s in program.steps if isinstance(s, Require))]
        self.equal = {(e.left, e.right) for e in required}
        self.stored: set[str] = set()
        self.axes: dict[str, Axis] = {}
        self.names: set[str] = set()
        self.unknown = set(late_sizes(program))
        self.sets: dict[str, tuple[str, ...]] = {}

    def step(self, number: int, step: Step) -> None:
        _require(step.name not in self.names, f"a second step of the name {step.name!r}")
        self.names.add(step.name)
        self._bind(step)
        for name in (*read(step), *written(step)):
            _require(name in self.program.buffers, f"buffer {name!r} does not exist")
        self._reads(number, step)
        for leaf in leaves(step):
            if isinstance(leaf, View):
                self._view(leaf)
            else:
                self._nest(leaf)
            if isinstance(leaf, Kernel):
                self._kernel(leaf)
        if isinstance(step, Group):
            self._group(step)
        if isinstance(step, Assign | Require | Control):
            self._decision(step)
        self._known(step)
        self._writes(step)

    def buffer(self, name: str) -> Buffer:
        return self.program.buffers[name]

    def _bind(self, step: Step) -> None:
        """An axis belongs to one step and has one extent, over sizes alone."""
        own: dict[str, Axis] = {}
        for axis in bound(step):
            _require(own.setdefault(axis.name, axis) is axis, f"axis {axis.name!r} is two axes")
            _require(axis.name not in self.axes and axis.name not in self.sizes, f"axis {axis.name!r} is taken")
            _require(
                axis.extent.type == INT64 and free_variables(axis.extent) <= self.sizes,
                f"extent of {axis.name!r} is unknown",
            )
        self.axes.update(own)

    def _reads(self, number: int, step: Step) -> None:
        for name in read(step):
            kind = self.buffer(name).kind
            if kind == Kind.STATE:
                _require(name in self.stored, f"state {name!r} is read before it is stored")
            if kind in (Kind.INPUT, Kind.WEIGHT, Kind.CONSTANT, Kind.STATE) or (
                kind == Kind.PACKED and name not in self.last_store
            ):
                continue
            _require(name in self.stored, f"{name!r} is read before it is stored")
            _require(
                self.last_store[name] < number,
                f"{name!r} is read before the last of its stores (step {self.last_store[name]})",
            )

    def _writes(self, step: Step) -> None:
        for name in written(step):
            kind = self.buffer(name).kind
            allowed = (Kind.STATE,) if isinstance(step, Assign) else (Kind.OUTPUT, Kind.TEMP, Kind.PACKED)
            _require(kind in allowed, f"stores into the {kind.value} {name!r}")
            _require(not isinstance(step, View) or name not in self.stored, f"{name!r} is a view and stored as well")
            self.stored.add(name)

    def _decision(self, step: Assign | Require | Control) -> None:
        """Steps that are no work on elements."""
        for e in expressions(step):
            free = free_variables(e) - self.sizes
            _require(not free, f"variable {min(free, default='')!r} is not bound")
            for node in nodes(e):
                self._node(node, False)
        if isinstance(step, Control):
            asks = step.flow in (Flow.IF, Flow.WHILE)
            _require((step.condition is not None) == asks, f"{step.flow.value} with the wrong condition")
            _require(step.condition is None or step.condition.type == BOOL, "the condition is no BOOL")
        if isinstance(step, Assign):
            self._assign(step)

    def _assign(self, step: Assign) -> None:
        names = assigned(step)
        late = late_sizes(self.program)
        for name, value in step.sizes:
            _require(name in late, f"{name!r} is no size that data tell")
            _require(value.type == INT64, f"size {name!r} is no INT64")
            _require(self.sets.setdefault(name, names) == names, f"size {name!r} is assigned with others elsewhere")
        for state, source in (*step.moves, *step.appends):
            of, to = self.buffer(source), self.buffer(state)
            _require(to.kind == Kind.STATE and of.kind != Kind.STATE, f"{source!r} cannot move to {state!r}")
            _require(of.type == to.type, f"{source!r} and {state!r} differ in type")
        self.unknown.difference_update(names)

    def _known(self, step: Step) -> None:
        """Sizes are assigned before a step needs them."""
        shapes = [e for n in (*read(step), *written(step)) for e in self.buffer(n).shape]
        for e in (*expressions(step), *shapes):
            missing = free_variables(e) & self.unknown
            _require(not missing, f"size {min(missing, default='')!r} is needed before it is assigned")

    def _view(self, step: View) -> None:
        out, of = self.buffer(step.out), self.buffer(step.of)
        _require(out.type == of.type, f"view of {of.type.name} as {out.type.name}")
        sizes = elements(out.shape), elements(of.shape)
        _require(
            sizes[0] is sizes[1] or sizes in self.equal or sizes[::-1] in self.equal,
            f"{step.out!r} and {step.of!r} differ in their number of elements",
        )

    def _nest(self, step: Compute | Kernel) -> None:
        """Types, ranks and variables of a loop nest's expressions."""
        scope = self.sizes | {a.name for a in step.axes}
        inner = scope | {a.name for a in step.inner} if isinstance(step, Kernel) else scope
        if step.value is not None:
            out = self.buffer(step.out)
            self._index(step.out, step.index)
            _require(
                step.value.type == out.type,
                f"a {step.value.type.name} is stored into {step.out!r}, which holds {out.type.name}",
            )
            names = {n.buffer for e in (step.value, *step.index) for n in nodes(e) if isinstance(n, Load)}
            _require(step.out not in names, f"{step.out!r} is loaded by the step that stores it")
        for e in expressions(step):
            free = free_variables(e) - (inner if isinstance(e, Load) and isinstance(step, Kernel) else scope)
            _require(not free, f"variable {min(free, default='')!r} is not bound")
            for node in nodes(e):
                self._node(node, isinstance(step, Kernel))

    def _index(self, name: str, index: Iterable[Expr]) -> None:
        index = tuple(index)
        rank = len(self.buffer(name).shape)
        _require(len(index) == rank, f"{name!r} has {rank} dimensions, the index has {len(index)}")
        _require(all(i.type == INT64 for i in index), f"an index of {name!r} is not INT64")

    def _node(self, node: Expr, kernel: bool) -> None:
        if isinstance(node, Load):
            _require(node.buffer in self.program.buffers, f"buffer {node.buffer!r} does not exist")
            buffer = self.buffer(node.buffer)
            _require(
                node.type == buffer.type, f"{node.buffer!r} holds {buffer.type.name}, it is loaded as {node.type.name}"
            )
            self._index(node.buffer, node.index)
        elif isinstance(node, Apply):
            _check_apply(node)
        elif isinstance(node, Reduce):
            _require(node.op in scalar.REDUCTIONS, f"reduction {node.op!r} does not exist")
        elif isinstance(node, Acc):
            _require(kernel, "acc stands outside a kernel")
        else:
            _require(
                not isinstance(node, Var) or node.name in self.axes or node.name in self.sizes,
                f"variable {node} is not bound",
            )

    def _kernel(self, step: Kernel) -> None:
        _require(step.kernel in KERNELS, f"kernel {step.kernel!r} does not exist")
        spec = KERNELS[step.kernel]
        _require(len(step.axes) == len(spec.axes), f"{spec.name} has axes {spec.axes}, the step has {len(step.axes)}")
        _require(
            len(step.inner) == len(spec.inner),
            f"{spec.name} sums over {spec.inner}, the step over {len(step.inner)} axes",
        )
        given = [n for n, _ in step.operands]
        unknown = set(given) - set(spec.operands)
        _require(not unknown, f"{spec.name} has no operand {min(unknown, default='')!r}")
        missing = set(spec.operands) - set(spec.optional) - set(given)
        _require(
            not missing and len(set(given)) == len(given), f"{spec.name} lacks operand {min(missing, default='')!r}"
        )
        _require(
            (step.value is not None) == spec.tile, f"{spec.name}: an epilogue is there just where the kernel has one"
        )
        if spec.tile:
            self._tile(step)
        else:
            _require(
                set(step.fields) <= set(spec.outputs), f"{spec.name} writes {spec.outputs}, the step {step.fields}"
            )
            _require(len(step.fields) == len(step.outputs), f"{spec.name}: each output needs the name of its field")

    def _tile(self, step: Kernel) -> None:
        names = frozenset(a.name for a in (*step.axes, *step.inner))
        outer = frozenset(a.name for a in step.axes)
        _require(
            all(linear(i, outer) is not None for i in step.index), "a tile is stored at an index that is not linear"
        )
        for name, operand in step.operands:
            _require(isinstance(operand, Load), f"operand {name!r} is not a load")
            assert isinstance(operand, Load)
            _require(
                all(linear(i, names) is not None for i in operand.index), f"operand {name!r} is not linear in the axes"
            )
            _require(operand.buffer not in step.outputs, f"operand {name!r} is the output")

    def _group(self, step: Group) -> None:
        lead = len(step.axes)
        _require(bool(step.parts), "a group without parts")
        for part in step.parts:
            shared = len(part.axes) >= lead and all(a is b for a, b in zip(part.axes, step.axes))
            _require(shared, f"part {part.name!r} does not start with the group's axes")
        own = set(written(step))
        stored: set[str] = set()
        for part in step.parts:
            early = [n for n in read(part) if n in own and n not in stored]
            _require(not early, f"part {part.name!r} reads {early} before they are stored")
            stored.add(part.out)


def _check_apply(node: Apply) -> None:
    _require(node.op in scalar.TABLE, f"operator {node.op!r} does not exist")
    types = tuple(a.type for a in node.args)
    if node.op in ("cast", "bitcast"):
        sizes = {max(8, t.bitwidth) for t in (*types, node.type)}
        _require(node.op == "cast" or len(sizes) == 1, f"bitcast of {types[0].name} to {node.type.name}")
        return
    data = types[1:] if node.op == "select" else types
    _require(len(set(data)) == 1, f"{node.op} of {', '.join(t.name for t in types)}")
    _require(node.op != "select" or types[0] == BOOL, f"select by a {types[0].name}")
    expected = scalar.result_type(node.op, types)
    _require(node.type == expected, f"{node.op} gives {expected.name}, the expression says {node.type.name}")
