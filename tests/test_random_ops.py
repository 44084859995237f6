"""Random numbers of an artifact: the same at each run, of the distributions asked for; steps of optimizers are official."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import castiron

COUNT = 40_000


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The outputs of one model, twice."""
    like = {"low": -2.0, "high": 3.0, "seed": 4.0}
    nodes = [
        helper.make_node("RandomNormal", [], ["normal"], name="n", shape=[COUNT], mean=1.0, scale=2.0),
        helper.make_node("RandomNormal", [], ["other"], name="o", shape=[COUNT]),
        helper.make_node("RandomNormalLike", ["p"], ["wide"], dtype=onnx.TensorProto.DOUBLE, seed=1.5),
        helper.make_node("RandomUniformLike", ["p"], ["uniform"], **like),
        helper.make_node("RandomUniformLike", ["p"], ["again"], **like),
        helper.make_node("Bernoulli", ["p"], ["coin"]),
        helper.make_node("Multinomial", ["logits"], ["chosen"], sample_size=COUNT, dtype=onnx.TensorProto.INT64),
    ]
    ports = [helper.make_tensor_value_info("p", 1, ["N"]), helper.make_tensor_value_info("logits", 1, ["B", 3])]
    types = {"normal": 1, "other": 1, "wide": 11, "uniform": 1, "again": 1, "coin": 1, "chosen": 7}
    outputs = [helper.make_tensor_value_info(n, t, None) for n, t in types.items()]
    graph = helper.make_graph(nodes, "drawn", ports, outputs)
    folder = tmp_path_factory.mktemp("random")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), folder / "m.onnx")
    report = castiron.build(folder / "m.onnx", folder / "m", form="shared")
    assert "draws other numbers" in report.unverified
    model = castiron.load(report.path)
    with np.errstate(divide="ignore"):
        logits = np.log(np.array([[0.2, 0.5, 0.3], [1, 0, 0]], np.float32))
    given = {"p": np.full(COUNT, 0.3, np.float32), "logits": logits}
    return model(**given), model(**given)


def test_each_run_is_the_same(drawn: tuple[dict, dict]) -> None:
    for name, first in drawn[0].items():
        np.testing.assert_array_equal(first, drawn[1][name])
    np.testing.assert_array_equal(drawn[0]["uniform"], drawn[0]["again"])
    assert (drawn[0]["normal"] != drawn[0]["other"] * 2 + 1).any()


def test_distributions(drawn: tuple[dict, dict]) -> None:
    found, near = drawn[0], {"abs": 0.04}
    for name, mean, deviation in (("normal", 1, 2), ("other", 0, 1), ("wide", 0, 1)):
        assert found[name].mean() == pytest.approx(mean, **near) and found[name].std() == pytest.approx(
            deviation, **near
        )
        inside = np.abs(found[name] - mean) < deviation
        assert inside.mean() == pytest.approx(0.6827, abs=0.01)
    assert abs(np.corrcoef(found["other"][:-1], found["other"][1:])[0, 1]) < 0.02
    uniform = found["uniform"]
    assert uniform.min() >= -2 and uniform.max() < 3
    assert np.histogram(uniform, 10, (-2, 3))[0].std() < 0.03 * COUNT / 10
    assert found["coin"].mean() == pytest.approx(0.3, abs=0.01) and set(np.unique(found["coin"])) == {0, 1}
    frequencies = np.bincount(found["chosen"][0], minlength=3) / COUNT
    np.testing.assert_allclose(frequencies, [0.2, 0.5, 0.3], atol=0.01)
    assert not found["chosen"][1].any()
