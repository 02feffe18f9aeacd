"""Child processes that answer calls, under limits of time and memory.

A crash, a hang or an exception of the child becomes a Failure: one sentence for a report or for an
error. Used by references, by backends, and by ONNX's suite.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from vklab.base import endings
from vklab.errors import VklabError

STARTED = "started"
_LENGTH = struct.Struct("<Q")
_ROOT = str(Path(__file__).resolve().parents[2])
START_S = 60.0  # for a child to start and to import what a call names
CLOSE_S = 5.0  # for a child to end
SHOWN = 400  # characters of a child's last line
READ_BYTES = 1 << 16  # of the end of a child's log


class Failure(VklabError):
    """A call that gave no result.

    Args:
        status: "refused", "absent", "crashed", "timeout" or "failed", as in `backend.Row`.
        reason: one sentence.
        install: what would repair it, if that is known.
    """

    def __init__(self, status: str, reason: str, install: str = "") -> None:
        super().__init__(reason)
        self.status, self.reason, self.install = status, reason, install

    @property
    def ended(self) -> bool:
        """Tell whether the child has ended, so that no further call can succeed."""
        return self.status in ("crashed", "timeout")


def packed(message: Any) -> tuple[bytes, bytes]:
    """Return the parts of one message: the length of its pickle, and the pickle."""
    data = pickle.dumps(message, 5)  # protocol 4 would copy each array once more
    return _LENGTH.pack(len(data)), data


def send(stream: IO[bytes], parts: tuple[bytes, bytes]) -> None:
    """Write one message, as `packed` returns it, to an unbuffered stream."""
    for part in parts:
        view = memoryview(part)
        while view:
            view = view[stream.write(view) :]


def receive(stream: IO[bytes]) -> Any:
    """Read one message from an unbuffered stream; raise EOFError where the other side has ended."""
    head = _exactly(stream, _LENGTH.size)
    return pickle.loads(_exactly(stream, _LENGTH.unpack(head)[0]))


def _exactly(stream: Any, count: int) -> bytearray:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        got = stream.readinto(view)
        if not got:
            raise EOFError
        view = view[got:]
    return data


class Worker:
    """A child process that answers calls one after the other; close it, or use it in a `with`.

    Args:
        environment: folder of another set of packages: a virtual environment, or a folder made by
            `pip install --target`. None for the packages of this process.
        variables: environment variables to set in the child.
    """

    def __init__(
        self, environment: Path | None = None, variables: Mapping[str, str] | None = None
    ) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `close`)
        self._problem: Failure | None = None
        self._process = subprocess.Popen(
            [_python(environment), "-m", "vklab.base.worker_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=os.name == "posix",
            env={**os.environ, "PYTHONPATH": _path(environment), **(variables or {})},
            bufsize=0,
        )

    @property
    def is_running(self) -> bool:
        """Tell whether the child can answer a call."""
        return self._problem is None and self._process.poll() is None

    def call(
        self, function: Callable[..., Any], *arguments: Any, seconds: float, memory_bytes: int = 0
    ) -> Any:
        """Return function(state, *arguments), computed in the child; `state` is the child's dict.

        Args:
            function: a function of a module.
            *arguments: plain data and arrays.
            seconds: time limit from the start of the function; a child that exceeds it is killed.
            memory_bytes: memory from which on allocations of the child fail, on Linux; 0: all.

        Raises Failure.
        """
        if self._problem:
            raise self._problem
        answers: queue.Queue[Any] = queue.Queue()
        limits = seconds + CLOSE_S, memory_bytes  # the child keeps them if this process is killed
        work = (self._process, (function, arguments, limits), answers)
        threading.Thread(target=_exchange, args=work, daemon=True).start()
        limit = START_S
        try:
            answer = answers.get(timeout=limit)
            if answer == STARTED:
                limit = seconds
                answer = answers.get(timeout=limit)
        except queue.Empty:
            name = function.__name__.strip("_").replace("_", " ")
            raise self._end(
                "timeout", f"gave no answer to `{name}` in {limit:g} s and was stopped"
            ) from None
        except BaseException:
            self.kill()  # an interrupt
            raise
        if answer is None:
            raise self._end("crashed", self._ending())
        kind, value = answer
        if kind != "value":
            raise Failure(*value)
        return value

    def _end(self, status: str, reason: str) -> Failure:
        self._problem = Failure(status, reason)
        _kill(self._process)
        return self._problem

    def _ending(self) -> str:
        """Return how the child ended, with the last line of its log."""
        last = self._last_line()
        try:
            return endings.words(self._process.wait(CLOSE_S), last)
        except subprocess.TimeoutExpired:  # it closed its stdout, or a core dump is slow
            said = f": {last}" if last else ""
            return f"closed its answers, and had not ended {CLOSE_S:g} s later{said}"

    def _last_line(self) -> str:
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - READ_BYTES))
        text = self._log.read().decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1][:SHOWN] if lines else ""

    def close(self) -> None:
        """End the child and what it started; a second call does nothing."""
        if self._problem is None:
            with contextlib.suppress(OSError, ValueError):
                assert self._process.stdin
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSE_S)
            self._end("failed", "the child was closed")
        self._log.close()

    def kill(self) -> None:
        """End the child without waiting for what it does."""
        if self._problem is None:
            self._end("failed", "the child was closed")
        self.close()

    def abandon(self) -> None:
        """Close the pipes in a forked process, so that the child ends with its own parent."""
        self._process.returncode = 0  # it is no child of this process
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream:
                stream.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def once(function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
    """Return function(state, *arguments), computed in a child of its own.

    Args:
        function: a function of a module.
        *arguments: plain data and arrays.
        seconds: time limit.
    """
    with Worker() as worker:
        return worker.call(function, *arguments, seconds=seconds)


class Pool:
    """Child processes that share calls of several threads; one that has ended is replaced.

    Args:
        count: the most calls at a time.
    """

    def __init__(self, count: int) -> None:
        self._idle: queue.SimpleQueue[Worker | None] = queue.SimpleQueue()
        for _ in range(count):
            self._idle.put(None)

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """Return what `Worker.call` returns in an idle child.

        Args:
            function: as in `Worker.call`.
            *arguments: as in `Worker.call`.
            seconds: as in `Worker.call`.

        Raises Failure.
        """
        worker = self._idle.get()
        try:
            if worker is None or not worker.is_running:
                worker = Worker()
            return worker.call(function, *arguments, seconds=seconds)
        except BaseException:
            if worker is not None and not worker.is_running:
                worker.close()
                worker = None
            raise
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """End the processes, of which none may be at work."""
        while not self._idle.empty():
            worker = self._idle.get()
            if worker:
                worker.close()


def _exchange(process: Any, request: Any, answers: queue.Queue[Any]) -> None:
    """Send a request, and queue STARTED and the answer; None if the child has ended.

    Args:
        process: the child.
        request: function and arguments.
        answers: the queue.
    """
    try:
        send(process.stdin, packed(request))
        for _ in range(2):  # STARTED, then the answer
            answers.put(receive(process.stdout))
    except (OSError, EOFError, ValueError):  # the child has ended
        answers.put(None)
    except Exception as error:  # pickle raises errors of any class
        said = f"{type(error).__name__}: {error}"
        answers.put(("failure", ("failed", f"a call or its answer cannot be sent: {said}", "")))


def _python(environment: Path | None) -> str:
    names = ("bin/python", "Scripts/python.exe")
    inside = [environment / name for name in names] if environment else []
    return next((str(path) for path in inside if path.exists()), sys.executable)


def _path(environment: Path | None) -> str:
    """Return PYTHONPATH for the child: its own packages first, then vklab and all of ours."""
    if environment and _python(environment) != sys.executable:
        return _ROOT
    folders = [str(environment)] if environment else []
    return os.pathsep.join([*folders, _ROOT, *(path for path in sys.path if path)])


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the child together with what it started, such as compilers."""
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(CLOSE_S)
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError, ValueError):
            if stream:
                stream.close()
