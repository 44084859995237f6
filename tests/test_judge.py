"""The verdict on an artifact: a near miss is judged on several inputs, a far one at once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from castiron.frontend.source import Source
from castiron.lab.judge import judge
from castiron.lab.reference import REPEATS, vectors
from castiron.lab.verify import Verdict

X = np.linspace(1, 2, 2000, dtype=np.float32)
Arrays = Mapping[str, np.ndarray]


class Noisy:
    """x times 1 with an error of `errors[k]` at run k; the last one stays."""

    def __init__(self, *errors: float) -> None:
        self.errors, self.runs = errors, 0

    def __call__(self, inputs: Arrays) -> Arrays:
        error = self.errors[min(self.runs, len(self.errors) - 1)]
        self.runs += 1
        return {"y": (inputs["x"].astype(np.float64) + error).astype(np.float32)}


def judged(artifact: Noisy, source: Noisy, plain: Noisy | None = None) -> Verdict:
    model = ir.Model(ir.Graph([], [], nodes=[], name="g"), ir_version=10)
    it = Source("m", model, frozenset(), None, source, lambda i: {"y": i["x"].astype(np.float64)}, "onnx", plain=plain)
    (verdict,) = judge(artifact, it, vectors(it, {"x": X}, 0), 2.0, lambda text: None)
    return verdict


def test_a_match_needs_one_run() -> None:
    artifact = Noisy(1e-5)
    assert judged(artifact, Noisy(1e-5)).ok
    assert artifact.runs == 1


def test_a_near_miss_is_judged_on_more_inputs() -> None:
    artifact = Noisy(3e-5)
    assert judged(artifact, Noisy(1e-5, 2e-5)).ok
    assert artifact.runs == 1 + REPEATS


def test_what_is_worse_on_all_inputs_is_wrong() -> None:
    verdict = judged(Noisy(3e-5), Noisy(1e-5))
    assert not verdict.ok
    assert "3e-05" in verdict.reason


def test_a_far_miss_is_wrong_at_once() -> None:
    for artifact in (Noisy(1e-2), Noisy(float("nan"))):
        assert not judged(artifact, Noisy(1e-5)).ok
        assert artifact.runs == 1


def test_a_quantized_model_may_move_by_the_steps_that_its_source_moves_by() -> None:
    assert judged(Noisy(3e-3), Noisy(1e-5), plain=Noisy(1e-5, 2e-3)).ok
    assert not judged(Noisy(5e-3), Noisy(1e-5), plain=Noisy(1e-5, 2e-3)).ok


def test_a_quantized_model_that_moves_far_still_has_a_limit() -> None:
    assert not judged(Noisy(0.3), Noisy(1e-5), plain=Noisy(0.5)).ok
