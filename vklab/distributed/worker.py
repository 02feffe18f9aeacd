"""What runs on a Dask worker: the model, shipped once, and the session that it opens there.

The session is opened by the first batch, so that what goes wrong reaches whoever asked for it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from dask.distributed import WorkerPlugin, get_worker

from vklab.errors import SetupError, VklabError
from vklab.runtime import open_devices, session
from vklab.types import DeviceInfo

__all__ = ["ModelPlugin", "candidates", "run"]


class ModelPlugin(WorkerPlugin):
    """A model that every worker holds, also one that starts later or starts again.

    Args:
        devices: worker number k opens the k-th of them; none for those that `candidates` gives.
        options: what else `vklab.load` is given.
    """

    def __init__(
        self, model: bytes, devices: Sequence[int | str], options: dict[str, Any]
    ) -> None:
        self.model = model
        self.devices = devices
        self.options = options

    def setup(self, worker: Any) -> None:
        """Begin on a worker."""
        self._worker = worker
        self._session: session.Session | None = None
        self._lock = threading.Lock()

    def teardown(self, worker: Any) -> None:
        """Close the session when the model is withdrawn, or the worker leaves."""
        with self._lock:
            if self._session is not None:
                self._session.close()
            self._session = None

    def opened(self) -> session.Session:
        """Return the open session. Raises SetupError naming this worker if it has no device."""
        with self._lock:
            if self._session is None:
                self._session = self._load()
            return self._session

    def _load(self) -> session.Session:
        name, address = self._worker.name, self._worker.address
        try:
            found: Sequence[int | str] = self.devices or [info.index for info in candidates()]
            number = re.search(r"(\d+)\D*$", str(name)) if name != address else None
            device = found[int(number.group(1) if number else 0) % len(found)]
            return session.load(self.model, device, **self.options)
        except SetupError as error:
            raise SetupError(f"worker {name} at {address}: {error}") from error


def candidates() -> list[DeviceInfo]:
    """Return the devices to work on: all that can be used, without CPUs if there are others.

    Raises SetupError if there is none.
    """
    found = [info for info in open_devices.devices() if not info.refusal]
    if not found:
        raise SetupError(f"no Vulkan device can be used; there are:\n{open_devices.devices()}")
    return [info for info in found if not info.is_cpu] or found


def run(name: str, batch: Any) -> dict[str, np.ndarray]:
    """Run the model that was shipped under a name on one batch; a Dask task."""
    worker = get_worker()
    plugin: Any = worker.plugins.get(name)
    if plugin is None:
        raise VklabError(f"worker {worker.name} at {worker.address} was not sent the model")
    inputs = batch if isinstance(batch, tuple) else (batch,)
    return plugin.opened().run(*inputs)
