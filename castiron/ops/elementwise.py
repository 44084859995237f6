"""Arithmetic, comparisons, logic and casts, element by element with NumPy broadcasting.

Specification: https://onnx.ai/onnx/operators/ (one page an operator, e.g. onnx__Add.html)
Opset history: before 7 the binary operators had `broadcast` and `axis` instead of broadcasting; Clip had its bounds,
Cast its type as attributes; Dropout was told by `is_test` or `training_mode` what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType

from castiron.errors import Unsupported
from castiron.ops.common import (
    compute_from,
    constant_node,
    drop_consumed_inputs,
    fail,
    integer,
    lifted,
    renewed,
    saturated,
    scalar_of,
    wide,
    with_output,
)
from castiron.ops.random import flat_number, seed_of, uniform
from castiron.ops.registry import Call, Case, Operator
from castiron.program.expr import BOOL, Const, Expr, apply, bitcast, cast, constant, select
from castiron.program.scalar import C_TYPES, FLOATS

Formula = Callable[..., Expr]


def _mean(*values: Expr) -> Expr:
    return reduce(lambda a, b: a + b, values) / len(values)


def _fold(op: str) -> Formula:
    return lambda *values: reduce(lambda a, b: apply(op, a, b), values)


def _unary(op: str) -> Formula:
    return lambda x: apply(op, x)


def _of_floats(op: str, otherwise: Callable[[Expr], Expr]) -> Formula:
    """`op` makes sense for floats; other types are what `otherwise` says."""
    return lambda x: apply(op, x) if x.type in FLOATS else otherwise(x)


def _prelu(x: Expr, slope: Expr) -> Expr:
    return select(x < 0, x * slope, x)


# Formulas without attributes; those of BINARY were told by attributes how to broadcast before opset 7.
BINARY: dict[str, Formula] = {
    "Add": _fold("add"),
    "And": _fold("and"),
    "BitwiseAnd": _fold("bitand"),
    "BitwiseOr": _fold("bitor"),
    "BitwiseXor": _fold("bitxor"),
    "Div": _fold("div"),
    "Equal": _fold("eq"),
    "Greater": _fold("gt"),
    "GreaterOrEqual": _fold("ge"),
    "Less": _fold("lt"),
    "LessOrEqual": _fold("le"),
    "Mul": _fold("mul"),
    "Or": _fold("or"),
    "PRelu": _prelu,
    "Sub": _fold("sub"),
    "Xor": _fold("xor"),
}
PLAIN: dict[str, Formula] = {
    "Abs": lambda x: x if x.type.is_integer() and not x.type.is_signed() else apply("abs", x),
    "BitwiseNot": _unary("bitnot"),
    "Ceil": _unary("ceil"),
    "Floor": _unary("floor"),
    "IsNaN": _of_floats("isnan", lambda x: constant(False, BOOL)),
    "Max": _fold("max"),
    "Mean": _mean,
    "Min": _fold("min"),
    "Neg": _unary("neg"),
    "Not": _unary("not"),
    "Reciprocal": lambda x: apply("div", constant(1, x.type), x),
    "Relu": lambda x: apply("max", x, 0),
    "Round": _unary("round"),
    "Sign": _unary("sign"),
    "Sum": _fold("add"),
    "Where": select,
}


def _lower_formula(call: Call) -> None:
    compute_from(call, (BINARY | PLAIN)[call.node.op_type])


def _lower_is_inf(call: Call) -> None:
    positive, negative = call.attribute("detect_positive", 1), call.attribute("detect_negative", 1)

    def formula(x: Expr) -> Expr:
        if not (positive or negative):
            return constant(False, BOOL)
        found = apply("isinf", x)
        if positive and negative:
            return found
        return found & (x > 0 if positive else x < 0)

    compute_from(call, formula)


def _modulo(x: Expr, y: Expr) -> Expr:
    """The remainder with the sign of the divisor."""
    if x.type not in FLOATS:
        return apply("mod", x, y)
    rest = apply("fmod", x, y)
    return select(apply("ne", rest, 0) & apply("xor", rest < 0, y < 0), rest + y, rest)


def _lower_mod(call: Call) -> None:
    compute_from(call, _fold("fmod") if call.attribute("fmod", 0) else _modulo)


def _lower_bit_shift(call: Call) -> None:
    compute_from(call, _fold("shl" if call.attribute("direction") == "LEFT" else "shr"))


def power(x: Expr, y: Expr) -> Expr:
    """x ** y in x's type; the exponents that PyTorch treats apart are treated alike."""
    exponent = float(y.value) if isinstance(y, Const) else None
    if exponent in (1.0, 2.0, 3.0):
        return reduce(lambda a, b: a * b, [x] * int(exponent))
    if x.type not in FLOATS:
        return cast(apply("pow", cast(x, DataType.DOUBLE), cast(y, DataType.DOUBLE)), x.type)
    if exponent in (0.5, -0.5):
        root = apply("sqrt", x)
        return root if exponent > 0 else apply("div", constant(1, x.type), root)
    if exponent in (-1.0, -2.0):
        return apply("div", constant(1, x.type), x if exponent == -1.0 else x * x)
    return apply("pow", x, cast(y, x.type))


def _lower_pow(call: Call) -> None:
    compute_from(call, power)


def _lower_clip(call: Call) -> None:
    low, high = call.optional(1), call.optional(2)

    def value(*index: Expr) -> Expr:
        x = lifted(call.input(0).load(*index))
        x = x if low is None else apply("max", x, lifted(scalar_of(low)))
        x = x if high is None else apply("min", x, lifted(scalar_of(high)))
        return cast(x, call.out.type)

    call.build.compute(call.out, value)


def _lower_cast(call: Call) -> None:
    x, target = call.input(0), call.out.type
    if x.type not in C_TYPES or target not in C_TYPES:
        fail(call, f"cast from {x.type.name} to {target.name}")
    convert = saturated if call.attribute("saturate", 1) else cast
    if x.type == target:
        call.build.view(call.out, x)
    else:
        call.build.compute(call.out, lambda *index: convert(x.load(*index), target))


def _lower_bit_cast(call: Call) -> None:
    x, target = call.input(0), call.out.type
    if x.type.bitwidth != target.bitwidth:
        fail(call, f"from {x.type.name} to {target.name}")
    call.build.compute(call.out, lambda *index: bitcast(x.load(*index), target))


def _lower_identity(call: Call) -> None:
    call.build.view(call.out, call.input(0))


def _lower_dropout(call: Call) -> None:
    """In training elements go by chance, and the others grow, so that the mean stays."""
    call = with_output(call, call.input(0).shape)
    x, out, build = call.input(0), call.out, call.build
    mask = call.outputs[1] if len(call.outputs) > 1 else None
    if call.optional(2) is None:
        build.view(out, x)
        if mask is not None:
            build.compute(mask, lambda *index: cast(constant(True, BOOL), mask.type))
        return
    training = cast(scalar_of(call.input(2)), BOOL)
    ratio = lifted(scalar_of(call.input(1))) if call.optional(1) is not None else constant(0.5, wide(x.type))
    seed = seed_of(call)

    def stays(*index: Expr) -> Expr:
        drawn = uniform(flat_number(index, x.shape), seed, 0, ratio.type)
        return apply("not", training) | (drawn >= ratio)

    def value(*index: Expr) -> Expr:
        element = lifted(x.load(*index))
        grown = element / (1 - cast(ratio, element.type))
        return cast(select(training, select(stays(*index), grown, 0), element), out.type)

    build.compute(out, value)
    if mask is not None:
        build.compute(mask, lambda *index: cast(stays(*index), mask.type))


def _upgrade_binary(node: ir.Node, opset: int) -> list[ir.Node] | None:
    """Before 7, `axis` said where the second operand's dimensions start in the first's."""
    if opset >= 7 or not {"axis", "broadcast", "consumed_inputs"} & set(node.attributes):
        return None
    drop = ("axis", "broadcast", "consumed_inputs")
    a, b = node.inputs
    axis = node.attributes.get("axis")
    if axis is None or not integer(node, "broadcast"):
        return [renewed(node, drop=drop)]
    if a is None or b is None or a.shape is None or b.shape is None:
        raise Unsupported(f"{node.op_type} {node.name!r}: `axis` of opset {opset} needs operands of known rank")
    front = axis.as_int() % len(a.shape)
    trailing = len(a.shape) - front - len(b.shape)
    if trailing <= 0:
        return [renewed(node, drop=drop)]
    axes = constant_node(list(range(len(b.shape), len(b.shape) + trailing)))
    wider = ir.node("Unsqueeze", [b, axes.outputs[0]])
    return [axes, wider, renewed(node, [a, wider.outputs[0]], drop=drop)]


def _upgrade_prelu(node: ir.Node, opset: int) -> list[ir.Node] | None:
    """Before 7, a slope of one dimension was of the channels, dimension 1."""
    x, slope = node.inputs
    if opset >= 7 or x is None or slope is None:
        return None
    if x.shape is None or slope.shape is None:
        raise Unsupported(f"PRelu {node.name!r}: opset {opset} needs operands of known rank")
    trailing = len(x.shape) - 2
    if len(slope.shape) != 1 or trailing <= 0 or slope.shape[0] == 1:
        return drop_consumed_inputs(node, opset)
    axes = constant_node(list(range(1, 1 + trailing)))
    wider = ir.node("Unsqueeze", [slope, axes.outputs[0]])
    return [axes, wider, renewed(node, [x, wider.outputs[0]], drop=["consumed_inputs"])]


def _upgrade_clip(node: ir.Node, opset: int) -> list[ir.Node] | None:
    if opset >= 11:
        return None
    x = node.inputs[0]
    type = x.dtype if x is not None and x.dtype is not None else DataType.FLOAT
    bounds = [node.attributes.get(name) for name in ("min", "max")]
    constants = [None if b is None else constant_node(b.as_float(), type) for b in bounds]
    inputs = [x, *(None if c is None else c.outputs[0] for c in constants)]
    return [*(c for c in constants if c is not None), renewed(node, inputs, drop=["min", "max", "consumed_inputs"])]


def _upgrade_cast(node: ir.Node, opset: int) -> list[ir.Node] | None:
    to = node.attributes.get("to")
    if opset >= 6 or to is None or to.type != ir.AttributeType.STRING:
        return None
    return [renewed(node, to=int(DataType[to.as_string()]))]


def _upgrade_dropout(node: ir.Node, opset: int) -> list[ir.Node] | None:
    """`ratio` means nothing in inference; before 7 `is_test` 0 (the default) asked for training."""
    return None if opset >= 12 else [renewed(node, drop=["ratio", "is_test", "seed", "consumed_inputs"])]


_I = np.array([-7, 7, 0, 5], np.int32)
_F = np.array([-1.5, np.nan, np.inf, 2], np.float32)


def _rows(formulas: Sequence[str], upgrade: Callable[[ir.Node, int], Sequence[ir.Node] | None]) -> list[Operator]:
    return [Operator(n, _lower_formula, upgrade=upgrade, cases=_CASES.get(n, ()), elementwise=True) for n in formulas]


_CASES: dict[str, tuple[Case, ...]] = {
    "Add": (Case("broadcast both", (np.ones((3, 1, 2), np.float32), np.arange(4, dtype=np.float32).reshape(4, 1))),),
    "Div": (Case("towards zero", (_I, np.array([2, -2, 3, 3], np.int32))),),
    "Max": (Case("nan", (_F, np.zeros(4, np.float32))),),
    "Relu": (Case("nan", (_F,)),),
    "Where": (Case("broadcast", (np.array([[True], [False]]), _F, np.array(3, np.float32))),),
}

OPERATORS = (
    *_rows([n for n in BINARY if n != "PRelu"], _upgrade_binary),
    *_rows(["PRelu"], _upgrade_prelu),
    *_rows(list(PLAIN), drop_consumed_inputs),
    Operator("BitCast", _lower_bit_cast, elementwise=True),
    Operator("BitShift", _lower_bit_shift, elementwise=True),
    Operator("Cast", _lower_cast, upgrade=_upgrade_cast, elementwise=True),
    Operator("CastLike", _lower_cast),
    Operator(
        "Clip",
        _lower_clip,
        upgrade=_upgrade_clip,
        cases=(Case("nan", (_F, np.array(-1, np.float32), np.array(1, np.float32))),),
    ),
    Operator("Dropout", _lower_dropout, upgrade=_upgrade_dropout),
    Operator("Identity", _lower_identity),
    Operator("IsInf", _lower_is_inf, elementwise=True),
    Operator(
        "Mod",
        _lower_mod,
        elementwise=True,
        cases=(Case("sign of the divisor", (_I, np.array([3, -3, 2, -2], np.int32))),),
    ),
    Operator(
        "Pow",
        _lower_pow,
        upgrade=_upgrade_binary,
        elementwise=True,
        cases=(Case("root", (np.array([4, 2], np.float32), np.array(0.5, np.float32))),),
    ),
)
