"""`ai.onnx.ml`: ensembles of decision trees.

A kernel of the runtime walks the trees, whose nodes are tables; what the leaves are worth is summed up by an ordinary
loop. The older operators are written with TreeEnsemble, a vote of several classes as a row of a table that the leaf's
number picks.

Specification: https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsemble.html (5), and TreeEnsembleClassifier,
TreeEnsembleRegressor (1, 3)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType

from castiron.errors import ModelError
from castiron.ops.body import Body
from castiron.ops.common import fail, lifted, reduced, renewed, static, wide
from castiron.ops.ml_classes import (
    DOMAIN,
    FLOAT,
    INT64,
    Values,
    floats,
    labels_of,
    likeliest,
    one_of_two,
    pair,
    real_input,
    transformed,
)
from castiron.ops.registry import Call, Operator
from castiron.program.builder import Tensor
from castiron.program.expr import Expr, apply, cast, constant, select
from castiron.program.trees import NAN_HOLDS

AVERAGE, SUM, MIN, MAX = range(4)
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
"""The first six are enum ci_comparison of the runtime."""
MEMBER = 6


# Tables ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trees:
    """The tables of the kernel `trees`, and the leaves' weights and targets."""

    nodes: np.ndarray
    split: np.ndarray
    roots: np.ndarray
    weight: np.ndarray
    target: np.ndarray

    def targets(self) -> list[set[int]]:
        """The targets of the leaves of each tree. Raises ModelError where a tree leads back to a node above."""
        found = []
        for root in self.roots:
            own, level, steps = set[int](), {int(root)}, 0
            while level:
                own |= {int(self.target[~n]) for n in level if n < 0}
                level = {int(c) for n in level if n >= 0 for c in self.nodes[n, 1:3]}
                steps += 1
                if steps > len(self.nodes) + 1:
                    raise ModelError("a tree of an ensemble leads back to a node above")
            found.append(own)
        return found


def _trees(call: Call) -> Trees:
    """The tables of a TreeEnsemble; a set to test membership of becomes a chain of comparisons."""
    a = {name: np.asarray(value) for name, value in call.attributes.items()}
    count, weight = len(a["nodes_featureids"]), a["leaf_weights"]
    mode = a["nodes_modes"].astype(np.int64)
    missing = a.get("nodes_missing_value_tracks_true", np.zeros(count, np.int64)).astype(np.int64)
    sides = [
        np.where(a[f"nodes_{side}leafs"], ~a[f"nodes_{side}nodeids"], a[f"nodes_{side}nodeids"])
        for side in ("false", "true")
    ]
    rows = np.stack([a["nodes_featureids"], *sides, mode + NAN_HOLDS * missing], 1).tolist()
    splits = a["nodes_splits"].tolist()
    sets = _sets(a.get("membership_values"), int((mode == MEMBER).sum()))
    for node, members in zip(np.flatnonzero(mode == MEMBER).tolist(), sets, strict=True):
        _chain(rows, splits, node, members)
    nodes, roots = np.asarray(rows, np.int64).reshape(-1, 4), a["tree_roots"].astype(np.int64)
    if ((nodes[:, 1:3] < -len(weight)) | (nodes[:, 1:3] >= len(nodes))).any() or (roots >= len(nodes)).any():
        raise ModelError(f"{call.node.op_type} {call.node.name!r}: a tree leads to a node or leaf that is not there")
    narrow = nodes.astype(np.int32)
    return Trees(narrow, np.asarray(splits), roots.astype(np.int32), weight, a["leaf_targetids"].astype(np.int64))


def _sets(values: np.ndarray | None, count: int) -> list[list[float]]:
    """The members of each set; NaN ends one."""
    found: list[list[float]] = [[]]
    for value in () if values is None else values.tolist():
        if np.isnan(value):
            found.append([])
        else:
            found[-1].append(value)
    return [*found, *([[]] * count)][:count]


def _chain(rows: list[list[int]], splits: list[float], node: int, members: Sequence[float]) -> None:
    """Node `node` tests the first member, further rows the others; nothing is in an empty set."""
    feature, below, above, mode = rows[node]
    equal = mode - MEMBER + MODES.index("BRANCH_EQ")
    values = list(members) or [np.nan]
    for number, value in enumerate(values):
        last = number == len(values) - 1
        rows[node] = [feature, below if last else len(rows), above, equal]
        splits[node] = value
        if not last:
            node = len(rows)
            rows.append([])
            splits.append(0.0)


# Lowering -------------------------------------------------------------------------------------------------------------


def _leaves(call: Call, trees: Trees) -> Tensor:
    """The number of the leaf of each tree, [N, trees]."""
    x, build, name = call.input(0), call.build, call.out.name
    features = static(x.shape[1])
    if features is None:
        fail(call, "the number of features must be known at build")
    asked = trees.nodes[:, 0]
    if asked.size and not 0 <= asked.min() <= asked.max() < features:
        raise ModelError(f"{call.node.op_type} {call.node.name!r}: a node asks for a feature outside [0, {features})")
    if x.type not in (FLOAT, DataType.DOUBLE):
        wider = build.temp(FLOAT, x.shape, f"{x.name}.wide")
        x = build.compute(wider, lambda *index, x=x: lifted(x.load(*index)))
    leaf = build.temp(DataType.INT32, (x.shape[0], len(trees.roots)), f"{name}.leaf")
    tables = {
        "split": build.known(trees.split.astype(x.type.numpy()), x.type, f"{name}.split"),
        "nodes": build.known(trees.nodes, DataType.INT32, f"{name}.nodes"),
        "roots": build.known(trees.roots, DataType.INT32, f"{name}.roots"),
    }
    params: dict[str, Expr | int | float] = {
        "rows": x.shape[0],
        "features": features,
        "trees": len(trees.roots),
        "wide": int(x.type != FLOAT),
    }
    build.whole_kernel("trees", {"leaf": leaf}, {"x": x, **tables}, params)
    return leaf


def _lower(call: Call) -> None:
    trees, build, out = _trees(call), call.build, call.out
    if call.attribute("post_transform", 0):
        fail(call, "post_transform")  # `upgrade` took it out
    if not len(trees.roots):
        raise ModelError(f"{call.node.op_type} {call.node.name!r} has no trees")
    how = int(call.attribute("aggregate_function", SUM))
    type, op = wide(out.type), {MIN: "min", MAX: "max"}.get(how, "sum")
    neutral = {MIN: np.inf, MAX: -np.inf}.get(how, 0.0)
    leaf, count = _leaves(call, trees), constant(len(trees.roots), type)
    weight = build.known(trees.weight.astype(out.type.numpy()), out.type, f"{out.name}.weight")
    order = _by_target(trees, out)
    if order is not None:  # each target has trees of its own
        places = build.known(order, INT64, f"{out.name}.trees")
    targets = build.known(trees.target, INT64, f"{out.name}.target")
    along = build.axes([len(trees.roots) if order is None else order.shape[1]])

    def value(row: Expr, target: Expr) -> Expr:
        tree = along[0].var if order is None else places.load(target, along[0].var)
        at = cast(leaf.load(row, tree), INT64)
        vote = lifted(weight.load(at))
        if order is None:
            vote = select(apply("eq", targets.load(at), target), vote, constant(neutral, type))
        total = reduced(op, along, vote)
        return cast(total / count if how == AVERAGE else total, out.type)

    build.compute(out, value)


def _by_target(trees: Trees, out: Tensor) -> np.ndarray | None:
    """The trees of each target, [targets, trees of one], where a tree is of one target and all have as many trees."""
    groups: dict[int, list[int]] = defaultdict(list)
    for number, targets in enumerate(trees.targets()):
        if len(targets) != 1:
            return None
        groups[next(iter(targets))].append(number)
    count = static(out.shape[1])
    if count is None or len(groups) != count or len({len(g) for g in groups.values()}) != 1:
        return None
    return np.array([groups[t] for t in range(count)], np.int64)


def _upgrade(node: ir.Node, opset: int) -> list[ir.Node] | None:
    """`post_transform` becomes nodes behind."""
    names = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
    given = node.attributes.get("post_transform")
    if given is None or not given.as_int():
        return None
    plain = renewed(node, drop=["post_transform"])
    body = Body(plain)
    body.nodes.append(plain)
    transformed(body, plain.outputs[0], names[given.as_int()])
    return body.nodes


# Older forms ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Votes:
    """An older operator's trees: the attributes of TreeEnsemble for the nodes, and the votes of each leaf by target."""

    fields: Mapping[str, list[Any]]
    leaves: Sequence[Mapping[int, float]]

    @property
    def trees(self) -> int:
        return len(self.fields["tree_roots"])

    def table(self, targets: int, fill: float) -> np.ndarray:
        """The votes as [leaves, targets]."""
        found = np.full((len(self.leaves), targets), fill)
        for number, votes in enumerate(self.leaves):
            for target, weight in votes.items():
                found[number, target] = weight
        return found

    def tree_of_leaf(self) -> list[int]:
        """The tree that each leaf belongs to."""
        found = [0] * len(self.leaves)
        for tree, root in enumerate(self.fields["tree_roots"]):
            stack = [root]
            while stack:
                node = stack.pop()
                for side in ("false", "true"):
                    end = self.fields[f"nodes_{side}nodeids"][node]
                    if self.fields[f"nodes_{side}leafs"][node]:
                        found[end] = tree
                    else:
                        stack.append(end)
        return found


def _older(body: Body, prefix: str) -> Votes:
    """The trees of TreeEnsembleRegressor (prefix `target`) and TreeEnsembleClassifier (`class`)."""
    keys = list(zip(body.attribute("nodes_treeids"), body.attribute("nodes_nodeids"), strict=True))
    modes = [str(m) for m in body.attribute("nodes_modes")]
    votes: dict[tuple[int, int], dict[int, float]] = {k: {} for k, m in zip(keys, modes, strict=True) if m == "LEAF"}
    names = (f"{prefix}_treeids", f"{prefix}_nodeids", f"{prefix}_ids")
    given = zip(*(body.attribute(n) for n in names), floats(body, f"{prefix}_weights"), strict=True)
    for tree, node, target, weight in given:
        if (tree, node) in votes:
            votes[tree, node][int(target)] = votes[tree, node].get(int(target), 0.0) + weight
    inner = {key: i for i, key in enumerate(k for k in keys if k not in votes)}
    leaves = {key: i for i, key in enumerate(votes)}
    ends = {
        side: [(key[0], int(n)) for key, n in zip(keys, body.attribute(f"nodes_{side}nodeids"), strict=True)]
        for side in ("false", "true")
    }
    fields = _nodes(body, keys, modes, inner)
    below: set[tuple[int, int]] = set()
    for side, targets in ends.items():
        held = [t for key, t in zip(keys, targets, strict=True) if key in inner]
        if any(t not in inner and t not in leaves for t in held):
            raise ModelError(f"{body.node.op_type} {body.node.name!r}: a node leads to a node that is not there")
        fields[f"nodes_{side}nodeids"] = [leaves[t] if t in leaves else inner[t] for t in held]
        fields[f"nodes_{side}leafs"] = [int(t in leaves) for t in held]
        below.update(held)
    fields["tree_roots"] = [_root(fields, key, inner, leaves) for key in keys if key not in below]
    return Votes(fields, list(votes.values()))


def _nodes(body: Body, keys: Sequence[Any], modes: Sequence[str], inner: Mapping[Any, int]) -> dict[str, list[Any]]:
    """What is asked at each node that is no leaf."""
    tracks = list(body.attribute("nodes_missing_value_tracks_true", ())) or [0] * len(keys)
    rows = zip(keys, modes, floats(body, "nodes_values"), body.attribute("nodes_featureids"), tracks, strict=True)
    kept = [row for row in rows if row[0] in inner]
    for _, mode, *_ in kept:
        if mode not in MODES[:MEMBER]:
            body.fail(f"nodes_modes {mode}")
    return {
        "nodes_modes": [MODES.index(mode) for _, mode, *_ in kept],
        "nodes_splits": [split for *_, split, _, _ in kept],
        "nodes_featureids": [int(feature) for *_, feature, _ in kept],
        "nodes_missing_value_tracks_true": [int(t) for *_, t in kept],
    }


def _root(fields: dict[str, list[Any]], key: Any, inner: Mapping[Any, int], leaves: Mapping[Any, int]) -> int:
    """The node where a tree begins; a tree that is one leaf gets a node both of whose ends it is."""
    if key in inner:
        return inner[key]
    for name in ("nodes_modes", "nodes_splits", "nodes_featureids", "nodes_missing_value_tracks_true"):
        fields[name].append(0)
    for side in ("false", "true"):
        fields[f"nodes_{side}nodeids"].append(leaves[key])
        fields[f"nodes_{side}leafs"].append(1)
    return len(fields["nodes_modes"]) - 1


def _ensemble(
    body: Body, x: ir.Value, votes: Votes, targets: int, weights: Sequence[float], of: Sequence[int], how: int
) -> ir.Value:
    """A TreeEnsemble of the trees with these leaves."""
    type = (x.dtype or FLOAT).numpy()
    fields = dict(votes.fields)
    tensors = {
        "nodes_modes": np.asarray(fields.pop("nodes_modes"), np.uint8),
        "nodes_splits": np.asarray(fields.pop("nodes_splits"), type),
        "leaf_weights": np.asarray(weights, type),
    }
    return body.op(
        "TreeEnsemble",
        x,
        domain=DOMAIN,
        n_targets=targets,
        aggregate_function=how,
        leaf_targetids=list(of),
        **{n: ir.tensor(t) for n, t in tensors.items()},
        **fields,
    )


def _summed(body: Body, votes: Votes, targets: int, how: int) -> ir.Value:
    """The votes of all trees, [N, targets] as FLOAT."""
    x = body.input(0)
    x = x if x.dtype in (FLOAT, DataType.DOUBLE) else real_input(body)
    single = all(len(v) == 1 for v in votes.leaves)
    if single:
        weights, of = [next(iter(v.values())) for v in votes.leaves], [next(iter(v)) for v in votes.leaves]
        return body.cast(_ensemble(body, x, votes, targets, weights, of, how), FLOAT)
    numbers = [float(n) for n in range(len(votes.leaves))]
    leaf = _ensemble(body, x, votes, votes.trees, numbers, votes.tree_of_leaf(), SUM)
    table = body.constant(votes.table(targets, {MIN: np.inf, MAX: -np.inf}.get(how, 0.0)), FLOAT)
    found = body.op("Gather", table, body.cast(leaf, INT64), axis=0)
    reduction = {AVERAGE: "ReduceMean", MIN: "ReduceMin", MAX: "ReduceMax"}.get(how, "ReduceSum")
    return body.op(reduction, found, [1], keepdims=0)


def _regressor(body: Body) -> Values:
    targets, how = int(body.attribute("n_targets", 1)), str(body.attribute("aggregate_function", "SUM"))
    if how not in ("AVERAGE", "SUM", "MIN", "MAX"):
        body.fail(f"aggregate_function {how}")
    total = _summed(body, _older(body, "target"), targets, ("AVERAGE", "SUM", "MIN", "MAX").index(how))
    base = floats(body, "base_values")
    total = body.op("Add", total, body.constant(base, FLOAT)) if base else total
    return [transformed(body, total, str(body.attribute("post_transform", "NONE")))]


def _classifier(body: Body) -> Values:
    """With two classes of which only one gets votes, the sign of its score decides, or a half where all are positive."""
    labels, transform = labels_of(body, "classlabels_int64s"), str(body.attribute("post_transform", "NONE"))
    base, weights = floats(body, "base_values"), floats(body, "class_weights")
    votes = _older(body, "class")
    voted = sorted({t for v in votes.leaves for t in v})
    if len(labels) == 2 and len(voted) == 1:
        renamed = [{0: sum(v.values())} for v in votes.leaves]
        score = _summed(body, Votes(votes.fields, renamed), 1, SUM)
        score = body.op("Add", score, body.constant(base[-1], FLOAT)) if base else score
        positive = all(w >= 0 for w in weights)
        label = one_of_two(body, score, 0.5 if positive else 0.0, labels)
        return [label, pair(body, score, positive, transform)]
    scores = _summed(body, votes, len(labels), SUM)
    scores = body.op("Add", scores, body.constant(base, FLOAT)) if base else scores
    return [likeliest(body, scores, labels), transformed(body, scores, transform)]


OPERATORS = (
    Operator("TreeEnsemble", _lower, domain=DOMAIN, upgrade=_upgrade),
    Operator("TreeEnsembleClassifier", domain=DOMAIN, expand=_classifier),
    Operator("TreeEnsembleRegressor", domain=DOMAIN, expand=_regressor),
)
