"""Child process with limits on its time and output; ended together with its own children."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vklab_course import places

__all__ = [
    "BARE", "Ended", "Starter", "begin", "end_group", "run_child", "started_by", "without",
]  # fmt: skip

POLL_S = 0.01
OUTPUT_BYTES = 1 << 20
# A busy machine may take long to start an interpreter: the child's limit counts from `begin`.
START_S = 30.0
STARTED = "started"
# Seconds after which a child ends by itself, in case this process is gone by then.
LIFE = "VKLAB_CHILD_SECONDS"
# Set for a child that needs no part of the course but its own module: it starts sooner.
BARE = "VKLAB_CHILD_BARE"


class Starter(Protocol):
    """A sandbox that children are started in."""

    def command(self, argv: Sequence[str], *, writable: Sequence[Path], variables:
                Mapping[str, str], private: Path) -> list[str]:  # fmt: skip
        """Return the command line that runs `argv` in the sandbox.

        Args:
            argv: the program and its arguments.
            writable: folders that may be written.
            variables: environment variables of the program.
            private: folder outside the sandbox.
        """

    def ended(self, private: Path) -> None:
        """End what the processes of a command line, now killed, may have left running."""


# The sandbox of the children that this process starts, and its folder; none in a notebook.
_sandbox: tuple[Starter, Path] | None = None


@contextlib.contextmanager
def started_by(sandbox: Starter, private: Path) -> Iterator[None]:
    """Start the children of a `with` block in a sandbox; they may write to their folder only.

    Args:
        sandbox: the sandbox.
        private: folder outside it, for the sandbox itself.
    """
    global _sandbox
    before, _sandbox = _sandbox, (sandbox, private)
    try:
        yield
    finally:
        _sandbox = before


@dataclass(frozen=True)
class Ended:
    """End of a child: exited, timeout or too_much_output; its exit code and its output."""

    how: str
    code: int
    output: str


def run_child(
    module: str,
    arguments: Sequence[str],
    folder: Path,
    seconds: float,
    variables: Mapping[str, str] | None = None,
) -> Ended:
    """Run `python -m module` in a fresh interpreter, in a separate process group.

    Args:
        module: the module to run.
        arguments: its command line.
        folder: folder for the child's output; a child that prints without end is killed, too.
        seconds: time limit, counted from the child's call of `begin`.
        variables: environment variables to set.
    """
    own = {"PYTHONPATH": places.search_path(), LIFE: str(math.ceil(seconds) + 5)}
    environment = {**os.environ, **own, **(variables or {})}
    command = [sys.executable, "-m", module, *arguments]
    if _sandbox is not None:
        (sandbox, private), mine = _sandbox, {LIFE: own[LIFE], **(variables or {})}
        command = sandbox.command(command, writable=[folder], variables=mine, private=private)
    log = folder / "output.txt"
    (folder / STARTED).unlink(missing_ok=True)
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env=environment,
            start_new_session=os.name == "posix",
        )
        try:
            how = _watch(process, folder, seconds)
        finally:
            end_group(process)
            if _sandbox is not None:
                _sandbox[0].ended(_sandbox[1])
    text = log.read_bytes()[:OUTPUT_BYTES].decode("utf-8", "replace")
    return Ended(how, process.returncode, text)


def _watch(process: subprocess.Popen[bytes], folder: Path, seconds: float) -> str:
    log, deadline, started = folder / "output.txt", time.monotonic() + START_S + seconds, False
    while process.poll() is None:
        if not started and (folder / STARTED).exists():
            started, deadline = True, time.monotonic() + seconds
        if time.monotonic() > deadline:
            return "timeout"
        if log.stat().st_size > OUTPUT_BYTES:
            return "too_much_output"
        time.sleep(POLL_S)
    return "exited" if log.stat().st_size <= OUTPUT_BYTES else "too_much_output"


def begin(folder: Path) -> None:
    """Start the clock of a child, and set an alarm that ends it; the child calls this."""
    (folder / STARTED).touch()
    if hasattr(signal, "alarm") and LIFE in os.environ:
        signal.alarm(int(os.environ[LIFE]))


def without(folder: Path, error: Exception) -> str:
    """Return an error's text with the files of a child's folder, but without that folder."""
    return str(error).replace(str(folder) + os.sep, "")


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a child that was started in a separate session, together with its own children."""
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
