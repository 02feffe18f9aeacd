"""A child process with limits on its time and output; it and all it started are ended together."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Ended", "begin", "end_group", "run_child"]

ROOT = Path(__file__).resolve().parent.parent.parent
POLL_S = 0.01
OUTPUT_BYTES = 1 << 20
# A busy machine may take long to start an interpreter: its limit counts from when it is ready.
START_S = 30.0
STARTED = "started"
# Tells a child when to end by itself, should this process be gone by then.
LIFE = "VKLAB_CHILD_SECONDS"


@dataclass(frozen=True)
class Ended:
    """How a child ended: exited, timeout or too_much_output; its code, output and seconds."""

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
    """Run `python -m module` in a fresh interpreter, in a process group of its own.

    The limit counts from the moment that the child calls `begin`. Its output goes to a file in
    `folder`, which is watched: a child that prints without end is ended, too.
    """
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {"PYTHONPATH": path, LIFE: str(math.ceil(seconds) + 5)}
    environment = {**os.environ, **own, **(variables or {})}
    log = folder / "output.txt"
    (folder / STARTED).unlink(missing_ok=True)
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], stdin=subprocess.DEVNULL, stdout=sink,
            stderr=sink, env=environment, start_new_session=os.name == "posix",
        )  # fmt: skip
        try:
            how = _watch(process, folder, seconds)
        finally:
            end_group(process)
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
    """Say in a child that it is ready: its time begins, and ends it by an alarm of its own."""
    (folder / STARTED).touch()
    if hasattr(signal, "alarm") and LIFE in os.environ:
        signal.alarm(int(os.environ[LIFE]))


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a child started in a session of its own, with everything that it has started."""
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
