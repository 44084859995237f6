"""The command line. `main` is the entry point; a file of this folder is a command, imported when it is used."""

from __future__ import annotations

import sys

from castiron.errors import CastironError


def main() -> None:
    """Runs the command line; an error of castiron's is one message on stderr and its own exit status."""
    from castiron.cli.app import app

    try:
        app()
    except CastironError as error:
        print(f"castiron: {error}", file=sys.stderr)
        sys.exit(error.status)
    except MemoryError as error:
        print(f"castiron: out of memory: {error}; close other programs or build on a larger machine", file=sys.stderr)
        sys.exit(4)
    except KeyboardInterrupt:
        print("castiron: interrupted", file=sys.stderr)
        sys.exit(130)
