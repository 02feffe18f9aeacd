"""Values on their way between devices: in pieces through a ring of two slots, or read by dma-buf.

Copies run on transfer queues and are recorded once; the first device fills a slot while the host
copies another, unless both devices see the same slots, and the second one empties it. Visited by
lab 13.
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

__all__ = ["CopyQueue", "Move", "REFUSALS", "StagingRing", "dma_buf_refusal", "download",
           "host_memory_refusal"]  # fmt: skip

SLOTS = 2
# Bytes that a device must find in another's memory before a dma-buf between them is trusted.
PROOF = (np.arange(1 << 12, dtype=np.uint32) * 2654435761) ^ 0x5BD1E995
# What a driver answers to memory that it does not take.
REFUSALS = (VulkanError, LookupError, OSError)

Place = tuple[PoolBuffer, int]
Move = Callable[[], None]
# Into a slot and out of it, and the slot's bytes at both ends.
Piece = tuple[Submission, Submission, np.ndarray, np.ndarray]


def host_memory_refusal(source: OpenDevice, target: OpenDevice) -> str:
    """Say why two devices cannot share memory of the host, or return the empty string."""
    if settings.get("DISABLE_SHARED_MEMORY"):
        return "VKLAB_DISABLE_SHARED_MEMORY"
    return _lacking(source, EXTENSION) or _lacking(target, EXTENSION)


def dma_buf_refusal(source: OpenDevice, target: OpenDevice) -> str:
    """Say why a device cannot read another's memory, or return the empty string."""
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
            return f"{target.info.label} finds other bytes than {source.info.label} wrote"
    return ""


def download(opened: OpenDevice, source: Buffer, offset: int, size: int) -> bytes:
    """Read bytes of a buffer, whether or not the host can see it."""
    mapped = source.mapped
    if mapped is not None:
        return bytes(mapped[offset : offset + size])
    data = bytearray()
    with upload.Staging(opened, "readback") as staging:
        while len(data) < size:
            length = min(upload.STAGING_BYTES, size - len(data))
            staging.copy(source, staging.buffer, length, offset + len(data), 0)
            data += staging.view[:length]
    return bytes(data)


def _lacking(opened: OpenDevice, extension: str) -> str:
    has = extension in opened.device.extensions
    return "" if has else f"{opened.info.label} has no {extension}"


class CopyQueue:
    """The copies of one device, in memory that it sees: at most one in flight for each slot."""

    def __init__(self, opened: OpenDevice) -> None:
        self.opened = opened
        self._lock = threading.Lock()
        self._flying: dict[int, Submission] = {}
        with contextlib.ExitStack() as stack:  # undone if one of them cannot be made
            self._pool = stack.enter_context(opened.command_pool(transfer=True))
            self._fences = [stack.enter_context(Fence(opened.device)) for _ in range(SLOTS)]
            self._parts = stack.pop_all()

    def record(self, slot: int, source: Place, target: Place, size_bytes: int) -> Submission:
        """Return a copy that can be submitted again and again."""
        commands = self._parts.enter_context(CommandBuffer(self._pool))
        commands.begin()
        commands.copy_buffer(
            source[0].handle, target[0].handle, size_bytes, source[1], target[1]
        )
        commands.barrier(("transfer",), ("transfer", "host"))
        commands.end()
        return Submission(commands, self._fences[slot])

    def add(self, source: Place, target: Place, size_bytes: int) -> Move:
        """Return what makes a copy by itself."""
        return functools.partial(self._copy, self.record(0, source, target, size_bytes))

    def _copy(self, work: Submission) -> None:
        with self._lock:
            self.submit(0, work)
            self.wait(0)

    def submit(self, slot: int, work: Submission) -> None:
        """Hand a copy to the queue; nothing else is in flight for its slot."""
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
        """Go on after a failure once its copies are done; raise as long as they are not."""
        for slot, work in list(self._flying.items()):
            if not self.opened.lost and not work.fence.is_signaled():
                raise TimeoutError("vkQueueSubmit", "VK_TIMEOUT", f"{self.opened.info.name} still "
                                   "works on an earlier run: a copy between devices")  # fmt: skip
            del self._flying[slot]

    def close(self) -> None:
        """Free everything, unless the device never ends what it has in flight."""
        try:
            for slot in () if self.opened.lost else list(self._flying):
                self.wait(slot)
        except DeviceLostError:
            pass  # nothing runs any more: all may go
        except TimeoutError:
            self.opened.is_stuck = True
            self._parts.pop_all()
        self._flying.clear()
        self._parts.close()


class StagingRing:
    """The way through two slots of staging memory, which all values between two devices share.

    Attributes:
        refusal: why the devices do not see the same slots, and the host copies between them.
    """

    def __init__(self, source: OpenDevice, target: OpenDevice, slot_bytes: int) -> None:
        self.slot_bytes = slot_bytes
        self.refusal = host_memory_refusal(source, target)
        self._lock = threading.Lock()
        with contextlib.ExitStack() as stack:  # undone if one of them cannot be made
            self._slots = self._staging(source, target, stack)
            self._out = stack.enter_context(contextlib.closing(CopyQueue(source)))
            self._into = CopyQueue(target)
            self._parts = stack.pop_all()

    def _staging(
        self, source: OpenDevice, target: OpenDevice, stack: contextlib.ExitStack
    ) -> tuple[Buffer | ExternalBuffer, Buffer | ExternalBuffer]:
        """Return memory for two slots at both ends, if they can be, of the same bytes."""
        size = SLOTS * self.slot_bytes
        if not self.refusal:
            host = HostMemory(size)
            try:
                with contextlib.ExitStack() as made:
                    ends = [made.enter_context(ImportedBuffer(opened.device, host, size))
                            for opened in (source, target)]  # fmt: skip
                    stack.push(made.pop_all())
                return ends[0], ends[1]
            except REFUSALS as error:
                self.refusal = str(error)
        return (
            stack.enter_context(Buffer(source.allocator, size, "readback")),
            stack.enter_context(Buffer(target.allocator, size, "staging")),
        )

    def add(self, source: Place, target: Place, size_bytes: int) -> Move:
        """Return what moves a value, in as many pieces as it takes."""
        pieces = []
        for number, start in enumerate(range(0, size_bytes, self.slot_bytes)):
            slot, size = number % SLOTS, min(self.slot_bytes, size_bytes - start)
            lies = slot * self.slot_bytes
            (there, first), (here, last) = source, target
            out = self._out.record(slot, (there, first + start), (self._slots[0], lies), size)
            into = self._into.record(slot, (self._slots[1], lies), (here, last + start), size)
            filled, free = (self._view(buffer, lies, size) for buffer in self._slots)
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
            if not self.refusal:  # the bytes that lie there must have been read
                self._into.wait(slot)
            self._out.submit(slot, pieces[number][0])

    def require_idle(self) -> None:
        """Raise as long as a device works on an earlier run."""
        self._out.require_idle()
        self._into.require_idle()

    def close(self) -> None:
        """Free everything, unless a device never ends what it has in flight."""
        self._out.close()
        self._into.close()
        if not (self._out.opened.is_stuck or self._into.opened.is_stuck):
            self._parts.close()
