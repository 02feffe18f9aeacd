"""DeviceState: one device of a session, with what all of its programs there share."""

from __future__ import annotations

import copy

from vklab.runtime.buffers import BufferPool
from vklab.runtime.kernels import Kernel
from vklab.runtime.open_devices import OpenDevice
from vklab.runtime.weights import SessionWeights

__all__ = ["DeviceState"]


class DeviceState:
    """An open device, the session's weights there, memory for upper bounds, and kernels.

    Attributes:
        opened: the device, which other sessions may use, too.
        weights: the session's weights on the device.
        pool: the memory of all shapes, where the session has upper bounds.
        kernels: what was compiled for the session's programs, by `kernels.key`.
    """

    def __init__(self, opened: OpenDevice) -> None:
        self.opened = opened
        self.weights = SessionWeights(opened)
        self.pool = BufferPool(opened)
        self.kernels: dict[tuple[object, ...], Kernel] = {}

    def clone(self) -> DeviceState:
        """Return the same device with memory of its own for all but weights."""
        other = copy.copy(self)
        other.pool = BufferPool(self.opened)
        return other

    def close(self) -> None:
        """Free its memory, unless the device still works there; weights go with programs."""
        if not self.opened.is_stuck:
            self.pool.close()
