"""Ends of child processes in words: an exit code or a signal, and the last line written."""

from __future__ import annotations

import signal

__all__ = ["words"]


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
