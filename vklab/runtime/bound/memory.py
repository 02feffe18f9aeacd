"""Memory of a binding: buffers that stay, and NumPy arrays on them that outlive it safely.

Arenas that contain a state exist twice: a run reads one and writes the other. Visited by lab 03.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from vklab import settings
from vklab.base import forking
from vklab.errors import DeviceLostError, TimeoutError
from vklab.plan.memory import ARRIVING, LEAVING
from vklab.runtime.buffers import BufferPool
from vklab.runtime.io_binding import Given
from vklab.runtime.many import device_copies
from vklab.runtime.open_devices import OpenDevice
from vklab.vulkan import event, host_memory


class _MappedBytes:
    """Bytes of a mapped buffer, as the base of arrays: keeps the memory while an array is left."""

    def __init__(self, memory: BoundMemory, mapped: memoryview) -> None:
        flat = np.frombuffer(mapped, np.uint8)
        self._memory = memory
        self.__array_interface__: dict[str, Any] = flat.__array_interface__


class BoundMemory:
    """Buffers of the arenas of one chunk, for two turns that share all but some of them.

    `release` frees the buffers as soon as no array is left on them; `close` frees them now.

    Attributes:
        pools: the buffers of each turn, for its program; the same pool twice without states.

    Args:
        opened: the device.
        arenas: the bytes of each arena, by name.
        doubled: names of the arenas that each turn has for itself.
        sharing: a `cuda.sharing.Sharing` to make the buffers of inputs and outputs; None for none.
    """

    def __init__(
        self, opened: OpenDevice, arenas: Mapping[str, int], doubled: Collection[str],
        sharing: Any = None,
    ) -> None:  # fmt: skip
        self._opened = opened
        self._owner = forking.owner()
        self._doubled = frozenset(doubled)
        self._views: weakref.WeakSet[_MappedBytes] = weakref.WeakSet()
        first = BufferPool(opened)
        self.pools = (first, BufferPool(opened) if doubled else first)
        try:
            for pool in self.pools:
                pool.buffers |= {a: b for a, b in first.buffers.items() if a not in self._doubled}
                for arena in arenas if sharing else ():
                    if arena.startswith((ARRIVING, LEAVING)) and arena not in pool.buffers:
                        pool.buffers[arena] = sharing.buffer(arenas[arena])
                pool.fit(arenas, "a binding")
        except BaseException:
            self.close()
            raise

    def array(self, place: Given, size_bytes: int) -> np.ndarray | None:
        """Return mapped bytes as an array that keeps the memory; None if they are not mapped."""
        buffer, start = place
        if buffer.mapped is None:
            return None
        base = _MappedBytes(self, buffer.mapped[start : start + size_bytes])
        self._views.add(base)
        return np.asarray(base)

    def release(self) -> None:
        """Free the buffers, or leave that to the last array that reads them."""
        if self._opened.is_stuck:
            self._opened.forget(self)
        elif self._views:
            self._opened.sessions.add(self)  # if the device is closed, the memory goes with it
        else:
            self.close()

    def close(self) -> None:
        """Free the buffers; arrays on them must not be read any more."""
        try:
            event.settle(self._opened.device)  # the commands of other bindings may read them
        except DeviceLostError:
            self._opened.lost = True
        except TimeoutError:
            self._opened.is_stuck = True
            self._opened.forget(self)
            return
        first, second = self.pools
        if second is not first:
            second.buffers = {a: b for a, b in second.buffers.items() if a in self._doubled}
            second.close()
        first.close()

    def abandon(self) -> None:
        """Forget the buffers in a forked child: they belong to its parent."""
        self.pools = (BufferPool(self._opened),) * 2

    def __del__(self) -> None:
        pools = getattr(self, "pools", ())
        if any(pool.buffers for pool in pools) and not forking.is_inherited(self._owner):
            self._opened.forget(*pools)  # each buffer is freed once, whichever pool is first


def import_array(opened: OpenDevice, array: np.ndarray) -> tuple[Given | None, str]:
    """Return a buffer on the memory of a caller's array, or None with the reason.

    Args:
        opened: the device.
        array: the array; the caller keeps it alive as long as the buffer exists.
    """
    reason = _refusal(opened, array)
    if reason:
        return None, reason
    alignment = host_memory.pointer_alignment(opened.device)
    offset = array.ctypes.data % alignment
    if alignment > mmap.PAGESIZE or offset % opened.info.limit("minStorageBufferOffsetAlignment"):
        return None, f"{opened.info.label} cannot read address {array.ctypes.data:#x} in place"
    try:
        pages = host_memory.PageMemory(array.ctypes.data, array.nbytes, alignment)
        return (host_memory.ImportedBuffer(opened.device, pages, pages.size_bytes), offset), ""
    except device_copies.REFUSALS as error:
        return None, str(error)


def _refusal(opened: OpenDevice, array: np.ndarray) -> str:
    if settings.get("DISABLE_SHARED_MEMORY"):
        return "VKLAB_DISABLE_SHARED_MEMORY"
    if host_memory.EXTENSION not in opened.device.extensions:
        return f"{opened.info.label} has no {host_memory.EXTENSION}"
    if not array.size:
        return "the array is empty"
    if not array.flags.c_contiguous:
        return "the array is not contiguous, in row-major order"
    return "" if array.flags.writeable else "the array is read-only"
