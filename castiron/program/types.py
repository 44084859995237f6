"""The program: steps over buffers, the level between the ONNX graph and C.

    Program = sizes, buffers, steps        Step = Compute | Group | Kernel | View | Assign | Require | Control

A program is in single-assignment form as far as elements go: every element of a buffer is stored by one step, before any
step loads it. Branches and loops are markers between the steps (Control), so that a pass sees one list whatever the
nesting; what one turn of a loop hands to the next, or a branch to what follows, lies in STATE buffers, which Assign alone
stores. `check` (check.py) states the rules as code, `text` (text.py) prints, `run` (run.py) interprets with NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from onnx_ir import DataType

from castiron.program.expr import Axis, Expr, loads

Shape = tuple[Expr, ...]


class Kind(StrEnum):
    """Where a buffer lives, and so who fills it."""

    INPUT = "input"  # the caller's memory, read in place
    OUTPUT = "output"  # the caller's memory, written in place
    WEIGHT = "weight"  # a parameter by its own name; arrives early: embedded, from a file, or at run time
    CONSTANT = "constant"  # a value of the graph that nobody replaces; always inside the artifact
    PACKED = "packed"  # computed by `prepare` from weights and constants, read by `forward`
    TEMP = "temp"  # a slot of an arena
    STATE = "state"  # what Assign stores, again and again: memory of its own that grows


@dataclass(frozen=True, slots=True)
class Buffer:
    """A dense row-major array. `shape` holds INT64 expressions over the program's sizes."""

    name: str
    type: DataType
    shape: Shape
    kind: Kind
    value: np.ndarray | None = field(
        default=None, compare=False, repr=False
    )  # of a CONSTANT (of a WEIGHT: in the model)


@dataclass(frozen=True, slots=True)
class Origin:
    """The ONNX node that a step comes from, for messages, profiles and comments."""

    node: str
    op: str
    module: str = ""  # nn.Module path, where the exporter recorded it


@dataclass(frozen=True, slots=True)
class Compute:
    """`out[index] = value` for all `axes` (outer first). `value` may hold reductions; it never loads `out`,

    except at exactly `index` after the memory plan has put `out` into the place of an operand."""

    name: str
    out: str
    axes: tuple[Axis, ...]
    index: tuple[Expr, ...]
    value: Expr
    origins: tuple[Origin, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Computes that share their leading `axes` (the very same Axis objects): one loop nest runs them row by row.

    A part may load what an earlier part has stored at the same leading indices, nothing else of the group."""

    name: str
    axes: tuple[Axis, ...]
    parts: tuple[Compute, ...]

    @property
    def origins(self) -> tuple[Origin, ...]:
        return tuple(dict.fromkeys(o for part in self.parts for o in part.origins))


@dataclass(frozen=True, slots=True)
class Kernel:
    """A call into `runtime/`: what `kernel` (a row of kernels.py) computes of `operands`.

    A tile kernel (matmul, convolution) has one output and an epilogue: for all `axes`, `out[index] = value`, where `value`
    holds `Acc` for the kernel's own result at these axes. Other kernels have `value` None and write `outputs` whole;
    `fields` names the C fields that hold them.
    `inner` are the axes it sums over. `operands` maps the kernel's operand names to a Load over `axes` and `inner` (tile
    kernels: the strides come from the index, which must be linear in them) or to a whole buffer's name. `params` are
    further sizes and switches by name.
    """

    name: str
    kernel: str
    outputs: tuple[str, ...]
    operands: tuple[tuple[str, Expr | str], ...]
    params: tuple[tuple[str, Expr], ...] = ()
    axes: tuple[Axis, ...] = ()
    inner: tuple[Axis, ...] = ()
    index: tuple[Expr, ...] = ()
    value: Expr | None = None
    fields: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()

    @property
    def out(self) -> str:
        return self.outputs[0]


@dataclass(frozen=True, slots=True)
class View:
    """`out` is the memory of `of` under another shape with the same elements in the same order."""

    name: str
    out: str
    of: str
    origins: tuple[Origin, ...] = ()


@dataclass(frozen=True, slots=True)
class Size:
    """An int64 known at run time: dimension `dim` of input `input` (`value` None), or an expression over earlier sizes,
    or (`late`) what an Assign says. None is negative."""

    name: str
    input: str = ""
    dim: int = 0
    value: Expr | None = None
    late: bool = False


@dataclass(frozen=True, slots=True)
class Equal:
    """Two sizes that inputs of this model must make equal; `message` says what goes wrong where they do not."""

    left: Expr
    right: Expr
    message: str


@dataclass(frozen=True, slots=True)
class Assign:
    """Sizes and states get new values, all at once: each value of `sizes` (size, value) is computed of the old ones, then
    each state of `moves` (state, source) takes the elements of its source, and each of `appends` those as its last row.

    This is where sizes that only data tell become known: memory for what depends on them is found here. A size belongs
    to one set of sizes that are always assigned together. A source is no state, nor a view of one."""

    name: str
    sizes: tuple[tuple[str, Expr], ...] = ()
    moves: tuple[tuple[str, str], ...] = ()
    appends: tuple[tuple[str, str], ...] = ()
    origins: tuple[Origin, ...] = ()


@dataclass(frozen=True, slots=True)
class Require:
    """The run ends with a message where `equal` does not hold: it depends on sizes that data tell."""

    name: str
    equal: Equal
    origins: tuple[Origin, ...] = ()


class Flow(StrEnum):
    """What a Control marks."""

    IF = "if"  # the steps up to ELSE or END run where the condition holds
    ELSE = "else"
    WHILE = "while"  # the steps up to END run as long as the condition, asked before each turn, holds
    END = "end"


@dataclass(frozen=True, slots=True)
class Control:
    """A border of a branch or loop; `condition` (of IF and WHILE) is one BOOL over sizes and elements of buffers."""

    name: str
    flow: Flow
    condition: Expr | None = None
    origins: tuple[Origin, ...] = ()


Step = Compute | Group | Kernel | View | Assign | Require | Control


@dataclass(frozen=True, slots=True)
class Program:
    """What one function of the artifact does: `forward`, or `prepare`.

    `inputs` and `outputs` are in the model's order; `weights` maps a WEIGHT buffer to its data (name as the user knows it).
    """

    name: str
    sizes: tuple[Size, ...]
    buffers: Mapping[str, Buffer]
    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    requires: tuple[Equal, ...] = ()

    def of_kind(self, kind: Kind) -> tuple[Buffer, ...]:
        """The buffers of a kind, in the order of their making."""
        return tuple(b for b in self.buffers.values() if b.kind == kind)


def late_sizes(program: Program) -> frozenset[str]:
    """The sizes that only the run tells."""
    return frozenset(s.name for s in program.sizes if s.late)


def written(step: Step) -> tuple[str, ...]:
    """Names of the buffers that a step stores into (a view counts as storing its own name)."""
    if isinstance(step, Group):
        return tuple(dict.fromkeys(p.out for p in step.parts))
    if isinstance(step, Assign):
        return tuple(state for state, _ in (*step.moves, *step.appends))
    if isinstance(step, Require | Control):
        return ()
    return step.outputs if isinstance(step, Kernel) else (step.out,)


def expressions(step: Step) -> list[Expr]:
    """Every expression of a step, the extents of its axes left out."""
    if isinstance(step, Group):
        return [e for part in step.parts for e in expressions(part)]
    if isinstance(step, Assign):
        return [value for _, value in step.sizes]
    if isinstance(step, Require):
        return [step.equal.left, step.equal.right]
    if isinstance(step, Control):
        return [] if step.condition is None else [step.condition]
    if isinstance(step, View):
        return []
    found = [*step.index, *([step.value] if step.value is not None else [])]
    return found + ([o for _, o in step.operands if isinstance(o, Expr)] if isinstance(step, Kernel) else [])


def read(step: Step) -> tuple[str, ...]:
    """Names of the buffers that a step loads from, each once, in order; not those that a Group stores itself."""
    names = read_whole(step)
    names += [load.buffer for e in expressions(step) for load in loads(e)]
    own = set(written(step)) if isinstance(step, Group) else set()
    return tuple(n for n in dict.fromkeys(names) if n not in own)


def read_whole(step: Step) -> list[str]:
    """The buffers that a step reads as a whole."""
    if isinstance(step, View):
        return [step.of]
    if isinstance(step, Assign):
        return [source for _, source in (*step.moves, *step.appends)]
    return [o for _, o in step.operands if isinstance(o, str)] if isinstance(step, Kernel) else []
