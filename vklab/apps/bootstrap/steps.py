"""Run the commands of a set-up: logged, limited in time, one process at a time.

Decides how a failure is reported; the callers decide which commands run. Visited by lab 00.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK_LIMIT_S = 3600.0


class SetupStopped(Exception):
    """A set-up that cannot continue; its text says what happened and what to do.

    Args:
        message: the error, and the line to type.
        clean: every command ended by itself, so a later run can complete the set-up.
    """

    def __init__(self, message: str, clean: bool = True) -> None:
        super().__init__(message)
        self.clean = clean


@dataclass(frozen=True)
class StepResult:
    """Outcome of a command: its exit code (negative when killed) and the end of its output."""

    returncode: int
    output: str = ""

    @property
    def tail(self) -> str:
        """Return the last lines of the output, indented for an error message."""
        lines = [line for line in self.output.splitlines() if line.strip()]
        return "\n".join(f"  | {line[:200]}" for line in lines[-8:])


def announce(text: str) -> None:
    """Print one line of progress on stderr; stdout belongs to the command itself."""
    print(f"vklab: {text}", file=sys.stderr, flush=True)


def run_logged(
    command: Sequence[str], *, limit_s: float, cwd: Path | None = None, log: Path | None = None
) -> StepResult:
    """Run a command with its output in a log file; on a terminal show its current line.

    Args:
        command: the program and its arguments.
        limit_s: seconds after which the command is killed.
        cwd: folder to run in.
        log: file to append the output to.
    """
    with contextlib.ExitStack() as stack:
        sink: IO[str] = stack.enter_context(
            open(log or os.devnull, "a", encoding="utf-8", errors="replace")
        )
        sink.write(f"\n$ {' '.join(command)}\n")
        try:
            process = stack.enter_context(
                subprocess.Popen(
                    command,
                    cwd=cwd,
                    text=True,
                    errors="replace",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "LC_ALL": "C.UTF-8"},  # uv reads Python's paths as UTF-8
                )
            )
        except OSError as error:
            return StepResult(127, f"{command[0]}: {error.strerror}")
        timer = threading.Timer(limit_s, process.kill)
        timer.start()
        try:
            last = _follow(process, sink)
            returncode = process.wait()
        finally:
            timer.cancel()
            process.kill()
    return StepResult(returncode, "".join(last))


def _follow(process: subprocess.Popen[str], sink: IO[str]) -> deque[str]:
    last: deque[str] = deque(maxlen=200)
    shows = sys.stderr.isatty()
    assert process.stdout is not None
    for line in process.stdout:
        sink.write(line)
        last.append(line)
        if shows and line.strip():
            print(f"\r\033[K  {line.strip()[:76]}", end="", file=sys.stderr, flush=True)
    if shows:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return last


@contextlib.contextmanager
def exclusive(path: Path, limit_s: float = LOCK_LIMIT_S) -> Iterator[None]:
    """Lock a file for the length of a `with` block; wait `limit_s` seconds for another holder.

    The operating system releases the lock when its process ends, so none is ever stale.
    Raises SetupStopped after the limit.
    """
    deadline = time.monotonic() + limit_s
    announced = False
    with open(path, "a+", encoding="utf-8") as file:
        while not _try_lock(file):
            if time.monotonic() > deadline:
                raise SetupStopped(
                    f"another set-up has held {path} for {limit_s:.0f} s; end it and run this again"
                )
            if not announced:
                announce("another vklab is setting up here; waiting for it")
                announced = True
            time.sleep(0.2)
        yield


def _try_lock(file: IO[str]) -> bool:
    try:
        if sys.platform == "win32":
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
