"""A Dask worker's part: the model, which is sent once, and the session that runs it.

The first batch opens the session, so that an error reaches the caller. Visited by lab 13.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from dask.distributed import WorkerPlugin, get_worker

from vklab.errors import SetupError, VklabError
from vklab.runtime import loading, open_devices, session
from vklab.types import DeviceInfo


class ModelPlugin(WorkerPlugin):
    """A model on every worker, including workers that start later or restart.

    Args:
        model: bytes of an ONNX model or of a compiled one.
        devices: worker number k opens the k-th of them; if empty, of `candidates()`.
        options: further arguments of `vklab.load`.
    """

    def __init__(self, model: bytes, devices: Sequence[int | str], options: dict[str, Any]) -> None:
        self.model = model
        self.devices = devices
        self.options = options

    def setup(self, worker: Any) -> None:
        """Record the worker; Dask calls this once on each."""
        self._worker = worker
        self._session: session.Session | None = None
        self._lock = threading.Lock()

    def teardown(self, worker: Any) -> None:
        """Close the session when the model is removed or the worker stops."""
        with self._lock:
            if self._session is not None:
                self._session.close()
            self._session = None

    def opened(self) -> session.Session:
        """Return the open session. Raises SetupError with this worker's name without a device."""
        with self._lock:
            if self._session is None:
                self._session = self._load()
            return self._session

    def _load(self) -> session.Session:
        name, address = self._worker.name, self._worker.address
        try:
            devices: Sequence[int | str] = self.devices or [info.index for info in candidates()]
            number = re.search(r"(\d+)\D*$", str(name)) if name != address else None
            device = devices[int(number.group(1) if number else 0) % len(devices)]
            return loading.load(self.model, device, **self.options)
        except SetupError as error:
            raise SetupError(f"worker {name} at {address}: {error}") from error


def candidates() -> list[DeviceInfo]:
    """Return the usable devices, without CPUs if there are others.

    Raises SetupError if there is none.
    """
    usable = [info for info in open_devices.devices() if not info.refusal]
    if not usable:
        raise SetupError(f"no Vulkan device can be used; there are:\n{open_devices.devices()}")
    return [info for info in usable if not info.is_cpu] or usable


def run(name: str, batch: Any) -> dict[str, np.ndarray]:
    """Run the model that was sent under a name on one batch; a Dask task."""
    worker = get_worker()
    plugin: Any = worker.plugins.get(name)
    if plugin is None:
        raise VklabError(f"worker {worker.name} at {worker.address} was not sent the model")
    inputs = batch if isinstance(batch, tuple) else (batch,)
    return plugin.opened().run(*inputs)
