"""BufferPool: device memory for everything but weights, one buffer for each arena of a chunk.

Under upper bounds all programs of a session share one pool, made for the largest of them; else
each program has its own. Visited by labs 03 and 11.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Protocol

from vklab import settings
from vklab.plan.memory import WEIGHTS
from vklab.runtime.open_devices import OpenDevice
from vklab.vulkan.memory import Buffer

__all__ = ["BufferPool", "PoolBuffer", "PoolUser", "kind_of"]


class PoolBuffer(Protocol):
    """A buffer with memory: a `vulkan.memory.Buffer`, or one whose memory other devices see too."""

    handle: Any
    size_bytes: int

    @property
    def mapped(self) -> memoryview | None:
        """Return the buffer's bytes as the host sees them, or None."""

    def close(self) -> None:
        """Free the buffer."""


class PoolUser(Protocol):
    """A program that runs in the memory of a pool."""

    def require_idle(self) -> None:
        """Raise as long as the device works on an earlier run."""


def kind_of(arena: str) -> str | None:
    """Return the kind of memory that an arena takes; None for weights, which are no pool's."""
    if arena.startswith(WEIGHTS):
        return None
    return {"inputs": "upload", "outputs": "readback"}.get(arena.rstrip("0123456789"), "device")


class BufferPool:
    """The inputs, outputs and activations of programs that never run at the same time.

    Attributes:
        buffers: by the names of arenas.
        version: counts up when a buffer is replaced: earlier recordings are then stale.
        last: the program that ran in it last, and may be under way after a time-out.
        growths: what had to be made larger after the first use, and for whom (DEBUG prints it).
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
        """Make every arena at least as large as asked.

        Args:
            arenas: bytes by the name of the arena; those of weights are left alone.
            reason: who needs it, for `growths`.
        """
        is_first = not self.buffers
        for arena, size in arenas.items():
            kind = kind_of(arena)
            old = self.buffers.get(arena)
            if kind is None or (old and old.size_bytes >= size):
                continue
            if self.last:
                self.last.require_idle()
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
