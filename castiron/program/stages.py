"""Program -> its stages: after which Assign the sizes of which buffers are known.

Stage 0 is the start of a run. Each set of sizes that are assigned together makes a further stage, in the order of first
assignment; a buffer belongs to the last stage that one of its sizes comes from.
"""

from __future__ import annotations

from castiron.program.expr import free_variables
from castiron.program.types import Assign, Buffer, Program

Sizes = tuple[str, ...]


def stages(program: Program) -> tuple[Sizes, ...]:
    """The sizes of each stage; those of stage 0 are not listed."""
    found = dict.fromkeys(assigned(step) for step in program.steps if isinstance(step, Assign) and step.sizes)
    return ((), *found)


def assigned(step: Assign) -> Sizes:
    """The sizes that a step assigns."""
    return tuple(name for name, _ in step.sizes)


def stage_of(buffer: Buffer, numbers: dict[str, int]) -> int:
    """The stage of a buffer. `numbers` as `numbered` gives them."""
    free = frozenset().union(*map(free_variables, buffer.shape))
    return max((numbers.get(name, 0) for name in free), default=0)


def numbered(program: Program) -> dict[str, int]:
    """Size -> its stage, for those that an Assign sets."""
    return {name: number for number, sizes in enumerate(stages(program)) for name in sizes}
