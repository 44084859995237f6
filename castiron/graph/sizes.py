"""no sizes -> sizes of all values, as far as the graph tells; with size_rules.py all that knows onnx-shape-inference.

Sizes are numbers or expressions over the symbols of the inputs' dimensions. Integer vectors whose elements are such
expressions (what Shape, Gather, Concat make for a Reshape) carry them too: `elements_of`.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator
from functools import cache

import onnx_ir as ir
import onnx_shape_inference
import sympy
from onnx_shape_inference import SYM_DATA_KEY, _symbolic_shapes

from castiron.errors import ModelError, Unsupported
from castiron.graph.body_sizes import forget
from castiron.graph.size_rules import RULES, as_written
from castiron.graph.upgrade import NEWEST
from castiron.ops.registry import operators
from castiron.program.expr import Expr, Var, apply, constant, free_variables


def infer_sizes(model: ir.Model) -> ir.Model:
    """`model` with sizes, types and known contents of all values inferred anew from inputs and initializers.

    Raises ModelError where operators are used against their specification.
    """
    for value in model.graph.inputs:
        if value.shape is None:
            raise Unsupported(
                f"input {value.name!r} has no number of dimensions; give its sizes with --shape {value.name}=…"
            )
    _register_rules()
    forget(model.graph)
    try:
        onnx_shape_inference.infer_symbolic_shapes(model, warn_on_missing=False)
    except (onnx_shape_inference.ShapeInferenceError, onnx_shape_inference.OpUsageError) as error:
        cause = f" ({error.__cause__})" if error.__cause__ else ""
        raise ModelError(f"the sizes of the graph do not fit together: {error}{cause}") from error
    return model


@cache
def _register_rules() -> None:
    for table in (_symbolic_shapes.ALLOWED_FUNCTIONS, ir._symbolic_shapes._ALLOWED_FUNCTIONS):
        table.setdefault("ceiling", sympy.ceiling)  # SymPy makes it of -floor(-x); the parsers do not read it back
    known = onnx_shape_inference.registry
    for name, rule in RULES.items():
        known.register("", name, since_version=NEWEST)(rule)
    for operator in operators().values():
        for version in {1, *known.version_boundaries(operator.domain, operator.name)} if operator.expand else ():
            known.register(operator.domain, operator.name, since_version=version)(as_written)


def symbols(graph: ir.Graph) -> dict[str, tuple[str, int]]:
    """The symbols that stand alone as a dimension of an input: name -> (input, dimension), at their first place."""
    found: dict[str, tuple[str, int]] = {}
    for value in graph.inputs:
        for position, dim in enumerate(value.shape or ()):
            if not isinstance(dim, int) and isinstance(_expression(dim), sympy.Symbol):
                found.setdefault(str(dim.value), (str(value.name), position))
    return found


def size_expr(dim: int | ir.SymbolicDim) -> Expr:
    """A dimension as an INT64 expression over `Var(symbol)`. Raises Unsupported for what has no integer arithmetic."""
    if isinstance(dim, int):
        return constant(dim)
    if dim.value is None:
        raise Unsupported("a size is unknown")
    return _converted(str(dim.value))


def shape_of(value: ir.Value) -> tuple[Expr, ...]:
    """The sizes of a value as expressions. Raises Unsupported where its rank or a size is unknown."""
    if value.shape is None:
        raise Unsupported(f"the number of dimensions of {value.name!r} is unknown")
    return tuple(size_expr(d) for d in value.shape)


def elements_of(value: ir.Value, known: frozenset[str]) -> tuple[Expr, ...] | None:
    """The elements of an integer scalar or vector as expressions over the symbols `known`, or None."""
    recorded = symbolic_elements(value)
    if recorded is None or value.dtype is None or not value.dtype.is_integer() or value.shape is None:
        return None
    try:
        found = tuple(map(size_expr, recorded))
    except Unsupported:
        return None
    names = frozenset[str]().union(*(free_variables(e) for e in found))
    static = all(isinstance(d, int) for d in value.shape)
    count = int(sympy.prod([d for d in value.shape if isinstance(d, int)])) if static else -1
    return found if names <= known and len(value.shape) <= 1 and count == len(found) else None


def symbolic_elements(value: ir.Value) -> list[int | ir.SymbolicDim] | None:
    """What inference recorded of the elements of a scalar or vector."""
    recorded = value.metadata_props.get(SYM_DATA_KEY)
    return None if recorded is None else [e if isinstance(e, int) else ir.SymbolicDim(e) for e in json.loads(recorded)]


def is_sized(value: ir.Value, known: Container[str]) -> bool:
    """Whether all sizes of a value follow from the symbols `known`."""
    return value.shape is not None and all(
        isinstance(d, int) or (d.value is not None and all(str(s) in known for s in _expression(d).free_symbols))
        for d in value.shape
    )


def unknown_sizes(value: ir.Value, known: Container[str]) -> list[str]:
    """The symbols of a value's sizes that are not among `known`."""
    dims = [d for d in value.shape or () if not isinstance(d, int) and d.value is not None]
    return list(
        dict.fromkeys(str(s) for d in dims for s in sorted(_expression(d).free_symbols, key=str) if str(s) not in known)
    )


def _expression(dim: ir.SymbolicDim) -> sympy.Expr:
    return _parsed(str(dim.value))


@cache
def _parsed(text: str) -> sympy.Expr:
    # One parser for all: what inference wrote, it reads.
    _register_rules()
    return _symbolic_shapes.parse_symbolic_expression(text)


@cache
def _converted(text: str) -> Expr:
    return _convert(_parsed(text))


def _convert(e: sympy.Expr) -> Expr:
    """SymPy to INT64 arithmetic. A quotient outside of floor is one that inference knows to be exact."""
    if e.is_Integer:
        return constant(int(e))
    if e.is_Symbol:
        return Var(e.name)
    if isinstance(e, sympy.floor):
        return _quotient(e.args[0], up=False)
    if isinstance(e, sympy.ceiling):
        return _quotient(e.args[0], up=True)
    if isinstance(e, sympy.Max | sympy.Min | sympy.Mod):
        op = {"Max": "max", "Min": "min", "Mod": "mod"}[type(e).__name__]
        first, *rest = (_convert(a) for a in sorted(e.args, key=str)) if op != "mod" else (_convert(a) for a in e.args)
        for other in rest:
            first = apply(op, first, other)
        return first
    if sympy.fraction(sympy.together(e))[1] != 1:
        return _quotient(e, up=False)
    if e.is_Add or e.is_Mul or (e.is_Pow and e.exp.is_Integer and e.exp > 0):
        parts = _factors(e)
        total = _convert(next(parts))
        for part in parts:
            total = total + _convert(part) if e.is_Add else total * _convert(part)
        return total
    raise Unsupported(f"a size is {e}, which integer arithmetic does not give")


def _factors(e: sympy.Expr) -> Iterator[sympy.Expr]:
    return iter([e.base] * int(e.exp) if e.is_Pow else e.args)


def _quotient(e: sympy.Expr, up: bool) -> Expr:
    top, bottom = sympy.fraction(sympy.together(e))
    if bottom == 1:
        return _convert(top)
    numerator, denominator = _convert(sympy.expand(top)), _convert(bottom)
    return -apply("floordiv", -numerator, denominator) if up else apply("floordiv", numerator, denominator)
