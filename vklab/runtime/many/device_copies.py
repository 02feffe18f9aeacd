"""Copies of values between devices: in pieces through a staging ring, or from a dma-buf.

Copies are recorded once for transfer queues. The source device fills one slot of the ring while
the target empties the other; the host copies unless they share memory. Visited by lab 13.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from vklab import settings
from vklab.errors import DeviceLostError, TimeoutError, VulkanError
from vklab.runtime import upload
from vklab.runtime.buffers import PoolBuffer
from vklab.runtime.open_devices import OpenDevice
from vklab.vulkan import dma_buf
from vklab.vulkan.command import CommandBuffer, Submission
from vklab.vulkan.host_memory import EXTENSION, ExternalBuffer, HostMemory, ImportedBuffer
from vklab.vulkan.memory import Buffer
from vklab.vulkan.sync import Fence

SLOTS = 2
# Test bytes that the target device must read correctly before a dma-buf is used.
PROOF = (np.arange(1 << 12, dtype=np.uint32) * 2654435761) ^ 0x5BD1E995
# Errors of a driver that cannot import or export memory.
REFUSALS = (VulkanError, LookupError, OSError)

Place = tuple[PoolBuffer, int]
Move = Callable[[], None]
# Copy into a slot, copy out of the slot, and the slot's bytes at the source and at the target.
Piece = tuple[Submission, Submission, np.ndarray, np.ndarray]


def host_memory_refusal(source: OpenDevice, target: OpenDevice) -> str:
    """Return the reason why two devices cannot share host memory; empty if they can."""
    if settings.get("DISABLE_SHARED_MEMORY"):
        return "VKLAB_DISABLE_SHARED_MEMORY"
    return _lacking(source, EXTENSION) or _lacking(target, EXTENSION)


def dma_buf_refusal(source: OpenDevice, target: OpenDevice) -> str:
    """Return the reason why `target` cannot read memory of `source`; empty if it can."""
    if settings.get("DISABLE_DMA_BUF"):
        return "VKLAB_DISABLE_DMA_BUF"
    for opened, wanted in ((source, "exportable"), (target, "importable")):
        for extension in dma_buf.EXTENSIONS:
            if extension not in opened.device.extensions:
                return _lacking(opened, extension)
        if wanted not in dma_buf.features(opened.device):
            return f"{opened.info.label}: a buffer is not {wanted}"
    try:
        return _disproof(source, target)
    except REFUSALS as error:
        return str(error)


def _disproof(source: OpenDevice, target: OpenDevice) -> str:
    with (
        dma_buf.ExportedBuffer(source.device, PROOF.nbytes) as exported,
        dma_buf.OpenedBuffer(target.device, exported) as there,
    ):
        upload.upload(source, exported, [(0, PROOF)])
        if download(target, there, 0, PROOF.nbytes) != PROOF.tobytes():
            return f"{target.info.label} reads other bytes than {source.info.label} wrote"
    return ""


def download(opened: OpenDevice, source: Buffer, offset: int, size: int) -> bytes:
    """Read bytes of a buffer, whether or not its memory is host-visible.

    Args:
        opened: the device of the buffer.
        source: the buffer.
        offset: the first byte to read.
        size: the number of bytes.
    """
    mapped = source.mapped
    if mapped is not None:
        return bytes(mapped[offset : offset + size])
    data = bytearray()
    with upload.Staging(opened, "readback", min(size or 4, upload.STAGING_BYTES)) as staging:
        while len(data) < size:
            length = min(upload.STAGING_BYTES, size - len(data))
            staging.copy(source, staging.buffer, length, offset + len(data), 0)
            data += staging.view[:length]
    return bytes(data)


def _lacking(opened: OpenDevice, extension: str) -> str:
    has = extension in opened.device.extensions
    return "" if has else f"{opened.info.label} has no {extension}"


class CopyQueue:
    """Copies by one device between two buffers of its own, at most one in flight for each slot."""

    def __init__(self, opened: OpenDevice) -> None:
        self.opened = opened
        self._lock = threading.Lock()
        self._flying: dict[int, Submission] = {}
        with contextlib.ExitStack() as stack:  # if one creation fails, the earlier ones are undone
            self._pool = stack.enter_context(opened.command_pool(transfer=True))
            self._fences = [stack.enter_context(Fence(opened.device)) for _ in range(SLOTS)]
            self._parts = stack.pop_all()

    def record(self, slot: int, source: Place, target: Place, size_bytes: int) -> Submission:
        """Record a copy that can be submitted many times.

        Args:
            slot: the number of the slot, whose fence the copy signals.
            source: the buffer to read, and the byte offset.
            target: the buffer to write, and the byte offset.
            size_bytes: the number of bytes.
        """
        commands = self._parts.enter_context(CommandBuffer(self._pool))
        commands.begin()
        commands.copy_buffer(source[0].handle, target[0].handle, size_bytes, source[1], target[1])
        commands.barrier(("transfer",), ("transfer", "host"))
        commands.end()
        return Submission(commands, self._fences[slot])

    def add(self, source: Place, target: Place, size_bytes: int) -> Move:
        """Record a copy; return a function that submits it and waits.

        Args:
            source: the buffer to read, and the byte offset.
            target: the buffer to write, and the byte offset.
            size_bytes: the number of bytes.
        """
        return functools.partial(self._copy, self.record(0, source, target, size_bytes))

    def _copy(self, work: Submission) -> None:
        with self._lock:
            self.submit(0, work)
            self.wait(0)

    def submit(self, slot: int, work: Submission) -> None:
        """Submit a copy; no other copy may be in flight for its slot."""
        with self._noticing():
            work.submit()
        self._flying[slot] = work

    def wait(self, slot: int) -> None:
        """Wait for the copy of a slot, if one is in flight."""
        if slot in self._flying:
            with self._noticing():
                self._flying[slot].fence.wait()
            del self._flying[slot]

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except DeviceLostError:
            self.opened.lost = True
            raise

    def require_idle(self) -> None:
        """Accept new copies after a failure once earlier ones are complete; raise until then."""
        for slot, work in list(self._flying.items()):
            if not self.opened.lost and not work.fence.is_signaled():
                raise TimeoutError(
                    "vkQueueSubmit",
                    "VK_TIMEOUT",
                    f"{self.opened.info.name} still "
                    "works on an earlier run: a copy between devices",
                )
            del self._flying[slot]

    def close(self) -> None:
        """Wait for copies in flight, and free all resources; a stuck device keeps them."""
        try:
            for slot in () if self.opened.lost else list(self._flying):
                self.wait(slot)
        except DeviceLostError:
            pass  # a lost device runs nothing: resources may be freed
        except TimeoutError:
            self.opened.is_stuck = True
            self._parts.pop_all()
        self._flying.clear()
        self._parts.close()


class StagingRing:
    """Double buffering between two devices: two slots of staging memory for all their values.

    Source: Vulkan 1.3, section 'Fences'.

    Args:
        source: the device that fills the slots.
        target: the device that empties them.
        slot_bytes: the bytes of one slot.

    Attributes:
        refusal: why the devices cannot share the slots, so that the host copies; empty if shared.
    """

    def __init__(self, source: OpenDevice, target: OpenDevice, slot_bytes: int) -> None:
        self.slot_bytes = slot_bytes
        self.refusal = host_memory_refusal(source, target)
        self._lock = threading.Lock()
        with contextlib.ExitStack() as stack:  # if one creation fails, the earlier ones are undone
            self._slots = self._staging(source, target, stack)
            self._out = stack.enter_context(contextlib.closing(CopyQueue(source)))
            self._into = CopyQueue(target)
            self._parts = stack.pop_all()

    def _staging(
        self, source: OpenDevice, target: OpenDevice, stack: contextlib.ExitStack
    ) -> tuple[Buffer | ExternalBuffer, Buffer | ExternalBuffer]:
        """Return a buffer for the slots on each device; both share host memory if they can."""
        size = SLOTS * self.slot_bytes
        if not self.refusal:
            host = HostMemory(size)
            try:
                with contextlib.ExitStack() as made:
                    ends = [
                        made.enter_context(ImportedBuffer(opened.device, host, size))
                        for opened in (source, target)
                    ]
                    stack.push(made.pop_all())
                return ends[0], ends[1]
            except REFUSALS as error:
                self.refusal = str(error)
        return (
            stack.enter_context(Buffer(source.allocator, size, "readback")),
            stack.enter_context(Buffer(target.allocator, size, "staging")),
        )

    def add(self, source: Place, target: Place, size_bytes: int) -> Move:
        """Record the copies of a value, in pieces of one slot; return a function that moves it.

        Args:
            source: the buffer on the source device, and the byte offset.
            target: the buffer on the target device, and the byte offset.
            size_bytes: the bytes of the value.
        """
        pieces = []
        for number, start in enumerate(range(0, size_bytes, self.slot_bytes)):
            slot, size = number % SLOTS, min(self.slot_bytes, size_bytes - start)
            begin = slot * self.slot_bytes
            (there, first), (here, last) = source, target
            out = self._out.record(slot, (there, first + start), (self._slots[0], begin), size)
            into = self._into.record(slot, (self._slots[1], begin), (here, last + start), size)
            filled, free = (self._view(buffer, begin, size) for buffer in self._slots)
            pieces.append((out, into, filled, free))
        return functools.partial(self._move, pieces)

    def _view(self, buffer: Buffer | ExternalBuffer, start: int, size: int) -> np.ndarray:
        mapped = buffer.mapped
        assert mapped is not None, "staging memory is host-visible by its kind"
        return np.frombuffer(mapped, np.uint8, size, start)

    def _move(self, pieces: Sequence[Piece]) -> None:
        with self._lock:
            self._fill(pieces, 0)
            for number, (_, into, filled, free) in enumerate(pieces):
                slot = number % SLOTS
                self._fill(pieces, number + 1)
                self._out.wait(slot)
                if self.refusal:
                    self._into.wait(slot)
                    np.copyto(free, filled)
                self._into.submit(slot, into)
            for slot in range(SLOTS):
                self._into.wait(slot)

    def _fill(self, pieces: Sequence[Piece], number: int) -> None:
        if number < len(pieces):
            slot = number % SLOTS
            if not self.refusal:  # shared slot: the target must have read the former piece
                self._into.wait(slot)
            self._out.submit(slot, pieces[number][0])

    def require_idle(self) -> None:
        """Raise TimeoutError while a copy of an earlier run is in flight on either device."""
        self._out.require_idle()
        self._into.require_idle()

    def close(self) -> None:
        """Wait for copies in flight, and free all resources; a stuck device keeps them."""
        self._out.close()
        self._into.close()
        if not (self._out.opened.is_stuck or self._into.opened.is_stuck):
            self._parts.close()
