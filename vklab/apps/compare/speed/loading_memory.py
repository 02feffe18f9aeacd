"""Host memory while a model is loaded: what the process and vklab's staging buffers take at most.

Source: proc_pid_status(5), RssAnon.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vklab.apps.compare.speed import clocks
from vklab.runtime.open_devices import OpenDevice

STATUS = Path("/proc/self/status")
PERIOD_S = 0.002


@dataclass
class HostMemory:
    """Bytes that were added, at most, while something ran.

    Attributes:
        anonymous: the process's memory that is no file; None where the system does not tell.
        staging: memory of the host that the device reads, in the allocator's blocks.
    """

    anonymous: int | None = None
    staging: int = 0


@contextlib.contextmanager
def watched(opened: OpenDevice) -> Iterator[HostMemory]:
    """Watch the host's memory while the `with` block runs.

    Pages of a mapped file are not counted: the system drops them when it needs memory.
    """
    found = HostMemory()
    first, staged = _anonymous(), _staging(opened)

    def note() -> None:
        now = _anonymous()
        if now is not None and first is not None:
            found.anonymous = max(found.anonymous or 0, now - first)
        found.staging = max(found.staging, _staging(opened) - staged)

    try:
        with clocks.sampling(PERIOD_S, note):
            yield found
    finally:
        note()


def _anonymous() -> int | None:
    try:
        lines = STATUS.read_text("ascii").splitlines()
    except OSError:
        return None
    kilobytes = next((line.split()[1] for line in lines if line.startswith("RssAnon")), None)
    return None if kilobytes is None else int(kilobytes) * 1024


def _staging(opened: OpenDevice) -> int:
    """Return the bytes of blocks in heaps that are not on the device."""
    types, heaps = opened.info.memory_types, opened.info.heaps
    return sum(
        block.ranges.size_bytes
        for block in list(opened.allocator.blocks)
        if not heaps[types[block.type_index].heap].device_local
    )
