"""What several commands are told on their command lines."""

from __future__ import annotations

from collections.abc import Sequence

from castiron.errors import InputError


def parse_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """`x=1,3,224,224` as {"x": (1, 3, 224, 224)}; -1 leaves a size as it is. Raises InputError for other texts."""
    out: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, sizes = text.rpartition("=")
        try:
            shape = tuple(int(s) for s in sizes.split(",")) if sizes.strip() else ()
        except ValueError:
            shape = (-2,)
        if not equals or not name or any(s < -1 for s in shape):
            raise InputError(
                f"--shape {text!r}: expected NAME=SIZES, such as x=1,3,224,224 (-1 leaves a size as it is)"
            )
        if name in out:
            raise InputError(f"--shape {name}=… is given twice")
        out[name] = shape
    return out
