"""Processes of shader compilers on a pool of threads; an interrupt ends them all at once.

Ctrl-C raises KeyboardInterrupt in the main thread only, which waits for the pool's threads. Visited
by lab 05.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from vklab import settings
from vklab.errors import ShaderError

LIMIT_SECONDS = 120.0
STEP_SECONDS = 0.05
Submit = Callable[..., "Future[Any]"]


class _Group:
    """Running processes of one call, and whether it was stopped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._is_stopped = False

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        with self._lock:
            self._require_going()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
            self._running.add(process)
        try:
            stdout, stderr = process.communicate(timeout=LIMIT_SECONDS)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        finally:
            with self._lock:
                self._running.discard(process)
        self._require_going()
        if process.returncode == -signal.SIGINT:  # the terminal interrupts children, too
            raise ShaderError(f"{command[0]} was interrupted")
        return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)

    def _require_going(self) -> None:
        if self._is_stopped:
            raise ShaderError("the compilation was interrupted")

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            for process in self._running:
                process.kill()


_group: contextvars.ContextVar[_Group | None] = contextvars.ContextVar("vklab_group", default=None)


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a compiler to its end, and return its exit code and texts.

    Raises ShaderError if the call that needs it is interrupted, subprocess.TimeoutExpired after
    LIMIT_SECONDS, and OSError if the program does not start.
    """
    return (_group.get() or _Group()).run(command)


@contextlib.contextmanager
def pool(count: int) -> Iterator[Submit]:
    """Yield the `submit` of a pool of threads, which run calls in the context of the caller.

    If an exception leaves the `with` block, an interrupt for one, the calls that have not begun are
    cancelled and the processes of the others are killed, those of nested pools as well.
    """
    outer = _group.get()
    group = outer or _Group()
    token = _group.set(group)
    most = int(settings.get("THREADS")) or os.cpu_count() or 1
    threads = ThreadPoolExecutor(max(1, min(count, most)))

    def submit(call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        # Threads of a pool start without `with settings(...)`: each gets a copy of the caller's.
        return threads.submit(contextvars.copy_context().run, call, *arguments)

    try:
        yield submit
    except BaseException:
        if outer is None:
            group.stop()
        threads.shutdown(wait=False, cancel_futures=True)
        raise
    finally:
        threads.shutdown()
        _group.reset(token)


def result(future: Future[Any]) -> Any:
    """Wait for a call of a pool in short steps, because a signal may not end a long wait."""
    while not future.done():
        futures.wait([future], timeout=STEP_SECONDS)
    return future.result()
