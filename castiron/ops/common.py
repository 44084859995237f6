"""What several operator families share: types to compute in, axes, and pieces of `upgrade`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType

from castiron.errors import ModelError, Unsupported
from castiron.ops.registry import Call
from castiron.program.builder import Builder, Tensor
from castiron.program.expr import INT64, Axis, Const, Expr, apply, cast, constant, select
from castiron.program.scalar import FLOATS, SMALL_FLOATS

ZERO = constant(0)
ONE = constant(1)

# Lowering -------------------------------------------------------------------------------------------------------------


def fail(call: Call, why: str) -> NoReturn:
    """The node is valid, but nothing here compiles it."""
    raise Unsupported(f"{call.node.op_type} {call.node.name!r}: {why}")


def with_output(call: Call, shape: Sequence[Expr]) -> Call:
    """The call with memory in place of a first output that nothing wants (beside another that is wanted): of this shape,
    of the first input's type."""
    if call.outputs[0] is not None:
        return call
    unwanted = call.build.temp(call.input(0).type, shape, f"{call.node.name}.unwanted")
    return replace(call, outputs=(unwanted, *call.outputs[1:]))


def wide(type: DataType) -> DataType:
    """The type to compute in: half-precision floats are computed as FLOAT and rounded once, as PyTorch does."""
    return DataType.FLOAT if type in FLOATS and type != DataType.DOUBLE else type


def real(type: DataType) -> DataType:
    """The floating-point type to compute in where the formula leaves the integers."""
    return wide(type) if type in FLOATS else DataType.DOUBLE


def lifted(value: Expr) -> Expr:
    """`value` in the type to compute in."""
    return cast(value, wide(value.type))


def saturated(value: Expr, type: DataType) -> Expr:
    """`value` as a small float, cut off at its largest number: the `saturate` of Cast and QuantizeLinear."""
    if type in SMALL_FLOATS:
        value = value if value.type in FLOATS else cast(value, DataType.FLOAT)
        value = apply("max", apply("min", value, float(type.max)), float(type.min))
    return cast(value, type)


def static(size: Expr) -> int | None:
    """The number, where the size is known at build."""
    return int(size.value) if isinstance(size, Const) else None


def product(sizes: Sequence[Expr]) -> Expr:
    """The number of elements of a shape."""
    total: Expr = ONE
    for size in sizes:
        total = total * size
    return total


def normal_axis(call: Call, axis: int, rank: int) -> int:
    """`axis` counted from the front; ModelError outside [-rank, rank)."""
    if not -rank <= axis < max(rank, 1):
        raise ModelError(f"{call.node.op_type} {call.node.name!r}: axis {axis} is outside the {rank} dimensions")
    return axis % rank if rank else 0


def normal_axes(call: Call, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Each axis counted from the front."""
    return tuple(normal_axis(call, int(a), rank) for a in axes)


def compute_from(call: Call, formula: Callable[..., Expr]) -> None:
    """Output element i is `formula` of elements i of the broadcast inputs, computed in the wide type."""
    inputs = [t for t in call.inputs if t is not None]

    def value(*index: Expr) -> Expr:
        return cast(formula(*(lifted(t.broadcast(index)) for t in inputs)), call.out.type)

    call.build.compute(call.out, value)


def scalar_of(tensor: Tensor) -> Expr:
    """The element of a tensor that holds one."""
    if tensor.elements is not None and len(tensor.elements) == 1 and tensor.value is None:
        return cast(tensor.elements[0], tensor.type)
    return tensor.load(*(ZERO for _ in tensor.shape))


def temp_like(build: Builder, tensor: Tensor, hint: str, shape: Sequence[Expr] | None = None) -> Tensor:
    """An intermediate array of the wide type, of the tensor's shape unless another is given."""
    return build.temp(wide(tensor.type), tensor.shape if shape is None else shape, f"{tensor.name}.{hint}")


def rows_of(
    build: Builder, out: Tensor, axes: Sequence[int], op: str, shape: Sequence[Expr], value: Callable[..., Expr]
) -> Tensor:
    """`out[i] = op over axes of value(i)`: dimensions `axes` of `shape` are summed over, those of `out` there are 1."""
    inner = dict(zip(axes, build.axes([shape[a] for a in axes]), strict=True))
    outer = build.axes(out.shape)
    index = [inner[d].var if d in inner else a.var for d, a in enumerate(outer)]
    return build.store(out, outer, [a.var for a in outer], reduced(op, tuple(inner.values()), value(*index)))


def reduced(op: str, axes: tuple[Axis, ...], value: Expr) -> Expr:
    """A reduction, or the value itself where there is nothing to reduce over."""
    from castiron.program.expr import Reduce

    return Reduce(op, axes, value) if axes else value


def kept(shape: Sequence[Expr], axes: Sequence[int]) -> tuple[Expr, ...]:
    """`shape` with the dimensions `axes` made 1."""
    return tuple(ONE if d in axes else size for d, size in enumerate(shape))


def store_list(build: Builder, out: Tensor, elements: Sequence[Expr]) -> None:
    """`out` of one dimension (or none) holds the elements."""

    def value(*index: Expr) -> Expr:
        if not elements:
            return cast(ZERO, out.type)
        chosen = elements[-1]
        for number in range(len(elements) - 2, -1, -1):
            chosen = select(apply("eq", index[0], number), elements[number], chosen)
        return cast(chosen, out.type)

    build.compute(out, value)


def checked_index(call: Call, indices: Tensor, extent: Expr) -> Callable[..., Expr]:
    """Loads of an index into a dimension of `extent`: negative ones count from the end, others outside end the run.

    Indices known at build are checked here (ModelError) and cost nothing at run time."""
    known, size = indices.value, static(extent)
    if known is None or size is None:
        return lambda *at: apply("checked_index", cast(indices.load(*at), INT64), extent)
    if known.size and not (-size <= known.min() and known.max() < size):
        raise ModelError(f"{call.node.op_type} {call.node.name!r}: an index is outside [-{size}, {size})")
    if not known.size or known.min() >= 0:
        return lambda *at: cast(indices.load(*at), INT64)
    positive = call.build.known(
        np.where(known < 0, known + size, known).astype(np.int64), INT64, f"{indices.name}.positive"
    )
    return positive.load


# Upgrading ------------------------------------------------------------------------------------------------------------


def constant_node(value: Any, type: DataType = DataType.INT64, name: str = "") -> ir.Node:
    """A Constant node with this value."""
    array = np.asarray(value, type.numpy())
    return ir.node("Constant", [], {"value": ir.tensor(array, name=name or None)})


def renewed(
    node: ir.Node,
    inputs: Sequence[ir.Value | None] | None = None,
    drop: Sequence[str] = (),
    outputs: int | None = None,
    op_type: str | None = None,
    **attributes: Any,
) -> ir.Node:
    """`node` with other inputs and attributes; its last outputs can be left off."""
    kept_attributes = [a for a in node.attributes.values() if a.name not in drop and a.name not in attributes]
    return ir.Node(
        node.domain,
        op_type or node.op_type,
        node.inputs if inputs is None else inputs,
        [*kept_attributes, *ir.convenience.convert_attributes(attributes)],
        num_outputs=len(node.outputs) if outputs is None else outputs,
        name=node.name,
        doc_string=node.doc_string,
        metadata_props=dict(node.metadata_props),
    )


def integer(node: ir.Node, name: str, default: int = 0) -> int:
    """An integer attribute, or `default`."""
    found = node.attributes.get(name)
    return default if found is None else int(found.as_int())


def integers(node: ir.Node, name: str) -> list[int] | None:
    """An attribute of several integers, or None."""
    found = node.attributes.get(name)
    return None if found is None else [int(v) for v in found.as_ints()]


def attribute_to_input(name: str, number: int, before: int) -> Callable[[ir.Node, int], list[ir.Node] | None]:
    """An upgrade: integers attribute `name` became input `number` in opset `before`."""

    def upgrade(node: ir.Node, opset: int) -> list[ir.Node] | None:
        values = integers(node, name) if opset < before else None
        if values is None:
            return None
        extra = constant_node(values)
        inputs = [*node.inputs, *[None] * (number - len(node.inputs)), extra.outputs[0]]
        return [extra, renewed(node, inputs, drop=[name])]

    return upgrade


def drop_attributes(*names: str, before: int) -> Callable[[ir.Node, int], list[ir.Node] | None]:
    """An upgrade: the attributes lost their meaning in opset `before`."""

    def upgrade(node: ir.Node, opset: int) -> list[ir.Node] | None:
        if opset >= before or not set(names) & set(node.attributes):
            return None
        return [renewed(node, drop=names)]

    return upgrade


drop_consumed_inputs = drop_attributes("consumed_inputs", before=6)
"""Opset 1 let a node say which inputs it may overwrite."""
