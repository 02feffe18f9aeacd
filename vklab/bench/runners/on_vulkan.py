"""vklab as a runner, in float32 or float16, with any switches."""

from __future__ import annotations

import fnmatch
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vklab.backends.backend import Availability
from vklab.bench.runners.runner import Arrays, Case
from vklab.errors import HostWarning, SetupError, VulkanError
from vklab.runtime import loading, open_devices

__all__ = ["Vulkan", "VulkanModel"]

PROFILED, LONGEST = 5, 60  # runs of a profile; characters of a kernel's name
INSTALL = "python3 -m vklab doctor says what is missing on this system"


@dataclass(frozen=True)
class Vulkan:
    """vklab on one device.

    Attributes:
        name: name of the runner.
        dtype: "float32" for the model's own dtype, or "float16".
        device: index or part of a name; None for the fastest device.
        variables: switches of vklab, as environment variables.
        models: pattern of the names of the models to measure.
        precision: of products, as in `load`.
    """

    name: str = "vklab"
    dtype: str = "float32"
    device: int | str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    models: str = "*"
    environment: Path | None = None
    precision: str = ""
    on_gpu = True

    def takes(self, case: Case) -> bool:
        """Tell whether the name of the model matches."""
        return fnmatch.fnmatch(case.name, self.models)

    def available(self) -> Availability:
        """Tell whether there is a device."""
        try:
            open_devices.select(self.device)
        except (SetupError, VulkanError) as error:
            return Availability(str(error).splitlines()[0], INSTALL)
        return Availability()

    def load(self, case: Case) -> VulkanModel:
        """Load the model on the device."""
        return VulkanModel(self, case)


class VulkanModel:
    """A model that vklab has loaded.

    Args:
        runner: device and dtype.
        case: the model.
    """

    def __init__(self, runner: Vulkan, case: Case) -> None:
        half = "float16" if runner.dtype == "float16" else None
        self._on_device = case.on_device
        self._session = loading.load(case.onnx, runner.device, dtype=half,
                                     precision=runner.precision or None)  # fmt: skip
        self.variant = f"{self._session.device.name}, {runner.dtype}"

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """Return the outputs by name."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HostWarning)
            return dict(self._session.run(dict(inputs)))

    def device_ns(self, inputs: Arrays, runs: int) -> list[float]:
        """Return the time of a run by the device's timestamps; of the kernels alone if asked so."""
        if not self._on_device:
            return list(self._session.time(dict(inputs), repeats=runs).device_ns)
        rows = self._session.profile(dict(inputs), repeats=runs).rows
        return [sum(row.time_ns for row in rows if row.kernel != "copy")]

    def kernels(self, inputs: Arrays) -> list[dict[str, Any]]:
        """Return dispatches, workgroups, time, operations and bytes of each kernel by time."""
        found: dict[str, dict[str, Any]] = {}
        for row in self._session.profile(dict(inputs), repeats=PROFILED).rows:
            name = row.kernel if len(row.kernel) < LONGEST else f"{row.kernel[:LONGEST]}..."
            each = found.setdefault(name, {"kernel": name, "dispatches": 0, "workgroups": 0,
                                           "time_us": 0.0, "flops": 0, "bytes": 0})  # fmt: skip
            each["dispatches"] += 1
            each["workgroups"] += math.prod(row.workgroups)
            each["time_us"] += row.time_ns / 1e3
            each["flops"] += row.flops
            each["bytes"] += row.size_bytes
        return sorted(found.values(), key=lambda each: -float(each["time_us"]))

    def close(self) -> None:
        """Free the session."""
        self._session.close()
