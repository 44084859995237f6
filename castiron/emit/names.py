"""C identifiers from the model's own names."""

from __future__ import annotations

import re

_WORDS = """
alignas alignof asm auto bool break case char const constexpr continue default do double else enum extern false float
for goto if inline int long nullptr register restrict return short signed sizeof static struct switch thread_local true
typedef typeof union unsigned void volatile while linux unix i386 NULL errno main
run argument begin end outer row rows col cols tile stride kernel sizes offsets lives bytes item
"""
RESERVED = frozenset(_WORDS.split())
"""Keywords, macros of the systems' compilers, and the parameters of printed functions."""


def identifier(name: str) -> str:
    """`name` with what C does not allow made `_`: `conv1.weight` is `conv1_weight`, `12` is `v12`."""
    plain = re.sub(r"_+", "_", re.sub(r"[^0-9A-Za-z]", "_", name)).strip("_")[:48] or "v"
    return f"v{plain}" if plain[0].isdigit() else plain


class Namer:
    """Gives each wish a name of its own: a taken one gets a number behind it."""

    def __init__(self, taken: frozenset[str] = RESERVED) -> None:
        self._taken = set(taken)

    def __call__(self, wish: str) -> str:
        plain = identifier(wish)
        name, number = plain, 2
        while name in self._taken or name.startswith("ci_"):
            name, number = f"{plain}_{number}", number + 1
        self._taken.add(name)
        return name
