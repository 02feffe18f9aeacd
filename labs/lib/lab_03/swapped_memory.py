"""Answers about memory in the place of the runtime's: types of memory, and ranges of a block.

Every offset is tested before the driver sees it: a wrong one binds with VK_SUCCESS, and kills the
process later. Visited by lab 03.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import vklab
from vklab.types import MemoryHeap, MemoryType
from vklab.vulkan import memory
from vklab.vulkan.memory import FreeRanges
from vklab_course.children.run_limited import run_limited
from vklab_course.data import data
from vklab_course.piece import Given, Piece
from vklab_course.swap import swap

__all__ = ["MEMORY_TYPE", "RANGES", "divided_by", "run_on_ranges"]

SECONDS = 60.0
Ranges = list[tuple[int, int]]
Take = Callable[[Ranges, int, int], tuple[int, Ranges]]
# The names of the flags that the runtime asks for, by their bits.
FLAGS = {memory.DEVICE_LOCAL: "device_local", memory.HOST_VISIBLE: "host_visible",
         memory.HOST_COHERENT: "host_coherent", memory.HOST_CACHED: "host_cached"}  # fmt: skip
ENDLESS = MemoryHeap(1 << 50, True, 1 << 50, 0)


def run_on_ranges(take: Take, device: int) -> str:
    """Tell what came of a run of the digits whose buffers lie where an answer to 03-3 puts them."""
    take([(0, 4096)], 1, 1)  # an answer that is not written yet raises here
    with np.load(data("digits.npz")) as file:
        images = file["images"][:100]
    model = str(data("digits_cnn.onnx"))
    ran = run_limited(_on_ranges, take, model, images, device, seconds=SECONDS)
    if ran.status != "returned":
        return ran.message
    same = np.array_equal(ran.value, _logits(model, images, device))
    return f"a run with buffers where your function put them gives the same logits: {same}"


def _on_ranges(take: Any, model: str, images: np.ndarray, device: int) -> np.ndarray:
    with swap(RANGES.seam, divided_by(take)):
        return _logits(model, images, device)


def _logits(model: str, images: np.ndarray, device: int) -> np.ndarray:
    with vklab.load(model, device=device) as session:
        return np.asarray(session.run({"image": images})["logits"])


def divided_by(take: Take) -> type[FreeRanges]:
    """Return a class for the place of the runtime's `FreeRanges` whose `take` asks a function.

    Its `take` raises AssertionError for an offset or a list of free ranges that is wrong.
    """

    class Divided(FreeRanges):
        """Free ranges of a block, divided by the student's function."""

        def __init__(self, size_bytes: int) -> None:
            super().__init__(size_bytes)
            self._lengths: dict[int, int] = {}  # of what was taken, by offset

        def take(self, size_bytes: int, alignment: int) -> int | None:
            try:
                got = take(list(self._free), size_bytes, alignment)
            except MemoryError:
                # A block that is made for one buffer need not have a whole number of atoms.
                whole = self._free == [(0, self.size_bytes)]
                return super().take(size_bytes, alignment) if whole else None
            offset, free = _verified(self._free, size_bytes, alignment, got)
            self._lengths[offset] = sum(n for _, n in self._free) - sum(n for _, n in free)
            self._free = free
            return offset

        def give_back(self, offset: int, size_bytes: int) -> None:
            super().give_back(offset, self._lengths.pop(offset, size_bytes))

    return Divided


def _verified(before: Ranges, size_bytes: int, alignment: int, got: Any) -> tuple[int, Ranges]:
    """Return an offset and free ranges, in order. Raises AssertionError for wrong ones.

    Args:
        before: the free ranges.
        size_bytes: size of the buffer.
        alignment: alignment of its offset.
        got: what a student's function returned.
    """
    asked = f"{size_bytes} bytes, alignment {alignment}, free ranges {before}"
    pair = isinstance(got, tuple | list) and len(got) == 2 and isinstance(got[1], tuple | list)
    assert pair, f"{got!r} is no offset with a list of free ranges, for {asked}"
    numbers = [got[0]]
    for each in got[1]:  # the check takes lists for pairs, too
        assert isinstance(each, tuple | list) and len(each) == 2, f"{each!r} is no free range"
        numbers += each
    for number in numbers:
        assert isinstance(number, int | np.integer), f"{number!r} is no whole number, for {asked}"
    offset, free = int(got[0]), [(int(start), int(size)) for start, size in got[1]]
    end = offset + size_bytes
    inside = any(start <= offset and end <= start + size for start, size in before)
    if offset % alignment or not inside:
        raise AssertionError(f"offset {offset} is wrong for {asked}")
    right = f"offset {offset} is right for {asked}, but your new list"
    if not all(start + size <= offset or end <= start for start, size in free):
        raise AssertionError(f"{right} still holds bytes of the buffer")
    length = sum(size for _, size in before) - sum(size for _, size in free)
    if _joined([*free, (offset, length)]) != _joined(before):
        raise AssertionError(f"{right} and the buffer are not the bytes that were free")
    return offset, sorted(each for each in free if each[1])


def _joined(ranges: Ranges) -> Ranges:
    made = FreeRanges(0)
    for offset, size in sorted(ranges):
        made.give_back(offset, size)
    return made._free


def _first_fit(params: Mapping[str, Any]) -> Take:
    """Return the runtime's first fit behind the signature of exercise 3; it knows no atoms."""

    def sub_allocate(free: Ranges, size_bytes: int, alignment: int) -> tuple[int, Ranges]:
        ranges = FreeRanges(0)
        ranges._free = list(free)
        offset = ranges.take(size_bytes, alignment)
        if offset is None:
            raise MemoryError("no free range is large enough")
        return offset, ranges._free

    return sub_allocate


RANGES = Piece(
    "FreeRanges",
    "vklab.vulkan.memory.FreeRanges",
    {"03-3": _first_fit},
    lambda answer: divided_by(answer.value),
)


# --------------------------------------------------------------------- the piece of exercise 1

_REAL = memory.choose_memory_type  # while a piece stands at the seam, the name means the piece


def _runtime_types(params: Mapping[str, Any]) -> Callable[..., list[int]]:
    """Return the runtime's `choose_memory_type` behind the signature of exercise 1.

    It is asked again without the type that it chose, as the runtime does where a heap is full;
    how much room a heap has, it does not ask.
    """

    def rank_memory_types(
        heaps: Sequence[MemoryHeap], memory_types: Sequence[MemoryType], type_bits: int,
        size_bytes: int, required: set[str], preferred: set[str],
    ) -> list[int]:  # fmt: skip
        ranked: list[int] = []
        flags = [_bits(kind.flags) for kind in memory_types]
        while True:
            try:
                ranked.append(_REAL(flags, type_bits, _bits(required), _bits(preferred)))
            except LookupError:
                return ranked
            type_bits &= ~(1 << ranked[-1])

    return rank_memory_types


def _bits(names: Any) -> int:
    return sum(bit for bit, name in FLAGS.items() if name in names)


def _names(bits: int) -> frozenset[str]:
    return frozenset(name for bit, name in FLAGS.items() if bits & bit)


def _choosing(rank: Given) -> Callable[..., int]:
    """Return `choose_memory_type` with an answer to exercise 1.

    The sizes of heaps are unknown at this place: all types get one heap with room for everything.
    """

    def choose_memory_type(
        memory_types: Sequence[int], type_bits: int, required: int, preferred: int = 0
    ) -> int:
        types = tuple(MemoryType(0, _names(bits), bits) for bits in memory_types)
        got = rank.value((ENDLESS,), types, type_bits, 1, {*_names(required)}, {*_names(preferred)})
        assert isinstance(got, tuple | list), f"{got!r} is no list of memory types"
        if not got:
            raise LookupError("your function finds no memory type")
        first = got[0]
        known = isinstance(first, int | np.integer) and 0 <= first < len(types)
        assert known, f"there is no memory type {first!r}"
        assert type_bits >> first & 1, f"the mask {type_bits:#b} forbids memory type {first}"
        lacks = sorted(_names(required) - types[first].flags)
        assert not lacks, f"memory type {first} lacks {', '.join(lacks)}"
        return int(first)

    return choose_memory_type


MEMORY_TYPE = Piece(
    "choose_memory_type",
    "vklab.vulkan.memory.choose_memory_type",
    {"03-1": _runtime_types},
    _choosing,
)
