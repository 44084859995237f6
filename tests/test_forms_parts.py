"""The parts of the delivery lab, each on its own."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from castiron.lab.arrays import ArrayFile
from castiron.lab.forms import advice, charts, elf, ship
from castiron.lab.forms.agree import agreement
from castiron.lab.forms.process import Inputs, read_outputs, words
from castiron.lab.forms.python_forms import last_words
from castiron.lab.forms.types import Agreement, Failed, Memory, Moved, Row, Ships, Start, Steady
from castiron.lab.reference import Vectors
from castiron.lab.spawn import Spawner

HERE = Path(__file__).parent


def test_places_are_filled(tmp_path: Path) -> None:
    inputs = Inputs.written(tmp_path, {"a": np.zeros(3, "f"), "b": np.ones(2, np.int64)})
    line = words(["{here}/p", "{files}", "{outputs}", "t={threads}", "{inputs}", "{calls}"], tmp_path, inputs,
                 tmp_path / "o", 2, 7)  # fmt: skip
    here = str(tmp_path)
    assert line == [f"{here}/p", f"{here}/0.npy", f"{here}/1.npy", f"{here}/o", "t=2", f"{here}/inputs.npz", "7"]
    assert np.load(inputs.npz)["b"].dtype == np.int64


def test_arrays_one_after_the_other(tmp_path: Path) -> None:
    with (tmp_path / "o.npz").open("wb") as file:
        np.save(file, np.arange(3.0))
        np.save(file, np.ones((2, 2), np.int32))
    found = read_outputs(tmp_path / "o.npz")
    assert [a.shape for a in found.arrays.values()] == [(3,), (2, 2)] and not found.named
    data = (tmp_path / "o.npz").read_bytes()
    (tmp_path / "o.npz").write_bytes(data[:-3])
    with pytest.raises(Failed, match="cut off"):
        read_outputs(tmp_path / "o.npz")


def vectors(**outputs: np.ndarray) -> Vectors:
    """What a source gave."""
    return Vectors({}, outputs, None, "onnx")


@pytest.mark.parametrize(
    ("found", "ok"),
    [
        (np.array([1.0, 2.0], "f"), True),
        (np.array([1.0, 2.0 + 1e-5], "f"), True),
        (np.array([1.0, 2.1], "f"), False),
        (np.array([1.0, np.nan], "f"), False),
        (np.array([1.0, np.inf], "f"), False),
        (np.array([[1.0, 2.0]], "f"), False),
        (np.array([], "f"), False),
    ],
)
def test_agreement(found: np.ndarray, ok: bool) -> None:
    (verdict,) = agreement(ArrayFile({"arr_0": found}, True, False), vectors(y=np.array([1.0, 2.0], "f")))
    assert verdict.ok == ok and verdict.name == "y"


def test_a_float32_model_that_went_through_bfloat16_is_a_mismatch() -> None:
    y = np.random.default_rng(0).standard_normal(1000).astype("f")
    exact = {"y": y.astype(np.float64) * (1 + 1e-7)}
    source = Vectors({}, {"y": y}, exact, "pytorch", own={"y": 1e-7})
    narrowed = y.astype(ml_dtypes.bfloat16).astype("f")
    assert not agreement(ArrayFile({"y": narrowed}, True, True), source)[0].ok
    own = vectors(y=y.astype(ml_dtypes.bfloat16))
    assert agreement(ArrayFile({"y": narrowed}, True, True), own)[0].ok, "as files hold bfloat16"


def test_outputs_that_are_not_there_disagree() -> None:
    one = np.zeros(1, "f")
    found = agreement(ArrayFile({"y": one}, True, True), vectors(y=one, z=one))
    assert [a.ok for a in found] == [True, False]


def test_integers_must_be_equal() -> None:
    given = vectors(y=np.array([1, 2]))
    assert agreement(ArrayFile({"y": np.array([1, 2])}, True, True), given)[0].ok
    assert not agreement(ArrayFile({"y": np.array([1, 3])}, True, True), given)[0].ok


def test_absolute_paths_are_found_also_in_archives(tmp_path: Path) -> None:
    place = "/somewhere/of/mine"
    (tmp_path / "plain").write_bytes(b"\0see /somewhere/of/mine/net.py:12\0and not /somewhere/of/mineral/a \xff")
    with zipfile.ZipFile(tmp_path / "packed.pt2", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("code.cpp", "// g++ -march=native -I/somewhere/of/mine/include\n" * 9)
    files = [tmp_path / "plain", tmp_path / "packed.pt2"]
    assert ship.absolute_paths(files[:1], [place]) == ("/somewhere/of/mine/net.py",)
    assert ship.absolute_paths(files, [place])[1:] == ("/somewhere/of/mine/include",)
    assert ship.built_for_here(files) == ("-march=native",)
    (tmp_path / "empty").touch()
    assert ship.absolute_paths([tmp_path / "empty"], [place]) == ()


def test_sizes_of_distributions() -> None:
    modules = {m: sys.modules[m].__file__ for m in ("numpy", "json", "re")}
    found = ship.distributions(modules, HERE)
    assert list(found) == ["numpy"] and found["numpy"] > 1 << 20


def test_libraries_are_resolved() -> None:
    found = elf.libraries(Path(sys.executable).resolve())
    assert any(name.startswith("libc.so") and path for name, path in found.items())
    assert elf.left_to_a_runtime(b"\x7fELF but not really") == []
    assert elf.by_prefix(["aoti_torch_empty", "aoti_torch_delete", "_ZN2at5emptyE", "main"]) == {
        "aoti_torch_*": 2, "C++": 1, "main": 1,
    }  # fmt: skip


def test_the_spawner_tells_what_happened(tmp_path: Path) -> None:
    spawner = Spawner(tmp_path)
    runs = spawner.measure(["sh", "-c", "echo $NAME"], 2, memory=True, env={"NAME": "x", "PATH": os.environ["PATH"]})
    assert len(runs.walls) == 2 and runs.peak > 0 and not runs.failure and spawner.output.read_text() == "x\n"
    assert "status 3" in spawner.measure(["sh", "-c", "echo no >&2; exit 3"]).failure
    assert spawner.measure(["sh", "-c", "echo no >&2; exit 3"]).said == "no\n"
    assert "No such file" in spawner.measure([str(tmp_path / "nothing")]).failure


def test_last_words() -> None:
    trace = "Traceback (most recent call last):\n  File x\nRuntimeError: bad model\nnote: the end"
    assert last_words(trace, 1) == "RuntimeError: bad model"
    assert last_words("In file\nx.cpp:3: error: no type\nx.cpp:9: error: more\n", 1) == "x.cpp:3: error: no type"
    assert last_words("", 1) == "ended with status 1 and said nothing"


def row(name: str, scale: float, **more: Any) -> Row:
    """A form that works, of some size in every respect."""
    facts: dict[str, Any] = {
        "agreement": (Agreement("y", 0.0, 0.0, 1e-7),),
        "ships": Ships(int(1000 * scale), int(2000 * scale), {"lib": int(1e6 * scale)}),
        "start": Start((scale, scale * 1.1), {"import": scale / 2}, (10, 200)),
        "memory": Memory(int(1e6 * scale), int(1e6 * scale), int(5e5 * scale), 10),
        "steady": Steady(scale / 1e3, scale / 900, 10, {1: 1000 / scale}),
        "moved": Moved(),
    } | more
    return Row(name, name, "itself", facts.pop("state", "ok"), **facts)


def test_advice_names_what_not_to_ship() -> None:
    rows = (
        row("a", 1.0),
        row("b", 100.0, moved=Moved(native=("-march=native",))),
        row("c", 0.1, state="mismatch"),
        row("d", 0.2, moved=Moved("works only where it was built: no file")),
    )
    rules = {rule.need: rule.text for rule in advice.choose(rows)}
    assert rules["the least to install"].startswith("a: ") and "100×" in rules["the least to install"]
    assert rules["not to ship"].startswith("c:") and rules["not to copy elsewhere"].startswith("d (")
    assert rules["machines of other kinds"].startswith("b was")
    assert advice.choose(()) == []


def test_charts_stay_within_their_axes() -> None:
    rows = [row("a", 1e-3), row("b", 1.0), row("c", 3000.0)]
    for make in (charts.start_up, charts.memory, charts.shipped, charts.latency):
        chart = make(rows)
        assert len(chart.lines) == 3 and len(chart.ticks) >= 2
        for bar in [bar for line in chart.lines for bar in line.bars]:
            assert 0 <= bar.left <= 100 and bar.left + bar.width <= 100.4 and bar.kind in chart.key
        assert make([]).lines == ()
