"""The weights of a session on one device: each array is uploaded once, whatever the plans.

What a plan adds to those before it lies in buffers of its own, and goes with the last program
that needs it. Visited by labs 03 and 11.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from vklab.errors import OutOfMemoryError
from vklab.plan import limits, memory
from vklab.plan.memory import WEIGHTS
from vklab.plan.plan import Plan
from vklab.runtime import transfer
from vklab.runtime.open_devices import OpenDevice
from vklab.vulkan.memory import Buffer

__all__ = ["Lease", "Weights"]

# The bytes of arrays up to this size are kept here: then they are known when the array is gone.
SMALL_BYTES = 4096


@dataclass
class _Place:
    """Where an array lies; the array as long as somebody has it, and its bytes if they are few."""

    buffer: Buffer
    offset_bytes: int
    array: weakref.ref[np.ndarray]
    small: bytes | None

    def holds(self, array: np.ndarray) -> bool:
        """Tell whether an array of the same size has the same bytes."""
        if self.small is not None:
            return self.small == array.tobytes()
        other = self.array()
        if other is None:
            return False
        mine, theirs = transfer.array_bytes(other), transfer.array_bytes(array)
        return mine[:64] == theirs[:64] and np.array_equal(mine, theirs)


class Lease:
    """The weights of one program: a buffer and an offset for each of its plan's weight arenas."""

    def __init__(self, weights: Weights, places: dict[str, tuple[Buffer, int]]) -> None:
        self.places = places
        self._weights = weights
        self._buffers = {id(buffer): buffer for buffer, _ in places.values()}

    def close(self) -> None:
        """Give the weights back; what no other program needs is freed."""
        self._weights.count(self.places, -1)
        self.places = {}
        while self._buffers:
            self._weights.give_back(self._buffers.popitem()[1])


class Weights:
    """The arrays that a session has on its device, shared by its programs."""

    def __init__(self, opened: OpenDevice) -> None:
        self.opened = opened
        self.uploaded_bytes = 0
        self._readers: Counter[str] = Counter()  # how many programs read what has a name
        self._places: dict[int, list[_Place]] = {}  # by size
        self._uses: Counter[Buffer] = Counter()

    def lease(self, plan: Plan) -> Lease:
        """Return where a plan's weights lie, after uploading those that are not there yet.

        Raises OutOfMemoryError naming the bytes that the weights take and those that are left.
        """
        arrays: dict[str, np.ndarray] = {}
        for arena in plan.memory.arenas:
            if arena.startswith(WEIGHTS):
                constant = plan.constants[arena.removeprefix(WEIGHTS)].constant
                assert constant is not None, f"{arena} has a value"
                arrays[arena] = constant
        missing = {_key(array): array for array in arrays.values() if not self._find(array)}
        self._upload(tuple(missing.values()))
        places: dict[str, tuple[Buffer, int]] = {}
        for arena, array in arrays.items():
            place = self._find(array)
            assert place is not None, f"{arena} was uploaded"
            places[arena] = place.buffer, place.offset_bytes
        self._uses.update({buffer for buffer, _ in places.values()})
        self.count(places, 1)
        return Lease(self, places)

    @property
    def names(self) -> frozenset[str]:
        """Return what plans call the weights that lie here, by which one knows their layout."""
        return frozenset(+self._readers)

    def count(self, arenas: Iterable[str], by: int) -> None:
        """Count a program that reads weights, or one less."""
        for arena in arenas:
            self._readers[arena.removeprefix(WEIGHTS)] += by

    def give_back(self, buffer: Buffer) -> None:
        """Count one use of a buffer less; free it after the last."""
        self._uses[buffer] -= 1
        if self._uses[buffer] == 0:
            self._free(buffer)

    def _free(self, buffer: Buffer) -> None:
        del self._uses[buffer]
        for size, places in self._places.items():
            self._places[size] = [place for place in places if place.buffer is not buffer]
        buffer.close()

    def _find(self, array: np.ndarray) -> _Place | None:
        """Return where an array lies, or one of the same bytes: plans fold constants anew."""
        places = self._places.get(array.nbytes, [])
        same = (place for place in places if place.array() is array)
        equal = (place for place in places if place.holds(array))
        place = next(same, None) or next(equal, None)
        if place:
            place.array = weakref.ref(array)  # the older one may go with its plan
        return place

    def _upload(self, arrays: Sequence[np.ndarray]) -> None:
        limit = limits.arena_limit_bytes(self.opened.info)
        sizes = [(str(number), array.nbytes) for number, array in enumerate(arrays)]
        slots, arenas = memory.pack(sizes, "weights", limit)
        total = sum(size for _, size in sizes)
        made: dict[str, Buffer] = {}
        try:
            for arena, size in arenas.items():
                made[arena] = Buffer(self.opened.allocator, size, "device")
            for arena, buffer in made.items():
                transfer.upload(self.opened, buffer, (
                    (slot.offset_bytes, arrays[int(number)]) for number, slot in slots.items()
                    if slot.arena == arena
                ))  # fmt: skip
        except BaseException as error:
            for buffer in made.values():
                buffer.close()
            if isinstance(error, OutOfMemoryError):
                detail = f"{total} bytes of weights do not fit: {error.detail}"
                raise OutOfMemoryError(error.command, error.result, detail) from error
            raise
        self._uses.update(dict.fromkeys(made.values(), 0))
        self.uploaded_bytes += total
        for number, slot in slots.items():
            array = arrays[int(number)]
            small = array.tobytes() if array.nbytes <= SMALL_BYTES else None
            place = _Place(made[slot.arena], slot.offset_bytes, weakref.ref(array), small)
            self._places.setdefault(array.nbytes, []).append(place)

    def close(self) -> None:
        """Free what is left."""
        for buffer in list(self._uses):
            self._free(buffer)


def _key(array: np.ndarray) -> Hashable:
    return array.tobytes() if array.nbytes <= SMALL_BYTES else id(array)
