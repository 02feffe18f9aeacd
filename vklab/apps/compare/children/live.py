"""One backend at work in its child: the calls of a report, each under the time limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from vklab.apps.compare.backend import Backend, Dtypes, ModelSource
from vklab.apps.compare.children import tasks
from vklab.apps.compare.layerwise.layers import Local
from vklab.base.worker import Failure, Worker

__all__ = ["Live"]

Arrays = dict[str, np.ndarray]


class Live:
    """A backend in a child process; close it, or use it in a `with` block.

    Args:
        backend: the backend.
        seconds: time limit of each call.
    """

    def __init__(self, backend: Backend, seconds: float) -> None:
        self.backend, self._seconds = backend, seconds
        self._worker = Worker(getattr(backend, "environment", None))

    def outputs(
        self, source: ModelSource, inputs: Mapping[str, np.ndarray], repeats: int
    ) -> list[Arrays]:
        """Load the model and return the outputs of several runs.

        Args:
            source: the model.
            inputs: arrays by input name.
            repeats: number of runs.
        """
        calibrated = getattr(self.backend, "calibrated", None)
        if calibrated is not None:
            self.backend = calibrated(inputs)
        self._call(tasks.prepare, self.backend, source)
        return [self._call(tasks.run, inputs) for _ in range(max(1, repeats))]

    @property
    def runs_parts(self) -> bool:
        """Tell whether the backend can run a part of an ONNX graph."""
        return bool(getattr(self.backend, "runs_parts", True))

    def layers(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Return the values of layers by name; {} if the backend cannot show them."""
        made: Arrays = self._call(tasks.layers, inputs)
        return made

    def alone(self, model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Return the outputs of a part of the model, an ONNX graph."""
        if not self.runs_parts:
            raise Failure("refused", f"{self.backend.name} runs no parts of an ONNX graph")
        made: Arrays = self._call(
            tasks.alone, self.backend, model.SerializeToString(), dict(inputs)
        )
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
        made: tuple[Local, Arrays] = self._call(tasks.module_layers, inputs, truth, dtypes)
        return made

    @property
    def binds(self) -> bool:
        """Tell whether inputs and outputs of the backend can stay in its device's memory."""
        return bool(getattr(self.backend, "binds", False))

    def measure(
        self, inputs: Mapping[str, np.ndarray], seconds: float, runs: int, bound: bool = False
    ) -> tuple[int, ...]:
        """Return nanoseconds of whole runs.

        Args:
            inputs: arrays by input name.
            seconds: no run starts later than this.
            runs: most runs.
            bound: whether inputs and outputs stay in the device's memory.
        """
        task = tasks.measure_bound if bound else tasks.measure
        made: tuple[int, ...] = self._call(task, inputs, seconds, runs)
        return made

    def facts(self) -> dict[str, Any]:
        """Return nodes, bytes, versions, dtypes and a note."""
        made: dict[str, Any] = self._call(tasks.facts)
        return made

    def _call(self, function: Any, *arguments: Any) -> Any:
        return self._worker.call(function, *arguments, seconds=self._seconds)

    def close(self) -> None:
        """End the child."""
        self._worker.close()

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
