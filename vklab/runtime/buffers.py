"""Device memory for everything but weights: one buffer for each arena of a plan.

Under upper bounds all programs of a session share one reserve, made for the largest of them; else
each has its own. Visited by labs 03 and 11.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vklab import settings
from vklab.runtime.open_devices import OpenDevice
from vklab.vulkan.host_memory import ExternalBuffer
from vklab.vulkan.memory import Buffer

if TYPE_CHECKING:
    from vklab.runtime.program import Program

__all__ = ["BufferPool", "kind_of"]

ARENA_KINDS = {"inputs": "upload", "outputs": "readback", "activations": "device",
               "arriving": "device", "leaving": "device"}  # fmt: skip


def kind_of(arena: str) -> str | None:
    """Return what memory an arena takes; None for those of weights."""
    return ARENA_KINDS.get(arena.rstrip("0123456789"))


class BufferPool:
    """The inputs, outputs and activations of programs that never run at the same time.

    Attributes:
        buffers: by the names of arenas.
        version: counts up when a buffer was replaced: what was recorded before is then stale.
        last: who ran in it last, and may be under way after a time-out.
        growths: what had to be made larger after the first use, and for whom (DEBUG prints it).
    """

    def __init__(self, opened: OpenDevice) -> None:
        self.opened = opened
        self.buffers: dict[str, Buffer | ExternalBuffer] = {}
        self.version = 0
        self.last: Program | None = None
        self.growths: list[str] = []

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all arenas."""
        return sum(buffer.size_bytes for buffer in self.buffers.values())

    def fit(self, arenas: Mapping[str, int], reason: str) -> None:
        """Make every arena at least this large; those of weights are not its business.

        Args:
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
