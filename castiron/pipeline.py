"""The straight line from a model to a file. The order of stages and passes is stated here and nowhere else."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from castiron.artifact.make import make, needs_program, pack, refuse_misfits, weights_file
from castiron.artifact.staging import Staging, output_path, staging
from castiron.assemble import Compiled, assemble, digest, selftest
from castiron.dump import Dump
from castiron.errors import InputError, MismatchError
from castiron.frontend import source as frontend
from castiron.frontend.source import Source
from castiron.graph.batchnorm import fold_batchnorm
from castiron.graph.bound import bound_slices
from castiron.graph.expand import expand
from castiron.graph.fold import fold
from castiron.graph.inline import inline
from castiron.graph.lower import lower
from castiron.graph.names import clean_names
from castiron.graph.pin import pin
from castiron.graph.sequences import dissolve_sequences
from castiron.graph.sizes import infer_sizes
from castiron.graph.unify import unify
from castiron.graph.unroll import unroll
from castiron.graph.upgrade import upgrade
from castiron.lab.compare import compare_sets
from castiron.lab.judge import judge
from castiron.lab.native import alone, run_artifact, runnable
from castiron.lab.reference import Vectors, has_exact, reference_inputs, vectors
from castiron.lab.verify import Verdict
from castiron.options import BuildOptions, Form, Weights, identifier
from castiron.program.bounds import bounds
from castiron.program.check import check
from castiron.program.cost import flops_on
from castiron.program.dead import dead
from castiron.program.embed import embed
from castiron.program.fuse import fuse
from castiron.program.gathered import gathered
from castiron.program.group import group
from castiron.program.layout import layout
from castiron.program.notes import NOBODY, Notes
from castiron.program.pads import pads
from castiron.program.plan import plan, storage
from castiron.program.planned import Planned, Storage
from castiron.program.split import split
from castiron.program.types import Program
from castiron.program.views import resolve
from castiron.program.widened import widened
from castiron.program.winograd import PLAIN, Limits, form_of, limits, weaker, winograd
from castiron.toolchain import targets
from castiron.toolchain.zig import Progress

if TYPE_CHECKING:
    from castiron.lab.forms.artifact import Alone


@dataclass(frozen=True)
class Report:
    """What a build made. `reference`: what it was compared with; `unverified`: why it was not compared. Sizes in bytes;
    `arena_bytes` None: the memory of activations depends on sizes known at run time."""

    path: Path
    form: Form
    target: str
    isas: tuple[str, ...]
    hash: str
    bytes: int
    weights: Weights
    packed_bytes: int
    arena_bytes: int | None
    seconds: float
    reference: str
    verdicts: tuple[Verdict, ...]
    unverified: str = ""


@dataclass(frozen=True)
class Checked:
    """The verdicts on an artifact, or why there are none."""

    verdicts: tuple[Verdict, ...]
    unverified: str = ""


@dataclass(frozen=True)
class Examined:
    """The verdicts on an artifact; what a copy of it did alone, elsewhere; and the outputs that were others there."""

    verdicts: tuple[Verdict, ...]
    alone: Alone
    changed: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.changed and all(v.ok for v in self.verdicts)


def build(
    model: Any,
    output: str | Path | None = None,
    *,
    example_inputs: Sequence[Any] | None = None,
    dynamic_shapes: Any = None,
    progress: Progress = lambda text: None,
    **options: Any,
) -> Report:
    """Builds `model` into one native file and checks that it computes the same.

    model: an `nn.Module` (with `example_inputs`, and `dynamic_shapes` as `torch.export.export` takes them), an
    `onnx_ir.Model`, or what the command line takes: a path or `file.py:function`. output: the file to write. options:
    the fields of `BuildOptions`. progress: called with a line of text at each stage.
    Raises a CastironError; then no file has been written.
    """
    started = time.monotonic()
    chosen = BuildOptions.of(options)
    isas = targets.chosen(targets.find(chosen.target), chosen.cpu)
    progress("loading the model")
    source = frontend.load(model, example_inputs, dynamic_shapes)
    dump = Dump(chosen.dump)
    target = output_path(output, identifier(chosen.name or source.name), chosen.form)
    with staging(target, chosen.form) as place, ThreadPoolExecutor(1) as aside:
        lowered = lower_source(source, chosen, dump, progress)
        inputs = reference_inputs(source, chosen.shapes, lowered.graph)
        flops = flops_on(lowered.program, inputs)
        running = aside.submit(vectors, source, inputs, flops, chosen.verify)  # while the C is compiled
        allowed = _allowed(source, chosen, flops)
        while True:
            compiled = compile_lowered(lowered, chosen, dump, progress, allowed=allowed)
            parts = assemble(compiled, chosen, weights_file(target))
            refuse_misfits(parts, chosen, target)
            dump.code(parts.code(isas, chosen.weights == Weights.EMBED, 0).files)
            packed = pack(parts, chosen, place.work, progress)
            progress(f"running the source ({source.framework})")
            references = running.result()
            make(parts, packed, selftest(compiled, references, chosen.error_budget), chosen, place, progress)
            checked = check_built(place, chosen, source, references, progress)
            exacter = _exacter(compiled.forward.program, allowed, references, checked, progress)
            if exacter is None:
                break
            allowed = exacter
        refuse_mismatches(checked)
    return _report(target, compiled, chosen, parts.packed_bytes, references, checked, started)


def _allowed(source: Source, options: BuildOptions, flops: int) -> Limits:
    """The forms of convolution to try: less exact ones only where their error will be measured."""
    measured = options.verify and targets.find(options.target).emulator is not None and has_exact(source, flops)
    return limits(options.error_budget) if measured else PLAIN


def _exacter(forward: Program, tried: Limits, references: Vectors, checked: Checked, say: Progress) -> Limits | None:
    """What to try next where the artifact is not exact enough, or nobody can tell; None where it is, or nothing is left."""
    forms = Counter(m for m in map(form_of, forward.steps) if m > 1)
    if not forms or (references.exact is not None and all(v.ok for v in checked.verdicts)):
        return None
    if references.exact is None:
        say(f"no float64 reference of {references.framework}: convolutions stay in the plain form")
        return PLAIN
    wrong = next(v for v in checked.verdicts if not v.ok)
    listed = ", ".join(f"{count} in F({m}x{m})" for m, count in sorted(forms.items()))
    say(f"output {wrong.name!r}: {wrong.reason}; of the convolutions ({listed}) half become more exact")
    return weaker(forward, tried)


@dataclass(frozen=True)
class Lowered:
    """A model as the graph that was lowered and the program that came of it."""

    name: str
    graph: ir.Model
    program: Program


def compile_source(source: Source, options: BuildOptions, dump: Dump, say: Progress, notes: Notes = NOBODY) -> Compiled:
    """Everything before C. `notes` are told of choices."""
    lowered = lower_source(source, options, dump, say, notes)
    return compile_lowered(lowered, options, dump, say, notes, limits(options.error_budget))


def lower_source(source: Source, options: BuildOptions, dump: Dump, say: Progress, notes: Notes = NOBODY) -> Lowered:
    """From the model to steps."""
    say("reading the graph")
    model = compile_graph(source, options.shapes, dump, notes)
    name = identifier(options.name or source.name)
    return Lowered(name, model, lower(model, source.parameters, notes.nodes))


def compile_lowered(
    lowered: Lowered, options: BuildOptions, dump: Dump, say: Progress, notes: Notes = NOBODY, allowed: Limits = PLAIN
) -> Compiled:
    """From steps to programs with memory placed."""
    say("fusing")
    prepare, forward, places = compile_programs(lowered.program, dump, notes, allowed)
    return Compiled(lowered.name, lowered.graph, prepare, forward, places, digest(prepare, forward, places))


def compile_graph(source: Source, shapes: Mapping[str, tuple[int, ...]], dump: Dump, notes: Notes = NOBODY) -> ir.Model:
    """The graph that is lowered: newest operators, sizes inferred, what is known folded."""
    model = dump.graph("00-import", clean_names(source.model))
    model = dump.graph("10-upgrade", inline(upgrade(model)))
    model = dump.graph("20-sizes", infer_sizes(pin(model, shapes)))
    model = dump.graph("30-fold", infer_sizes(dissolve_sequences(infer_sizes(fold(model, source.parameters)))))
    model = dump.graph("40-expand", infer_sizes(expand(bound_slices(unify(model)))))
    model = dump.graph("45-unroll", infer_sizes(expand(infer_sizes(unroll(model)))))
    return dump.graph("50-batchnorm", infer_sizes(fold_batchnorm(fold(model, source.parameters), notes.nodes)))


def compile_programs(
    program: Program, dump: Dump, notes: Notes = NOBODY, allowed: Limits = PLAIN
) -> tuple[Planned, Planned, Storage]:
    """(prepare, forward) with memory placed, and where packed weights and constants lie."""
    prepare, forward = split(resolve(dump.program("60-lowered", bounds(program))))
    forward = pads(fuse(layout(dead(forward)), notes.buffers), notes.buffers)
    prepare, forward = winograd(prepare, forward, allowed, notes.nodes)
    prepare, forward = embed(*widened(*gathered(fuse(dead(prepare)), forward)))
    prepare = dump.program("70-prepare", group(prepare))
    forward = dump.program("71-forward", group(forward))
    check(prepare)
    check(forward)
    places = storage(prepare, forward)
    return plan(prepare, places), plan(forward, places), places


def check_built(place: Staging, options: BuildOptions, source: Source, references: Vectors, say: Progress) -> Checked:
    """Verdicts on a built artifact."""
    if not options.verify:
        return Checked((), "--no-verify")
    target = targets.find(options.target)
    if references.missing or target.emulator is None:
        return Checked((), references.missing or f"no qemu-{target.arch} on this machine")
    say("comparing with the source")
    path, form = (place.program, Form.EXE) if needs_program(options.form, target) else (place.output, options.form)
    run = partial(run_artifact, path, form, emulator=target.emulator)
    return Checked(tuple(judge(run, source, references, options.error_budget, say)))


def refuse_mismatches(checked: Checked) -> None:
    """MismatchError where a verdict is not OK."""
    wrong = [v for v in checked.verdicts if not v.ok]
    if wrong:
        listed = "; ".join(f"output {v.name!r}: {v.reason}" for v in wrong)
        raise MismatchError(f"the artifact does not match its source and was removed (--no-verify keeps it): {listed}")


def check_artifact(
    artifact: Path, model: Any, shapes: Mapping[str, tuple[int, ...]], budget: float, say: Progress
) -> Examined:
    """An executable or shared library against `model`, and what becomes of it alone in an empty folder elsewhere."""
    from castiron.lab.forms.artifact import tried_alone  # builds do not wait for it

    form, emulator = runnable(artifact)
    say("running the source")
    source = frontend.load(model)
    inputs = reference_inputs(source, shapes, compile_graph(source, shapes, Dump(None)))
    references = vectors(source, inputs, 0)
    if references.missing:
        raise InputError(f"{model}: {references.missing}, so there is nothing to compare {artifact} with")
    say("running the artifact")
    with alone(artifact) as copy:

        def run(inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
            try:
                return run_artifact(copy, form, inputs, emulator)
            except InputError as error:
                raise InputError(f"{artifact} does not take the inputs of {model}: {error}") from None

        verdicts, answer = judge(run, source, references, budget, say), run(references.inputs)
    say("trying it alone, elsewhere")
    tried = tried_alone(artifact, form, emulator, references.inputs)
    differences = compare_sets(tried.outputs, answer, 0.0, 0.0)
    return Examined(tuple(verdicts), tried, tuple(d.name for d in differences if not d.ok))


def _report(
    path: Path,
    compiled: Compiled,
    options: BuildOptions,
    packed: int,
    references: Vectors,
    checked: Checked,
    started: float,
) -> Report:
    target = targets.find(options.target)
    files = [f for f in path.rglob("*") if f.is_file()] if path.is_dir() else [path]
    return Report(
        path=path,
        form=options.form,
        target=target.name,
        isas=tuple(isa.name for isa in targets.chosen(target, options.cpu)),
        hash=compiled.hash,
        bytes=sum(f.stat().st_size for f in files),
        weights=options.weights,
        packed_bytes=packed,
        arena_bytes=compiled.forward.arena,
        seconds=time.monotonic() - started,
        reference=references.framework,
        verdicts=checked.verdicts,
        unverified=checked.unverified,
    )
