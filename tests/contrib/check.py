"""A node with inputs of several sizes -> a case of the node suite whose expected outputs onnxruntime gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from node_suite.cases import Case
from node_suite.outcome import Status
from node_suite.suite import run

Arrays = Sequence[np.ndarray | None]
MICROSOFT = "com.microsoft"


def case(
    name: str,
    op_type: str,
    sets: Sequence[Arrays],
    *,
    domain: str = MICROSOFT,
    known: Mapping[int, np.ndarray] | None = None,
    outputs: Sequence[str] = ("y",),
    types: Sequence[int] | None = None,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    version: int = 21,
    ml: int = 3,
    like: Case | None = None,
    **attributes: Any,
) -> Case:
    """`sets`: the inputs, once a run; a dimension whose size varies among them is symbolic. `known`: initializers by
    position (None in `sets`). `outputs`: names, "" where one is not wanted; `types`: where they are not the input's.
    `like`: a case with the same outputs, of a form that onnxruntime's CPU provider has."""
    held = known or {}
    first = sets[0]
    names = ["" if a is None and i not in held else f"x{i}" for i, a in enumerate(first)]
    node = onnx.helper.make_node(op_type, names, list(outputs), domain=domain, name=name, **attributes)
    ports = [
        onnx.helper.make_tensor_value_info(names[i], _type(a), _dims(i, [s[i] for s in sets]))
        for i, a in enumerate(first)
        if a is not None
    ]
    kind = next(_type(a) for a in (*first, *held.values()) if a is not None)
    wanted = [n for n in outputs if n]
    results = [onnx.helper.make_tensor_value_info(n, t, None) for n, t in zip(wanted, types or [kind] * len(wanted))]
    weights = [onnx.numpy_helper.from_array(a, names[i]) for i, a in held.items()]
    graph = onnx.helper.make_graph([node], name, ports, results, weights)
    versions = [onnx.helper.make_opsetid("", version), onnx.helper.make_opsetid(MICROSOFT, 1)]
    versions += [onnx.helper.make_opsetid("ai.onnx.ml", ml)]
    model = onnx.helper.make_model(graph, opset_imports=versions, ir_version=10)
    if like is None:
        return of_model(name, model, sets, rtol, atol)
    fed = [[a for a in arrays if a is not None] for arrays in sets]
    data = [(given, wanted) for given, (_, wanted) in zip(fed, like.data, strict=True)]
    return Case(f"test_{name}", op_type, model, data, rtol, atol)


def of_model(name: str, model: onnx.ModelProto, sets: Sequence[Arrays], rtol: float, atol: float) -> Case:
    """A case of a model whose inputs are the arrays of `sets` that are not None."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    fed = [i.name for i in session.get_inputs()]
    data = []
    for arrays in sets:
        given = [a for a in arrays if a is not None]
        data.append((given, session.run(None, dict(zip(fed, given, strict=True)))))
    return Case(f"test_{name}", model.graph.node[0].op_type, model, data, rtol, atol)


def check(cases: Sequence[Case]) -> None:
    """All cases must pass with all inputs known at run time only."""
    outcomes = run(cases)
    wrong = {name: f"{o.status}: {o.reason}" for name, o in outcomes.items() if o.status != Status.PASSED}
    assert not wrong, "\n".join(f"{name}: {reason}" for name, reason in wrong.items())


def _type(array: np.ndarray) -> int:
    return onnx.helper.np_dtype_to_tensor_dtype(array.dtype)


def _dims(number: int, arrays: Sequence[np.ndarray]) -> list[int | str]:
    sizes = zip(*(a.shape for a in arrays), strict=True)
    return [s[0] if len(set(s)) == 1 else f"d{number}_{d}" for d, s in enumerate(sizes)]
