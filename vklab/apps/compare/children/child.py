"""One runtime in a process of its own: started by its first call, and anew after it has ended.

A backend of a report has calls of its own. What is called there is a function of `tasks`, or of
the same form elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Self, TypeVar

import numpy as np
import onnx

from vklab.apps.compare.backend import Availability, Backend, Dtypes, ModelSource, Runtime
from vklab.apps.compare.children import tasks
from vklab.apps.compare.layerwise.layers import Local
from vklab.base.worker import Failure, Worker

Arrays = dict[str, np.ndarray]
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
            self._worker = Worker(
                getattr(self.runtime, "environment", None), getattr(self.runtime, "variables", None)
            )

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


class Live(Child[Backend]):
    """A backend in a child process; close it, or use it in a `with` block."""

    def outputs(
        self, source: ModelSource, inputs: Mapping[str, np.ndarray], repeats: int
    ) -> list[Arrays]:
        """Load the model and return the outputs of several runs.

        Args:
            source: the model.
            inputs: arrays by input name.
            repeats: number of runs.
        """
        self.start()
        calibrated = getattr(self.runtime, "calibrated", None)
        if calibrated is not None:
            self.runtime = calibrated(inputs)
        self.call(tasks.prepare, self.runtime, source)
        return [self.call(tasks.run, inputs) for _ in range(max(1, repeats))]

    @property
    def runs_parts(self) -> bool:
        """Tell whether the backend can run a part of an ONNX graph."""
        return bool(getattr(self.runtime, "runs_parts", True))

    def layers(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Return the values of layers by name; {} if the backend cannot show them."""
        made: Arrays = self.call(tasks.layers, inputs)
        return made

    def alone(self, model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Return the outputs of a part of the model, an ONNX graph."""
        if not self.runs_parts:
            raise Failure("refused", f"{self.runtime.name} runs no parts of an ONNX graph")
        made: Arrays = self.call(tasks.alone, self.runtime, model.SerializeToString(), dict(inputs))
        return made

    def layers_alone(
        self, inputs: Mapping[str, np.ndarray], truth: Mapping[str, np.ndarray], dtypes: Dtypes
    ) -> tuple[Local, Arrays]:
        """Return what each layer should return if it is fed the truth, and what it returns.

        Args:
            inputs: arrays by input name.
            truth: values of layers in float64 by fx name.
            dtypes: dtypes of the backend.
        """
        made: tuple[Local, Arrays] = self.call(tasks.module_layers, inputs, truth, dtypes)
        return made

    @property
    def binds(self) -> bool:
        """Tell whether inputs and outputs of the backend can stay in its device's memory."""
        return bool(getattr(self.runtime, "binds", False))

    def measure(
        self, inputs: Mapping[str, np.ndarray], seconds: float, runs: int, bound: bool = False
    ) -> list[int]:
        """Return nanoseconds of whole runs.

        Args:
            inputs: arrays by input name.
            seconds: no run starts later than this.
            runs: most runs.
            bound: whether inputs and outputs stay in the device's memory.
        """
        made: list[int] = self.call(tasks.measure, inputs, seconds, runs, bound)
        return made

    def facts(self) -> dict[str, Any]:
        """Return nodes, bytes, versions, dtypes and a note."""
        made: dict[str, Any] = self.call(tasks.facts)
        return made
