"""The commands, a function each: options as users of the field expect them, the work done elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from castiron import __version__
from castiron.options import Adapter, Form, Weights


def _examples(*lines: str, more: str = "") -> dict[str, Any]:
    """A command's last paragraphs of help."""
    return {"epilog": "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)]) + more}


_STATUSES = """

Exit status: 0 done; 1 a comparison found a mismatch, or a tool failed; 2 the model, an input or an option is wrong
or not supported; 3 weights; 4 out of memory; 70 a fault of castiron itself. Errors are one message on standard error.
"""


app = typer.Typer(
    name="castiron",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
    help="Compiles PyTorch and ONNX models into one native file, and proves that it computes the same.",
    **_examples("castiron build model.onnx -o model && ./model x.npy", "castiron COMMAND --help", more=_STATUSES),
    context_settings={"max_content_width": 110},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"castiron {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which castiron this is.")
    ] = False,
) -> None:
    pass


MODEL = (
    "model.onnx, model.pt2 (torch.export.save), or file.py:function / package.module:function "
    "returning (module, example inputs[, dynamic shapes])"
)

Model = Annotated[str, typer.Argument(metavar="MODEL", help=MODEL, show_default=False)]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="NAME=SIZES", help="Pin an input's sizes: x=1,3,224,224; -1 leaves one as it is."),
]
Budget = Annotated[
    float,
    typer.Option(
        "--error-budget", metavar="R", min=1.0, help="Largest error against float64, in units of the source's own."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def _out(help: str) -> Any:
    return typer.Option("-o", "--output", metavar="OUT", help=help)


@app.command(
    **_examples(
        "castiron build model.onnx -o model",
        "castiron build net.py:make -o libnet.so --as shared",
        "castiron build model.onnx --shape x=1,3,224,224 --weights file --target aarch64-linux",
    )
)
def build(
    model: Model,
    output: Annotated[Path | None, _out("File (folder for source) to write; default: by MODEL's name.")] = None,
    form: Annotated[Form, typer.Option("--as", help="What to make.")] = Form.EXE,
    weights: Annotated[
        Weights, typer.Option("--weights", help="Inside the file OUT, or OUT.weights beside it.")
    ] = Weights.EMBED,
    shape: Shapes = None,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="TRIPLE", help="x86_64-linux or aarch64-linux; default: this machine."),
    ] = None,
    cpu: Annotated[
        str | None,
        typer.Option("--cpu", metavar="LEVELS", help="Instruction sets to include: x86-64-v4,x86-64-v3; default: all."),
    ] = None,
    error_budget: Budget = 2.0,
    name: Annotated[
        str | None, typer.Option("--name", metavar="ID", help="Prefix of the C symbols; default: from MODEL.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Run the artifact against its source; refuse a mismatch.")
    ] = True,
    dump: Annotated[
        Path | None, typer.Option("--dump", metavar="DIR", help="Write every stage there: .onnx, .txt, .c.")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Compile MODEL into a native file, run it and check it against its source.

    It prints max|diff| from the source framework, the same in ulp (units of the last place of the output's largest
    value), and where a float64 reference is at hand the error against that beside the source framework's own. A file
    that differs by more than is allowed is not kept; the exit status is 1.
    """
    from castiron.cli.build import build_command

    build_command(
        model,
        output,
        quiet=quiet,
        json=json,
        form=form,
        weights=weights,
        shapes=shape or [],
        target=target,
        cpu=tuple(cpu.split(",")) if cpu is not None else None,
        error_budget=error_budget,
        name=name,
        verify=verify,
        dump=dump,
    )


@app.command(
    **_examples("castiron run model.onnx x.npy -o y.npz", "castiron run net.py:make ids=ids.npy mask=mask.npy")
)
def run(
    model: Model,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[INPUT]...",
            help="Files (.npy, .npz, JSON), in the model's order or NAME=FILE; default: example inputs.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path | None, _out("Write .npz (.npy for one output) in place of printing JSON.")] = None,
    shape: Shapes = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="By onnx.reference, the interpreter that defines ONNX, instead.")
    ] = False,
) -> None:
    """Run MODEL once in its own framework (onnxruntime, PyTorch): what an artifact is compared with."""
    from castiron.cli.run import run_command

    run_command(model, inputs or [], output, shape or [], reference)


@app.command(
    **_examples(
        "./model x.npy > y.json && castiron compare y.json expected.npz",
        "./model x.npy | castiron compare - y.npy",
        "castiron compare graph.onnx net.py:make",
    )
)
def compare(
    a: Annotated[
        Path,
        typer.Argument(metavar="A", help=".npy, .npz or JSON (- for standard input), or a MODEL", show_default=False),
    ],
    b: Annotated[Path, typer.Argument(metavar="B", help="the reference, likewise", show_default=False)],
    atol: Annotated[float, typer.Option("--atol", min=0.0, help="Absolute tolerance.")] = 1e-6,
    rtol: Annotated[float, typer.Option("--rtol", min=0.0, help="Relative tolerance.")] = 1e-5,
    json: Json = False,
) -> None:
    """Compare two sets of arrays, or two graphs; exit status 0 if they agree, 1 if not, 2 for files that cannot be read.

    Arrays agree where |A - B| <= atol + rtol * |B| for every element; NaN equals NaN, an infinity its like, integers
    and strings must be equal. JSON numbers take the type that the other file has. A line an output says n, max|diff|,
    the same in ulp (units of the last place of B's largest value), and where the largest difference is.

    Two graphs (models of any kind) agree where the same operators work on the same values, whatever these are called and
    in which order they stand, and the parameters of each name agree like arrays; else the lines of their listings that
    differ are shown, - for what only A has, + for what only B has.
    """
    from castiron.cli.capture import compare_graphs_command, is_graph

    if is_graph(a) and is_graph(b):
        compare_graphs_command(str(a), str(b), atol, rtol, json)
    from castiron.cli.compare import compare_command

    compare_command(a, b, atol, rtol, json)


@app.command(
    **_examples("castiron verify ./model --against model.onnx", "castiron verify libnet.so --against net.py:make")
)
def verify(
    artifact: Annotated[
        Path, typer.Argument(metavar="ARTIFACT", help="An executable or shared library.", show_default=False)
    ],
    against: Annotated[str, typer.Option("--against", metavar="MODEL", help=MODEL)],
    shape: Shapes = None,
    error_budget: Budget = 2.0,
    json: Json = False,
) -> None:
    """Run ARTIFACT against its source, and a copy of it alone; exit status 0 if all agree, 1 if not.

    The copy lies in an empty folder and runs from another one, with an empty environment. What it loads is listed, and
    its bytes are searched for absolute paths of this machine.
    """
    from castiron.cli.build import verify_command

    verify_command(artifact, against, shape or [], error_budget, json)


@app.command(
    **_examples(
        "castiron forms net.py:make --out net-forms",
        "castiron forms model.onnx --forms castiron,onnx --runs 50",
        "castiron forms model.onnx --forms mine.toml",
    )
)
def forms(
    model: Model,
    names: Annotated[
        str | None,
        typer.Option("--forms", metavar="NAMES", help="Which, by commas; FILE.toml adds your own. Default: all."),
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Timed runs of each form.")] = 20,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads that each form may use.")] = 1,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder to write; default: NAME-forms.")
    ] = None,
    shape: Shapes = None,
    json: Json = False,
) -> None:
    """Ship MODEL in every way there is, check that all agree, and measure what each really costs.

    Forms: source (safetensors and the module's code), torchscript, torchscript-trace, torchscript-cpp, export (.pt2),
    aotinductor, aotinductor-cpp, onnx, castiron, castiron-file, castiron-safetensors, castiron-burnpack,
    castiron-library. Each runs in processes of its own, from start to exit, interleaved with the others; each is copied
    alone to an empty folder and must work there. DIR gets report.html, report.md, report.json, and a folder a form.

    FILE.toml holds [[form]] tables: name, run (a command; {here} is the form's folder, {files} a .npy an input, {inputs}
    the same as .npz, {outputs} the file to write, else it prints JSON), and if need be build (a command; {source} is the
    folder of FILE.toml, {model} the model), model and program (what ships), repeat (many calls in one process).
    """
    from castiron.cli.forms import forms_command

    forms_command(model, names.split(",") if names else [], out, runs, threads, shape or [], json)


@app.command(
    **_examples("castiron capture net.py:make -o net.onnx", "castiron show net.onnx && castiron build net.onnx")
)
def capture(
    module: Annotated[
        str,
        typer.Argument(metavar="MODULE", help="file.py:function, package.module:function or .pt2", show_default=False),
    ],
    output: Annotated[Path | None, _out("The .onnx file to write; default: by MODULE's name.")] = None,
) -> None:
    """Record the forward pass of a PyTorch module on its example inputs as a graph file, with parameters by name.

    The file is ONNX, as torch.export sees the module, and says of each node from which layer and line it comes. show
    prints it, compare compares two, run --reference interprets it, build compiles it.
    """
    from castiron.cli.capture import capture_command

    capture_command(module, output)


@app.command(**_examples("castiron show model.onnx", "castiron show net.py:make --aten"))
def show(
    model: Model,
    aten: Annotated[bool, typer.Option("--aten", help="torch.export's graph of a module, in ATen operators.")] = False,
) -> None:
    """Print a graph: its ports, its parameters, a line a node with types and sizes."""
    from castiron.cli.capture import show_command

    show_command(model, aten)


@app.command(**_examples("castiron inspect model.onnx", "castiron inspect ./model --json"))
def inspect(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A model, a weights file, or an artifact.", show_default=False)
    ],
    json: Json = False,
) -> None:
    """Describe a model, a weights file (.safetensors, .bpk, .weights) or an artifact (executable, .so, .a)."""
    from castiron.cli.inspect import inspect_command

    inspect_command(file, json)


@app.command(
    **_examples(
        "castiron convert model.safetensors model.bpk",
        "castiron convert model.bpk model.safetensors --adapter burn-to-pytorch",
        "castiron convert model.safetensors model.bpk --adapter pytorch-to-burn --model net.py:make",
    )
)
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help=".safetensors or .bpk (burn's)", show_default=False)],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="the file to write, likewise", show_default=False)],
    adapter: Annotated[
        Adapter | None,
        typer.Option("--adapter", help="Turn layers too: Linear weights transposed, norms' weight and bias renamed."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODEL", help="file.py:function whose PyTorch module says what layers are."),
    ] = None,
    linear: Annotated[
        str | None,
        typer.Option("--linear", metavar="NAMES", help="Or the names of its Linear layers, by commas: head,blocks.*"),
    ] = None,
    json: Json = False,
) -> None:
    """Write the weights of one file as another: .safetensors and burn's .bpk, both ways.

    Without an adapter, names and bytes stay as they are. No file says of what class a layer is: an adapter takes a 2-D
    weight for a Linear's where its bias fits, and a 1-D weight with a bias for a norm's; where that does not tell, it
    stops, names the tensor, and asks for --model or --linear.
    """
    from castiron.cli.convert import convert_command

    convert_command(source, target, adapter, model, linear.split(",") if linear is not None else None, json)


@app.command(**_examples("castiron explain model.onnx", "castiron explain net.py:make --dump stages"))
def explain(
    model: Model,
    shape: Shapes = None,
    dump: Annotated[
        Path | None, typer.Option("--dump", metavar="DIR", help="Write every stage there: .onnx, .txt.")
    ] = None,
    json: Json = False,
) -> None:
    """Show what became of MODEL: what was folded, fused and chosen, what was not and why, a row a step.

    Each step comes with its sizes, floating-point operations and bytes of memory touched; then the memory plan. Nothing
    is compiled to machine code. Long names are shortened in their middle; --json has them whole.
    """
    from castiron.cli.explain import explain_command

    explain_command(model, shape or [], dump, json)
