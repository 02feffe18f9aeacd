"""Command line `vklab ...`: runs one command and turns its outcome into an exit code.

0: fine; 1: the answer is no (a check failed); 2: usage or set-up. Expected errors are one message
on stderr, never a traceback.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from vklab.apps.cli import app, console
from vklab.errors import CheckError, HostWarning, UnusedWarning, VklabError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one vklab command and return its exit code."""
    command, arguments = app.hoist_switches(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in arguments
    try:
        return _run(command, arguments, as_json)
    except OSError as error:  # the results cannot be written: a full disk, a closed pipe
        with contextlib.suppress(OSError):
            console.warn(f"vklab: cannot write the results: {error}")
        return 2


def _run(command: str, arguments: Sequence[str], as_json: bool) -> int:
    code = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HostWarning)  # commands show this in their output
            warnings.simplefilter("always", UnusedWarning)
            warnings.showwarning = functools.partial(_show, warnings.showwarning)
            app.build(command)(args=arguments, prog_name="vklab")
    except SystemExit as stopped:  # typer ends every command so, successful ones too
        code = stopped.code if isinstance(stopped.code, int) else 2
        usage = stopped.__context__  # typer has shown it
        problem = getattr(usage, "format_message", lambda: "")()
        if as_json and code == 2 and problem:
            _emit_error(type(usage).__name__, problem)
    except CheckError as error:
        console.warn(f"vklab: {error}")
        code = 1
    except (VklabError, OSError) as error:
        is_output = getattr(error, "errno", 0) in (errno.ENOSPC, errno.EPIPE)
        if is_output and getattr(error, "filename", None) is None:
            with contextlib.suppress(OSError):
                console.flush()
            raise
        console.warn(f"vklab: {error}")
        if as_json:
            _emit_error(type(error).__name__, str(error))
        code = 2
    console.flush()
    return code


def _show(others: Callable[..., None], message: Any, category: type, *where: Any) -> None:
    """Show a warning on stderr: one of a file that is read in one line, others as Python does."""
    if issubclass(category, UnusedWarning):
        console.warn(f"vklab: {message}")
    else:
        others(message, category, *where)


def _emit_error(kind: str, message: str) -> None:
    console.emit({"error": {"type": kind, "message": message}})
