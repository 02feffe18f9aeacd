"""Waits of tests: until something holds, and the only sleeps that tests have."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["LIMIT_S", "STEP_S", "hang", "until", "work"]

# For whatever takes a moment on an idle machine, and ends by itself. A test of a limit has its own.
LIMIT_S = 240
STEP_S = 0.01


def until(holds: Callable[[], object], what: str = "") -> None:
    """Wait until something holds; fail with these words after the limit."""
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, what or "a wait has no end"
        time.sleep(STEP_S)


def hang() -> None:
    """Hang as something broken does: a limit of somebody else ends this process.

    Longer than a wait, so that whoever waits for that end cannot take this one for it.
    """
    time.sleep(10 * LIMIT_S)


def work(seconds: float) -> None:
    """Take time as a device or a slow thread does. A result may not depend on this being enough."""
    time.sleep(seconds)
