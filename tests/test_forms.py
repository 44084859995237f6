"""The delivery lab: a few forms whole, and each of its parts on its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from types import SimpleNamespace

import numpy as np
import pytest

from castiron.errors import CastironError, InputError
from castiron.lab.forms.artifact import tried_alone
from castiron.lab.forms.lab import OWN, chosen
from castiron.lab.forms.user_forms import read_forms
from castiron.options import Form as BuildForm

ROOT = Path(__file__).parent.parent
HERE = ROOT / "examples" / "forms"
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
    names = f"castiron,castiron-file,castiron-safetensors,castiron-burnpack,castiron-library,onnx,export,{users}"
    done = castiron("forms", str(MLP), "--forms", names, "--runs", "2", "--json", "--out", "out", cwd=folder)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    return SimpleNamespace(
        done=done, folder=folder / "out", report=report, rows={row["name"]: row for row in report["rows"]}
    )


def test_good_forms_agree_and_are_measured(small: SimpleNamespace) -> None:
    names = ["castiron", "castiron-file", "castiron-safetensors", "castiron-burnpack", "castiron-library", "plain-c"]
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


def test_one_artifact_is_tried_alone(small: SimpleNamespace) -> None:
    x = {"x": np.linspace(-1, 1, 8, dtype="f").reshape(2, 4)}
    one = tried_alone(small.folder / "castiron" / "model", BuildForm.EXE, "", x)
    assert one.paths == () and one.libraries == () and one.undefined == {}
    beside = tried_alone(small.folder / "castiron-file" / "model", BuildForm.EXE, "", x)
    library = tried_alone(small.folder / "castiron-library" / "libmodel.so", BuildForm.SHARED, "", x)
    assert "libc.so.6" in library.libraries and library.undefined == {}
    for other in (beside, library):
        assert list(other.outputs) == list(one.outputs) == ["y"]
        assert np.array_equal(other.outputs["y"], one.outputs["y"])
    raw = small.folder / "castiron-safetensors" / "model"  # its weights have another name, so it has none
    with pytest.raises(CastironError, match=r"copied alone to an empty folder, does not run: .*status 3"):
        tried_alone(raw, BuildForm.EXE, "", x)


def test_verify_tries_the_artifact_alone(small: SimpleNamespace) -> None:
    done = castiron("verify", "castiron/model", "--against", str(MLP), "--json", cwd=small.folder)
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["ok"]
    assert found["alone"] == {"changed": [], "paths": [], "libraries": [], "undefined": {}}
    done = castiron("verify", "castiron-library/libmodel.so", "--against", str(MLP), cwd=small.folder)
    assert done.returncode == 0 and "alone in an empty folder, without environment: works; loads libc" in done.stdout


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


CODE = """
import torch
from parts.layer import Layer

def make():
    torch.manual_seed(1)
    return torch.nn.Sequential(Layer(), torch.nn.Linear(8, 3)), (torch.ones(2, 4),)
"""

LAYER = """
import torch

class Layer(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 8)
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_source_ships_all_of_its_own_code(tmp_path: Path) -> None:
    (tmp_path / "net" / "parts").mkdir(parents=True)
    (tmp_path / "net" / "model.py").write_text(CODE)
    (tmp_path / "net" / "parts" / "layer.py").write_text(LAYER)
    done = castiron("forms", "net/model.py:make", "--forms", "source", "--runs", "1", "--json", cwd=tmp_path)
    (found,) = json.loads(done.stdout)["rows"]
    assert found["state"] == "ok" and found["moved"]["ok"], found
    shipped = {
        str(p.relative_to(tmp_path / "make-forms" / "source")) for p in tmp_path.rglob("make-forms/source/**/*.py")
    }
    assert shipped == {"model.py", "parts/layer.py", "runner.py"}


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
