"""What each scalar operator means (NumPy) and how C spells it: the one table behind folding, interpreter and printer.

C spellings: an infix operator, or the stem of a function of `runtime/scalar.h` to which the printer adds the operands'
type (`exp` on FLOAT prints `ci_exp_f32(x)`). Nothing here calls libm: the law of bits needs our own functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from onnx_ir import DataType

# ONNX type -> suffix of C functions and the C type of one stored element (bool is one byte holding 0 or 1).
C_TYPES: dict[DataType, tuple[str, str]] = {
    DataType.FLOAT: ("f32", "float"),
    DataType.DOUBLE: ("f64", "double"),
    DataType.FLOAT16: ("f16", "uint16_t"),
    DataType.BFLOAT16: ("bf16", "uint16_t"),
    DataType.INT8: ("i8", "int8_t"),
    DataType.INT16: ("i16", "int16_t"),
    DataType.INT32: ("i32", "int32_t"),
    DataType.INT64: ("i64", "int64_t"),
    DataType.UINT8: ("u8", "uint8_t"),
    DataType.UINT16: ("u16", "uint16_t"),
    DataType.UINT32: ("u32", "uint32_t"),
    DataType.UINT64: ("u64", "uint64_t"),
    DataType.BOOL: ("b8", "uint8_t"),
    # of 8 bits and fewer (runtime/small.h): an element takes a byte
    DataType.FLOAT8E4M3FN: ("e4m3fn", "uint8_t"),
    DataType.FLOAT8E4M3FNUZ: ("e4m3fnuz", "uint8_t"),
    DataType.FLOAT8E5M2: ("e5m2", "uint8_t"),
    DataType.FLOAT8E5M2FNUZ: ("e5m2fnuz", "uint8_t"),
    DataType.FLOAT4E2M1: ("e2m1", "uint8_t"),
    DataType.INT4: ("i4", "int8_t"),
    DataType.UINT4: ("u4", "uint8_t"),
    DataType.INT2: ("i2", "int8_t"),
    DataType.UINT2: ("u2", "uint8_t"),
}

SMALL_FLOATS = frozenset(t for t in C_TYPES if t.is_floating_point() and t.bitwidth <= 8)
SMALL_INTEGERS = frozenset(t for t in C_TYPES if t != DataType.BOOL and t.is_integer() and t.bitwidth < 8)
FLOATS = frozenset({DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16, DataType.BFLOAT16}) | SMALL_FLOATS


@dataclass(frozen=True)
class Scalar:
    """One scalar operator: its meaning on NumPy arrays, its C spelling, and what type comes out."""

    numpy: Callable[..., Any]
    c: str
    result: str = "same"  # "same": the type of the operands; "bool"; "second": the type of operand 1 (select)
    infix: bool = False
    foldable: bool = True
    cost: int = 1  # rough cycles an element: what fusion weighs against computing twice


def _erf(x: np.ndarray) -> np.ndarray:
    from math import erf

    found: np.ndarray = np.vectorize(erf, otypes=[np.float64])(x)
    return found.astype(np.asarray(x).dtype)


def _trunc_div(a: Any, b: Any) -> Any:
    """C's integer division: towards zero; by zero gives 0 (the runtime must not trap)."""
    safe = np.where(b == 0, 1, b)
    quotient = a // safe
    # floor and truncation differ by one where the signs differ and something is left over
    return np.where(b == 0, 0, quotient + ((quotient * safe != a) & ((a < 0) != (safe < 0))))


def _div(a: Any, b: Any) -> Any:
    return np.divide(a, b) if np.asarray(a).dtype.kind not in "iub" else _trunc_div(a, b)


def _zero_safe(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: np.where(b == 0, 0, function(a, np.where(b == 0, 1, b)))


def _checked_index(i: Any, n: Any) -> Any:
    if np.any((i < -n) | (i >= n)):
        raise IndexError(f"index {i} is outside [-{n}, {n})")
    return np.where(i < 0, i + n, i)


TABLE: dict[str, Scalar] = {
    "add": Scalar(np.add, "+", infix=True),
    "sub": Scalar(np.subtract, "-", infix=True),
    "mul": Scalar(np.multiply, "*", infix=True),
    "div": Scalar(_div, "div", cost=4),  # integers: towards zero, 0 where the divisor is 0
    "floordiv": Scalar(_zero_safe(np.floor_divide), "floordiv", cost=20),  # integers only
    "mod": Scalar(_zero_safe(np.mod), "mod", cost=20),  # sign of the divisor (Python)
    "fmod": Scalar(
        lambda a, b: np.fmod(a, b) if np.asarray(a).dtype.kind == "f" else _zero_safe(np.fmod)(a, b), "fmod", cost=20
    ),
    "neg": Scalar(np.negative, "neg"),
    "abs": Scalar(np.abs, "abs"),
    "sign": Scalar(np.sign, "sign"),
    "min": Scalar(np.minimum, "min"),  # NaN wins, as ONNX and NumPy have it
    "max": Scalar(np.maximum, "max"),
    "fma": Scalar(lambda a, b, c: a * b + c, "fma", foldable=False),
    "sqrt": Scalar(np.sqrt, "sqrt", cost=6),
    "exp": Scalar(np.exp, "exp", cost=10, foldable=False),
    "log": Scalar(np.log, "log", cost=12, foldable=False),
    "erf": Scalar(_erf, "erf", cost=20, foldable=False),
    "tanh": Scalar(np.tanh, "tanh", cost=15, foldable=False),
    "sigmoid": Scalar(lambda x: 1 / (1 + np.exp(-x)), "sigmoid", cost=14, foldable=False),
    "sin": Scalar(np.sin, "sin", cost=15, foldable=False),
    "cos": Scalar(np.cos, "cos", cost=15, foldable=False),
    "tan": Scalar(np.tan, "tan", cost=20, foldable=False),
    "asin": Scalar(np.arcsin, "asin", cost=20, foldable=False),
    "acos": Scalar(np.arccos, "acos", cost=20, foldable=False),
    "atan": Scalar(np.arctan, "atan", cost=20, foldable=False),
    "sinh": Scalar(np.sinh, "sinh", cost=20, foldable=False),
    "cosh": Scalar(np.cosh, "cosh", cost=20, foldable=False),
    "asinh": Scalar(np.arcsinh, "asinh", cost=20, foldable=False),
    "acosh": Scalar(np.arccosh, "acosh", cost=20, foldable=False),
    "atanh": Scalar(np.arctanh, "atanh", cost=20, foldable=False),
    "pow": Scalar(np.power, "pow", cost=30, foldable=False),  # both operands of one type
    "floor": Scalar(np.floor, "floor"),
    "ceil": Scalar(np.ceil, "ceil"),
    "round": Scalar(np.rint, "round"),  # half to even
    "trunc": Scalar(np.trunc, "trunc"),
    "isnan": Scalar(np.isnan, "isnan", "bool"),
    "isinf": Scalar(np.isinf, "isinf", "bool"),
    "eq": Scalar(np.equal, "==", "bool", infix=True),
    "ne": Scalar(np.not_equal, "!=", "bool", infix=True),
    "lt": Scalar(np.less, "<", "bool", infix=True),
    "le": Scalar(np.less_equal, "<=", "bool", infix=True),
    "gt": Scalar(np.greater, ">", "bool", infix=True),
    "ge": Scalar(np.greater_equal, ">=", "bool", infix=True),
    "and": Scalar(np.logical_and, "&", "bool", infix=True),
    "or": Scalar(np.logical_or, "|", "bool", infix=True),
    "xor": Scalar(np.logical_xor, "^", "bool", infix=True),
    "not": Scalar(np.logical_not, "!", "bool"),
    "bitand": Scalar(np.bitwise_and, "&", infix=True),
    "bitor": Scalar(np.bitwise_or, "|", infix=True),
    "bitxor": Scalar(np.bitwise_xor, "^", infix=True),
    "bitnot": Scalar(np.bitwise_not, "~"),
    "shl": Scalar(np.left_shift, "shl"),
    "shr": Scalar(np.right_shift, "shr"),
    "select": Scalar(np.where, "?", "second"),
    "cast": Scalar(None, "cast", "cast"),  # type: ignore[arg-type]  # evaluate() spells it: the meaning needs the target type
    "bitcast": Scalar(None, "bitcast", "cast", foldable=False),  # type: ignore[arg-type]  # likewise
    # An index that data gives, made non-negative; outside [-n, n) the run ends with an error that names the step.
    "checked_index": Scalar(_checked_index, "index", foldable=False),
}

# Reductions: operator that joins two partial results, and the result of none.
REDUCTIONS: dict[str, tuple[str, str]] = {
    "sum": ("add", "zero"),
    "prod": ("mul", "one"),
    "max": ("max", "lowest"),
    "min": ("min", "highest"),
}


def result_type(op: str, operands: tuple[DataType, ...]) -> DataType:
    """The type that `op` gives for operands of these types."""
    kind = TABLE[op].result
    if kind == "bool":
        return DataType.BOOL
    return operands[1] if kind == "second" else operands[0]


def neutral(op: str, type: DataType) -> int | float:
    """What an empty reduction by `op` gives: 0, 1, or the type's end (infinity for floats), as ONNX has it."""
    kind = REDUCTIONS[op][1]
    if kind in ("zero", "one"):
        return int(kind == "one")
    sign = -1 if kind == "lowest" else 1
    if type in FLOATS:
        return sign * float("inf")
    if type == DataType.BOOL:
        return int(sign > 0)
    return int(type.min if sign < 0 else type.max)


def rounded(value: float, type: DataType) -> float:
    """The value of `type` nearest to `value`, as a Python float."""
    with np.errstate(all="ignore"):
        return float(np.asarray(value, np.float64).astype(type.numpy()))


def evaluate(op: str, values: Sequence[Any], types: Sequence[DataType], result: DataType) -> Any:
    """`op` on NumPy arrays or numbers whose types are given; what comes back has the type `result`."""
    with np.errstate(all="ignore"):
        arrays = [np.asarray(v, t.numpy()) for v, t in zip(values, types, strict=True)]
        if op == "cast":
            return convert(arrays[0], types[0], result)
        if op == "bitcast":
            return np.ascontiguousarray(arrays[0]).view(result.numpy()).reshape(arrays[0].shape)
        return np.asarray(TABLE[op].numpy(*arrays)).astype(result.numpy())


def convert(x: np.ndarray, source: DataType, target: DataType) -> np.ndarray:
    """ONNX Cast between numeric types: floats to integers truncate and saturate, NaN becomes 0.

    To integers of 4 and 2 bits floats are rounded, halves to even, and the lower bits kept; to small floats, what is out
    of range becomes infinity or NaN, if they have one."""
    if target == DataType.BOOL:
        return np.asarray(np.not_equal(x, 0))
    if source in FLOATS and target in SMALL_INTEGERS:
        whole = np.rint(x.astype(np.float64))
        return np.where(np.abs(whole) < 2**31, whole, 0).astype(np.int64).astype(np.int8).astype(target.numpy())
    if source in FLOATS and target.is_integer():
        wide = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        inside = np.clip(wide, float(target.min), float(target.max))
        out = np.where(np.isfinite(inside), inside, 0)
        exact = out.astype(np.int64 if target.min < 0 else np.uint64, casting="unsafe")
        if target.bitwidth == 64:  # float64 cannot hold the largest 64-bit integer
            exact = np.where(wide >= float(target.max), target.max, exact)
        return exact.astype(target.numpy())
    return x.astype(target.numpy())


assert ml_dtypes  # registers bfloat16 with NumPy
