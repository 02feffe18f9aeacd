"""Limits on code inside this process: a deadline, and a bound on its printed output.

An endless Python loop is interrupted; native code that hangs is not: `run_limited` runs such
answers in a child process.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import signal
import threading
from collections.abc import Callable, Iterator

__all__ = ["LimitReached", "OutOfTime", "Printed", "TooMuchOutput", "limited"]

# Interval of the exception's repetition, for code that catches every exception.
REPEAT_S = 0.5


class LimitReached(BaseException):
    """A limit that was reached; no Exception, so that `except Exception` does not hide it."""


class OutOfTime(LimitReached):
    """Time limit that was reached."""


class TooMuchOutput(LimitReached):
    """Output limit that was reached."""


class Printed(io.TextIOBase):
    """Keep the printed text up to a bound; raise TooMuchOutput above it."""

    def __init__(self, characters: int) -> None:
        self.characters = characters
        self.text = ""

    def writable(self) -> bool:
        """Tell that text may be written."""
        return True

    def write(self, text: str) -> int:
        """Keep the text. Raises TooMuchOutput above the bound."""
        room = self.characters - len(self.text)
        self.text += text[: max(room, 0)]
        if len(text) > room:
            raise TooMuchOutput(f"more than {self.characters} characters were printed")
        return len(text)


@contextlib.contextmanager
def limited(seconds: float, characters: int = 100_000) -> Iterator[Printed]:
    """Bound the time and the output of a `with` block; raise OutOfTime or TooMuchOutput in it."""
    printed = Printed(characters)
    in_main = threading.current_thread() is threading.main_thread()
    deadline = _by_signal if in_main and hasattr(signal, "setitimer") else _by_thread
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        stop = deadline(seconds)
        try:
            yield printed
        finally:
            stop()


def _by_signal(seconds: float) -> Callable[[], None]:
    def ring(number: int, frame: object) -> None:
        raise OutOfTime(f"not finished within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, REPEAT_S)

    def stop() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    return stop


def _by_thread(seconds: float) -> Callable[[], None]:
    """Set the exception from another thread, on systems without signal timers."""
    target, ended = threading.get_ident(), threading.Event()

    def watch() -> None:
        wait = seconds
        while not ended.wait(wait):
            set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
            set_exception(ctypes.c_ulong(target), ctypes.py_object(OutOfTime))
            wait = REPEAT_S

    threading.Thread(target=watch, daemon=True).start()
    return ended.set
