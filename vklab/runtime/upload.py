"""Bytes between NumPy and devices: weights once, through mapped memory or staging copies.

Inputs and outputs of a run do not pass here: their places are mapped. Visited by lab 03.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import numpy as np

from vklab.runtime.open_devices import OpenDevice
from vklab.vulkan.command import CommandBuffer, Submission
from vklab.vulkan.memory import Buffer
from vklab.vulkan.sync import Fence

__all__ = ["STAGING_BYTES", "Staging", "array_bytes", "upload"]

STAGING_BYTES = 16 << 20


def array_bytes(array: np.ndarray) -> memoryview:
    """Return an array's elements as bytes in row-major order, copying only if they are not."""
    contiguous = np.ascontiguousarray(array)
    return contiguous.reshape(-1).view(np.uint8).data if contiguous.size else memoryview(b"")


def upload(opened: OpenDevice, target: Buffer, parts: Iterable[tuple[int, np.ndarray]]) -> None:
    """Write arrays to byte offsets of a buffer, whether or not the host can see it."""
    mapped = target.mapped
    if mapped is not None:
        for offset, data in _pieces(parts):
            mapped[offset : offset + len(data)] = data
        return
    with Staging(opened) as staging:
        for offset, data in _pieces(parts):
            for start in range(0, len(data), STAGING_BYTES):
                piece = data[start : start + STAGING_BYTES]
                staging.view[: len(piece)] = piece
                staging.copy(staging.buffer, target, len(piece), 0, offset + start)


def _pieces(parts: Iterable[tuple[int, np.ndarray]]) -> Iterator[tuple[int, memoryview]]:
    """Yield bytes and their offsets: of an array that is not row-major, some rows at a time."""
    for offset, array in parts:
        axis = next((axis for axis, dim in enumerate(array.shape) if dim > 1), 0)
        if array.flags.c_contiguous or not array.size:
            yield offset, array_bytes(array)
            continue
        row = array.nbytes // array.shape[axis]
        step = max(1, STAGING_BYTES // row)
        for start in range(0, array.shape[axis], step):
            window = (slice(None),) * axis + (slice(start, start + step),)
            yield offset + start * row, array_bytes(array[window])


class Staging:
    """A host-visible buffer and the means to copy to and from it, one piece at a time."""

    def __init__(self, opened: OpenDevice, kind: str = "staging") -> None:
        with contextlib.ExitStack() as stack:  # undone if one of them cannot be made
            self.buffer = stack.enter_context(Buffer(opened.allocator, STAGING_BYTES, kind))
            self._fence = stack.enter_context(Fence(opened.device))
            self._pool = stack.enter_context(opened.command_pool(transfer=True))
            self._commands = stack.enter_context(CommandBuffer(self._pool))
            self._parts = stack.pop_all()
        mapped = self.buffer.mapped
        assert mapped is not None, "staging memory is host-visible by its kind"
        self.view = mapped

    def copy(self, source: Buffer, target: Buffer, size: int, start: int, end: int) -> None:
        """Copy and wait."""
        self._commands.begin()
        self._commands.copy_buffer(source.handle, target.handle, size, start, end)
        self._commands.barrier(("transfer",), ("transfer", "host"))
        self._commands.end()
        Submission(self._commands, self._fence).submit()
        self._fence.wait()

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *exc: object) -> None:
        self.view.release()
        self._parts.close()
