"""DeviceState: one device of a session, with the memory and kernels that its programs share.

Visited by labs 03 and 13.
"""

from __future__ import annotations

import copy

from vklab.runtime.buffers import BufferPool
from vklab.runtime.kernels import Kernel
from vklab.runtime.open_devices import OpenDevice
from vklab.runtime.weights import SessionWeights


class DeviceState:
    """An open device with a session's weights, its memory for upper bounds, and its kernels.

    Attributes:
        opened: the device, which other sessions may share.
        weights: the session's weights on the device.
        pool: the buffers that all shapes share if the session has upper bounds.
        kernels: the kernels compiled for the session's programs, by `kernels.key`.
    """

    def __init__(self, opened: OpenDevice) -> None:
        self.opened = opened
        self.weights = SessionWeights(opened)
        self.pool = BufferPool(opened)
        self.kernels: dict[tuple[object, ...], Kernel] = {}

    def clone(self) -> DeviceState:
        """Return the same device and weights with a buffer pool of its own."""
        other = copy.copy(self)
        other.pool = BufferPool(self.opened)
        return other

    def close(self) -> None:
        """Close the session's bindings, and free the pool unless the device may still use it.

        Weights are freed with programs.
        """
        for part in [each for each in self.opened.sessions if getattr(each, "state", 0) is self]:
            part.close()
        if not self.opened.is_stuck:
            self.pool.close()
