"""Clocks of an NVIDIA GPU, read from its driver's management library while others measure.

Other drivers do not tell: there the clocks are unknown.

Source: NVML API reference, nvmlDeviceGetClockInfo
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from vklab.apps.compare import peers
from vklab.types import DeviceInfo

SM, MEMORY = 1, 2  # NVML_CLOCK_SM, NVML_CLOCK_MEM
PERIOD_S = 0.01
MOST_STEPS, STEP_S, NEAR = 24, 0.25, 0.01


@contextlib.contextmanager
def sampling(period_s: float, sample: Callable[[], object]) -> Iterator[None]:
    """Call a function again and again, in a thread, while the `with` block runs."""
    done = threading.Event()

    def repeat() -> None:
        while not done.wait(period_s):
            sample()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Clocks:
    """Reader of the clocks of one GPU; `is_known` is False where the driver does not tell.

    Args:
        info: the Vulkan device.
    """

    def __init__(self, info: DeviceInfo) -> None:
        self._library: Any = None
        self._handle = ctypes.c_void_p()
        if info.vendor_id == peers.NVIDIA:
            with contextlib.suppress(OSError, AttributeError):
                self._open(info.uuid.replace("-", "").lower())

    def _open(self, uuid: str) -> None:
        name = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
        library = ctypes.CDLL(name)
        if library.nvmlInit_v2():
            return
        count = ctypes.c_uint()
        library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for number in range(count.value):
            handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
            library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle))
            library.nvmlDeviceGetUUID(handle, text, 96)
            own = text.value.decode("ascii").removeprefix("GPU-").replace("-", "").lower()
            if own == uuid or count.value == 1:
                self._library, self._handle = library, handle

    @property
    def is_known(self) -> bool:
        """Tell whether the driver tells its clocks."""
        return self._library is not None

    def read(self, kind: int = SM) -> int | None:
        """Return a clock in MHz; None if it is unknown."""
        if self._library is None:
            return None
        value = ctypes.c_uint()
        failed = self._library.nvmlDeviceGetClockInfo(self._handle, kind, ctypes.byref(value))
        return None if failed else int(value.value)

    def sampled(self, samples: list[int]) -> contextlib.AbstractContextManager[None]:
        """Append the clock of the multiprocessors every 10 ms while the `with` block runs."""

        def sample() -> None:
            clock = self.read()
            if clock:
                samples.append(clock)

        return sampling(PERIOD_S, sample) if self._library else contextlib.nullcontext()


def settled(clocks: Clocks, work: Callable[[float], object]) -> dict[str, int | None]:
    """Keep the device at work until its clock rises no more; return its clocks in MHz.

    Args:
        clocks: the reader.
        work: occupies the device for some seconds.
    """
    recent: list[int] = []
    for _ in range(MOST_STEPS if clocks.is_known else 1):
        samples: list[int] = []
        with clocks.sampled(samples):
            work(STEP_S)
        recent.append(int(median(samples)) if samples else 0)
        if len(recent) > 3 and max(recent[-3:]) - min(recent[-3:]) <= NEAR * max(recent):
            break
    return {"sm_mhz": recent[-1] or None, "memory_mhz": clocks.read(MEMORY)}
