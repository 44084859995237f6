"""`com.microsoft`: weights of 2 to 8 bits in blocks with a scale each. They are dequantized by `prepare`, once.

Specification: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir import DataType

from castiron.ops.body import Body, rank, size
from castiron.ops.contrib_fused import MICROSOFT
from castiron.ops.registry import Operator

Values = Sequence[ir.Value | None]

# Values of a code of 4 bits: bitsandbytes' FP4 (sign and three bits) and NF4 (quantiles of the normal distribution).
_FP4 = (0.0, 0.0052083333, 0.6666667, 1.0, 0.3333333, 0.5, 0.16666667, 0.25)
_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


def _unpacked(body: Body, packed: ir.Value, dimensions: int, bits: int, high_first: bool = False) -> ir.Value:
    """The codes in the bytes of the last of so many dimensions, lower bits first unless told otherwise: UINT8."""
    if bits == 8:
        return packed
    if bits not in (2, 4):
        body.fail(f"{bits} bits")
    codes = []
    for shift in range(0, 8, bits):
        moved = packed
        if shift:
            moved = body.op("BitShift", packed, body.constant(shift, DataType.UINT8), direction="RIGHT")
        codes.append(body.op("BitwiseAnd", moved, body.constant((1 << bits) - 1, DataType.UINT8)))
    codes = codes[::-1] if high_first else codes
    pairs = body.op("Concat", *(body.op("Unsqueeze", c, [-1]) for c in codes), axis=-1)
    return body.op("Reshape", pairs, [*[0] * (dimensions - 1), -1])


def _matmul_bits(body: Body) -> Values:
    """A times the transpose of weights [N, K] in blocks along K."""
    k, n, block, bits = (int(body.attribute(name, 4)) for name in ("K", "N", "block_size", "bits"))
    if body.attribute("weight_prepacked", 0):
        body.fail("weights that onnxruntime has packed; save the model before it is optimized for a processor")
    blocks = -(-k // block)
    codes = body.cast(_unpacked(body, body.op("Reshape", body.input(1), [n, -1]), 2, bits), body.type)
    scales, zeros = body.cast(body.op("Reshape", body.input(2), [n, blocks]), body.type), _zeros(body, n, blocks, bits)
    groups = body.optional(4)
    if groups is None:
        codes = body.op("Reshape", codes, [n, blocks, block])
        away = body.op("Sub", codes, zeros if body.optional(3) is None else body.op("Unsqueeze", zeros, [2]))
        wide = body.op("Reshape", body.op("Mul", away, body.op("Unsqueeze", scales, [2])), [n, blocks * block])
        weights = body.op("Slice", wide, [0], [k], [1])
    else:  # column k has the scale of group groups[k]
        if body.optional(3) is not None:
            body.fail("g_idx with zero points, which onnxruntime leaves out of account")
        scales = body.op("Gather", scales, groups, axis=1)
        weights = body.op("Mul", body.op("Sub", body.op("Slice", codes, [0], [k], [1]), zeros), scales)
    y = body.op("MatMul", body.input(0), body.op("Transpose", weights, perm=[1, 0]))
    bias = body.optional(5)
    return [y if bias is None else body.op("Add", y, bias)]


def _zeros(body: Body, n: int, blocks: int, bits: int) -> ir.Value:
    """The code that stands for 0, [N, blocks]: packed as the weights are, real numbers, or the middle (a number)."""
    zeros = body.optional(3)
    if zeros is None:
        return body.constant(1 << (bits - 1))
    if zeros.dtype != DataType.UINT8:
        return body.cast(body.op("Reshape", zeros, [n, blocks]), body.type)
    codes = _unpacked(body, body.op("Reshape", zeros, [n, -1]), 2, bits)
    return body.cast(body.op("Slice", codes, [0], [blocks], [1]), body.type)


def _matmul_bnb4(body: Body) -> Values:
    """A times weights in bitsandbytes' FP4 or NF4; codes and blocks run through [N, K] as one row, high bits first."""
    k, n, block = (int(body.attribute(name)) for name in ("K", "N", "block_size"))
    if not int(body.attribute("transB", 1)):
        body.fail("transB 0")
    table = _NF4 if int(body.attribute("quant_type")) else (*_FP4, *(-v for v in _FP4))
    codes = _unpacked(body, body.op("Reshape", body.input(1), [-1]), 1, 4, high_first=True)
    values = body.op("Gather", body.constant(table), body.cast(codes, DataType.INT64))
    scaled = body.op("Mul", body.op("Reshape", values, [-1, block]), body.op("Reshape", body.input(2), [-1, 1]))
    weights = body.op("Reshape", scaled, [n, k])
    return [body.op("MatMul", body.input(0), body.op("Transpose", weights, perm=[1, 0]))]


def _gather_blocks(body: Body) -> Values:
    """Rows of a table in blocks along its last dimension: only those gathered are dequantized."""
    table, block, bits = body.input(0), int(body.attribute("block_size", 128)), int(body.attribute("bits", 4))
    last = rank(table) - 1
    if int(body.attribute("gather_axis", 0)) or int(body.attribute("quantize_axis", 1)) % rank(table) != last:
        body.fail("other axes than the first to gather from and the last in blocks")
    hidden = size(table, last)
    if hidden is None:
        body.fail("the size of a row must be known at build")
    body.type = body.input(2).dtype or DataType.FLOAT
    dimensions, packed = rank(body.input(1)) + last, table.dtype == DataType.UINT8

    def rows(x: ir.Value) -> ir.Value:
        found = body.op("Gather", x, body.input(1), axis=0)
        found = _unpacked(body, found, dimensions, bits) if packed and x.dtype == DataType.UINT8 else found
        return body.cast(found, body.type)

    def repeated(x: ir.Value) -> ir.Value:
        wide = body.op("Expand", body.op("Unsqueeze", x, [-1]), [*[1] * dimensions, block])
        flat = body.op("Reshape", wide, [*[0] * (dimensions - 1), -1])
        return body.op("Slice", flat, [0], [hidden * (8 // bits if packed else 1)], [-1])

    codes, zeros = rows(table), body.optional(3)
    if zeros is not None:
        codes = body.op("Sub", codes, repeated(rows(zeros)))
    elif packed:
        codes = body.op("Sub", codes, float(1 << (bits - 1)))
    return [body.op("Mul", codes, repeated(rows(body.input(2))))]


OPERATORS = (
    Operator("GatherBlockQuantized", domain=MICROSOFT, expand=_gather_blocks),
    Operator("MatMulBnb4", domain=MICROSOFT, expand=_matmul_bnb4),
    Operator("MatMulNBits", domain=MICROSOFT, expand=_matmul_bits),
)
