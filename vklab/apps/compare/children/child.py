"""One runtime in a process of its own: started by its first call, and anew after it has ended.

What is called there is a function of `tasks`, or of the same form elsewhere.
"""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

from vklab.apps.compare.backend import Availability, Runtime
from vklab.apps.compare.children import tasks
from vklab.base.worker import Failure, Worker

One = TypeVar("One", bound=Runtime)


class Child(Generic[One]):
    """A runtime in a child process; close it, or use it in a `with` block.

    Args:
        runtime: a backend of parity, or a runner of the benchmark.
        seconds: time limit of each call.
    """

    def __init__(self, runtime: One, seconds: float) -> None:
        self.runtime, self._seconds = runtime, seconds
        self._worker: Worker | None = None
        self._availability: Availability | None = None

    def start(self) -> None:
        """Start the process if there is none, or if it has ended; it has no model then."""
        if self._worker is not None and not self._worker.is_running:
            self.close()
        if self._worker is None:
            self._worker = Worker(getattr(self.runtime, "environment", None),
                                  getattr(self.runtime, "variables", None))  # fmt: skip

    def call(self, function: Any, *arguments: Any) -> Any:
        """Return function(state, *arguments), computed in the child.

        Raises Failure: again and again if the process has ended, until `start` starts another one.
        """
        if self._worker is None:
            self.start()
        assert self._worker
        return self._worker.call(function, *arguments, seconds=self._seconds)

    def available(self) -> Availability:
        """Return whether the runtime can run here; its child is asked once."""
        if self._availability is None:
            try:
                [self._availability] = self.call(tasks.availability, [self.runtime])
            except Failure as failure:
                reason = f"it cannot be asked: {failure.reason}"
                self._availability = Availability(reason, failure.install)
        return self._availability

    def free(self) -> None:
        """Free the child's model, so that others have its memory."""
        self.call(tasks.close)

    def close(self) -> None:
        """End the process; a later call starts another one."""
        worker, self._worker = self._worker, None
        if worker:
            worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
