"""Ends of child processes and errors of other packages, each in one line."""

from __future__ import annotations

import signal

MOST_CHARACTERS = 300  # of another package's error


def words(code: int, last: str = "") -> str:
    """Return a child's exit code or its signal in words, with the last line that it wrote."""
    said = f": {last}" if last else ""
    if code >= 0:
        return f"ended with exit code {code}{said}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"crashed with {name}{said}"


def one_line(error: Exception, most: int = MOST_CHARACTERS) -> str:
    """Return an error's text in one line of at most `most` characters; its class if it has none."""
    return " ".join(str(error).split())[:most] or type(error).__name__
