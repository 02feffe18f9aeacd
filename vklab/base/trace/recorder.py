"""Record spans from any number of threads: a list for each thread, merged at the end.

Code without a recorder pays one comparison with None. Visited by lab 12.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from vklab.base.trace.spans import Span
from vklab.base.trace.trace import Trace


class Recorder:
    """Collect spans from many threads; no thread waits for another."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._lists: list[list[Span]] = []
        self._lock = threading.Lock()  # taken once in each thread, to register its list

    @staticmethod
    def now() -> int:
        """Return the present time in nanoseconds, on the clock of all spans."""
        return time.perf_counter_ns()

    def add(self, span: Span) -> None:
        """Record a span."""
        spans: list[Span] | None = getattr(self._local, "spans", None)
        if spans is None:
            spans = self._local.spans = []
            with self._lock:
                self._lists.append(spans)
        spans.append(span)

    def trace(self, machine: Mapping[str, str] | None = None) -> Trace:
        """Return the spans recorded so far; `machine` describes the machine as text."""
        with self._lock:
            return Trace(tuple(span for spans in self._lists for span in spans), machine or {})
