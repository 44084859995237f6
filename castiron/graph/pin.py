"""x[N, 3, H, W] -> x[1, 3, 224, 224]: symbolic sizes of the inputs become the given numbers, everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from castiron.errors import InputError


def pin(model: ir.Model, shapes: Mapping[str, Sequence[int]]) -> ir.Model:
    """`model` with the inputs named in `shapes` of these sizes; -1 leaves a dimension as it is.

    Raises InputError where a name, a rank or a fixed size disagrees with the model, or one symbol gets two sizes.
    """
    inputs = {str(v.name): v for v in model.graph.inputs}
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in inputs:
            raise InputError(f"--shape {name}=…: the model has no input {name!r}; its inputs are {', '.join(inputs)}")
        _collect(inputs[name], tuple(shape), sizes)
    for value in inputs.values():
        if value.shape is not None:
            value.shape = ir.Shape([_pinned(d, sizes) for d in value.shape])
    return model


def _collect(value: ir.Value, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    given = f"--shape {value.name}={','.join(map(str, shape))}"
    if value.shape is None:
        value.shape = ir.Shape([f"{value.name}_{i}" if d < 0 else d for i, d in enumerate(shape)])
        return
    if len(shape) != len(value.shape):
        raise InputError(
            f"{given}: input {value.name!r} has {len(value.shape)} dimensions {value.shape}, not {len(shape)}"
        )
    for dim, size in zip(value.shape, shape, strict=True):
        if isinstance(dim, int):
            if size not in (dim, -1):
                raise InputError(f"{given}: the model fixes this dimension of {value.name!r} to {dim}: {value.shape}")
        elif size >= 0 and sizes.setdefault(str(dim.value), size) != size:
            raise InputError(f"{given}: size {dim.value!r} is already {sizes[str(dim.value)]}")


def _pinned(dim: int | ir.SymbolicDim, sizes: Mapping[str, int]) -> int | ir.SymbolicDim:
    if isinstance(dim, int):
        return dim
    return sizes[str(dim.value)] if str(dim.value) in sizes else dim.evaluate(sizes)
