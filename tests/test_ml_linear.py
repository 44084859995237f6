"""Linear models, support vectors and pipelines of scikit-learn, natively, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")

import skl2onnx
from contrib.check import case, check, of_model
from node_suite.cases import Case
from sklearn import (
    cluster,
    decomposition,
    discriminant_analysis,
    impute,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
)

import castiron

_RANDOM = np.random.default_rng(31)
X = _RANDOM.standard_normal((120, 5)).astype(np.float32)
NUMBER = X[:, 0] * 2 + np.sin(X[:, 1] * 3) + X[:, 2] * X[:, 3]
TWO = (NUMBER > 0).astype(np.int64) * 3 + 4
MANY = np.digitize(NUMBER, [-1, 0.5, 2]).astype(np.int64) - 1
ML = "ai.onnx.ml"


def converted(name: str, model: object, y: np.ndarray | None) -> Case:
    """A fitted model of float32 features, run on rows that it has not seen."""
    fitted = model.fit(X, y)
    maps = hasattr(fitted, "classes_") and not isinstance(fitted, svm.LinearSVC)
    options = {id(fitted): {"zipmap": False}} if maps else {}
    proto = skl2onnx.to_onnx(fitted, X[:1], options=options, target_opset={"": 18, ML: 3})
    rows = [[_RANDOM.standard_normal((n, 5)).astype(np.float32)] for n in (1, 23)]
    return of_model(name, proto, rows, 1e-3, 1e-4)


def test_linear() -> None:
    check(
        [
            converted("logistic_two", linear_model.LogisticRegression(), TWO),
            converted("logistic_many", linear_model.LogisticRegression(), MANY),
            converted("ridge", linear_model.Ridge(), np.stack([NUMBER, -NUMBER], 1)),
            converted("linear", linear_model.LinearRegression(), NUMBER),
            converted("sgd", linear_model.SGDClassifier(loss="log_loss"), MANY),
            converted("ridge_classifier", linear_model.RidgeClassifier(), MANY),
            converted("perceptron", linear_model.Perceptron(), TWO),
        ]
    )


def test_support_vectors() -> None:
    check(
        [
            converted("svc_rbf", svm.SVC(), TWO),
            converted("svc_many", svm.SVC(), MANY),
            converted("svc_poly", svm.SVC(kernel="poly", coef0=0.5, degree=2), MANY),
            converted("svc_sigmoid", svm.SVC(kernel="sigmoid"), MANY),
            converted("svc_linear", svm.SVC(kernel="linear"), MANY),
            converted("linear_svc", svm.LinearSVC(), MANY),
            converted("svr", svm.SVR(), NUMBER),
            converted("svr_poly", svm.SVR(kernel="poly"), NUMBER),
            converted("nu_svr", svm.NuSVR(kernel="linear"), NUMBER),
            converted("one_class", svm.OneClassSVM(), NUMBER),
        ]
    )


def test_pipelines() -> None:
    def behind(*steps: object) -> pipeline.Pipeline:
        return pipeline.make_pipeline(*steps, linear_model.LogisticRegression())

    check(
        [
            converted("scaled", behind(preprocessing.StandardScaler()), TWO),
            converted("normalized", behind(preprocessing.Normalizer()), TWO),
            converted("polynomial", behind(preprocessing.MinMaxScaler(), preprocessing.PolynomialFeatures(2)), MANY),
            converted("imputed", behind(impute.SimpleImputer(), preprocessing.RobustScaler()), TWO),
            converted("binarized", behind(preprocessing.Binarizer(threshold=0.1)), MANY),
            converted("components", behind(decomposition.PCA(3)), MANY),
            converted("network", neural_network.MLPClassifier((8,), max_iter=50), MANY),
            converted("bayes", naive_bayes.GaussianNB(), MANY),
            converted("means", cluster.KMeans(4, n_init=1), None),
            converted("discriminant", discriminant_analysis.LinearDiscriminantAnalysis(), MANY),
            converted("neighbors", neighbors.KNeighborsRegressor(3), NUMBER),
        ]
    )


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_transforms(transform: str) -> None:
    rows = [[_RANDOM.standard_normal((n, 3)).astype(np.float32)] for n in (2, 6)]
    weights = [float(v) for v in _RANDOM.standard_normal(9)]
    both = {"outputs": ("label", "scores"), "types": [7, 1], "domain": ML, "post_transform": transform}
    check(
        [
            case(f"linear_{transform}", "LinearClassifier", rows, coefficients=weights, intercepts=weights[:3],
                 classlabels_ints=[5, 9, 2], **both),
            case(f"linear_one_{transform}", "LinearClassifier", rows, coefficients=weights[:3], intercepts=weights[:1],
                 classlabels_ints=[5, 9], **both),
            case(f"regressor_{transform}", "LinearRegressor", rows, coefficients=weights, intercepts=weights[:3],
                 targets=3, post_transform=transform, domain=ML),
        ]
    )  # fmt: skip


def test_maps_are_tables(tmp_path: Path) -> None:
    """A classifier's list of maps from label to probability is a matrix, a column a label."""
    fitted = linear_model.LogisticRegression().fit(X, MANY)
    path = tmp_path / "model.onnx"
    proto = skl2onnx.to_onnx(fitted, X[:1], target_opset={"": 18, ML: 3})
    assert proto.graph.output[1].type.HasField("sequence_type")
    path.write_bytes(proto.SerializeToString())
    report = castiron.build(path, tmp_path / "model", form="shared")
    assert all(v.ok for v in report.verdicts)
    label, found = castiron.load(report.path)(X[:7]).values()
    np.testing.assert_array_equal(label, fitted.predict(X[:7]))
    np.testing.assert_allclose(found, fitted.predict_proba(X[:7]), rtol=1e-4)
