"""vklab as a runner, in float32 or float16, with any switches; with arrays or resident values."""

from __future__ import annotations

import fnmatch
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vklab.apps.compare.backend import Availability
from vklab.apps.compare.speed.runners.runner import Arrays, Case
from vklab.errors import HostWarning, SetupError, VulkanError
from vklab.runtime import loading, open_devices
from vklab.runtime.cuda import sharing

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
        resident: "" for runs with NumPy arrays in and out; "host" or "cuda" for runs on inputs and
            outputs that stay, in mapped memory or as CUDA tensors.
    """

    name: str = "vklab"
    dtype: str = "float32"
    device: int | str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    models: str = "*"
    environment: Path | None = None
    precision: str = ""
    resident: str = ""
    on_gpu = True

    def takes(self, case: Case) -> bool:
        """Tell whether the name of the model matches."""
        return fnmatch.fnmatch(case.name, self.models)

    def available(self) -> Availability:
        """Tell whether there is a device."""
        try:
            open_devices.select(self.device)
            if self.resident == "cuda":
                sharing.of(open_devices.open_device(self.device))
        except (SetupError, VulkanError) as error:
            install = getattr(error, "repair", INSTALL) if self.resident else INSTALL
            return Availability(str(error).splitlines()[0], install)
        return Availability()

    def prepare(self, case: Case) -> VulkanModel:
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
        self._session = loading.load(
            case.onnx, runner.device, dtype=half, precision=runner.precision or None
        )
        self._resident = runner.resident
        self._bound: Any = None
        self._has_run = False
        stays = f", inputs and outputs stay: {runner.resident}" if runner.resident else ""
        self.variant = f"{self._session.device.name}, {runner.dtype}{stays}"

    def run(self, inputs: Arrays) -> Mapping[str, Any]:
        """Return the outputs by name; resident ones are arrays for who asks for them."""
        if self._resident:
            return self._run_resident(inputs)
        if self._has_run:
            return self._session.run(dict(inputs))
        self._has_run = True
        with warnings.catch_warnings():  # a session warns once; in each run this took 3 us
            warnings.simplefilter("ignore", HostWarning)
            return self._session.run(dict(inputs))

    def _run_resident(self, inputs: Arrays) -> Mapping[str, Any]:
        """Run on the first inputs, which stay; with CUDA tensors wait for PyTorch's stream."""
        on_cuda = self._resident == "cuda"
        if self._bound is None:
            self._bound = self._session.bind(dict(inputs), cuda=on_cuda)
            torch = sharing.require_torch() if on_cuda else None
            self._stream = torch.cuda.current_stream() if torch else None
        made: Mapping[str, Any] = self._bound.run()
        if self._stream:
            self._stream.synchronize()
        return made

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
            each = found.setdefault(
                name,
                {
                    "kernel": name,
                    "dispatches": 0,
                    "workgroups": 0,
                    "time_us": 0.0,
                    "flops": 0,
                    "bytes": 0,
                },
            )
            each["dispatches"] += 1
            each["workgroups"] += math.prod(row.workgroups)
            each["time_us"] += row.time_ns / 1e3
            each["flops"] += row.flops
            each["bytes"] += row.size_bytes
        return sorted(found.values(), key=lambda each: -float(each["time_us"]))

    def close(self) -> None:
        """Free the session."""
        self._session.close()
