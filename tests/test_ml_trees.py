"""Tree ensembles of scikit-learn and by hand, natively, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")

import skl2onnx
from contrib.check import case, check, of_model
from node_suite.cases import Case
from sklearn import ensemble, tree

_RANDOM = np.random.default_rng(23)
X = _RANDOM.standard_normal((300, 6)).astype(np.float32)
NUMBER = X[:, 0] * 2 + np.sin(X[:, 1] * 3) + X[:, 2] * X[:, 3]
TWO = (NUMBER > 0).astype(np.int64) * 3 + 4
MANY = np.digitize(NUMBER, [-1, 0.5, 2]).astype(np.int64) - 1


def converted(name: str, model: object, y: np.ndarray, sizes: tuple[int, ...] = (1, 37), **options: object) -> Case:
    """A fitted model of float32 features, run on rows that it has not seen and on missing values."""
    fitted = model.fit(X, y)
    settings = {"zipmap": False, **options} if hasattr(fitted, "classes_") else options
    proto = skl2onnx.to_onnx(fitted, X[:1], options={id(fitted): settings}, target_opset={"": 18, "ai.onnx.ml": 3})
    proto.graph.node[0].name = name
    return of_model(name, proto, [[_RANDOM.standard_normal((n, 6)).astype(np.float32)] for n in sizes], 1e-4, 1e-5)


def test_classifiers() -> None:
    check(
        [
            converted("tree_two", tree.DecisionTreeClassifier(max_depth=5), TWO),
            converted("tree_many", tree.DecisionTreeClassifier(), MANY),
            converted("forest_two", ensemble.RandomForestClassifier(12, max_depth=6), TWO),
            converted("forest_many", ensemble.RandomForestClassifier(12), MANY),
            converted("extra", ensemble.ExtraTreesClassifier(5, max_depth=7), MANY),
            converted("boosted_two", ensemble.GradientBoostingClassifier(n_estimators=9), TWO),
            converted("boosted_many", ensemble.GradientBoostingClassifier(n_estimators=5), MANY),
            converted("bagging", ensemble.BaggingClassifier(n_estimators=3), MANY),
            converted("ada", ensemble.AdaBoostClassifier(n_estimators=4), TWO),
            converted("stump", tree.DecisionTreeClassifier(), np.where(X[:, 0] > 9, 1, 0)),
        ]
    )


def test_regressors() -> None:
    both = np.stack([NUMBER, -2 * NUMBER], 1)
    check(
        [
            converted("tree", tree.DecisionTreeRegressor(), NUMBER),
            converted("tree_targets", tree.DecisionTreeRegressor(max_depth=4), both),
            converted("forest", ensemble.RandomForestRegressor(11), NUMBER),
            converted("boosted", ensemble.GradientBoostingRegressor(n_estimators=9), NUMBER),
            converted("isolation", ensemble.IsolationForest(n_estimators=5), NUMBER),
        ]
    )


def _forest(targets: int, seed: int, modes: tuple[str, ...]) -> dict[str, list]:
    """Three small trees with every kind of comparison, in the attributes of the older operators."""
    random = np.random.default_rng(seed)
    keys = (
        "treeids",
        "nodeids",
        "featureids",
        "values",
        "modes",
        "truenodeids",
        "falsenodeids",
        "missing_value_tracks_true",
    )
    at: dict[str, list] = {f"nodes_{k}": [] for k in keys} | {
        f"target_{k}": [] for k in ("treeids", "nodeids", "ids", "weights")
    }
    for number in range(3):
        for node in range(7):
            inner = node < 3
            values = (
                number,
                node,
                int(random.integers(0, 4)) if inner else 0,
                float(random.integers(-1, 2)) if inner else 0.0,
            )
            row = (*values, str(random.choice(modes)) if inner else "LEAF", 2 * node + 1 if inner else 0,
                   2 * node + 2 if inner else 0, int(random.integers(0, 2)))  # fmt: skip
            for k, v in zip(keys, row, strict=True):
                at[f"nodes_{k}"].append(v)
            for target in range(targets if not inner else 0):
                vote = (number, node, target, float(random.standard_normal()))
                for k, v in zip(("treeids", "nodeids", "ids", "weights"), vote, strict=True):
                    at[f"target_{k}"].append(v)
    return at


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_every_comparison(how: str) -> None:
    rows = _RANDOM.integers(-1, 2, (40, 4)).astype(np.float32)
    rows[::7, 1] = np.nan
    rows[3] = np.inf
    modes = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
    sets = [[rows], [rows[:5]]]
    cases = []
    for number, chosen in enumerate((modes, *((m,) for m in modes))):
        for targets in (1, 2):
            at = {**_forest(targets, number, chosen), "n_targets": targets, "aggregate_function": how}
            cases.append(
                case(f"forest_{how}_{number}_{targets}", "TreeEnsembleRegressor", sets, domain="ai.onnx.ml",
                     base_values=[0.5] * targets, **at)
            )  # fmt: skip
    check(cases)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"])
def test_votes_and_transforms(transform: str) -> None:
    rows = _RANDOM.standard_normal((20, 4)).astype(np.float32)
    cases = []
    for classes in (
        1,
        3,
    ):  # of two classes with votes for both, onnxruntime gives 0 and 1 for labels, whatever they are
        at = {k.replace("target", "class"): v for k, v in _forest(classes, classes, ("BRANCH_LEQ",)).items()}
        at["class_weights"] = [abs(w) / 10 + 0.01 for w in at["class_weights"]]
        signs = {**at, "class_weights": [w * (-1) ** i for i, w in enumerate(at["class_weights"])]}
        for name, held in (("positive", at), ("signed", signs)):
            if transform == "PROBIT" and (classes == 1 or name == "signed"):
                continue
            names = {"outputs": ("label", "scores"), "types": [onnx.TensorProto.INT64, onnx.TensorProto.FLOAT]}
            cases.append(
                case(f"votes_{transform}_{classes}_{name}", "TreeEnsembleClassifier", [[rows]], domain="ai.onnx.ml",
                     classlabels_int64s=[3, 8, 5][: max(classes, 2)], post_transform=transform, **names, **held)
            )  # fmt: skip
    check(cases)
