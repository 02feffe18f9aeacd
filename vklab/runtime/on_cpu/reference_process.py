"""Process of references: ONNX Runtime and onnx.reference at work under limits.

There they may crash, hang or take all memory. One process serves all models of this one, because
its start takes longer than most checks: it starts at the first use, ends with this process, and is
replaced after a crash or a limit.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from vklab import settings
from vklab.base import forking
from vklab.base.worker import Worker
from vklab.errors import SetupError

# Returns a serialized model, and the folder of its external data.
Source = Callable[[], tuple[bytes, Path | None]]
# Loads a model in the process, as `state[number]` with a method `run`.
Loader = Callable[[dict[Any, Any], int, bytes, "Path | None"], None]
_numbers = itertools.count()


class ProcessModel:
    """A model in the process of references.

    Args:
        source: returns the model when the process needs it: at first, and after a crash.
        loader: loads it in the process: `cpu_session.load` or `onnx_evaluator.load`.

    Attributes:
        number: the number of the model in the process.
    """

    def __init__(self, source: Source, loader: Loader) -> None:
        self.source, self.loader = source, loader
        self.number = next(_numbers)
        weakref.finalize(self, _process.unused.append, self.number).atexit = False

    def load(self) -> None:
        """Load the model, unless the process has it; raise Failure where that is refused."""
        with _process.loaded(self):
            pass

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs by name.

        Raises Failure where the inputs are refused, the process crashes, or reaches a limit.
        """
        with _process.loaded(self) as call:
            made: dict[str, Any] = call(_run, self.number, dict(inputs))
            return made

    def close(self) -> None:
        """Free the model in the process; the next run loads it again."""
        _process.forget(self.number)


class _Process:
    """Process of references, shared by all models of this one.

    Attributes:
        unused: numbers of models to free at the next call: a finalizer may not make a call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._loaded: set[int] = set()
        self.unused: collections.deque[int] = collections.deque()

    @contextlib.contextmanager
    def loaded(self, model: ProcessModel) -> Iterator[Callable[..., Any]]:
        """Load a model unless the process has it; give the function that calls the process."""
        with self._lock:
            self._start()
            if model.number not in self._loaded:
                self._call(model.loader, model.number, *model.source())
                self._loaded.add(model.number)
            yield self._call

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        worker = self._worker
        assert worker is not None
        try:
            return worker.call(
                function,
                *arguments,
                seconds=float(settings.get("REFERENCE_TIMEOUT")),
                memory_bytes=int(float(settings.get("REFERENCE_MEMORY")) * _memory_bytes()),
            )
        finally:
            if not worker.is_running:  # after a limit, a crash or an interrupt
                self.close()

    def _start(self) -> None:
        """Start the process unless it can answer; free the models in it that nobody uses."""
        if self._worker is not None and not self._worker.is_running:
            self.close()
        if self._worker is not None:
            self._free()
            return
        try:
            self._worker = Worker()
        except OSError as error:
            repair = "allow this process another one, or run without a check"
            raise SetupError(f"no process of references starts: {error}", repair) from error

    def _free(self) -> None:
        numbers = {self.unused.popleft() for _ in range(len(self.unused))} & self._loaded
        if numbers:
            self._loaded -= numbers
            self._call(_forget, numbers)

    def forget(self, number: int) -> None:
        """Free a model: at once, or before the next call if one is being made."""
        if number in self._loaded:
            self.unused.append(number)
        if self.unused and self._lock.acquire(blocking=False):
            try:
                if self._worker is not None and self._worker.is_running:
                    self._free()
            finally:
                self._lock.release()

    def close(self) -> None:
        """End the process; a later run starts another one."""
        worker, self._worker = self._worker, None
        self._loaded.clear()
        if worker is not None:
            worker.kill()

    def abandon(self) -> None:
        """Leave the process to the parent of this forked one."""
        worker, self._worker, self._lock = self._worker, None, threading.Lock()
        self._loaded.clear()
        if worker is not None:
            worker.abandon()


_process = _Process()
forking.in_child(_process.abandon)
atexit.register(_process.close)


def _run(state: dict[Any, Any], number: int, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Run a model in the process of references."""
    made: dict[str, Any] = state[number].run(inputs)
    return made


def _forget(state: dict[Any, Any], numbers: Collection[int]) -> None:
    """Free models in the process of references."""
    for number in numbers:
        state.pop(number, None)


def _memory_bytes() -> int:
    """Return the memory of this machine; 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0
