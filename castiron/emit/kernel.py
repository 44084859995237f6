"""Kernel steps: a filled struct of castiron.h, and for tile kernels the epilogue as a function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from onnx_ir import DataType

from castiron.emit.access import ONE, STORE, ZERO, flat, is_const, mergeable, offset, strides, tidy_reductions
from castiron.emit.expr_c import literal
from castiron.emit.memory import Memory
from castiron.emit.nest import Part, is_plain, store
from castiron.emit.reduce import reduction
from castiron.emit.scope import TILE_SIMD, Block, Scope
from castiron.errors import InternalError
from castiron.program.expr import Acc, Axis, Const, Expr, Load, Var, free_variables, rewrite, substitute
from castiron.program.kernels import KERNELS, MATMULS
from castiron.program.types import Kernel

TILE = "castiron.tile"
"""Stands for the kernel's own result: the epilogue loads it from the tile at hand."""


@dataclass(frozen=True)
class Tile:
    """A tile kernel on its way: `loops` and `inner` axes by role, operands and epilogue at flat offsets."""

    kernel: str
    loops: Mapping[str, Axis]
    inner: Mapping[str, Axis]
    operands: Mapping[str, Load]
    store: Load
    value: Expr

    def step(self, operand: str, role: str) -> Expr:
        """Elements from one item of an axis to the next in an operand."""
        axis = {**self.loops, **self.inner}[role]
        return strides(self.operands[operand], (axis,))[0].get(axis.name, ZERO)

    def start(self, operand: str) -> Expr:
        """The operand's element at zero."""
        return strides(self.operands[operand], (*self.loops.values(), *self.inner.values()))[1]

    def is_unit(self, role: str) -> bool:
        return is_const({**self.loops, **self.inner}[role].extent, 1)

    def at(self, values: Mapping[str, Expr]) -> Tile:
        """With variables replaced in everything."""
        moved = {k: _load(substitute(v, values)) for k, v in self.operands.items()}
        return replace(
            self, operands=moved, store=_load(substitute(self.store, values)), value=substitute(self.value, values)
        )


def print_kernel(name: str, step: Kernel, memory: Memory) -> list[str]:
    """The C functions of a step; the last one is `static void NAME(const ci_run *run)`."""
    if not KERNELS[step.kernel].tile:
        return _whole(name, step, memory)
    tile = _simplified(_tile(step, memory))
    return [*_epilogue(f"{name}_tile", step.out, tile, memory), "", *_call(name, step, tile, memory)]


def _sums(kernel: str) -> str:
    """The C type of a kernel's sums."""
    return "int32_t" if KERNELS[kernel].integer else "float"


def _load(e: Expr) -> Load:
    assert isinstance(e, Load)
    return e


def _tile(step: Kernel, memory: Memory) -> Tile:
    spec = KERNELS[step.kernel]
    if step.value is None:
        raise InternalError(f"step {step.name!r}: a tile kernel needs a value")
    operands = {}
    for role, operand in step.operands:
        if not isinstance(operand, Load) or (operand.type == DataType.FLOAT) == spec.integer:
            raise InternalError(f"step {step.name!r}: operand {role} must be a load of {_sums(spec.name)}")
        operands[role] = _load(flat(operand, memory.buffers))
    index = [flat(i, memory.buffers) for i in step.index]
    where = Load(STORE, (offset(index, memory.buffers[step.out].shape),), step.value.type)
    loops, inner = dict(zip(spec.axes, step.axes, strict=True)), dict(zip(spec.inner, step.inner, strict=True))
    tile = Tile(step.kernel, loops, inner, operands, where, tidy_reductions(flat(step.value, memory.buffers)))
    return tile.at({a.name: ZERO for a in (*step.axes, *step.inner) if is_const(a.extent, 1)})


# Long rows -------------------------------------------------------------------------------------------


def _simplified(tile: Tile) -> Tile:
    """Outer axes merged into the rows where strides permit, and a convolution of one tap made a matmul."""
    if tile.kernel in MATMULS:
        return _rows_from(tile, ("b2", "b1", "b0"), "m")
    if tile.kernel != "conv":
        return tile
    tile = _rows_from(tile, ("h", "d", "n") if tile.is_unit("g") else ("h", "d"), "w")
    one_tap = all(tile.is_unit(k) for k in ("kd", "kh", "kw"))
    outer = [role for role in ("n", "g", "d", "h") if not tile.is_unit(role)]
    return _as_matmul(tile, outer) if one_tap and len(outer) <= 3 else tile


def _rows_from(tile: Tile, outer: tuple[str, ...], rows: str) -> Tile:
    """Axes merged into the rows, from the inside, until one does not fit."""
    for role in outer:
        if tile.is_unit(role):
            continue
        if not _fits(tile, tile.loops[role], tile.loops[rows]):
            return tile
        merged = _merge(tile, role, rows)
        tile = merged
    return tile


def _fits(tile: Tile, outer: Axis, inner: Axis) -> bool:
    weights = tile.operands[KERNELS[tile.kernel].operands[-1]]
    rest = [v for k, v in tile.operands.items() if v is not weights]
    if outer.name in free_variables(weights):
        return False
    return is_const(inner.extent, 1) or mergeable(outer, inner, [*rest, tile.store, tile.value])


def _merge(tile: Tile, role: str, rows: str) -> Tile:
    outer, inner = tile.loops[role], tile.loops[rows]
    unit = Axis(f"{outer.name}.unit", ONE)
    if is_const(inner.extent, 1):
        return replace(tile, loops={**tile.loops, role: unit, rows: outer})
    long = Axis(inner.name, outer.extent * inner.extent)
    return replace(tile.at({outer.name: ZERO}), loops={**tile.loops, role: unit, rows: long})


def _as_matmul(tile: Tile, outer: list[str]) -> Tile:
    units = [Axis(f"unit.{i}", ONE) for i in range(3 - len(outer))]
    batch = [*units, *(tile.loops[role] for role in outer)]
    loops = dict(zip(("b0", "b1", "b2"), batch, strict=True)) | {"m": tile.loops["w"], "n": tile.loops["o"]}
    operands = {"a": tile.operands["x"], "b": tile.operands["filter"]}
    return replace(tile, kernel="matmul", loops=loops, inner={"k": tile.inner["c"]}, operands=operands)


# Printing --------------------------------------------------------------------------------------------


def _call(name: str, step: Kernel, tile: Tile, memory: Memory) -> list[str]:
    """The function that fills the struct and calls the kernel."""
    spec = KERNELS[tile.kernel]
    scope = Scope(memory, reduction)
    sizes = ", ".join(f".{role} = {scope.int(axis.extent)}" for role, axis in {**tile.loops, **tile.inner}.items())
    fields = [f"{sizes},"]
    strided = {
        "a": (*spec.axes[:-1], "k"),
        "x": (*spec.axes[:-1], *spec.inner),
        "b": ("b0", "b1", "b2"),
        "filter": ("g",),
        "rows": spec.axes[:-1],
        "panels": ("b0", "b1", "b2"),
    }
    for operand in spec.operands:
        fields.append(f".{operand} = {_start(scope, tile.operands[operand].buffer, tile.start(operand))},")
        steps = (f".{operand}_{role} = {scope.int(tile.step(operand, role))}" for role in strided[operand])
        fields.append(", ".join(steps) + ",")
    fields.append(f".tile = {name}_tile,")
    scratch = zip(spec.outputs, step.outputs[1:], strict=True)
    fields += [f".{field} = {scope.pointer(out, store=True)}," for field, out in scratch]
    return _filled(name, spec.struct or f"ci_{tile.kernel}", f"CI({tile.kernel})", fields, scope)


def _start(scope: Scope, buffer: str, start: Expr) -> str:
    pointer = scope.pointer(buffer)
    return pointer if start is ZERO else f"{pointer} + {scope.int(start)}"


def _filled(name: str, struct: str, function: str, fields: list[str], scope: Scope) -> list[str]:
    return [
        f"static void {name}(const ci_run *run)",
        "{",
        *scope.prologue(),
        *scope.top.lines,
        f"const {struct} kernel = {{",
        *fields,
        "};",
        f"{function}(run, &kernel);",
        "}",
    ]


def _epilogue(name: str, out: str, tile: Tile, memory: Memory) -> list[str]:
    """What is done with a finished tile: loops over its rows and columns."""
    scope, type = Scope(memory, reduction), _sums(tile.kernel)
    *outer, rows, cols = tile.loops.values()
    scope.axes |= {"tile.r": "r", "tile.c": "c"}
    scope.namer("r"), scope.namer("c"), scope.namer("sums")
    scope.arrays[TILE] = "sums"

    def result(node: Expr) -> Expr | None:
        return Load(TILE, (Var("tile.c"),), node.type) if isinstance(node, Acc) else None

    value = rewrite(tile.value, result)
    scope.count([value, tile.store])
    used = free_variables(value) | free_variables(tile.store)
    for number, axis in enumerate(outer):
        if axis.name in used:
            scope.top.lines.append(f"const int64_t {scope.axis(axis)} = outer[{number}];")
    row, col = Block(scope.top, {rows.name, "tile.r"}), Block(None, {cols.name, "tile.c"})
    col.parent = row
    if rows.name in used:
        row.lines.append(f"const int64_t {scope.axis(rows)} = row + r;")
    row.lines.append(f"const {type} *sums = tile + r * stride;")
    if cols.name in used:
        col.lines.append(f"const int64_t {scope.axis(cols)} = col + c;")
    part = Part(out, (cols,), tile.store, value)
    store(scope, part, col)
    row.nest([*([TILE_SIMD] if is_plain(part) else []), "for (int64_t c = 0; c < cols; c++) {"], col)
    scope.top.nest(["for (int64_t r = 0; r < rows; r++) {"], row)
    head = [
        f"static void {name}(const ci_run *run, const int64_t *outer, int64_t row, int64_t rows,",
        f"{' ' * len(f'static void {name}(')}int64_t col, int64_t cols, const {type} *tile, int64_t stride)",
    ]
    return [*head, "{", *scope.prologue(), *scope.top.lines, "}"]


def _whole(name: str, step: Kernel, memory: Memory) -> list[str]:
    """A kernel on whole buffers: designated initializers."""
    spec = KERNELS[step.kernel]
    scope = Scope(memory, reduction)
    fields = [f".{field} = {_number(scope, value)}," for field, value in step.params]
    for field, operand in step.operands:
        if isinstance(operand, str):
            fields.append(f".{field} = {scope.pointer(operand)},")
        else:
            load = _load(flat(operand, memory.buffers))
            fields.append(f".{field} = {_start(scope, load.buffer, load.index[0])},")
    fields += [
        f".{field} = {scope.pointer(out, store=True)}," for field, out in zip(step.fields, step.outputs, strict=True)
    ]
    function = f"ci_{step.kernel}" if spec.portable else f"CI({step.kernel})"
    return _filled(name, spec.struct or f"ci_{step.kernel}", function, fields, scope)


def _number(scope: Scope, value: Expr) -> str:
    return literal(value.value, value.type).text if isinstance(value, Const) else scope.int(value)
