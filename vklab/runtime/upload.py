"""Upload of arrays to device buffers, through mapped memory or through a staging buffer.

Used for weights. Inputs and outputs of a run need no upload: their buffers are mapped. Visited by
lab 03.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import numpy as np

from vklab.runtime.open_devices import OpenDevice
from vklab.vulkan.command import CommandBuffer, Submission
from vklab.vulkan.memory import Buffer
from vklab.vulkan.sync import Fence

STAGING_BYTES = 8 << 20


def array_bytes(array: np.ndarray) -> memoryview:
    """Return an array's elements as row-major bytes; copy only an array in another order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def upload(opened: OpenDevice, target: Buffer, parts: Iterable[tuple[int, np.ndarray]]) -> None:
    """Write arrays to byte offsets of a buffer, whether or not its memory is host-visible.

    Args:
        opened: the device of the buffer.
        target: the buffer.
        parts: byte offset in the buffer and array, for each array.
    """
    if (mapped := target.mapped) is not None:
        for offset, piece in pieces(parts):
            np.ndarray(piece.shape, piece.dtype, mapped, offset)[...] = piece
        return
    # A generator may make arrays one by one, and its bytes are not known before.
    size = sum(array.nbytes for _, array in parts) if isinstance(parts, list) else STAGING_BYTES
    with Staging(opened, "staging", min(size or 4, STAGING_BYTES)) as staging:
        for offset, piece in pieces(parts):
            np.ndarray(piece.shape, piece.dtype, staging.view)[...] = piece
            staging.copy(staging.buffer, target, piece.nbytes, 0, offset)


def pieces(parts: Iterable[tuple[int, np.ndarray]]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield arrays as views of at most STAGING_BYTES, with the offsets of their bytes."""
    for offset, array in parts:
        if not array.flags.c_contiguous and array.strides[1:] == (array.itemsize,):
            # Rows that lie apart, such as codes without their heads: each is copied as one element.
            array = array.view(f"V{array.shape[1] * array.itemsize}")
        if array.nbytes <= STAGING_BYTES:
            yield from [(offset, array)] if array.size else []
            continue
        array = array.reshape(-1).view(np.uint8) if array.flags.c_contiguous else array
        axis = next(axis for axis, dim in enumerate(array.shape) if dim > 1)
        row = array.nbytes // array.shape[axis]
        step, before = max(1, STAGING_BYTES // row), (slice(None),) * axis
        yield from pieces(
            (offset + start * row, array[(*before, slice(start, start + step))])
            for start in range(0, array.shape[axis], step)
        )


class Staging:
    """A host-visible staging buffer with a command buffer that copies to or from it.

    Args:
        opened: the device.
        kind: "staging", to write to the device, or "readback".
        size_bytes: the most bytes of one copy.
    """

    def __init__(self, opened: OpenDevice, kind: str, size_bytes: int) -> None:
        with contextlib.ExitStack() as stack:  # if one creation fails, the earlier ones are undone
            self.buffer = stack.enter_context(Buffer(opened.allocator, size_bytes, kind))
            self._fence = stack.enter_context(Fence(opened.device))
            self._pool = stack.enter_context(opened.command_pool(transfer=True))
            self._commands = stack.enter_context(CommandBuffer(self._pool))
            self._parts = stack.pop_all()
        mapped = self.buffer.mapped
        assert mapped is not None, "staging memory is host-visible by its kind"
        self.view = mapped

    def copy(
        self, source: Buffer, target: Buffer, size: int, source_offset: int, target_offset: int
    ) -> None:
        """Copy bytes between two buffers, and wait for the copy.

        Args:
            source: the buffer to read.
            target: the buffer to write.
            size: the number of bytes.
            source_offset: the first byte to read.
            target_offset: the first byte to write.
        """
        self._commands.begin()
        self._commands.copy_buffer(source.handle, target.handle, size, source_offset, target_offset)
        self._commands.barrier(("transfer",), ("transfer", "host"))
        self._commands.end()
        Submission(self._commands, self._fence).submit()
        self._fence.wait()

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *exc: object) -> None:
        self.view.release()
        self._parts.close()
