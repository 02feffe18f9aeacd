"""Run the digits on a student's sub-allocator, in a process of its own.

Every offset is tested before the driver sees it: a wrong one binds with VK_SUCCESS, and kills the
process later. Visited by lab 03.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import vklab
from vklab.vulkan.memory import FreeRanges
from vklab_course.children.run_limited import run_limited
from vklab_course.data import data
from vklab_course.swap import swap

__all__ = ["run_on_ranges"]

SECONDS = 60.0
Ranges = list[tuple[int, int]]
Take = Callable[[Ranges, int, int], tuple[int, Ranges]]


def run_on_ranges(take: Take, atom: int, device: int) -> str:
    """Tell what came of a run of the digits whose buffers lie where an answer to 03-3 puts them.

    Args:
        take: function with the parameters of sub_allocate.
        atom: the bytes of which it takes a multiple.
        device: index of the device.
    """
    take([(0, 4096)], 1, 1)  # an answer that is not written yet raises here
    with np.load(data("digits.npz")) as file:
        images = file["images"][:100]
    model = str(data("digits_cnn.onnx"))
    ran = run_limited(_on_ranges, take, atom, model, images, device, seconds=SECONDS)
    if ran.status != "returned":
        return ran.message
    same = np.array_equal(ran.value, _logits(model, images, device))
    return f"a run with buffers where your function put them gives the same logits: {same}"


def _on_ranges(take: Any, atom: int, model: str, images: np.ndarray, device: int) -> np.ndarray:
    class Ranges(FreeRanges):
        """Free ranges of a block, divided by the student's function."""

        def take(self, size_bytes: int, alignment: int) -> int | None:
            try:
                offset, free = take(list(self._free), size_bytes, alignment)
            except MemoryError:
                return None
            free = [(start, size) for start, size in free]  # the check takes lists for pairs, too
            end = offset + size_bytes
            inside = any(start <= offset and end <= start + size for start, size in self._free)
            apart = all(start + size <= offset or end <= start for start, size in free)
            asked = f"{size_bytes} bytes, alignment {alignment}, free ranges {self._free}"
            if offset % alignment or not inside:
                raise AssertionError(f"offset {offset} is wrong for {asked}")
            if not apart:
                raise AssertionError(
                    f"offset {offset} is right for {asked}, but your new list "
                    "still holds bytes of the buffer"
                )
            self._free = free
            return int(offset)

        def give_back(self, offset: int, size_bytes: int) -> None:
            super().give_back(offset, -(-size_bytes // atom) * atom)

    with swap("vklab.vulkan.memory.FreeRanges", Ranges):
        return _logits(model, images, device)


def _logits(model: str, images: np.ndarray, device: int) -> np.ndarray:
    with vklab.load(model, device=device) as session:
        return np.asarray(session.run({"image": images})["logits"])
