"""Lines of C, indented by their braces."""

from __future__ import annotations

from collections.abc import Iterable


def indented(lines: Iterable[str]) -> str:
    """The lines as text: four spaces for each open brace; preprocessor lines and blank ones stay at the margin."""
    out: list[str] = []
    depth = 0
    for line in lines:
        if line.startswith("}"):
            depth -= 1
        margin = "" if line.startswith("#") or not line else "    " * depth
        out.append(margin + line)
        if line.endswith("{"):
            depth += 1
    return "\n".join(out) + "\n"


def comment(text: str) -> list[str]:
    """A block comment; `*/` inside is broken up."""
    first, *rest = text.replace("*/", "* /").replace("/*", "/ *").splitlines() or [""]
    if not rest:
        return [f"/* {first} */"]
    return [f"/* {first}", *(f"   {line}".rstrip() for line in rest[:-1]), f"   {rest[-1]} */"]


def quoted(text: str) -> str:
    """A C string literal of the UTF-8 bytes of `text`."""
    out = []
    for byte in text.encode():
        char = chr(byte)
        if char in '"\\?':
            out.append("\\" + char)
        elif 32 <= byte < 127:
            out.append(char)
        else:
            out.append(f"\\{byte:03o}")
    return '"' + "".join(out) + '"'
