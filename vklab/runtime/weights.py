"""Weights on a device: each array is uploaded once for all plans of a session.

Sessions share a weight unless that would keep a mostly unused buffer allocated.
A plan's new weights are packed into new buffers. Buffers are reference-counted: each is freed with
the last program, of any session, that reads a weight in it. Visited by labs 03 and 11.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from vklab.errors import OutOfMemoryError
from vklab.plan import limits, memory
from vklab.plan.chunk import Chunk
from vklab.plan.memory import WEIGHTS
from vklab.runtime import upload
from vklab.runtime.open_devices import OpenDevice
from vklab.vulkan.memory import Buffer

# Arrays up to this size are kept as bytes, to be compared after the array itself is freed.
SMALL_BYTES = 4096


@dataclass
class _Entry:
    """A resident array: its buffer and offset, its first bytes, and the arrays equal to it."""

    buffer: Buffer
    offset_bytes: int
    size_bytes: int
    head: bytes
    arrays: list[weakref.ref[np.ndarray]]

    def note(self, array: np.ndarray) -> None:
        """Add an array with the same bytes: earlier ones may be freed with their plans."""
        self.arrays = [ref for ref in self.arrays if ref() is not None and ref() is not array]
        self.arrays.append(weakref.ref(array))

    def holds(self, array: np.ndarray, head: bytes) -> bool:
        """Tell whether an array of the same size has the same bytes.

        Bytes are compared, not hashed: a hash would read each array once more, even a new one.
        """
        if self.head != head or array.nbytes <= SMALL_BYTES:
            return self.head == head
        others = [known for ref in self.arrays if (known := ref()) is not None]
        if not others or any(other is array for other in others):
            return bool(others)
        each = (upload.pieces([(0, one)]) for one in (others[0], array))
        return all(
            np.array_equal(upload.array_bytes(one), upload.array_bytes(other))
            for (_, one), (_, other) in zip(*each, strict=False)
        )


class WeightCache:
    """All weights resident on a device; read and changed under its lock only."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.entries: dict[int, list[_Entry]] = {}  # by size
        self.latest: dict[int, _Entry] = {}  # by the id of an array that may be freed
        self._uses: Counter[Buffer] = Counter()

    def find(self, array: np.ndarray, mine: Collection[Buffer]) -> _Entry | None:
        """Return the entry of an array, or of an equal array; prefer buffers in `mine`.

        Equal arrays are new objects where each plan folds the same constant again.
        """
        latest = self.latest.get(id(array))
        if latest and latest.buffer in mine and any(ref() is array for ref in latest.arrays):
            return latest
        there = sorted(self.entries.get(array.nbytes, ()), key=lambda e: e.buffer not in mine)
        head = _head(array) if there else b""
        return next((entry for entry in there if entry.holds(array, head)), None)

    def close(self) -> None:
        """Do nothing: each buffer is freed with the last program that reads it."""

    def count(self, buffer: Buffer, by: int) -> None:
        """Add `by` to the use count of a buffer, and free the buffer at zero."""
        self._uses[buffer] += by
        if self._uses[buffer] == 0:
            del self._uses[buffer]
            for size, entries in list(self.entries.items()):
                self.entries[size] = [entry for entry in entries if entry.buffer is not buffer]
            self.latest = {n: e for n, e in self.latest.items() if e.buffer is not buffer}
            buffer.close()


class WeightRef:
    """Weights of one program: a buffer and an offset for each weight arena of its chunk."""

    def __init__(self, weights: SessionWeights, buffers: dict[str, tuple[Buffer, int]]) -> None:
        self.buffers = buffers
        self._weights = weights

    def close(self) -> None:
        """Release the weights; buffers that no other program reads are freed."""
        buffers, self.buffers = self.buffers, {}
        self._weights.count(buffers, -1)


class SessionWeights:
    """Weights of one session on a device, shared by its programs and with other sessions.

    Attributes:
        taken: called with each array before its upload, for a progress bar; returns the array.
    """

    def __init__(self, opened: OpenDevice) -> None:
        self.opened = opened
        self.taken: Callable[[np.ndarray], np.ndarray] = lambda array: array
        self.uploaded_bytes = 0
        self._cache: WeightCache = opened.owned("weights", WeightCache)
        self._readers: Counter[str] = Counter()  # the number of programs that read each weight
        self._uses: Counter[Buffer] = Counter()  # the number of this session's programs, by buffer

    def lease(self, chunk: Chunk) -> WeightRef:
        """Return the buffers of a chunk's weights, after uploading weights that are not resident.

        Raises OutOfMemoryError naming the bytes of the weights and the bytes that are free.
        """
        arrays: dict[str, np.ndarray] = {}
        for arena in chunk.memory.arenas:
            if arena.startswith(WEIGHTS):
                constant = chunk.constants[arena.removeprefix(WEIGHTS)].constant
                assert constant is not None, f"{arena} has a value"
                arrays[arena] = constant
        with self._cache.lock:
            resident = self._find(arrays)
            made = self._upload({_key(a): a for n, a in arrays.items() if n not in resident})
            buffers: dict[str, tuple[Buffer, int]] = {}
            for arena, array in arrays.items():
                self._cache.latest[id(array)] = entry = resident.get(arena) or made[_key(array)]
                entry.note(array)
                buffers[arena] = entry.buffer, entry.offset_bytes
            self.count(buffers, 1)
        return WeightRef(self, buffers)

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the resident weights; a name tells the weight's layout, too."""
        with self._cache.lock:
            return frozenset(+self._readers)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all buffers that programs of this session read."""
        with self._cache.lock:
            return sum(buffer.size_bytes for buffer in self._uses)

    def count(self, buffers: Mapping[str, tuple[Buffer, int]], by: int) -> None:
        """Add `by` to the use counts of a program's weights; buffers without use are freed."""
        with self._cache.lock:
            for arena in buffers:
                self._readers[arena.removeprefix(WEIGHTS)] += by
            for buffer in {buffer for buffer, _ in buffers.values()}:
                self._uses[buffer] += by
                self._cache.count(buffer, by)
            self._uses = +self._uses

    def _find(self, arrays: Mapping[str, np.ndarray]) -> dict[str, _Entry]:
        """Return the resident entries of arrays, by arena.

        A buffer of another session is shared only if at least half of it is needed here (a share
        chosen, not measured): the whole buffer stays allocated as long as any of it is read, even
        after that session is closed.
        """
        there = ((arena, self._cache.find(a, self._uses)) for arena, a in arrays.items())
        resident = {arena: entry for arena, entry in there if entry}
        wanted: Counter[Buffer] = Counter()
        for entry in {id(entry): entry for entry in resident.values()}.values():
            wanted[entry.buffer] += entry.size_bytes
        wanted += Counter({buffer: buffer.size_bytes for buffer in self._uses})
        return {
            arena: entry
            for arena, entry in resident.items()
            if 2 * wanted[entry.buffer] >= entry.buffer.size_bytes
        }

    def _upload(self, arrays: Mapping[Hashable, np.ndarray]) -> dict[Hashable, _Entry]:
        limit = limits.arena_limit_bytes(self.opened.info)
        numbered = {str(number): key for number, key in enumerate(arrays)}
        sizes = [(number, arrays[key].nbytes) for number, key in numbered.items()]
        slots, arenas = memory.pack(sizes, "weights", limit)
        total = sum(size for _, size in sizes)
        made: dict[str, Buffer] = {}
        try:
            for arena, size in arenas.items():
                made[arena] = Buffer(self.opened.allocator, size, "device")
            for arena, buffer in made.items():
                upload.upload(
                    self.opened,
                    buffer,
                    (
                        (slot.offset_bytes, self.taken(arrays[numbered[number]]))
                        for number, slot in slots.items()
                        if slot.arena == arena
                    ),
                )
        except BaseException as error:
            for buffer in made.values():
                buffer.close()
            if isinstance(error, OutOfMemoryError):
                detail = f"{total} bytes of weights do not fit: {error.detail}"
                raise OutOfMemoryError(error.command, error.result, detail) from error
            raise
        self.uploaded_bytes += total
        entries: dict[Hashable, _Entry] = {}
        for number, slot in slots.items():
            array = arrays[numbered[number]]
            entries[numbered[number]] = entry = _Entry(
                made[slot.arena], slot.offset_bytes, array.nbytes, _head(array), []
            )
            self._cache.entries.setdefault(array.nbytes, []).append(entry)
        return entries


def _key(array: np.ndarray) -> Hashable:
    return array.tobytes() if array.nbytes <= SMALL_BYTES else id(array)


def _head(array: np.ndarray) -> bytes:
    return array.tobytes() if array.nbytes <= SMALL_BYTES else array.flat[:64].tobytes()
