"""The machines castiron compiles for, and the instruction sets a file for each carries."""

from __future__ import annotations

import platform
import shutil
from dataclasses import dataclass

from castiron.errors import InputError


@dataclass(frozen=True)
class InstructionSet:
    """`suffix` names C symbols, `name` is what users and CASTIRON_CPU say, `flags` select it."""

    suffix: str
    name: str
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Target:
    """A processor and system. `isas`: best first. `machine`: e_machine of its ELF files."""

    name: str
    isas: tuple[InstructionSet, ...]
    machine: int

    @property
    def arch(self) -> str:
        """As `platform.machine()` spells it."""
        return self.name.partition("-")[0]

    @property
    def static_triple(self) -> str:
        """For executables and archives: musl, so that nothing is needed beside the file."""
        return f"{self.arch}-linux-musl"

    @property
    def shared_triple(self) -> str:
        """For libraries that live in other people's processes: a glibc old enough for all of them."""
        return f"{self.arch}-linux-gnu.2.17"

    @property
    def emulator(self) -> str | None:
        """What must precede a command to run this target's files here: "" for nothing, None where they cannot run."""
        return "" if self.arch == platform.machine() else shutil.which(f"qemu-{self.arch}")


_X86 = (
    InstructionSet("x86_64_v4", "x86-64-v4", ("-mcpu=x86_64_v4", "-mprefer-vector-width=512")),
    InstructionSet("x86_64_v3", "x86-64-v3", ("-mcpu=x86_64_v3",)),
    InstructionSet("x86_64_v2", "x86-64-v2", ("-mcpu=x86_64_v2",)),
)

TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        Target("x86_64-linux", _X86, 62),
        Target("aarch64-linux", (InstructionSet("arm64", "arm64", ("-mcpu=generic",)),), 183),
    )
}


def host() -> Target:
    """This machine."""
    return find(f"{platform.machine()}-{platform.system().lower()}")


def find(triple: str | None) -> Target:
    """The target of a triple; `x86_64-linux-musl` and `arm64-linux` are understood too. None: this machine."""
    if triple is None:
        return host()
    arch, _, rest = triple.partition("-")
    arch = {"arm64": "aarch64", "amd64": "x86_64", "x86-64": "x86_64"}.get(arch, arch)
    found = TARGETS.get(f"{arch}-{rest.removeprefix('unknown-').partition('-')[0]}")
    if found is None:
        raise InputError(f"target {triple!r} is not known; choose one of {', '.join(TARGETS)}")
    return found


def chosen(target: Target, levels: tuple[str, ...] | None) -> tuple[InstructionSet, ...]:
    """The instruction sets named by `--cpu`, best first; all of the target's where nothing is named."""
    if not levels:
        return target.isas
    known = {isa.name.removeprefix("x86-64-"): isa for isa in target.isas}
    wanted = {_short(level): level for level in levels}
    for short, level in wanted.items():
        if short not in known:
            names = ", ".join(isa.name for isa in target.isas)
            raise InputError(f"--cpu {level!r} is no instruction set of {target.name}; choose among {names}")
    return tuple(isa for short, isa in known.items() if short in wanted)


def _short(level: str) -> str:
    """`v3` of x86-64-v3, x86_64_v3, v3."""
    return level.strip().replace("_", "-").removeprefix("x86-64-").removeprefix("x86-")
