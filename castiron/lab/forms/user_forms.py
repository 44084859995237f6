"""Forms of the user's own, from a TOML file: programs made with other frameworks, in other languages.

    [[form]]
    name = "plain-c"
    title = "plain C"                                    # default: the name
    runs = "itself"                                      # what runs it
    build = ["cc", "-O2", "{source}/mlp.c", "-o", "{here}/mlp"]
    run = ["{here}/mlp", "{files}"]
    repeat = ["{here}/mlp", "--repeat", "{calls}", "{files}"]       # optional: the steady state
    model = []                                           # files in {here} that ship; patterns are allowed
    program = ["mlp"]

`{source}` is the folder of the TOML file, `{model}` the model's file, `{here}` the empty folder to build in. A run
writes `{outputs}` (.npz, .npy, JSON), or prints JSON where its command does not name it. `repeat` prints a line of JSON
with seconds a call, `{"calls": [...]}`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from castiron.errors import InputError
from castiron.lab.forms.python_forms import tool
from castiron.lab.forms.types import Failed, Form, Missing, Produced, Setting

_TEXTS, _LISTS = ("name", "title", "runs"), ("build", "run", "repeat", "model", "program")


def read_forms(file: Path) -> list[Form]:
    """The forms of a file. Raises InputError with what is wrong in which of them."""
    try:
        entries = tomllib.loads(file.read_text()).get("form")
    except (OSError, ValueError) as error:
        raise InputError(f"{file} is no TOML file that can be read: {error}") from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"{file} holds no [[form]] tables; `castiron forms --help` shows one")
    return [_form(file, number, entry) for number, entry in enumerate(entries, 1)]


def _form(file: Path, number: int, entry: Mapping[str, Any]) -> Form:
    where = f"{file}: form {entry.get('name', number)!r}"
    for key, value in entry.items():
        if key not in (*_TEXTS, *_LISTS):
            raise InputError(f"{where}: {key!r} is unknown; known are {', '.join((*_TEXTS, *_LISTS))}")
        is_list = isinstance(value, list) and all(isinstance(word, str) for word in value)
        if not (is_list if key in _LISTS else isinstance(value, str)):
            raise InputError(f"{where}: {key} is {'a list of strings' if key in _LISTS else 'a string'}")
    for key in ("name", "run"):
        if not entry.get(key):
            raise InputError(f"{where}: {key} is missing")
    name = entry["name"]
    if not name.replace("-", "").replace("_", "").isalnum():
        raise InputError(f"{where}: a name consists of letters, digits, - and _")

    def produce(setting: Setting, here: Path) -> Produced:
        return _produced(setting, here, file.resolve().parent, entry)

    return Form(name, entry.get("title", name), entry.get("runs", "itself"), produce)


def _produced(setting: Setting, here: Path, source: Path, entry: Mapping[str, Any]) -> Produced:
    places = {"{here}": str(here), "{source}": str(source), "{model}": str(setting.source.origin or "")}
    build = filled(entry.get("build", ()), places)
    if build:
        try:
            tool(build)
        except FileNotFoundError:
            raise Missing(f"{build[0]} is not installed") from None
    return Produced(
        here,
        tuple(word.replace("{source}", str(source)) for word in entry["run"]),
        _matching(here, entry.get("model", ())),
        _matching(here, entry.get("program", ())),
        tuple(word.replace("{source}", str(source)) for word in entry.get("repeat", ())),
    )


def _matching(here: Path, patterns: Sequence[str]) -> tuple[str, ...]:
    found = []
    for pattern in patterns:
        names = sorted(str(path.relative_to(here)) for path in here.glob(pattern))
        if not names:
            raise Failed(f"the build command made no {pattern}")
        found += names
    return tuple(found)


def filled(words: Sequence[str], places: Mapping[str, str]) -> list[str]:
    """The words with what stands in braces replaced."""
    out = []
    for word in words:
        for mark, value in places.items():
            word = word.replace(mark, value)
        out.append(word)
    return out
