"""The command line. `main` is the entry point; a file of this folder is a command, imported when it is used."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from types import FrameType
from typing import Any

from castiron.cli.fault import fault_message
from castiron.errors import CastironError, InternalError


def main() -> None:
    """Runs the command line; an error is one message on stderr and an exit status of its own."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    logging.disable()  # libraries tell each other; users are told by castiron
    warnings.simplefilter("ignore")
    sys.exit(status())


def status() -> int:
    """Runs what `sys.argv` asks for; gives the exit status."""
    import typer

    from castiron.cli.app import app

    # of click, wherever this release of typer keeps it
    usage_error: type[Exception] = typer.BadParameter.__mro__[1]  # type: ignore[assignment]  # a class among those that mypy knows as types
    try:
        code = int(app(prog_name="castiron", standalone_mode=False) or 0)
        sys.stdout.flush()
        return code
    except usage_error as error:
        return _usage(error)
    except InternalError as error:
        return _say(fault_message(error), error.status)
    except CastironError as error:
        return _say(str(error), error.status)
    except MemoryError as error:
        return _say(f"out of memory: {error}; close other programs or build on a larger machine", 4)
    except BrokenPipeError:  # whoever reads has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _say(f"{error.filename or 'the system'}: {error.strerror or error}", 1)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", 130)
    except Exception as error:  # whatever was not foreseen is a fault of castiron's own
        return _say(fault_message(error), InternalError.status)


def _usage(error: Any) -> int:
    if not sys.argv[1:]:
        print(error.format_message())  # the help
        return 2
    command = error.ctx.command_path if error.ctx is not None else "castiron"
    message = error.format_message().rstrip(".").replace("Value error, ", "")  # what typer's validator puts in front
    return _say(f"{message}; see {command} --help", 2)


def _say(message: str, status: int) -> int:
    print(f"castiron: {message}", file=sys.stderr)
    return status


def _end(number: int, frame: FrameType | None) -> None:
    """What asks politely gets a clean end: the way out removes what is half done."""
    sys.exit(128 + number)
