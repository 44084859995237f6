"""The delivery lab: a few forms whole, and each of its parts on its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from castiron.errors import InputError
from castiron.lab.arrays import ArrayFile
from castiron.lab.forms import advice, charts, elf, ship
from castiron.lab.forms.agree import agreement
from castiron.lab.forms.lab import OWN, chosen
from castiron.lab.forms.process import Inputs, read_outputs, words
from castiron.lab.forms.python_forms import last_words
from castiron.lab.forms.types import Agreement, Failed, Memory, Moved, Row, Ships, Start, Steady
from castiron.lab.forms.user_forms import read_forms
from castiron.lab.reference import Vectors
from castiron.lab.spawn import Spawner

ROOT = Path(__file__).parent.parent
HERE = Path(__file__).parent / "forms"
MLP = ROOT / "examples" / "mlp.onnx"

USERS = """
[[form]]
name = "plain-c"
title = "plain C"
build = ["sh", "{{source}}/build.sh", "{python}", "{weights}", "{{here}}"]
run = ["{{here}}/mlp", "{{files}}"]
repeat = ["{{here}}/mlp", "--repeat", "{{calls}}", "{{files}}"]
program = ["mlp"]

[[form]]
name = "random-weights"
build = ["sh", "{{source}}/build.sh", "{python}", "{weights}", "{{here}}", "--random"]
run = ["{{here}}/mlp", "{{files}}"]
program = ["mlp"]

[[form]]
name = "tied"
title = "reads its weights where it was built"
build = ["sh", "-c", "cp {{source}}/tied.py {{here}} && cp {weights} {{here}} && echo {{here}} > {{here}}/place.txt"]
run = ["{python}", "{{here}}/tied.py", "{{inputs}}", "{{outputs}}"]
model = ["*.safetensors"]
program = ["tied.py", "place.txt"]

[[form]]
name = "broken"
build = ["sh", "-c", "echo 'mlp.c:3:1: error: expected declaration' >&2; exit 1"]
run = ["{{here}}/mlp"]

[[form]]
name = "no-tool"
build = ["compiler-that-nobody-has", "x"]
run = ["{{here}}/mlp"]

[[form]]
name = "crashes"
run = ["sh", "-c", "kill -SEGV $$"]
"""

TIED = """
import sys
from pathlib import Path
import numpy as np
from safetensors.numpy import load_file
w = load_file(Path(__file__).with_name("place.txt").read_text().strip() + "/mlp.safetensors")
x = np.load(sys.argv[1])["x"]
h = np.maximum(x @ w["fc1.weight"].T + w["fc1.bias"], 0)
np.savez(sys.argv[2], h @ w["fc2.weight"].T + w["fc2.bias"])
"""


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A TOML file of forms, and what its commands need, in a folder of its own."""
    folder = tmp_path_factory.mktemp("users")
    for file in HERE.iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    (folder / "tied.py").write_text(TIED)
    text = USERS.format(python=sys.executable, weights=ROOT / "examples" / "mlp.safetensors")
    (folder / "users.toml").write_text(text)
    return folder / "users.toml"


def castiron(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command line, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    return subprocess.run(
        [sys.executable, "-m", "castiron", *arguments], cwd=cwd, capture_output=True, text=True, env=environment
    )


@pytest.fixture(scope="module")
def small(users: Path, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The quick forms of the MLP, once: what was printed, and the folder."""
    folder = tmp_path_factory.mktemp("lab")
    names = f"castiron,castiron-file,castiron-safetensors,castiron-library,onnx,export,{users}"
    done = castiron("forms", str(MLP), "--forms", names, "--runs", "2", "--json", "--out", "out", cwd=folder)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    return SimpleNamespace(
        done=done, folder=folder / "out", report=report, rows={row["name"]: row for row in report["rows"]}
    )


def test_good_forms_agree_and_are_measured(small: SimpleNamespace) -> None:
    names = ["castiron", "castiron-file", "castiron-safetensors", "castiron-library", "plain-c"]
    for name in [*names, *(["onnx"] if find_spec("onnxruntime") else [])]:
        row = small.rows[name]
        assert row["state"] == "ok", row
        assert row["agreement"][0]["max_diff"] <= row["agreement"][0]["allowed"]
        assert len(row["start"]["walls"]) == 2 and row["start"]["median"] > 0
        assert row["memory"]["peak"] > 10_000 and row["steady"]["throughput"]["1"] > 0
        assert row["moved"]["ok"] and row["ships"]["total"] > 0
    assert not {path for name in names for path in small.rows[name]["moved"]["paths"]}


def test_what_forms_ship(small: SimpleNamespace) -> None:
    alone = small.rows["castiron"]["ships"]
    assert alone["runtime"] == {} and alone["system"] == [] and alone["total"] == alone["model"]
    library = small.rows["castiron-library"]["ships"]
    assert list(library["runtime"]) == ["numpy"] and library["undefined"] == {}
    assert library["program"] < 1 << 15, "the loader is two files"
    if find_spec("onnxruntime"):
        assert {"onnxruntime", "numpy"} <= set(small.rows["onnx"]["ships"]["runtime"])


def test_python_forms_say_where_time_goes(small: SimpleNamespace) -> None:
    start = small.rows["castiron-library"]["start"]
    assert set(start["split"]) == {"import", "load", "first"} and sum(start["split"].values()) < start["median"]
    before, after = start["modules"]
    assert 0 < before < after


def test_random_weights_are_a_mismatch(small: SimpleNamespace) -> None:
    row = small.rows["random-weights"]
    assert row["state"] == "mismatch" and not row["agreement"][0]["ok"] and "differs by" in row["note"]
    assert small.done.returncode == 1
    page = (small.folder / "report.html").read_text()
    assert re.search(r'<tr class="bad"><th scope="row">random-weights.*?MISMATCH', page, re.S)


def test_a_form_that_only_works_where_it_was_built_is_marked(small: SimpleNamespace) -> None:
    row = small.rows["tied"]
    assert row["state"] == "ok" and not row["moved"]["ok"]
    assert "works only where it was built" in row["moved"]["reason"]
    assert row["moved"]["paths"] == [str(small.folder / "tied")]
    assert "not to copy elsewhere" in [rule["need"] for rule in small.report["choose"]]


def test_failures_are_rows(small: SimpleNamespace) -> None:
    assert small.rows["broken"]["state"] == "failed"
    assert small.rows["broken"]["note"] == "mlp.c:3:1: error: expected declaration"
    assert small.rows["no-tool"]["state"] == "missing" and "is not installed" in small.rows["no-tool"]["note"]
    assert small.rows["crashes"]["state"] == "failed" and "signal 11" in small.rows["crashes"]["note"]
    assert small.rows["export"]["state"] == "left out" and "ONNX" in small.rows["export"]["note"]


class Checker(HTMLParser):
    """Tags closed in their order, and nothing that is fetched."""

    VOID = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {"src", "href"} & {name for name, _ in attrs}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """`<line/>`: opened and closed."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_self_contained(small: SimpleNamespace) -> None:
    page = (small.folder / "report.html").read_text()
    checker = Checker()
    checker.feed(page)
    assert checker.open == [] and "url(" not in page and "prefers-color-scheme: dark" in page
    for row in small.rows.values():
        assert row["title"] in page
    assert "Load average" in page and "castiron forms" in page
    assert json.loads((small.folder / "report.json").read_text()) == small.report


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    done = castiron("forms", str(MLP), "--forms", "castiron", "--out", "mine", cwd=tmp_path)
    assert done.returncode == 2 and "castiron did not make" in done.stderr
    assert [f.name for f in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_unknown_forms_are_named(tmp_path: Path) -> None:
    done = castiron("forms", str(MLP), "--forms", "castiorn", cwd=tmp_path)
    assert done.returncode == 2 and "no form 'castiorn'" in done.stderr and "castiron-file" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[form]]\nname = 'a'\n", "run is missing"),
        ("[[form]]\nrun = ['a']\n", "name is missing"),
        ("[[form]]\nname = 'a'\nrun = 'a'\n", "run is a list of strings"),
        ("[[form]]\nname = 'a b/c'\nrun = ['a']\n", "letters, digits"),
        ("[[form]]\nname = 'a'\nrun = ['a']\ncolour = 1\n", "'colour' is unknown"),
        ("[[form]\n", "no TOML file"),
        ("form = 3\n", "no [[form]] tables"),
    ],
)
def test_wrong_toml_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text(text)
    with pytest.raises(InputError, match=re.escape(said)):
        read_forms(tmp_path / "f.toml")


def test_forms_are_chosen_by_name(users: Path) -> None:
    assert chosen([]) == list(OWN)
    assert [f.name for f in chosen(["onnx", "castiron"])] == ["onnx", "castiron"]
    assert [f.name for f in chosen([str(users), "castiron"])][:2] == ["castiron", "plain-c"]
    assert len(chosen([str(users)])) == len(OWN) + 6
    with pytest.raises(InputError, match="two forms named 'plain-c'"):
        chosen([str(users), str(users)])


# Parts


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


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None or which("g++") is None, reason="needs torch and g++")
def test_every_form_of_a_module(tmp_path: Path) -> None:
    done = castiron("forms", f"{ROOT / 'examples' / 'mlp.py'}:mlp", "--runs", "1", "--json", "--out", "o", cwd=tmp_path)
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    assert list(rows) == [form.name for form in OWN]
    assert {row["state"] for row in rows.values()} <= {"ok", "missing"}, [r["note"] for r in rows.values()]
    assert rows["aotinductor"]["ships"]["undefined"].get("aoti_torch_*", 0) > 0
    assert "torch" in rows["source"]["ships"]["runtime"] and "deprecated" in rows["torchscript"]["remark"]
    assert any(name.startswith("libtorch_cpu") for name in rows["torchscript-cpp"]["ships"]["runtime"])
    assert all(row["moved"]["ok"] for row in rows.values() if row["state"] == "ok")
