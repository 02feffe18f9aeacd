"""BufferPool: device memory for inputs, outputs and activations, one buffer for each arena.

With upper bounds all programs of a session share one pool, sized for the largest shapes; else
each program has its own. Weights are kept apart, in `weights`. Visited by labs 03 and 11.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Protocol

from vklab import settings
from vklab.plan.memory import INPUTS, OUTPUTS, WEIGHTS
from vklab.runtime.open_devices import OpenDevice
from vklab.vulkan.memory import Buffer


class PoolBuffer(Protocol):
    """A buffer with memory: a `vulkan.memory.Buffer`, or one that shares memory between devices."""

    handle: Any
    size_bytes: int

    @property
    def mapped(self) -> memoryview | None:
        """Return the buffer's bytes as the host sees them; None if the memory is not mapped."""

    def close(self) -> None:
        """Free the buffer."""


class PoolUser(Protocol):
    """A program that uses the buffers of a pool."""

    def require_idle(self) -> None:
        """Raise TimeoutError or DeviceLostError unless the device has ended the earlier run."""

    def settle(self) -> None:
        """Do as `require_idle`, and wait until no commands use the buffers any more."""


def kind_of(arena: str) -> str | None:
    """Return the kind of memory of an arena; None for weights, which no pool contains."""
    if arena.startswith(WEIGHTS):
        return None
    return {INPUTS: "upload", OUTPUTS: "readback"}.get(arena.rstrip("0123456789"), "device")


class BufferPool:
    """Buffers for inputs, outputs and activations of programs that never run at the same time.

    Attributes:
        buffers: the buffer of each arena, by arena name.
        version: counts replaced buffers; a recording made for an older version is stale.
        last: the program that ran in the pool last; after a time-out it may still be running.
        growths: one text for each arena that grew after the first use; DEBUG prints it.
    """

    def __init__(self, opened: OpenDevice) -> None:
        self.opened = opened
        self.buffers: dict[str, PoolBuffer] = {}
        self.version = 0
        self.last: PoolUser | None = None
        self.growths: list[str] = []

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all arenas."""
        return sum(buffer.size_bytes for buffer in self.buffers.values())

    def fit(self, arenas: Mapping[str, int], reason: str) -> None:
        """Make every arena's buffer at least as large as needed.

        Args:
            arenas: the bytes of each arena, by arena name; arenas of weights are skipped.
            reason: the inputs that need the size, for `growths`.
        """
        is_first = not self.buffers
        for arena, size in arenas.items():
            kind = kind_of(arena)
            old = self.buffers.get(arena)
            if kind is None or (old and old.size_bytes >= size):
                continue
            if self.last:
                self.last.settle()
            self.buffers[arena] = Buffer(self.opened.allocator, size, kind)
            self.version += 1
            if not is_first:
                had = old.size_bytes if old else 0
                self.growths.append(f"{arena} from {had} to {size} bytes for {reason}")
                if int(settings.get("DEBUG")) >= 1:
                    print(f"reserved memory grows: {self.growths[-1]}", file=sys.stderr)
            if old:
                old.close()

    def close(self) -> None:
        """Free every buffer."""
        self.last = None
        while self.buffers:
            self.buffers.popitem()[1].close()
