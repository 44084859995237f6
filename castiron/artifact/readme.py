"""The README.md of a source folder."""

from __future__ import annotations

from collections.abc import Iterable


def source_readme(name: str, kernels: Iterable[str]) -> str:
    """How to build the folder with any C11 compiler, and what is in it."""
    used = ", ".join(sorted(kernels)) or "none"
    return f"""# {name}, as C

Build an executable with any C11 compiler (gcc, clang, zig cc), in this folder:

    cc -std=gnu11 -O3 -march=native -ffp-contract=off -fno-math-errno -fwrapv -fno-strict-aliasing -DCI_MAIN -DCI_ISA=generic -iquote . -iquote runtime *.c blobs.S runtime/*/*.c -lpthread -o {name}

Leave out `-march=native` for a file that runs on every processor of this kind (slower: one instruction set is built in, the
one the compiler is told). `-ffp-contract=off` matters: with it every compiler gives the same bits.

| file | what it is |
|---|---|
| `{name}.c` | the model's steps, one commented function each |
| `{name}_api.c` | its tables and its public functions |
| `{name}.h` | the header to include |
| `runtime/` | kernels ({used}), weights, threads, and the command line (`runtime/exe/`) |
| `blobs.S`, `*.bin` | weights, constants and recorded self-test vectors, taken in by the assembler |

To use the model as a library, leave out `runtime/exe/*.c` and `-DCI_MAIN`.
"""
