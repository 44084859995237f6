"""NAME_api.c: the model's tables, and the functions of NAME.h."""

from __future__ import annotations

import json
from collections.abc import Sequence

from castiron.emit import expr_c
from castiron.emit.access import product
from castiron.emit.largest import print_largest
from castiron.emit.memory import Memory
from castiron.emit.model import ISA_NAMES
from castiron.emit.reduce import reduction
from castiron.emit.scope import Scope
from castiron.emit.types import ModelInfo, Port
from castiron.emit.writer import comment, indented, quoted
from castiron.errors import InternalError
from castiron.program.expr import Const, Expr, Var, apply, free_variables, text
from castiron.program.planned import Planned
from castiron.program.types import Control, Kind, Size, late_sizes


def all_sizes(forward: Planned, outputs: Sequence[Port]) -> tuple[Size, ...]:
    """The program's sizes, and one more for each extent of an output that is an expression over them; late ones last."""
    sizes = list(forward.program.sizes)
    late = late_sizes(forward.program)
    known: set[Expr] = {Var(s.name) for s in sizes}
    for port in outputs:
        for dim, extent in enumerate(port.buffer.shape):
            if not isinstance(extent, Const) and extent not in known:
                known.add(extent)
                sizes.append(Size(f"{port.name}.{dim}", value=extent))
    return tuple(sorted(sizes, key=lambda size: is_late(size, late)))


def is_late(size: Size, late: frozenset[str]) -> bool:
    """Whether only the run tells a size, directly or by way of others."""
    return size.late or (size.value is not None and not late.isdisjoint(free_variables(size.value)))


def api_file(name: str, prepare: Planned, forward: Planned, model: ModelInfo, sizes: Sequence[Size]) -> str:
    """The text of NAME_api.c. `sizes` as `all_sizes` gives them."""
    derived = any(s.value is not None for s in sizes)
    largest = print_largest(forward, sizes)
    return indented(
        [
            *comment(f"{name}: tables and public functions; made by castiron {model.version}"),
            f'#include "{name}.h"',
            '#include "api.h"',
            '#include "scalar.h"',
            "",
            *_ports("inputs", model.inputs, sizes),
            *_ports("outputs", model.outputs, sizes),
            *_ports("weights", model.weights, sizes),
            *_sizes(sizes, model.inputs),
            *largest,
            *(_derive(forward, sizes) if derived else []),
            *_misfit(forward, sizes),
            *_plan(forward, sizes),
            *_blobs(name, model),
            *_codes(name, model),
            *_model(name, prepare, forward, model, sizes, derived, bool(largest)),
            *_functions(name, model),
        ]
    )


def _ports(title: str, ports: Sequence[Port], sizes: Sequence[Size]) -> list[str]:
    lines, rows = [], []
    for number, port in enumerate(ports):
        dims = [str(_dim(d, port, sizes)) for d in port.buffer.shape]
        if dims:
            lines.append(f"static const int64_t {title}_{number}[] = {{{', '.join(dims)}}};")
        rows.append(
            f"{{{quoted(port.name)}, {int(port.buffer.type)}, {len(dims)}, {f'{title}_{number}' if dims else 'NULL'}}},"
        )
    return [*lines, f"static const ci_port {title}[] = {{", *rows, "};", ""] if rows else []


def _dim(extent: Expr, port: Port, sizes: Sequence[Size]) -> int:
    if isinstance(extent, Const):
        return int(extent.value)
    for number, size in enumerate(sizes):
        if extent is Var(size.name) or extent is size.value:
            return -1 - number
    raise InternalError(f"{port.name}: an extent is no size of the program")


def _sizes(sizes: Sequence[Size], inputs: Sequence[Port]) -> list[str]:
    if not sizes:
        return []
    ports = {p.buffer.name: i for i, p in enumerate(inputs)} | {p.name: i for i, p in enumerate(inputs)}
    rows = [
        f"{{{quoted(s.name)}, {ports[s.input] if s.value is None and not s.late else -1}, {s.dim}}}," for s in sizes
    ]
    return ["static const ci_size size_table[] = {", *rows, "};", ""]


class _Sizes(Memory):
    """Sizes where the array of sizes is a parameter, not a run's."""

    def size(self, name: str) -> str:
        return super().size(name).removeprefix("run->")


def _scope(forward: Planned, sizes: Sequence[Size]) -> Scope:
    return Scope(_Sizes(forward, {s.name: i for i, s in enumerate(sizes)}), reduction)


def _derive(forward: Planned, sizes: Sequence[Size]) -> list[str]:
    """Each derived size in order, which may use the ones before it."""
    lines = ["static void derive(int64_t *sizes)", "{"]
    scope = _scope(forward, sizes)
    declared = 0
    for number, size in enumerate(sizes):
        if size.value is None:
            continue
        value = scope.int(size.value)
        declarations = scope.prologue()
        lines += [*declarations[declared:], *scope.top.lines, f"sizes[{number}] = {value};"]
        declared = len(declarations)
        scope.top.lines.clear()
    return [*lines, "}", ""]


def _misfit(forward: Planned, sizes: Sequence[Size]) -> list[str]:
    """What is wrong with the sizes of the inputs."""
    if not forward.program.requires:
        return []
    scope = _scope(forward, sizes)
    tests = []
    for equal in forward.program.requires:
        condition = expr_c.infix(scope.value(equal.left, scope.top), "!=", scope.value(equal.right, scope.top))
        tests.append(f"if ({condition.text}) return {quoted(equal.message)};")
    head = ["static const char *misfit(const int64_t *sizes)", "{"]
    return [*head, *scope.prologue(), *scope.top.lines, *tests, "return NULL;", "}", ""]


def _plan(forward: Planned, sizes: Sequence[Size]) -> list[str]:
    if forward.arena is not None:
        return [
            "static int64_t plan(const int64_t *sizes, int64_t *offsets)",
            "{",
            "(void)sizes, (void)offsets;",
            f"return {forward.arena};",
            "}",
            "",
        ]
    scope = _scope(forward, sizes)
    rows = [f"{{{first}, {last}}}, /* {name.replace('*/', '')} */" for name, first, last in forward.lives]
    branches = any(isinstance(s, Control) for s in forward.program.steps)  # one that is not taken may not fit the sizes
    bytes_ = []
    for name, _, _ in forward.lives:
        buffer = forward.program.buffers[name]
        size = product(buffer.shape) * (max(8, buffer.type.bitwidth) // 8)
        bytes_.append(scope.int(apply("max", size, 0) if branches else size) + ",")
    count = len(forward.lives)
    if not count:
        raise InternalError("a memory plan without an arena has no lives")
    return [
        f"static const ci_life lives[{count}] = {{",
        *rows,
        "};",
        "",
        "static int64_t plan(const int64_t *sizes, int64_t *offsets)",
        "{",
        *(scope.prologue() or ["(void)sizes;"]),
        *scope.top.lines,
        f"const int64_t bytes[{count}] = {{",
        *bytes_,
        "};",
        f"return ci_plan(lives, bytes, {count}, offsets);",
        "}",
        "",
    ]


def _blobs(name: str, model: ModelInfo) -> list[str]:
    there = {"packed": model.embedded, "constants": model.constant_bytes, "selftest": model.selftest_bytes}
    lines = [f"extern const char {name}_{blob}[];" for blob, present in there.items() if present]
    return [*lines, ""] if lines else []


def _codes(name: str, model: ModelInfo) -> list[str]:
    """The code of each instruction set; building from source compiles one, which CI_ISA names."""
    one = f"CI_PASTE({name}_code, CI_ISA)"
    return [
        "#ifdef CI_ISA",
        f"extern const ci_code {one};",
        f"static const ci_code *const codes[] = {{&{one}, NULL}};",
        "#else",
        *(f"extern const ci_code {name}_code_{isa};" for isa in model.isas),
        f"static const ci_code *const codes[] = {{{''.join(f'&{name}_code_{isa}, ' for isa in model.isas)}NULL}};",
        "#endif",
        "",
    ]


def _model(
    name: str,
    prepare: Planned,
    forward: Planned,
    model: ModelInfo,
    sizes: Sequence[Size],
    derived: bool,
    bounded: bool,
) -> list[str]:
    if prepare.arena is None:
        raise InternalError("prepare has sizes that only an input knows")
    tables = {"inputs": model.inputs, "outputs": model.outputs, "weights": model.weights}
    fields = [
        f".name = {quoted(name)},",
        f".hash = {quoted(model.hash)},",
        f".version = {quoted(model.version)},",
        f".info = {quoted(model.info)},",
        *(f".{t} = {t}, .{t[:-1]}_count = {len(ports)}," for t, ports in tables.items() if ports),
        *([f".sizes = size_table, .size_count = {len(sizes)},"] if sizes else []),
        *([".largest = largest,"] if bounded else []),
        *([".derive = derive,"] if derived else []),
        *([".misfit = misfit,"] if forward.program.requires else []),
        f".plan = plan, .offset_count = {len(forward.lives) + sum(map(len, forward.later))},",
        *_late(forward, sizes),
        f".prepare_arena = {prepare.arena},",
        f".packed_bytes = {model.packed_bytes}, .constant_bytes = {model.constant_bytes},",
        *([f".constants = {name}_constants,"] if model.constant_bytes else []),
        *([f".packed = {name}_packed,"] if model.embedded else []),
        *([f".weights_file = {quoted(model.weights_file)},"] if model.weights_file else []),
        *([f".selftest = {name}_selftest, .selftest_bytes = {model.selftest_bytes},"] if model.selftest_bytes else []),
        ".codes = codes,",
    ]
    main = ["#ifdef CI_MAIN", "extern const ci_model *const ci_main_model;",
            f"const ci_model *const ci_main_model = &{name}_model;", "#endif", ""]  # fmt: skip
    shared = ["#ifdef CI_SHARED", "/* Tells a loader of any castiron library the prefix of its symbols. */",
              f"{name.upper()}_API const char *castiron_name(void);",
              f"const char *castiron_name(void) {{ return {quoted(name)}; }}", "",
              "/* Tells it what the model takes and gives, as JSON. */",
              f"{name.upper()}_API const char *castiron_about(void);",
              f"const char *castiron_about(void) {{ return {quoted(_about(name, model))}; }}", "#endif", ""]  # fmt: skip
    declared = [f"extern const ci_model {name}_model;", f"const ci_model {name}_model = {{", *fields, "};", ""]
    return [*declared, *main, *shared]


def _about(name: str, model: ModelInfo) -> str:
    """What `--info` of an executable says, as far as it can be told without loading weights."""
    ports = {"inputs": model.inputs, "outputs": model.outputs, "parameters": model.weights}
    rows = {title: [_described(port) for port in found] for title, found in ports.items()}
    weights = {"packed_bytes": model.packed_bytes, "source": "file" if _is_outside(model) else "embed"}
    isas = [ISA_NAMES[isa] for isa in model.isas]
    about = {"name": name, "castiron": model.version, "hash": model.hash, "isas": isas, "weights": weights}
    return json.dumps({**about, **rows})


def _is_outside(model: ModelInfo) -> bool:
    return model.packed_bytes > 0 and not model.embedded


def _described(port: Port) -> dict[str, object]:
    shape = [int(d.value) if isinstance(d, Const) else text(d) for d in port.buffer.shape]
    return {"name": port.name, "type": port.buffer.type.numpy().name, "shape": shape}


def _late(forward: Planned, sizes: Sequence[Size]) -> list[str]:
    """What only the run tells."""
    late = late_sizes(forward.program)
    counts = {
        "late": sum(is_late(s, late) for s in sizes),
        "stage": len(forward.later),
        "state": len(forward.program.of_kind(Kind.STATE)),
    }
    return (
        [", ".join(f".{what}_count = {count}" for what, count in counts.items()) + ","] if any(counts.values()) else []
    )


def _functions(name: str, model: ModelInfo) -> list[str]:
    """The public functions: the runtime's under the model's prefix, its types by casts."""
    error, weights, session = "(ci_error *)error", "(ci_weights *)weights", "(ci_session *)session"
    W, S, A, E = f"{name}_weights", f"{name}_session", f"{name}_array", f"{name}_error"
    arrays = f"(const ci_array *)inputs, (ci_array *)outputs, {error}"
    rows = [
        (f"int {name}_load(const char *path, {W} **weights, {E} *error)",
         f"return ci_load(&{name}_model, path, (ci_weights **)weights, {error});"),
        (f"int {name}_load_bytes(const void *bytes, size_t size, {W} **weights, {E} *error)",
         f"return ci_load_bytes(&{name}_model, bytes, size, (ci_weights **)weights, {error});"),
        (f"int {name}_weights_save(const {W} *weights, const char *path, {E} *error)",
         f"return ci_weights_save((const ci_weights *)weights, path, {error});"),
        (f"void {name}_weights_free({W} *weights)", f"ci_weights_free({weights});"),
        (f"int {name}_session_new(const {W} *weights, int threads, {S} **session, {E} *error)",
         f"return ci_session_new((const ci_weights *)weights, threads, (ci_session **)session, {error});"),
        (f"void {name}_session_free({S} *session)", f"ci_session_free({session});"),
        (f"int {name}_session_shape({S} *session, const {A} *inputs, {A} *outputs, {E} *error)",
         f"return ci_session_shape({session}, {arrays});"),
        (f"int {name}_session_run({S} *session, const {A} *inputs, {A} *outputs, {E} *error)",
         f"return ci_session_run({session}, {arrays});"),
    ]  # fmt: skip
    lines = [
        f"_Static_assert(sizeof({A}) == sizeof(ci_array), \"the header's array is the runtime's\");",
        f"_Static_assert(sizeof({E}) == sizeof(ci_error), \"the header's error is the runtime's\");",
    ]
    for head, body in rows:
        lines += ["", head, "{", body, "}"]
    for kind, count in (("input", len(model.inputs)), ("output", len(model.outputs))):
        found = f"index >= 0 && index < {count} ? {kind}s[index].name : NULL" if count else "index < 0 ? NULL : NULL"
        lines += ["", f"const char *{name}_{kind}_name(int index)", "{", f"return {found};", "}"]
    return lines
