"""All forms of one model, from producing them to what is known of each."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from castiron.errors import CastironError, InputError
from castiron.frontend import source as frontend
from castiron.lab.forms import castiron_forms, cpp_forms, python_forms
from castiron.lab.forms.agree import agreement
from castiron.lab.forms.machine import machine, versions
from castiron.lab.forms.measure import Tally, memory, resident, rounds, start, steady
from castiron.lab.forms.process import Desk, Inputs, answer, told
from castiron.lab.forms.ship import moved, places_of_this_machine, ships
from castiron.lab.forms.types import Failed, Form, LeftOut, Missing, Produced, Progress, Row, Setting
from castiron.lab.forms.user_forms import read_forms
from castiron.lab.reference import reference_inputs, vectors
from castiron.lab.spawn import Spawner

OWN = (*python_forms.FORMS, *cpp_forms.FORMS, *python_forms.ONNX, *castiron_forms.FORMS)
"""In the order of a report."""


@dataclass(frozen=True)
class Report:
    """Everything a run of the lab found out. load: the machine's load averages (1 minute) before and after; runs,
    threads: as asked; inputs: shapes by name; seconds: how long it took."""

    model: str
    framework: str
    inputs: Mapping[str, str]
    rows: tuple[Row, ...]
    runs: int
    threads: int
    load: tuple[float, float]
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    seconds: float
    command: str


def known_forms(files: Sequence[Path]) -> dict[str, Form]:
    """castiron's forms and those of the user's TOML files, by name; a name that stands twice is an InputError."""
    known: dict[str, Form] = {}
    for form in (*OWN, *(form for file in files for form in read_forms(file))):
        if form.name in known:
            raise InputError(f"there are two forms named {form.name!r}")
        known[form.name] = form
    return known


def chosen(names: Sequence[str]) -> list[Form]:
    """The forms named, in the report's order; an item that ends in .toml is a file of forms. None named: all of them."""
    files = [Path(name) for name in names if name.endswith(".toml")]
    known = known_forms(files)
    wanted = [name for name in names if not name.endswith(".toml")]
    for name in wanted:
        if name not in known:
            raise InputError(f"there is no form {name!r}; there are {', '.join(known)}")
    users = {form.name for form in known.values()} - {form.name for form in OWN}
    return [form for form in known.values() if not wanted or form.name in {*wanted, *users}]


def run_forms(
    model: str,
    forms: Sequence[Form],
    folder: Path,
    build: Callable[..., Any],
    *,
    runs: int = 20,
    threads: int = 1,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    command: str = "",
    say: Progress = lambda text: None,
) -> Report:
    """Produces, checks and measures every form; each stands in a folder of its own name in `folder` afterwards.

    A form that fails is a row that says how; what raises is a model that cannot be loaded or run at all."""
    began, load = time.monotonic(), os.getloadavg()[0]
    say("loading the model")
    source = frontend.load(model)
    inputs = reference_inputs(source, shapes or {})
    say(f"running the source ({source.framework})")
    references = vectors(source, inputs, 0)
    if references.missing:
        raise InputError(f"{model}: {references.missing}, so there is nothing to compare forms with")
    setting = Setting(model, source, references, folder.resolve(), build, say)
    with tempfile.TemporaryDirectory(prefix="castiron-forms-") as scratch:
        desk = Desk(Spawner(Path(scratch), say), Inputs.written(Path(scratch) / "inputs", inputs), threads)
        rows = _all_rows(setting, desk, forms, runs)
    sizes = {name: f"{array.dtype}{list(array.shape)}" for name, array in inputs.items()}
    return Report(
        model, source.framework, sizes, tuple(rows[form.name] for form in forms), runs, threads,
        (load, os.getloadavg()[0]), machine(), versions(), time.monotonic() - began, command,
    )  # fmt: skip


def _all_rows(setting: Setting, desk: Desk, forms: Sequence[Form], runs: int) -> dict[str, Row]:
    exports = _emptied(setting.folder / python_forms.EXPORTS)
    try:
        rows, made = _produce_all(setting, forms)
        rows |= _check_all(setting, desk, made, rows)
    finally:
        shutil.rmtree(exports)
    running = {name: made[name] for name in made if rows[name].state in ("ok", "mismatch")}
    return rows | _measure_all(desk, running, rows, runs, setting.say)


def _produce_all(setting: Setting, forms: Iterable[Form]) -> tuple[dict[str, Row], dict[str, Produced]]:
    rows, made = {}, {}
    for form in forms:
        setting.say(f"producing {form.title}")
        row = Row(form.name, form.title, form.runs, "ok")
        try:
            made[form.name] = form.produce(setting, _emptied(setting.folder / form.name))
            row = replace(row, remark=made[form.name].remark)
        except Missing as error:
            row = replace(row, state="missing", note=str(error))
        except LeftOut as error:
            row = replace(row, state="left out", note=str(error))
        except (Failed, CastironError, OSError) as error:
            row = replace(row, state="failed", note=_first_line(error))
        if form.name not in made:
            shutil.rmtree(setting.folder / form.name)
        rows[form.name] = row
    return rows, made


def _emptied(folder: Path) -> Path:
    """A new folder; what an earlier run left there goes."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _check_all(setting: Setting, desk: Desk, made: Mapping[str, Produced], rows: Mapping[str, Row]) -> dict[str, Row]:
    """Agreement, sizes, and whether it works elsewhere."""
    origin = setting.source.origin
    needles = places_of_this_machine(setting.folder, *([origin.resolve().parent] if origin else []))
    checked = {}
    for name, form in made.items():
        setting.say(f"checking {rows[name].title}")
        row = rows[name]
        try:
            found = answer(desk, form, more=("files=1",) if form.python else ())
            modules = told(desk.spawner.output).get("files", {})
            agreed = agreement(found, setting.vectors)
            row = replace(row, agreement=agreed, ships=ships(form, modules))
            wrong = [a for a in agreed if not a.ok]
            if wrong:
                row = replace(row, state="mismatch", note=f"output {wrong[0].name!r} {wrong[0].reason}")
            row = replace(row, moved=moved(desk, form, setting.vectors, needles, setting.folder, not wrong))
        except Failed as error:
            row = replace(row, state="failed", note=_first_line(error))
        checked[name] = row
    return checked


def _measure_all(
    desk: Desk, made: Mapping[str, Produced], rows: Mapping[str, Row], runs: int, say: Progress
) -> dict[str, Row]:
    tallies = rounds(desk, made, runs, say)
    counts = thread_counts()
    resident(desk, list(tallies.values()), counts, say)
    return {name: _measured(desk, tally, rows[name], counts) for name, tally in tallies.items()}


def _measured(desk: Desk, tally: Tally, row: Row, counts: Sequence[int]) -> Row:
    if tally.failure:
        return replace(row, state="failed", note=f"failed in a later run: {tally.failure}")
    try:
        used = memory(desk, tally)
    except Failed:  # a system that forbids tracing
        used = None
    return replace(row, start=start(tally), memory=used, steady=steady(tally, counts))


def thread_counts() -> list[int]:
    """1, 2, 4 … and all processors that this process may use."""
    most = len(os.sched_getaffinity(0))
    return sorted({1, most, *(1 << n for n in range(most.bit_length()) if 1 << n <= most)})
