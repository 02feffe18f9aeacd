"""The weights on a device: each array is uploaded once, whatever the plans and the sessions.

What a plan adds to those before it lies in buffers of its own; each goes with the last program,
of any session, that reads some of it. Visited by labs 03 and 11.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from vklab.errors import OutOfMemoryError
from vklab.plan import limits, memory
from vklab.plan.chunk import Chunk
from vklab.plan.memory import WEIGHTS
from vklab.runtime import upload
from vklab.runtime.open_devices import OpenDevice
from vklab.vulkan.memory import Buffer

__all__ = ["WeightCache", "WeightRef", "SessionWeights"]

# The bytes of arrays up to this size are kept here: then they are known when the array is gone.
SMALL_BYTES = 4096


@dataclass
class _Place:
    """Where an array lies; all that are known to have its bytes; these bytes, or the first."""

    buffer: Buffer
    offset_bytes: int
    size_bytes: int
    head: bytes
    arrays: list[weakref.ref[np.ndarray]]

    def note(self, array: np.ndarray) -> None:
        """Remember one more array of these bytes: those before it may go with their plans."""
        others = [ref for ref in self.arrays if ref() is not None and ref() is not array]
        self.arrays = [*others, weakref.ref(array)]

    def holds(self, array: np.ndarray, head: bytes) -> bool:
        """Tell whether an array of the same size has the same bytes.

        They are compared, not hashed: that reads no more, and nothing where nobody else has them.
        """
        if self.head != head or array.nbytes <= SMALL_BYTES:
            return self.head == head
        other = next((known for ref in self.arrays if (known := ref()) is not None), None)
        return other is not None and np.array_equal(
            upload.array_bytes(other), upload.array_bytes(array)
        )


class WeightCache:
    """What the sessions of a device have uploaded; to be read and changed under its lock."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.places: dict[int, list[_Place]] = {}  # by size
        self._uses: Counter[Buffer] = Counter()

    def find(self, array: np.ndarray, mine: Collection[Buffer]) -> _Place | None:
        """Return where an array lies, or an equal one: plans fold constants anew; `mine` first."""
        there = sorted(self.places.get(array.nbytes, ()), key=lambda p: p.buffer not in mine)
        same = (place for place in there if any(ref() is array for ref in place.arrays))
        head = _head(array) if there else b""
        equal = (place for place in there if place.holds(array, head))
        return next(same, None) or next(equal, None)

    def close(self) -> None:
        """Do nothing: each buffer goes with the last program that reads it."""

    def count(self, buffer: Buffer, by: int) -> None:
        """Count uses of a buffer, or fewer; free it after the last."""
        self._uses[buffer] += by
        if self._uses[buffer] == 0:
            del self._uses[buffer]
            for size, places in list(self.places.items()):
                self.places[size] = [place for place in places if place.buffer is not buffer]
            buffer.close()


class WeightRef:
    """The weights of one program: a buffer and an offset for each weight arena of its chunk."""

    def __init__(self, weights: SessionWeights, buffers: dict[str, tuple[Buffer, int]]) -> None:
        self.buffers = buffers
        self._weights = weights

    def close(self) -> None:
        """Give the weights back; what no other program needs is freed."""
        buffers, self.buffers = self.buffers, {}
        self._weights.count(buffers, -1)


class SessionWeights:
    """The arrays that a session has on a device, shared by its programs and with others."""

    def __init__(self, opened: OpenDevice) -> None:
        self.opened = opened
        self.uploaded_bytes = 0
        self._held: WeightCache = opened.owned("weights", WeightCache)
        self._readers: Counter[str] = Counter()  # how many programs read what has a name
        self._uses: Counter[Buffer] = Counter()  # by programs of this session

    def lease(self, chunk: Chunk) -> WeightRef:
        """Return the buffers of a chunk's weights, after uploading those that are not resident.

        Raises OutOfMemoryError naming the bytes that the weights take and those that are left.
        """
        arrays: dict[str, np.ndarray] = {}
        for arena in chunk.memory.arenas:
            if arena.startswith(WEIGHTS):
                constant = chunk.constants[arena.removeprefix(WEIGHTS)].constant
                assert constant is not None, f"{arena} has a value"
                arrays[arena] = constant
        with self._held.lock:
            found = self._find(arrays)
            made = self._upload({_key(a): a for arena, a in arrays.items() if arena not in found})
            places: dict[str, tuple[Buffer, int]] = {}
            for arena, array in arrays.items():
                place = found.get(arena) or made[_key(array)]
                place.note(array)
                places[arena] = place.buffer, place.offset_bytes
            self.count(places, 1)
        return WeightRef(self, places)

    @property
    def names(self) -> frozenset[str]:
        """Return what plans call the weights that lie here, by which one knows their layout."""
        with self._held.lock:
            return frozenset(+self._readers)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all buffers that programs of this session read."""
        with self._held.lock:
            return sum(buffer.size_bytes for buffer in self._uses)

    def count(self, places: Mapping[str, tuple[Buffer, int]], by: int) -> None:
        """Count a program that reads weights, or one less; the last of all sessions frees them."""
        with self._held.lock:
            for arena in places:
                self._readers[arena.removeprefix(WEIGHTS)] += by
            for buffer in {buffer for buffer, _ in places.values()}:
                self._uses[buffer] += by
                self._held.count(buffer, by)
            self._uses = +self._uses

    def _find(self, arrays: Mapping[str, np.ndarray]) -> dict[str, _Place]:
        """Return where arrays lie.

        A buffer of another session counts if half of it is wanted here: all of it stays as long
        as any of it is read, and a model must not outlive its session for a few numbers.
        """
        there = ((arena, self._held.find(a, self._uses)) for arena, a in arrays.items())
        found = {arena: place for arena, place in there if place}
        wanted: Counter[Buffer] = Counter()
        for place in {id(place): place for place in found.values()}.values():
            wanted[place.buffer] += place.size_bytes
        wanted += Counter({buffer: buffer.size_bytes for buffer in self._uses})
        return {arena: place for arena, place in found.items()
                if 2 * wanted[place.buffer] >= place.buffer.size_bytes}  # fmt: skip

    def _upload(self, arrays: Mapping[Hashable, np.ndarray]) -> dict[Hashable, _Place]:
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
                upload.upload(self.opened, buffer, (
                    (slot.offset_bytes, arrays[numbered[number]]) for number, slot in slots.items()
                    if slot.arena == arena
                ))  # fmt: skip
        except BaseException as error:
            for buffer in made.values():
                buffer.close()
            if isinstance(error, OutOfMemoryError):
                detail = f"{total} bytes of weights do not fit: {error.detail}"
                raise OutOfMemoryError(error.command, error.result, detail) from error
            raise
        self.uploaded_bytes += total
        places: dict[Hashable, _Place] = {}
        for number, slot in slots.items():
            array = arrays[numbered[number]]
            place = _Place(made[slot.arena], slot.offset_bytes, array.nbytes, _head(array), [])
            self._held.places.setdefault(array.nbytes, []).append(place)
            places[numbered[number]] = place
        return places


def _key(array: np.ndarray) -> Hashable:
    return array.tobytes() if array.nbytes <= SMALL_BYTES else id(array)


def _head(array: np.ndarray) -> bytes:
    return array.tobytes() if array.nbytes <= SMALL_BYTES else array.flat[:64].tobytes()
