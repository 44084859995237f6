"""The kernels of `runtime/kernels/`, a row each: what their operands and axes are called and what they mean.

The C struct of the same name in `runtime/castiron.h` has a field for each entry here. A tile kernel's operands are Loads;
the printer reads the strides off their indices.
"""

from __future__ import annotations

from dataclasses import dataclass

PANEL = 16
"""Columns of a packed panel: AVX-512 walks two at once, AVX2, NEON and SIMD128 one. One packed form for all."""

FOUR = 4
"""Terms of a sum of integers that are neighbours in memory."""
MATMULS = ("matmul", "matmul_integer")


@dataclass(frozen=True)
class KernelSpec:
    """A kernel: `axes` and `inner` by role (a tile kernel's last axis are the columns, the one before it the rows),

    `operands` (those of `optional` may be absent) and `outputs` by the C field. `tile`: it has an epilogue."""

    name: str
    axes: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    tile: bool = False
    integer: bool = False  # its sums are INT32, its operands bytes; else all is FLOAT
    struct: str = ""  # of castiron.h, where it is not ci_NAME
    portable: bool = False  # one function for every instruction set


def _recurrent(name: str, optional: tuple[str, ...], outputs: tuple[str, ...]) -> KernelSpec:
    return KernelSpec(name, (), (), ("gates", "recurrent", *optional), optional, outputs, struct="ci_recurrent")


def _conv(name: str, outputs: tuple[str, ...] = ()) -> KernelSpec:
    axes, inner = ("n", "g", "d", "h", "w", "o"), ("kd", "kh", "kw", "c")
    return KernelSpec(name, axes, inner, ("x", "filter"), outputs=outputs, tile=True, struct="ci_conv")


def winograd_scratch(m: int, channels: int) -> int:
    """CI_WINOGRAD_SCRATCH of castiron.h."""
    points, depth = (m + 2) ** 2, -(-channels // PANEL) * PANEL
    return points * ((16 + 147456 // (points * depth + 1)) * depth + 16)


KERNELS: dict[str, KernelSpec] = {
    spec.name: spec
    for spec in (
        # acc[b0, b1, b2, m, n] = sum over k of a(b0, b1, b2, m, k) * b[b0, b1, b2][n / 16][k][n % 16]
        # `b` is a Load of a packed array [..., ceil(N/16), K, 16] at (batch index..., 0, 0, 0): only batch strides count.
        KernelSpec("matmul", ("b0", "b1", "b2", "m", "n"), ("k",), ("a", "b"), tile=True),
        # acc[b0, b1, b2, m, n] = sum over k of rows(b0, b1, b2, m, k) * panels[b0, b1, b2][n / 16][k / 4][n % 16][k % 4], INT32.
        # `rows` is UINT8 with neighbouring terms, `panels` INT8; k is a multiple of 4.
        KernelSpec("matmul_integer", ("b0", "b1", "b2", "m", "n"), ("k",), ("rows", "panels"), tile=True, integer=True),
        # acc[n, g, d, h, w, o] = sum over kd, kh, kw, c of x(n, g, d, h, w, kd, kh, kw, c) * filter[g][o/16][kd][kh][kw][c][o%16]
        # x is linear in all nine axes (stride and dilation are factors of the index); its border is already in the buffer.
        # `filter` is a Load of a packed array [G, ceil(O/16), KD, KH, KW, C, 16] at (g, 0, 0, 0, 0, 0, 0).
        _conv("conv"),
        # The same for 3 x 3 taps and one group, x with a stride from line to line as from tap to tap; winograd.py makes
        # `filter`, [m + 2, m + 2, ceil(O/16), C, 16]. `scratch` is a temporary of `winograd_scratch` floats.
        _conv("winograd2", ("scratch",)),
        _conv("winograd4", ("scratch",)),
        # The boxes of NonMaxSuppression (ci_nms in castiron.h): `selected` [batch * classes * n, 3], `count` [] of them.
        KernelSpec(
            "nms_run",
            operands=("boxes", "scores", "most", "overlap", "threshold"),
            optional=("most", "overlap", "threshold"),
            outputs=("selected", "count", "gone"),
            struct="ci_nms",
            portable=True,
        ),
        # Where the flags are set: `positions` [n + 1] of INT64, of which the first `count` [] are told.
        KernelSpec("select", operands=("flags",), outputs=("positions", "count"), struct="ci_select_of", portable=True),
        # Recurrent layers, one direction a call (ci_recurrent in castiron.h). `gates` holds x W^T + bias for all steps,
        # [steps, batch, G*hidden] in the order of ONNX's gates (LSTM i o f c, GRU z r h); `recurrent` is R^T in panels,
        # [ceil(G*hidden/16), hidden, 16]. `scratch` is a temporary of CI_RECURRENT_SCRATCH(G, batch, hidden) floats.
        _recurrent("lstm", ("h0", "c0", "peephole", "lengths"), ("y", "yh", "yc", "scratch")),
        _recurrent("gru", ("recurrent_bias", "h0", "lengths"), ("y", "yh", "scratch")),
        _recurrent("rnn", ("h0", "lengths"), ("y", "yh", "scratch")),
        # The leaf that each row comes to in each tree of an ensemble.
        KernelSpec(
            "trees",
            operands=("x", "split", "nodes", "roots"),
            outputs=("leaf",),
            struct="ci_trees_of",
            portable=True,
        ),
    )
}
