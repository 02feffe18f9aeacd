"""CopiedRun: a binding of a model whose values cannot stay on one device.

Models with nodes on the host, control flow, several devices, or sizes that a run tells: each run
copies its inputs in and its outputs out, as `Session.run` does. Visited by lab 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vklab.errors import ModelError, VklabError
from vklab.runtime.bound.tensors import DeviceTensor, Key
from vklab.runtime.io_binding import Given
from vklab.runtime.plan_cache import PlanCache


class CopiedRun:
    """Inputs and outputs of a binding in arrays of the host, and plans with buffers of their own.

    Args:
        root: the plans of the model.
        reason: why values pass through the host.
        values: the inputs by name.
        given: tensors of other bindings, by input name; copied in by each run.
        states: the output that each state is after a run, by the state's input name.

    Attributes:
        opened: the first device.
        reason: as the argument.
    """

    def __init__(
        self, root: PlanCache, reason: str, values: Mapping[str, np.ndarray],
        given: Mapping[str, DeviceTensor], states: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.reason = reason
        self._given, self._states = given, states
        self._values = {name: array for name, array in values.items() if name not in given}
        self._outputs: dict[str, Any] = {}
        self._executor = root.executor.clone()
        self._plans = root.clone(self._executor)
        self.opened = self._executor.devices[0].opened
        self._is_closed = False

    def require_open(self) -> None:
        """Raise VklabError if the binding was closed, or its session."""
        if self._is_closed:
            raise VklabError("this binding is closed, or its session: bind again")

    def info(self, key: Key) -> tuple[str, tuple[int, ...]]:
        """Return dtype and shape of an input or output."""
        array = self.view(key)
        return str(array.dtype), array.shape

    def is_fixed(self, key: Key) -> bool:
        """Return False: each run makes new arrays."""
        return False

    def is_resident(self, key: Key) -> bool:
        """Return False: the value is in host memory."""
        return False

    def place(self, key: Key) -> Given:
        """Raise VklabError: there is no buffer that another binding could read."""
        raise VklabError(
            f"{key[0]} is in host memory, because {self.reason}; copy it into the "
            "other binding before each of its runs"
        )

    cuda_number = None

    def torch(self, key: Key) -> Any:
        """Raise ModelError: CUDA has no address of a value in host memory."""
        raise ModelError(f"{key[0]} is in host memory, because {self.reason}; use numpy()")

    def view(self, key: Key) -> np.ndarray:
        """Return the present value."""
        self.require_open()
        name, is_output = key
        if not is_output:
            return self._given[name].numpy() if name in self._given else self._values[name]
        if name not in self._outputs:
            raise VklabError(f"output {name} has no value before the first run of the binding")
        value: np.ndarray = self._outputs[name]
        if not isinstance(value, np.ndarray):
            raise ModelError(
                f"output {name} is a {type(value).__name__}, not a tensor; use session.run"
            )
        return value

    def read(self, key: Key) -> np.ndarray:
        """Return a copy of the present value."""
        return self.view(key).copy()

    def write(self, key: Key, array: np.ndarray) -> None:
        """Replace a whole value."""
        self.view(key)[...] = array

    def import_input(self, name: str, array: np.ndarray) -> str:
        """Return why the device cannot read an input in place; the host reads it there."""
        return self.reason

    def run(self) -> None:
        """Run once, and make the new states the inputs of the next run."""
        self.require_open()
        values = {name: self.view((name, False)) for name in self._plans.names}
        made = dict(self._executor.run(self._plans, dict(values)))
        for past, present in self._states.items():
            before, after = values[past], made[present]
            if (before.shape, before.dtype) != (after.shape, after.dtype):
                raise ModelError(
                    f"state: output {present}: {after.dtype}{list(after.shape)} "
                    f"cannot be the next run's {past}: {before.dtype}"
                    f"{list(before.shape)}; dtype and shape must be equal"
                )
        self._outputs = made
        self._values |= {past: made[present] for past, present in self._states.items()}

    def close(self) -> None:
        """Free the plans' resources; arrays belong to their readers."""
        self._is_closed = True
        with self._executor.lock:  # other threads may plan, which counts weights
            self._plans.close()
            self._executor.close()
