"""Random small ONNX graphs (a Hypothesis strategy), with sizes fixed or known at run time only.

A size is an int, or a tuple: its value under each of ASSIGNMENTS of the symbols. So shapes are followed by arithmetic
on numbers, whatever an operator does to them; two symbolic sizes are the same where they are under all assignments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

ASSIGNMENTS = ({"N": 2, "T": 9}, {"N": 1, "T": 13}, {"N": 5, "T": 22}, {"N": 0, "T": 9}, {"N": 3, "T": 8})
Size = int | tuple[int, ...]
Shape = tuple[Size, ...]
Draw = Callable[[st.SearchStrategy], object]  # type: ignore[type-arg]


def _map(function: Callable[..., int], *sizes: Size) -> Size:
    """`function` of sizes, under each assignment."""
    if all(isinstance(s, int) for s in sizes):
        return function(*sizes)
    columns = [(s,) * len(ASSIGNMENTS) if isinstance(s, int) else s for s in sizes]
    return tuple(function(*row) for row in zip(*columns))


def _least(size: Size) -> int:
    """Where a batch may be empty, other sizes never are."""
    return size if isinstance(size, int) else min(size)


@dataclass
class Graph:
    """A graph on its way. `pool`: the values so far and their shapes."""

    draw: Draw
    seed: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: list[TensorProto] = field(default_factory=list)
    pool: dict[str, Shape] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def number(self, low: int, high: int) -> int:
        """Drawn, both ends included."""
        return int(self.draw(st.integers(low, high)))  # type: ignore[call-overload]

    def choose(self, options: list[str] | list[int]) -> object:
        return self.draw(st.sampled_from(options))

    def value(self, fits: Callable[[Shape], bool] = lambda shape: True) -> str | None:
        """One of the pool's values, the newer the likelier."""
        fitting = [name for name, shape in self.pool.items() if fits(shape)]
        return fitting[-1 - min(self.number(0, 3), len(fitting) - 1)] if fitting else None

    def weight(self, *shape: int) -> str:
        """A new initializer of random floats, small enough that sums stay small."""
        random = np.random.default_rng(self.seed + len(self.tensors))
        scale = 1 / np.sqrt(max(1, int(np.prod(shape[1:]))))
        return self.known((random.standard_normal(shape) * scale).astype(np.float32))

    def known(self, array: np.ndarray | list[int]) -> str:
        """An initializer of these numbers; a list becomes int64."""
        name = f"w{len(self.tensors)}"
        data = np.array(array, np.int64) if isinstance(array, list) else array
        self.tensors.append(numpy_helper.from_array(data, name))
        return name

    def add(self, op: str, inputs: list[str], shape: Shape, **attributes: object) -> None:
        """A node of one output."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"{op.lower()}_{len(self.nodes)}", **attributes))
        self.used.update(inputs)
        self.pool[name] = shape

    def model(self, inputs: dict[str, tuple[int | str, ...]]) -> onnx.ModelProto:
        """Outputs are the values that nothing reads."""
        ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
        ends = [n for n in self.pool if n not in self.used and n not in inputs]
        outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * len(self.pool[n])) for n in ends]
        graph = helper.make_graph(self.nodes, "random", ports, outputs, self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


# Operators: each takes values of the pool, where some fit, and adds a node -----------------------------------------


def _unary(g: Graph) -> None:
    name = g.value()
    assert name is not None
    op = g.choose(["Relu", "Sigmoid", "Tanh", "Abs", "Neg", "LeakyRelu", "Erf", "Softplus", "HardSwish", "Identity"])
    g.add(str(op), [name], g.pool[name])


def _binary(g: Graph) -> None:
    """With a value of the same shape, or with constants of a shape that is broadcast."""
    name = g.value()
    assert name is not None
    shape = g.pool[name]
    other = g.value(lambda s: s == shape)
    if other is None or g.number(0, 1):
        tail = shape[g.number(0, len(shape)) :]
        other = g.weight(*(d if isinstance(d, int) and g.number(0, 1) else 1 for d in tail))
    inputs = [name, other] if g.number(0, 1) else [other, name]
    g.add(str(g.choose(["Add", "Sub", "Mul", "Max", "Min"])), inputs, shape)


def _matmul(g: Graph) -> None:
    name = g.value(lambda s: len(s) >= 2 and isinstance(s[-1], int))
    if name is None:
        return
    columns = g.number(1, 40)
    weight = g.weight(g.pool[name][-1], columns)  # type: ignore[arg-type]
    g.add("MatMul", [name, weight], (*g.pool[name][:-1], columns))


def _self_product(g: Graph) -> None:
    """x xᵀ: both sides known at run time only."""
    name = g.value(lambda s: len(s) == 3 and _least(s[1]) > 0 and max(np.ravel(s[1])) < 40)
    if name is None:
        return
    shape = g.pool[name]
    g.add("Transpose", [name], (shape[0], shape[2], shape[1]), perm=[0, 2, 1])
    g.add("MatMul", [name, list(g.pool)[-1]], (shape[0], shape[1], shape[1]))


def _gemm(g: Graph) -> None:
    name = g.value(lambda s: len(s) == 2 and isinstance(s[1], int))
    if name is None:
        return
    columns, turned = g.number(1, 20), g.number(0, 1)
    sides = (g.pool[name][1], columns)
    weight = g.weight(*(sides[::-1] if turned else sides))  # type: ignore[arg-type]
    shape = (g.pool[name][0], columns)
    g.add("Gemm", [name, weight, g.weight(columns)], shape, transB=turned, alpha=0.5, beta=1.5)


def _conv(g: Graph) -> None:
    name = g.value(lambda s: len(s) in (3, 4) and isinstance(s[1], int))
    if name is None:
        return
    batch, channels, *sizes = g.pool[name]
    assert isinstance(channels, int)
    groups = int(g.choose([d for d in (1, 2, channels) if channels % d == 0]))  # type: ignore[call-overload]
    window = [g.number(1, 3) for _ in sizes]
    stride, dilation = [g.number(1, 2) for _ in sizes], [g.number(1, 2) for _ in sizes]
    pads = [g.number(0, 2) for _ in range(2 * len(sizes))]
    spans = [(k - 1) * d + 1 for k, d in zip(window, dilation)]
    ends = zip(sizes, spans, stride, pads, pads[len(sizes) :])
    out = [_map(lambda s, k=k, t=t, p=p + q: (s + p - k) // t + 1, s) for s, k, t, p, q in ends]
    if any(_least(s) < 1 for s in out):
        return
    filters = groups * g.number(1, 6)
    weight = g.weight(filters, channels // groups, *window)
    attributes = {"strides": stride, "dilations": dilation, "pads": pads, "group": groups, "kernel_shape": window}
    bias = [g.weight(filters)] if g.number(0, 1) else []
    g.add("Conv", [name, weight, *bias], (batch, filters, *out), **attributes)


def _pool(g: Graph) -> None:
    name = g.value(lambda s: len(s) in (3, 4) and all(_least(d) > 0 for d in s[2:]))
    if name is None:
        return
    batch, channels, *sizes = g.pool[name]
    op = str(g.choose(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"]))
    if op.startswith("Global"):
        g.add(op, [name], (batch, channels, *(1 for _ in sizes)))
        return
    window, stride = [g.number(1, 3) for _ in sizes], [g.number(1, 3) for _ in sizes]
    pads = [g.number(0, k - 1) for k in window] * 2
    ends = zip(sizes, window, stride, pads)
    out = [_map(lambda s, k=k, t=t, p=p: (s + 2 * p - k) // t + 1, s) for s, k, t, p in ends]
    if any(_least(s) < 1 for s in out):
        return
    more = {"count_include_pad": g.number(0, 1)} if op == "AveragePool" else {}
    g.add(op, [name], (batch, channels, *out), kernel_shape=window, strides=stride, pads=pads, **more)


def _concat(g: Graph) -> None:
    name = g.value(lambda s: len(s) > 0)
    if name is None:
        return
    shape = g.pool[name]
    axis = g.number(0, len(shape) - 1)

    def beside(s: Shape) -> bool:
        return len(s) == len(shape) and all(a == b for i, (a, b) in enumerate(zip(s, shape)) if i != axis)

    other = g.value(beside)
    assert other is not None
    joined = _map(lambda a, b: a + b, shape[axis], g.pool[other][axis])
    g.add("Concat", [name, other], (*shape[:axis], joined, *shape[axis + 1 :]), axis=axis)


def _sliced(size: int, begin: int, end: int, step: int) -> int:
    """Elements of [begin:end:step]: as NumPy's, but for a start before the first element, which is the first one."""
    if step < 0:
        begin = max(begin, -size)
    return len(range(*slice(begin, end if abs(end) < 99 else None, step).indices(size)))


def _slice(g: Graph) -> None:
    name = g.value(lambda s: len(s) > 0)
    if name is None:
        return
    shape = g.pool[name]
    axis, step = g.number(0, len(shape) - 1), g.number(-2, 3) or 1
    begin, end = g.number(-4, 4), g.number(-4, 9)
    if g.number(0, 2) == 0:
        end = 2**63 - 1 if step > 0 else -(2**63)
    out = _map(lambda s: _sliced(s, begin, end, step), shape[axis])
    if any(_least(s) < 1 for s in (out,)) and isinstance(shape[axis], int):
        return
    inputs = [name, g.known([begin]), g.known([end]), g.known([axis]), g.known([step])]
    g.add("Slice", inputs, (*shape[:axis], out, *shape[axis + 1 :]))


def _transpose(g: Graph) -> None:
    name = g.value(lambda s: len(s) > 1)
    if name is None:
        return
    shape = g.pool[name]
    perm = list(g.draw(st.permutations(range(len(shape)))))  # type: ignore[call-overload]
    g.add("Transpose", [name], tuple(shape[p] for p in perm), perm=perm)


def _reshape(g: Graph) -> None:
    """Two neighbours become one, or one of fixed size becomes two."""
    name = g.value(lambda s: len(s) > 1)
    if name is None:
        return
    shape = g.pool[name]
    at = g.number(0, len(shape) - 2)
    last = shape[-1]
    if isinstance(last, int) and last % 2 == 0 and last and len(shape) < 5 and g.number(0, 1):
        g.add("Reshape", [name, g.known([*[0] * (len(shape) - 1), last // 2, 2])], (*shape[:-1], last // 2, 2))
        return
    joined = _map(lambda a, b: a * b, shape[at], shape[at + 1])
    if any(not isinstance(d, int) for d in shape[at + 2 :]) or not all(isinstance(s, int) or min(s) for s in shape):
        return  # 0 copies the size at the same place only; an empty one leaves -1 open
    target = [*[0] * at, -1, *(int(d) for d in shape[at + 2 :])]  # type: ignore[arg-type]
    g.add("Reshape", [name, g.known(target)], (*shape[:at], joined, *shape[at + 2 :]))


def _reduce(g: Graph) -> None:
    name = g.value(lambda s: len(s) > 0 and all(_least(d) > 0 for d in s[1:]))
    if name is None:
        return
    shape = g.pool[name]
    axes = [a for a in range(len(shape)) if _least(shape[a]) > 0 and g.number(0, 1)] or [len(shape) - 1]
    if any(_least(shape[a]) < 1 for a in axes):
        return
    keep = g.number(0, 1)
    out = tuple(1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes)
    op = str(g.choose(["ReduceMean", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL1"]))
    if op.startswith("ReduceSum") or op == "ReduceL1":
        g.add("Tanh", [name], shape)
        name = list(g.pool)[-1]
    g.add(op, [name, g.known(axes)], out, keepdims=keep)


def _softmax(g: Graph) -> None:
    name = g.value(lambda s: len(s) > 0)
    if name is None:
        return
    shape = g.pool[name]
    axis = g.number(-len(shape), len(shape) - 1)
    if _least(shape[axis]) > 0:
        g.add(str(g.choose(["Softmax", "LogSoftmax"])), [name], shape, axis=axis)


def _pad(g: Graph) -> None:
    name = g.value(lambda s: len(s) > 0)
    if name is None:
        return
    shape = g.pool[name]
    mode = str(g.choose(["constant", "constant", "edge", "reflect"]))
    most = [2 if mode == "constant" else min(2, max(0, _least(d) - 1)) for d in shape]
    before, after = ([g.number(0, m) for m in most] for _ in range(2))
    out = tuple(_map(lambda d, a=a, b=b: d + a + b, d) for d, a, b in zip(shape, before, after))
    fill = [g.known(np.array(0.25, np.float32))] if mode == "constant" else []
    g.add("Pad", [name, g.known([*before, *after]), *fill], out, mode=mode)


def _gather(g: Graph) -> None:
    name = g.value(lambda s: any(_least(d) > 0 for d in s))
    if name is None:
        return
    shape = g.pool[name]
    axis = int(g.choose([a for a, d in enumerate(shape) if _least(d) > 0]))  # type: ignore[call-overload]
    most = _least(shape[axis])
    index = np.array([g.number(-most, most - 1) for _ in range(g.number(1, 4))], np.int64)
    index = index.reshape(()) if len(index) == 1 else index[: len(index) // 2 * 2].reshape(2, -1)
    g.add("Gather", [name, g.known(index)], (*shape[:axis], *index.shape, *shape[axis + 1 :]), axis=axis)


OPERATORS = (_unary, _binary, _binary, _matmul, _self_product, _gemm, _conv, _conv, _pool, _concat, _slice, _transpose,
             _reshape, _reduce, _softmax, _pad, _gather)  # fmt: skip
_INPUTS: tuple[dict[str, tuple[int | str, ...]], ...] = (
    {"x": ("N", 6, "T")},
    {"x": ("N", 3, "T", 10)},
    {"x": ("N", 8)},
    {"x": (2, 4, 9), "y": (2, 4, 9)},
    {"x": ("N", "T", 12), "y": ("N", "T", 12)},
    {"x": (1, 3, 12, 11)},
)


@st.composite
def graphs(draw: Draw) -> onnx.ModelProto:
    """A valid model of 3 to 12 nodes."""
    inputs = draw(st.sampled_from(_INPUTS))
    assert isinstance(inputs, dict)
    g = Graph(draw, seed=int(draw(st.integers(0, 999))))  # type: ignore[call-overload]
    for name, shape in inputs.items():
        g.pool[name] = tuple(d if isinstance(d, int) else tuple(a[d] for a in ASSIGNMENTS) for d in shape)
    for operator in draw(st.lists(st.sampled_from(OPERATORS), min_size=3, max_size=9)):  # type: ignore[attr-defined]
        operator(g)
        if sum(max(np.ravel(d)) > 3000 for d in g.pool[list(g.pool)[-1]]):
            break
    if not g.nodes:
        _unary(g)
    return g.model(inputs)
