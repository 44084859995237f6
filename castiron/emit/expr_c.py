"""One scalar operation in C, with as few parentheses as C's precedences allow.

In registers float16, bfloat16 and smaller floats are `float`, rounded after each operation that can need it, and BOOL
is `bool`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from onnx_ir import DataType

from castiron.errors import Unsupported
from castiron.program.scalar import C_TYPES, FLOATS, SMALL_FLOATS, SMALL_INTEGERS, TABLE

HALVES = frozenset({DataType.FLOAT16, DataType.BFLOAT16}) | SMALL_FLOATS
SMALL = frozenset({DataType.INT8, DataType.INT16, DataType.UINT8, DataType.UINT16})

ATOM, UNARY, MUL, ADD, SHIFT, RELATION, EQUALITY, BITAND, BITXOR, BITOR, TERNARY = range(11)
_PRECEDENCE = {
    "*": MUL, "/": MUL, "%": MUL, "+": ADD, "-": ADD, "<": RELATION, "<=": RELATION, ">": RELATION, ">=": RELATION,
    "==": EQUALITY, "!=": EQUALITY, "&": BITAND, "^": BITXOR, "|": BITOR,
}  # fmt: skip
_EXACT = frozenset({"neg", "abs", "sign", "min", "max", "floor", "ceil", "round", "trunc"})
_BOOLEAN = {"add": "|", "mul": "&", "min": "&", "max": "|", "sub": "^"}


class C(NamedTuple):
    """An expression's text and how loosely it binds."""

    text: str
    level: int = ATOM


def register(type: DataType) -> str:
    """The C type that holds a value of `type` in an expression."""
    if type in HALVES:
        return "float"
    return "bool" if type == DataType.BOOL else stored(type)


def stored(type: DataType) -> str:
    """The C type of one element in memory."""
    return _c_type(type)[1]


def suffix(type: DataType) -> str:
    """The suffix of C functions on registers of `type`."""
    return "f32" if type in HALVES else _c_type(type)[0]


def _c_type(type: DataType) -> tuple[str, str]:
    if type not in C_TYPES:
        raise Unsupported(f"element type {type.name} has no C form; cast it in the model")
    return C_TYPES[type]


def within(value: C, level: int) -> str:
    """The text, in parentheses where it binds more loosely than `level`."""
    return f"({value.text})" if value.level > level else value.text


def call(function: str, *arguments: C) -> C:
    """`function(a, b)`."""
    return C(f"{function}({', '.join(a.text for a in arguments)})")


def infix(left: C, operator: str, right: C) -> C:
    """`left operator right`; bare comparisons and mixed bit operators get the parentheses that compilers ask for."""
    level = _PRECEDENCE[operator]
    if level >= BITAND:
        same = left.level == level
        return C(f"{within(left, level if same else UNARY)} {operator} {within(right, UNARY)}", level)
    if level in (RELATION, EQUALITY):
        return C(f"{within(left, SHIFT)} {operator} {within(right, SHIFT)}", level)
    return C(f"{within(left, level)} {operator} {within(right, level - 1)}", level)


def prefix(operator: str, value: C) -> C:
    """`-value`, `!value`, `(type)value`."""
    text = within(value, UNARY)
    return C(f"{operator}({text})" if operator == "-" and text.startswith("-") else operator + text, UNARY)


def literal(value: int | float | bool, type: DataType) -> C:
    """A constant that reads back to the same bits."""
    if type == DataType.BOOL:
        return C("true" if value else "false")
    if type in FLOATS:
        return _float(float(value), "" if type == DataType.DOUBLE else "f")
    number = int(value)
    if type in (DataType.INT32, DataType.INT64) and number == type.min:
        return C(f"{type.name}_MIN")
    text = f"{number}{'u' if type in (DataType.UINT32, DataType.UINT64) else ''}"
    return C(text, UNARY if number < 0 else ATOM)


def _float(value: float, letter: str) -> C:
    if math.isnan(value):
        return C(f'__builtin_nan{letter}("")')
    sign = math.copysign(1.0, value) < 0
    if math.isinf(value):
        return C(f"{'-' if sign else ''}__builtin_inf{letter}()", UNARY if sign else ATOM)
    digits = str(np.float32(value)) if letter else repr(value)
    return C(digits + letter, UNARY if sign else ATOM)


def operation(op: str, arguments: Sequence[C], types: Sequence[DataType], result: DataType) -> C:
    """`op` of operands of `types` in C; `result` is the type that comes out."""
    if op == "cast":
        return cast(arguments[0], types[0], result)
    if op == "bitcast":
        return _of_bits(_bits(arguments[0], types[0]), result)
    if op == "select":
        condition, then, other = arguments
        return C(f"{within(condition, EQUALITY)} ? {within(then, BITOR)} : {within(other, TERNARY)}", TERNARY)
    if op == "checked_index":
        return call("ci_index", C("run"), *arguments)
    plain = _plain(op, arguments, types[0])
    if result in SMALL and op in ("add", "sub", "mul", "neg", "bitnot"):
        return prefix(f"({stored(result)})", plain)
    if result in HALVES and op not in _EXACT:
        return rounded(plain, result)
    return plain


def rounded(value: C, type: DataType) -> C:
    """A float in a register rounded to a half type; others as they are."""
    return call(f"ci_round_{C_TYPES[type][0]}", value) if type in HALVES else value


def _plain(op: str, arguments: Sequence[C], type: DataType) -> C:
    row = TABLE[op]
    if type == DataType.BOOL and op in _BOOLEAN:
        return infix(arguments[0], _BOOLEAN[op], arguments[1])
    if row.infix:
        return infix(arguments[0], row.c, arguments[1])
    if op == "div" and type in FLOATS:
        return infix(arguments[0], "/", arguments[1])
    if op in ("neg", "not", "bitnot"):
        return prefix({"neg": "-", "not": "!", "bitnot": "~"}[op], arguments[0])
    return call(f"ci_{row.c}_{suffix(type)}", *arguments)


def cast(value: C, source: DataType, target: DataType) -> C:
    """ONNX's Cast: C's own conversion, except from floats to integers (which saturates) and to narrower halves."""
    if target == DataType.BOOL:
        return infix(value, "!=", literal(0, source))
    if source in FLOATS and target not in FLOATS:
        return call(f"ci_cast_{suffix(source)}_{suffix(target)}", value)
    if target in HALVES:
        return _to_half(value, source, target)
    if target in SMALL_INTEGERS:
        return call(f"ci_wrap_{suffix(target)}", prefix("(uint8_t)", value))
    if register(source) == register(target):
        return value
    return prefix(f"({register(target)})", value)


def _to_half(value: C, source: DataType, target: DataType) -> C:
    if source == DataType.DOUBLE:
        return call(f"ci_cast_f64_{C_TYPES[target][0]}", value)
    wide = value if register(source) == "float" else prefix("(float)", value)
    return rounded(wide, target)


def _bits(value: C, type: DataType) -> C:
    """The bits of a register as an integer of their width."""
    if type in HALVES:
        return to_store(value, type)
    return call(f"ci_bits_{suffix(type)}", value) if type in FLOATS else value


def _of_bits(bits: C, type: DataType) -> C:
    """A register of these bits."""
    if type in HALVES:
        return loaded(prefix(f"({stored(type)})", bits), type)
    if type in FLOATS:
        return call(f"ci_of_bits_{suffix(type)}", prefix(f"(uint{type.bitwidth}_t)", bits))
    return infix(bits, "!=", C("0")) if type == DataType.BOOL else prefix(f"({stored(type)})", bits)


def loaded(element: C, type: DataType) -> C:
    """A register from an element in memory."""
    if type in SMALL_INTEGERS:  # a caller may leave the upper bits of the byte as they come
        return call(f"ci_wrap_{suffix(type)}", prefix("(uint8_t)", element))
    return call(f"ci_load_{C_TYPES[type][0]}", element) if type in HALVES else element


def to_store(value: C, type: DataType) -> C:
    """What is assigned to an element in memory."""
    return call(f"ci_store_{C_TYPES[type][0]}", value) if type in HALVES else value
