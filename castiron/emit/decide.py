"""The C of steps that follow data: sizes and states that get new values, requirements, borders of branches and loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from castiron.emit import expr_c
from castiron.emit.access import flat, product
from castiron.emit.largest import magnitude
from castiron.emit.memory import Memory
from castiron.emit.reduce import reduction
from castiron.emit.scope import Scope
from castiron.emit.writer import quoted
from castiron.program.expr import Const, Expr, Var, apply, constant, polynomial
from castiron.program.stages import assigned, numbered, stage_of, stages
from castiron.program.types import Assign, Buffer, Control, Flow, Kind, Require, Step, View

TOO_LARGE = "these inputs make values larger than any memory"


def print_condition(name: str, step: Control, memory: Memory) -> list[str]:
    """`static bool NAME(const ci_run *run)`: whether the branch, or one more turn, runs."""
    assert step.condition is not None
    scope = Scope(memory, reduction)
    condition = scope.value(flat(step.condition, memory.buffers), scope.top)
    return [
        f"static bool {name}(const ci_run *run)",
        "{",
        *scope.prologue(),
        *scope.top.lines,
        f"return {condition.text};",
        "}",
    ]


def print_require(name: str, step: Require, memory: Memory) -> list[str]:
    """`static void NAME(const ci_run *run)`: ends the run where two sizes differ."""
    scope = Scope(memory, reduction)
    sides = [scope.value(flat(e, memory.buffers), scope.top) for e in (step.equal.left, step.equal.right)]
    differ = expr_c.infix(sides[0], "!=", sides[1])
    message = quoted(f"these inputs do not fit the model: {step.equal.message}")
    return [*_head(name, scope), f"if ({differ.text}) ci_stop(run, CI_BAD_INPUT, {message});", "}"]


def print_assign(name: str, step: Assign, memory: Memory) -> list[str]:
    """`static void NAME(const ci_run *run)`: new sizes, then states, then memory for what the sizes tell."""
    scope = Scope(memory, reduction)
    values = [scope.value(flat(value, memory.buffers), scope.top) for _, value in step.sizes]
    sources = [scope.pointer(source) for _, source in (*step.moves, *step.appends)]
    names = [scope.namer(f"new_{size}") for size, _ in step.sizes]
    lines = [f"const int64_t {new} = {value.text};" for new, value in zip(names, values, strict=True)]
    setters = [
        f"if (!ci_set_size(run, {memory.number(size)}, {new})) return;"
        for (size, _), new in zip(step.sizes, names, strict=True)
    ]
    after = _after(step, memory, sources)
    return [*_head(name, scope), *lines, *setters, "{", *after, "}", "}"]


def _head(name: str, scope: Scope) -> list[str]:
    return [f"static void {name}(const ci_run *run)", "{", *scope.prologue(), *scope.top.lines]


def _after(step: Assign, memory: Memory, sources: Sequence[str]) -> list[str]:
    """What is done when the new sizes are known: a block that reads them anew."""
    scope = Scope(memory, reduction)
    program = memory.planned.program
    lines: list[str] = []
    states = [program.buffers[state] for state, _ in (*step.moves, *step.appends)]
    numbers = {b.name: n for n, b in enumerate(program.of_kind(Kind.STATE))}
    for position, (state, source) in enumerate(zip(states, sources, strict=True)):
        arguments = f"run, {numbers[state.name]}, {source}"
        if position < len(step.moves):
            lines.append(f"if (!ci_move({arguments}, {scope.int(_bytes(state))})) return;")
        else:
            row = Buffer(state.name, state.type, state.shape[1:], state.kind)
            lines.append(
                f"if (!ci_append({arguments}, {scope.int(_bytes(row))}, {scope.int(state.shape[0] - 1)})) return;"
            )
    own = _stage(step, memory)
    lines += [
        f"if (!ci_output(run, {n}, {scope.int(_bytes(program.buffers[o]))})) return;" for n, o in _outputs(step, memory)
    ]
    if own:
        lines += _planned(stages(program).index(assigned(step)), own, memory, scope)
    grown = [
        *states,
        *(program.buffers[n] for n, _, _ in own),
        *(program.buffers[o] for _, o in _outputs(step, memory)),
    ]
    return [*_fits(grown, scope), *scope.prologue(), *scope.top.lines, *lines]


def _fits(grown: Sequence[Buffer], scope: Scope) -> list[str]:
    """Ends the run before sizes are multiplied whose product no integer holds."""
    total: Expr = sum((magnitude(_bytes(b)) for b in grown), start=constant(0))
    if isinstance(total, Const):
        return []
    terms = []
    for monomial, factor in polynomial(total).items():
        factors = [f"(double){scope.memory.size(a.name)}" for a in monomial if isinstance(a, Var)]
        terms.append(" * ".join([repr(float(factor)), *factors]))
    return [
        f"if (!({' + '.join(terms)} < 0x1p62)) {{",
        f"ci_stop(run, CI_NO_MEMORY, {quoted(TOO_LARGE)});",
        "return;",
        "}",
    ]


def _stage(step: Assign, memory: Memory) -> Sequence[tuple[str, int, int]]:
    """The TEMPs whose memory is found at this step."""
    if not step.sizes:
        return ()
    return memory.planned.later[stages(memory.planned.program).index(assigned(step)) - 1]


def _outputs(step: Assign, memory: Memory) -> list[tuple[int, str]]:
    program = memory.planned.program
    if not step.sizes:
        return []
    own, where = stages(program).index(assigned(step)), numbered(program)
    return [(n, o) for n, o in enumerate(program.outputs) if stage_of(program.buffers[o], where) == own]


def _planned(stage: int, lives: Sequence[tuple[str, int, int]], memory: Memory, scope: Scope) -> list[str]:
    rows = [f"{{{first}, {last}}}, /* {name.replace('*/', '')} */" for name, first, last in lives]
    sizes = [f"{scope.int(apply('max', _bytes(memory.buffers[name]), 0))}," for name, _, _ in lives]
    slot = memory.planned.places[lives[0][0]].offset
    count = len(lives)
    return [
        f"static const ci_life lives[{count}] = {{",
        *rows,
        "};",
        f"const int64_t bytes[{count}] = {{",
        *sizes,
        "};",
        f"(void)ci_stage(run, {stage - 1}, lives, bytes, {count}, {slot});",
    ]


def _bytes(buffer: Buffer) -> Expr:
    return product(buffer.shape) * (max(8, buffer.type.bitwidth) // 8)


# The table ---------------------------------------------------------------------------------------------


def jumps(steps: Sequence[Step], ends: Mapping[int, int], loops: frozenset[int]) -> dict[int, int]:
    """Step -> the row of the table that is next if its condition does not hold (or always, where it has none).

    Views and the ends of branches have no row."""
    begins = {end: marker for marker, end in ends.items()}
    rows, count = [], 0
    for number, step in enumerate(steps):
        rows.append(count)
        count += has_row(step, begins.get(number, -1) in loops)
    found = {}
    for number, step in enumerate(steps):
        if isinstance(step, Control) and step.flow != Flow.END:
            end = ends[number]
            found[number] = rows[end] + has_row(steps[end], number in loops)
        elif isinstance(step, Control) and begins[number] in loops:
            found[number] = rows[begins[number]]
    return found


def has_row(step: Step, closes_loop: bool) -> bool:
    """Whether a step is in the table: views are free, and the end of a branch is only a place."""
    return not isinstance(step, View) and (not isinstance(step, Control) or step.flow != Flow.END or closes_loop)
