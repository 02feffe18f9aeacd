"""Notes spans from any number of threads: a list for each thread, merged at the end.

Who is not given a recorder notes nothing, and pays one comparison with None.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from vklab.trace.spans import HOST, Span, Trace

__all__ = ["Recorder"]


class Recorder:
    """Collect spans; any thread may add, and none waits for another."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._lists: list[list[Span]] = []
        self._lock = threading.Lock()  # taken once a thread, for its list

    @staticmethod
    def now() -> int:
        """Return the moment on the clock of all spans."""
        return time.perf_counter_ns()

    def add(self, span: Span) -> None:
        """Note a span."""
        mine: list[Span] | None = getattr(self._local, "spans", None)
        if mine is None:
            mine = self._local.spans = []
            with self._lock:
                self._lists.append(mine)
        mine.append(span)

    @contextlib.contextmanager
    def span(
        self, name: str, kind: str = "host", device: str = HOST, **facts: Any
    ) -> Iterator[None]:
        """Note the block as a span, also one that an error ends; `facts` are fields of Span."""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            self.add(Span(name, kind, device, start, time.perf_counter_ns(), **facts))

    def trace(self, machine: Mapping[str, str] | None = None) -> Trace:
        """Return what has been noted so far."""
        with self._lock:
            return Trace(tuple(span for mine in self._lists for span in mine), machine or {})
