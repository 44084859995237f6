"""The README.md of a source folder."""

from __future__ import annotations

from collections.abc import Sequence

from castiron.artifact.link import Code


def source_readme(code: Code, blobs: Sequence[str], weights_file: str) -> str:
    """How to build the folder with any C11 compiler, and what is in it. `blobs`: the symbols of its binary files;
    `weights_file`: the name of the packed weights, or empty where they are inside."""
    name, kernels = code.name, ", ".join(sorted(code.kernels)) or "none"
    inputs = "*.c blobs.S runtime/*/*.c" if blobs else "*.c runtime/*/*.c"
    holds = {
        f"{name}_packed": "weights",
        f"{name}_constants": "constants",
        f"{name}_selftest": "recorded self-test arrays",
    }
    binary = (
        f"| `blobs.S`, `*.bin` | {', '.join(holds[b] for b in blobs)}, taken in by the assembler |\n" if blobs else ""
    )
    beside = (
        f"\nThe executable looks for `{weights_file}` in its own folder, or takes `--weights FILE`.\n"
        if weights_file
        else ""
    )
    return f"""# {name}, as C

Build an executable with any C11 compiler (gcc, clang, zig cc), in this folder:

    cc -std=gnu11 -O3 -march=native -ffp-contract=off -fno-math-errno -fwrapv -fno-strict-aliasing \
-DCI_MAIN -DCI_ISA=generic -iquote . -iquote runtime {inputs} -lpthread -o {name}

Leave out `-march=native` for a file that runs on every processor of this kind, but slower: one instruction set is built
in, the one the compiler is told. `-ffp-contract=off` matters: with it every compiler gives the same bits, wherever the
processor has fused multiply-add.
{beside}
| file | what it is |
|---|---|
| `{name}.c` | the model's steps, one commented function each |
| `{name}_api.c` | its tables and its public functions |
| `{name}.h` | the header to include |
| `runtime/` | kernels ({kernels}), weights, threads, and the command line (`runtime/exe/`) |
{binary}
To use the model as a library, leave out `runtime/exe/*.c` and `-DCI_MAIN`.
"""
