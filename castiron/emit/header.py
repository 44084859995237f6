"""NAME.h: what a user of the library includes; it needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from castiron.emit.names import identifier
from castiron.emit.types import ModelInfo, Port
from castiron.emit.writer import comment, indented
from castiron.program.expr import text

MAX_RANK = 16


def header_file(name: str, model: ModelInfo) -> str:
    """The text of NAME.h."""
    guard = f"{name.upper()}_H"
    return indented(
        [
            *comment(_title(name, model)),
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            "#include <stddef.h>",
            "#include <stdint.h>",
            "",
            *_visibility(name),
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            *_types(name, model),
            *_functions(name),
            "",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "",
            "#endif",
        ]
    )


def _title(name: str, model: ModelInfo) -> str:
    lines = [f"{name}: a model compiled by castiron {model.version}.", "", "Inputs:"]
    lines += [f"  {_port(p)}" for p in model.inputs] or ["  none"]
    lines += ["Outputs:", *([f"  {_port(p)}" for p in model.outputs] or ["  none"]), "", "Example:", ""]
    return "\n".join([*lines, *_example(name, model)])


def _port(port: Port) -> str:
    shape = ", ".join(text(d) for d in port.buffer.shape)
    return f"{port.name}: {port.buffer.type.name.lower()} [{shape}]"


def _example(name: str, model: ModelInfo) -> list[str]:
    upper = name.upper()
    fills = []
    for port in model.inputs:
        slot = f"inputs[{_constant(upper, 'INPUT', port.name, model.inputs)}]"
        dims = ", ".join(text(d) for d in port.buffer.shape)
        fields = f"{_data(port)}, {int(port.buffer.type)}, {len(port.buffer.shape)}"
        fills.append(f"    {slot} = ({name}_array){{{fields}, {{{dims or '0'}}}}};")
    return [
        f"    {name}_error error;",
        f"    {name}_weights *weights;",
        f"    {name}_session *session;",
        f"    {name}_array inputs[{max(1, len(model.inputs))}] = {{0}}, outputs[{max(1, len(model.outputs))}] = {{0}};",
        f"    if ({name}_load(NULL, &weights, &error)) return puts(error.text);",
        f"    if ({name}_session_new(weights, 0, &session, &error)) return puts(error.text);",
        *fills,
        f"    if ({name}_session_run(session, inputs, outputs, &error)) puts(error.text);",
        "    (outputs[0].data, outputs[0].dims now hold the result until the next run)",
        f"    {name}_session_free(session);",
        f"    {name}_weights_free(weights);",
    ]


def _data(port: Port) -> str:
    return identifier(port.name).lower() + "_data"


def _constant(upper: str, kind: str, name: str, ports: Sequence[Port]) -> str:
    """An enumerator; ports whose names look alike in C get their numbers."""
    plain = identifier(name).upper()
    alike = [p.name for p in ports if identifier(p.name).upper() == plain]
    return f"{upper}_{kind}_{plain}" + (f"_{alike.index(name)}" if len(alike) > 1 else "")


def _visibility(name: str) -> list[str]:
    macro = f"{name.upper()}_API"
    return [
        f"#ifndef {macro}",
        "#if defined(__GNUC__)",
        f'#define {macro} __attribute__((visibility("default")))',
        "#else",
        f"#define {macro}",
        "#endif",
        "#endif",
        "",
    ]


def _enum(name: str, kind: str, ports: Sequence[Port]) -> list[str]:
    upper = name.upper()
    rows = [
        f"{_constant(upper, kind, p.name, ports)} = {i}, /* {_port(p).replace('*/', '')} */"
        for i, p in enumerate(ports)
    ]
    return [f"enum {name}_{kind.lower()} {{", *rows, f"{upper}_{kind}S = {len(ports)}", "};", ""]


def _types(name: str, model: ModelInfo) -> list[str]:
    upper = name.upper()
    return [
        "/* What functions return. Every status but OK comes with a message in `error`, which may be NULL. */",
        f"enum {name}_status {{",
        f"{upper}_OK = 0,",
        f"{upper}_BAD_INPUT = 2, /* an array has the wrong type, rank or extent, or holds an index out of range */",
        f"{upper}_BAD_WEIGHTS = 3, /* a weights file is missing, damaged, or another model's */",
        f"{upper}_NO_MEMORY = 4",
        "};",
        "",
        "/* Loaded weights: immutable; any number of sessions and threads may share them. */",
        f"typedef struct {name}_weights {name}_weights;",
        "/* One caller's memory and threads: use it from one thread at a time. */",
        f"typedef struct {name}_session {name}_session;",
        "",
        f"typedef struct {name}_error {{",
        "char text[512]; /* what is wrong, where, what to do; ends with a zero */",
        f"}} {name}_error;",
        "",
        *comment(
            "An array, row-major and dense; `type` as ONNX numbers them (1 float, 2 uint8, 3 int8, 6 int32, 7 int64,\n"
            "9 bool, 10 float16, 11 double, 16 bfloat16); elements of fewer than 8 bits take a byte. The caller\n"
            "owns `data`, except where it is NULL in an output: then run points it at memory of the session, valid\n"
            "until the next run, and fills in the rest."
        ),
        f"typedef struct {name}_array {{",
        "void *data;",
        "int32_t type, rank;",
        f"int64_t dims[{MAX_RANK}];",
        f"}} {name}_array;",
        "",
        "/* Positions in the arrays `inputs` and `outputs`. */",
        *_enum(name, "INPUT", model.inputs),
        *_enum(name, "OUTPUT", model.outputs),
    ]


def _functions(name: str) -> list[str]:
    api, error = f"{name.upper()}_API", f"{name}_error *error"
    arrays = f"{name}_session *session, const {name}_array *inputs, {name}_array *outputs, {error}"
    return [
        *comment(
            "Loads weights: those inside this library, or of the file it was built with (path NULL), or of `path`:\n"
            "packed by castiron, or a .safetensors with the model's own names. Free them with weights_free. Any thread."
        ),
        f"{api} int {name}_load(const char *path, {name}_weights **weights, {error});",
        *comment(
            "The same from `size` bytes in memory, which stay the caller's. Packed bytes must be 64-byte aligned and\n"
            "outlive the weights."
        ),
        f"{api} int {name}_load_bytes(const void *bytes, size_t size, {name}_weights **weights, {error});",
        *comment("Writes the packed form to `path`, whole or not at all."),
        f"{api} int {name}_weights_save(const {name}_weights *weights, const char *path, {error});",
        *comment("Frees weights, after all their sessions; NULL is allowed."),
        f"{api} void {name}_weights_free({name}_weights *weights);",
        "",
        *comment("Makes a session. threads: how many may compute at once; 0: as many as this process may use."),
        f"{api} int {name}_session_new(const {name}_weights *weights, int threads, {name}_session **session, {error});",
        f"{api} void {name}_session_free({name}_session *session);",
        *comment("Fills in type, rank and dims of the outputs for these inputs, without running."),
        f"{api} int {name}_session_shape({arrays});",
        *comment("Checks the inputs and runs the model. Allocates nothing while sizes stay the same."),
        f"{api} int {name}_session_run({arrays});",
        "",
        *comment("The name of an input or output; NULL behind the last one."),
        f"{api} const char *{name}_input_name(int index);",
        f"{api} const char *{name}_output_name(int index);",
    ]
