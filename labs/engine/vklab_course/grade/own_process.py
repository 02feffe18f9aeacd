"""Process of its own for each piece of work: a fork of a small server, a pipe, a limit of time.

On POSIX systems the server has the imports loaded; elsewhere each process starts anew.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

__all__ = ["PRELOADED", "Ended", "messages"]

# What the server imports, besides the modules that its first user names.
PRELOADED = ["vklab_course.grade.assignment.reading", "vklab_course.grade.jobs",
             "vklab_course.grade.preload"]  # fmt: skip
POLL_S, JOIN_S, END_S = 0.5, 30.0, 5.0


class Ended(Exception):
    """A process that ended before its work was done; the message continues `the process ...`.

    Attributes:
        how: timeout, stopped, or error.
        code: its exit code, negative for a signal; None if it was ended here.
    """

    code: int | None = None

    def __init__(self, how: str, message: str) -> None:
        super().__init__(message)
        self.how = how


def messages(
    work: Callable[..., None], arguments: Sequence[Any], seconds: float, *, name: str = "",
    stop: threading.Event | None = None, modules: Sequence[str] = (),
) -> Generator[Any, None, None]:  # fmt: skip
    """Start `work(pipe, *arguments)` in another process; yield what it sends.

    The process is ended when the caller stops asking. Raises Ended if it ends first, takes too
    long, or cannot be started.

    Args:
        work: the work; importable there.
        arguments: its arguments after the pipe.
        seconds: limit of the clock.
        name: name of the process.
        stop: set to end the process.
        modules: modules that the server loads, if it is not running yet.
    """
    context = _context(modules)
    ours, theirs = context.Pipe(duplex=False)
    given = (theirs, work, dict(os.environ), *arguments)
    process = context.Process(target=_begin, args=given, name=name)
    try:
        process.start()
    except OSError as error:
        ours.close()
        theirs.close()
        raise Ended("error", f"could not be started: {error}") from error
    theirs.close()
    patience, ends = 0.0, time.monotonic() + seconds
    try:
        while True:
            if ours.poll(POLL_S):
                patience = END_S  # should the caller ask no more, it may end by itself
                yield ours.recv()
                patience = 0.0
            if time.monotonic() > ends:
                raise Ended("timeout", f"did not end within {seconds:g} s")
            if stop is not None and stop.is_set():
                raise Ended("stopped", "was stopped")
    except EOFError:
        process.join(JOIN_S)
        ended = Ended("error", f"ended with exit code {process.exitcode}")
        ended.code = process.exitcode
        raise ended from None
    finally:
        ours.close()
        _end(process, patience)


def _context(modules: Sequence[str]) -> Any:
    if os.name != "posix":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED, *modules])
    return context


def _begin(pipe: Any, work: Callable[..., None], variables: dict[str, str], *given: Any) -> None:
    os.environ.clear()  # of the server, which may have been started under other switches
    os.environ.update(variables)
    try:
        work(pipe, *given)
    except BrokenPipeError:  # the grader was killed
        pass
    finally:
        pipe.close()


def _end(process: Any, patience_s: float) -> None:
    process.join(patience_s)
    if process.is_alive():
        process.terminate()
        process.join(END_S)
    if process.is_alive():
        process.kill()
        process.join()
