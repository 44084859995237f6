"""`ai.onnx.ml`: features prepared for a model, numbers to numbers.

Specification: https://onnx.ai/onnx/operators/index.html (ai.onnx.ml)
"""

from __future__ import annotations

import numpy as np
from onnx_ir import DataType

from castiron.ops.body import Body, rank
from castiron.ops.ml_classes import DOMAIN, FLOAT, INT64, Values, real_input
from castiron.ops.registry import Operator

_STRINGS = "strings; give the model what they stand for as numbers"


def _extract(body: Body) -> Values:
    """Columns by their numbers; a vector counts as one row."""
    x = body.input(0)
    x = body.op("Unsqueeze", x, [0]) if rank(x) == 1 else x
    return [body.op("Gather", x, body.op("Reshape", body.input(1), [-1]), axis=-1)]


def _binarize(body: Body) -> Values:
    above = body.op("Greater", real_input(body), body.constant(float(body.attribute("threshold", 0.0)), FLOAT))
    return [body.cast(above, body.type)]


def _impute(body: Body) -> Values:
    """Elements that equal `replaced_value` (NaN equals NaN) give way to a value, or to one a column."""
    x, whole = body.input(0), body.type.is_integer()
    values = body.attribute("imputed_value_int64s" if whole else "imputed_value_floats")
    replaced = body.attribute("replaced_value_int64" if whole else "replaced_value_float", 0)
    if not values:
        body.fail("no values for what is missing")
    nan = not whole and np.isnan(replaced)
    found = body.op("IsNaN", x) if nan else body.op("Equal", x, body.constant(replaced))
    return [body.op("Where", found, body.constant(list(values)), x)]


def _scale(body: Body) -> Values:
    """(x - offset) * scale."""
    x = real_input(body)
    for name, op in (("offset", "Sub"), ("scale", "Mul")):
        values = list(body.attribute(name, ()))
        x = body.op(op, x, body.constant(values, FLOAT)) if values else x
    return [x]


def _normalize(body: Body) -> Values:
    """Rows over their largest element, the sum of sizes, or the root of the sum of squares; rows of zeros stay."""
    x, norm = real_input(body), str(body.attribute("norm", "MAX"))
    axis = [rank(body.input(0)) - 1]
    if norm == "MAX":
        total = body.op("ReduceMax", x, axis, keepdims=1)
    elif norm in ("L1", "L2"):
        total = body.op(f"Reduce{norm}", x, axis, keepdims=1)
    else:
        body.fail(f"norm {norm}")
    none = body.op("Equal", total, body.constant(0, FLOAT))
    return [body.op("Div", x, body.op("Where", none, body.constant(1, FLOAT), total))]


def _vectorize(body: Body) -> Values:
    """Inputs side by side; a vector is one row."""
    parts = []
    for number in range(len(body.node.inputs)):
        x = real_input(body, number)
        dimensions = rank(body.input(number))
        parts.append(body.op("Unsqueeze", x, [0]) if dimensions == 1 else x)
    return [body.op("Concat", *parts, axis=1)]


def _one_hot(body: Body) -> Values:
    """A one in the place of the category; zeros for what is none of them, which `zeros` 0 makes an error."""
    if body.attribute("cats_strings"):
        body.fail(_STRINGS)
    if not int(body.attribute("zeros", 1)):
        body.fail("zeros 0, an error for unknown categories")
    categories = body.constant(list(body.attribute("cats_int64s")), INT64)
    x = body.op("Unsqueeze", body.cast(body.input(0), INT64), [-1])
    return [body.cast(body.op("Equal", x, categories), FLOAT)]


# Maps -----------------------------------------------------------------------------------------------------------------


def _table(body: Body, what: str) -> np.ndarray:
    """The keys or values of a LabelEncoder, a vector."""
    held = body.attribute(f"{what}_tensor")
    if held is not None and held.dtype != DataType.STRING:
        return np.asarray(held.numpy().reshape(-1))
    whole, real = body.attribute(f"{what}_int64s"), body.attribute(f"{what}_floats")
    if whole is None and real is None:
        body.fail(_STRINGS)
    return np.asarray(whole, np.int64) if real is None else np.asarray(real, np.float32)


def _encode(body: Body) -> Values:
    """The value of the last key that equals an element (NaN equals NaN), or the default: one table, the default first."""
    x, keys, values = body.input(0), _table(body, "keys"), _table(body, "values")
    held, whole = body.attribute("default_tensor"), values.dtype.kind == "i"
    other = body.attribute("default_int64" if whole else "default_float", -1 if whole else -0.0)
    table = np.append(np.asarray(other if held is None else held.numpy(), values.dtype).reshape(1), values)
    wide = body.op("Unsqueeze", x, [-1])
    hits = body.op("Equal", wide, body.constant(keys))
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        both = body.op("And", body.op("IsNaN", wide), body.constant(np.isnan(keys), DataType.BOOL))
        hits = body.op("Or", hits, both)
    places = body.constant(np.arange(1, len(keys) + 1), INT64)
    last = body.op("ReduceMax", body.op("Mul", body.cast(hits, INT64), places), [-1], keepdims=0)
    return [body.op("Gather", body.constant(table, DataType.from_numpy(table.dtype)), last)]


def _category(body: Body) -> Values:
    body.fail(_STRINGS)


OPERATORS = (
    Operator("ArrayFeatureExtractor", domain=DOMAIN, expand=_extract),
    Operator("Binarizer", domain=DOMAIN, expand=_binarize),
    Operator("CategoryMapper", domain=DOMAIN, expand=_category),
    Operator("FeatureVectorizer", domain=DOMAIN, expand=_vectorize),
    Operator("Imputer", domain=DOMAIN, expand=_impute),
    Operator("LabelEncoder", domain=DOMAIN, expand=_encode),
    Operator("Normalizer", domain=DOMAIN, expand=_normalize),
    Operator("OneHotEncoder", domain=DOMAIN, expand=_one_hot),
    Operator("Scaler", domain=DOMAIN, expand=_scale),
)
