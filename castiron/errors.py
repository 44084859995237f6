"""The errors castiron raises. Each message says what is wrong, where, and what to do.

CastironError
├── ModelError       the model file is wrong: unreadable, inconsistent, not what its name says
├── Unsupported      the model is valid, castiron cannot compile it yet
├── InputError       an input array or an option does not fit the model
├── WeightsError     a weights file is missing, cut off, of another model, or has a wrong tensor
├── MismatchError    the built artifact does not compute what its source computes
├── ToolchainError   the C compiler failed (keeps the command and where the C is)
└── InternalError    a fault of castiron itself (keeps what is needed to report it)
"""


class CastironError(Exception):
    """What every error of castiron derives from; `status` is the exit status of the command line."""

    status = 1


class ModelError(CastironError):
    """The file is wrong."""

    status = 2


class Unsupported(CastironError):
    """Valid, but not compiled yet."""

    status = 2


class InputError(CastironError):
    """An input or option that does not fit."""

    status = 2


class WeightsError(CastironError):
    """The weights do not fit the model, or cannot be read."""

    status = 3


class MismatchError(CastironError):
    """Artifact and source differ by more than the tolerance."""


class ToolchainError(CastironError):
    """The C compiler failed. `command` is what ran, `output` what it said, `source` the folder with the C."""

    def __init__(self, message: str, command: list[str] | None = None, output: str = "", source: str = "") -> None:
        super().__init__(message)
        self.command, self.output, self.source = command or [], output, source


class InternalError(CastironError):
    """castiron broke a promise between its own parts. `dump` is the program or graph at fault."""

    status = 70

    def __init__(self, message: str, dump: str = "") -> None:
        super().__init__(message)
        self.dump = dump
