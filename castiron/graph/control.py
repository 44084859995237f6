"""If, Loop, Scan -> the steps of their bodies between markers; what turns and branches hand on goes into states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnx_ir as ir

from castiron.errors import ModelError, Unsupported
from castiron.graph.faults import NO_LOWERING, Fault
from castiron.graph.nodes import constant_of, goes_on, is_standard, is_wanted, place, scanned
from castiron.graph.sizes import shape_of, unknown_sizes
from castiron.ops.common import scalar_of
from castiron.program.builder import Builder, Tensor
from castiron.program.expr import BOOL, INT64, Expr, Var, all_of, apply, cast, constant, text
from castiron.program.types import Equal, Flow


class Host(Protocol):
    """What lowers the nodes around and inside (lower.py)."""

    build: Builder
    tensors: dict[ir.Value, Tensor]
    faults: list[Fault]
    known: dict[str, tuple[str, int]]

    def lower_nodes(self, graph: ir.Graph) -> None: ...
    def declare_output(self, value: ir.Value) -> Tensor | None: ...
    def declare_sizes(self, value: ir.Value) -> None: ...


def lower_control(host: Host, node: ir.Node) -> None:
    """Adds the steps of an If, Loop or Scan. Raises Unsupported for other nodes with bodies."""
    rules: Mapping[str, Callable[[Host, ir.Node], None]] = {"If": _if, "Loop": _loop, "Scan": _scan}
    if not is_standard(node, *rules):
        raise Unsupported(NO_LOWERING)
    rules[node.op_type](host, node)
    if host.faults:
        host.build.pending.clear()  # a node inside is at fault, and listed


# If ---------------------------------------------------------------------------------------------------------------------


def _if(host: Host, node: ir.Node) -> None:
    build, origin = host.build, host.build.origin
    condition = node.inputs[0]
    assert condition is not None
    wanted = {k: v for k, v in enumerate(node.outputs) if is_wanted(v)}
    states = {k: build.state(_dtype(v), shape_of(v), str(v.name)) for k, v in wanted.items()}
    late = frozenset(build.pending)
    build.control(Flow.IF, cast(scalar_of(host.tensors[condition]), BOOL))
    for number, name in enumerate(("then_branch", "else_branch")):
        branch = node.attributes[name].as_graph()
        host.lower_nodes(branch)
        if host.faults:
            return
        build.origin = origin
        _join(host, node, [(state, host.tensors[branch.outputs[k]]) for k, state in states.items()], late)
        build.control((Flow.ELSE, Flow.END)[number])
    host.tensors.update({v: states[k] for k, v in wanted.items()})


def _join(host: Host, node: ir.Node, moves: Sequence[tuple[Tensor, Tensor]], late: frozenset[str]) -> None:
    """The end of a branch: what it gives becomes what the If gives."""
    sizes: dict[Expr, Expr] = {}
    for state, source in moves:
        for to, of in zip(state.shape, source.shape, strict=True):
            if isinstance(to, Var) and to.name in late:
                sizes[to] = of
            else:
                _require_same(host, node, to, of)
    host.build.assign(sizes, moves, hint=f"{node.name}.results")


def _require_same(host: Host, node: ir.Node, left: Expr, right: Expr) -> None:
    if left is not right:
        message = f"{node.op_type} {place(node)} needs {text(left)} = {text(right)}"
        host.build.require(Equal(left, right, message))


# Loop and Scan ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Turns:
    """A loop. initial: what its states are before the first turn. limit: turns at most. condition: whether the first turn
    runs; None: the body gives no condition. feed(turn): the tensors for the inputs of the body that are no states.
    states: the body's inputs that are; `results` of its outputs follow them; its first output is a condition where there
    is one."""

    node: ir.Node
    body: ir.Graph
    initial: Sequence[Tensor]
    limit: Expr | None
    condition: Tensor | None
    has_condition: bool
    states: Sequence[ir.Value]
    feed: Callable[[Expr], None]

    @property
    def results(self) -> Sequence[ir.Value]:
        """The body's outputs that are no condition: states, then slices."""
        return self.body.outputs[int(self.has_condition) :]


@dataclass(frozen=True)
class _Ran:
    """Behind a loop: how many turns it took, its last states, and the slices of each turn in rows."""

    turns: Expr
    states: Sequence[Tensor]
    stacks: Sequence[Tensor]


def _loop(host: Host, node: ir.Node) -> None:
    body = node.attributes["body"].as_graph()
    values = [None if v is None else host.tensors[v] for v in (*node.inputs, None, None)]
    count, condition, initial = values[0], values[1], [t for t in values[2:] if t is not None]
    known = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    always = goes_on(body) and (condition is None or (known is not None and bool(known.all())))
    if always and count is None:
        raise ModelError(f"Loop {place(node)} never ends: it has neither a number of turns nor a condition")
    limit = None
    if count is not None:
        limit = host.build.natural(apply("max", cast(scalar_of(count), INT64), 0), f"{node.name}.count")
    true = host.build.known(np.array(True), BOOL, f"{node.name}.true")

    def feed(turn: Expr) -> None:
        number, going = body.inputs[:2]
        shape = [] if number.shape is None else shape_of(number)
        made = host.build.temp(INT64, shape, str(number.name))
        host.tensors[number] = host.build.compute(made, lambda *_: turn)
        host.tensors[going] = true

    first = None if always else (true if condition is None else condition)
    ran = _run(host, _Turns(node, body, initial, limit, first, True, body.inputs[2:], feed))
    if ran is not None:
        _give(host, node, ran, [(0, False)] * len(ran.stacks))


def _scan(host: Host, node: ir.Node) -> None:
    body = node.attributes["body"].as_graph()
    many = node.attributes.get_int("num_scan_inputs", 0)
    given = [host.tensors[v] for v in node.inputs if v is not None]
    first = len(given) - many
    ways = scanned(node, "input", many)
    slices = list(zip(given[first:], ways, body.inputs[first:], strict=True))
    length = given[first].shape[ways[0][0]]
    for tensor, (axis, _), _value in slices:
        _require_same(host, node, length, tensor.shape[axis])

    def feed(turn: Expr) -> None:
        for tensor, (axis, backwards), value in slices:
            at, dim = length - 1 - turn if backwards else turn, axis % tensor.rank
            made = host.build.temp(tensor.type, [*tensor.shape[:dim], *tensor.shape[dim + 1 :]], str(value.name))
            host.tensors[value] = host.build.compute(made, lambda *i, t=tensor, a=at, d=dim: t.load(*i[:d], a, *i[d:]))

    ran = _run(host, _Turns(node, body, given[:first], length, None, False, body.inputs[:first], feed))
    if ran is not None:
        _give(host, node, ran, scanned(node, "output", len(ran.stacks)))


def _run(host: Host, loop: _Turns) -> _Ran | None:
    """The steps of the loop; None where a node of the body is not compiled."""
    build, origin, name = host.build, host.build.origin, loop.node.name
    outer = frozenset(build.pending)  # of the node's outputs: later
    for value in loop.states:
        host.declare_sizes(value)
    turn = build.new_size(f"{name}.turn")
    states = [build.state(_dtype(v), shape_of(v), str(v.name)) for v in loop.states]
    stacks = [_stack(host, loop, v, turn) for v in loop.results[len(states) :]]
    going = None if loop.condition is None else build.state(BOOL, [], f"{name}.going")
    own = [d for t in (*states, *stacks) for d in t.shape if isinstance(d, Var) and d.name in build.pending - outer]
    before = _sizes(own, [*zip(states, loop.initial, strict=True)], turn, constant(0))
    moves = [*zip(states, loop.initial, strict=True)]
    build.assign(
        before, [*moves, *([(going, loop.condition)] if going and loop.condition else [])], hint=f"{name}.start"
    )
    goes = [turn < loop.limit] if loop.limit is not None else []
    build.control(Flow.WHILE, all_of([*goes, *([going.load()] if going else [])]))
    host.tensors.update(dict(zip(loop.states, states, strict=True)))
    loop.feed(turn)
    host.lower_nodes(loop.body)
    if host.faults:
        return None
    build.origin = origin
    _turn(host, loop, _Ran(turn, states, stacks), going, own)
    build.control(Flow.END)
    return _Ran(turn, states, stacks)


def _stack(host: Host, loop: _Turns, value: ir.Value, turn: Expr) -> Tensor:
    """Memory for the slices that turns give; sizes that only the body knows are the stack's own."""
    dims = []
    for dim, size in zip(value.shape or (), shape_of(value)):
        inner = unknown_sizes(ir.Value(name="", shape=ir.Shape([dim])), host.known)
        dims.append(host.build.new_size(f"{loop.node.name}.size") if inner else size)
    return host.build.state(_dtype(value), [turn, *dims], f"{value.name}.rows")


def _sizes(own: Sequence[Expr], pairs: Sequence[tuple[Tensor, Tensor]], turn: Expr, now: Expr) -> dict[Expr, Expr]:
    """What the loop's own sizes become: the turn `now`, those of states what their sources have, 0 where there is none."""
    found: dict[Expr, Expr] = {turn: now, **{size: constant(0) for size in own if size is not turn}}
    for state, source in pairs:
        if len(state.shape) != len(source.shape):
            raise Unsupported(f"{state.name!r} changes its number of dimensions from turn to turn")
        found.update({to: of for to, of in zip(state.shape, source.shape, strict=True) if to in found})
    return found


def _turn(host: Host, loop: _Turns, ran: _Ran, going: Tensor | None, own: Sequence[Expr]) -> None:
    """The end of a turn."""
    results = [host.tensors[v] for v in loop.results]
    moves = list(zip(ran.states, results[: len(ran.states)], strict=True))
    appends = list(zip(ran.stacks, results[len(ran.states) :], strict=True))
    sizes = _sizes(own, moves, ran.turns, ran.turns + 1)
    for state, source in moves:
        for to, of in zip(state.shape, source.shape, strict=True):
            if to not in sizes:
                _require_same(host, loop.node, to, of)
    for stack, source in appends:
        for to, of in zip(stack.shape[1:], source.shape, strict=True):
            if to in sizes:
                sizes[to] = of
                late = apply("min", ran.turns, 1)
                _require_same(host, loop.node, to * late, of * late)
            else:
                _require_same(host, loop.node, to, of)
    if going is not None:
        moves.append((going, host.tensors[loop.body.outputs[0]]))
    host.build.assign(sizes, moves, appends, hint=f"{loop.node.name}.turn")


def _give(host: Host, node: ir.Node, ran: _Ran, ways: Sequence[tuple[int, bool]]) -> None:
    """The node's outputs: its last states, and its stacks with the rows along the axis and in the direction asked for."""
    build = host.build
    copies: list[tuple[Tensor, Callable[..., Expr]]] = []
    sizes: dict[Expr, Expr] = {}
    for value, state in zip(node.outputs, ran.states):
        if is_wanted(value) and shape_of(value) == state.shape:
            host.tensors[value] = state
            continue
        out = host.declare_output(value)
        if out is not None:
            sizes.update(zip(out.shape, state.shape, strict=True))
            copies.append((out, state.load))
    for value, stack, (axis, backwards) in zip(node.outputs[len(ran.states) :], ran.stacks, ways, strict=False):
        out = host.declare_output(value)
        if out is not None:
            dim = axis % out.rank
            sizes.update(zip(out.shape, [*stack.shape[1 : dim + 1], ran.turns, *stack.shape[dim + 1 :]], strict=True))
            copies.append((out, _rows(stack, dim, backwards, ran.turns)))
    build.assign(
        {d: v for d, v in sizes.items() if isinstance(d, Var) and d.name in build.pending}, hint=f"{node.name}.end"
    )
    for out, load in copies:
        build.compute(out, load)


def _rows(stack: Tensor, dim: int, backwards: bool, turns: Expr) -> Callable[..., Expr]:
    def load(*index: Expr) -> Expr:
        row = turns - 1 - index[dim] if backwards else index[dim]
        return stack.load(row, *index[:dim], *index[dim + 1 :])

    return load


def _dtype(value: ir.Value) -> ir.DataType:
    if value.dtype is None:
        raise Unsupported(f"value {value.name!r} is {value.type or 'of unknown type'}; only tensors are compiled")
    return value.dtype
