"""The command line. `main` is the entry point; a file of this folder is a command, imported when it is used."""

from __future__ import annotations

import signal
import sys
from types import FrameType

from castiron.errors import CastironError


def main() -> None:
    """Runs the command line; an error is one message on stderr and an exit status of its own."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    sys.exit(_status())


def _status() -> int:
    import typer

    from castiron.cli.app import app

    usage_error = typer.BadParameter.__mro__[1]  # of click, wherever this release of typer keeps it
    try:
        return int(app(standalone_mode=False) or 0)
    except usage_error as error:
        return _say(getattr(error, "format_message", error.__str__)(), 2)
    except CastironError as error:
        return _say(str(error), error.status)
    except MemoryError as error:
        return _say(f"out of memory: {error}; close other programs or build on a larger machine", 4)
    except BrokenPipeError:
        return 1
    except OSError as error:
        return _say(f"{error.filename or 'the system'}: {error.strerror or error}", 1)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", 130)


def _say(message: str, status: int) -> int:
    if message:  # empty where help has been printed in its place
        print(f"castiron: {message}", file=sys.stderr)
    return status


def _end(number: int, frame: FrameType | None) -> None:
    """What asks politely gets a clean end: the way out removes what is half done."""
    sys.exit(128 + number)
