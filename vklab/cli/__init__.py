"""Command line `vklab ...`: runs one command and turns its outcome into an exit code.

0: fine; 1: the answer is no (a check failed); 2: usage or set-up. Expected errors are one message
on stderr, never a traceback.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

from vklab.cli import app, console
from vklab.errors import CheckError, HostWarning, VklabError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one vklab command and return its exit code."""
    command, arguments = app.hoist_switches(sys.argv[1:] if argv is None else argv)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HostWarning)  # commands show this in their output
            app.build(command)(args=arguments, prog_name="vklab")
    except SystemExit as stopped:  # typer ends every command so, successful ones too
        return stopped.code if isinstance(stopped.code, int) else 2
    except CheckError as error:
        console.warn(f"vklab: {error}")
        return 1
    except (VklabError, OSError) as error:
        console.warn(f"vklab: {error}")
        if "--json" in arguments:
            console.emit({"error": {"type": type(error).__name__, "message": str(error)}})
        return 2
    return 0
