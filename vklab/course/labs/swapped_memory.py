"""Run the digits on a student's choice of memory types, or on a student's sub-allocator.

Each runs in a process of its own. Every index and every offset is tested before the driver sees it:
a wrong offset binds with VK_SUCCESS, and kills the process later. Visited by lab 03.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import vklab
from vklab.course.children.run_limited import Outcome, run_limited
from vklab.course.swap import swap
from vklab.runtime import open_devices
from vklab.vulkan.memory import FreeRanges

__all__ = ["run_on_ranges", "run_on_types"]

SECONDS = 60.0
FLAGS = {1: "device_local", 2: "host_visible", 4: "host_coherent", 8: "host_cached"}
Ranges = list[tuple[int, int]]


def run_on_types(
    rank: Callable[..., Sequence[int]], model: Path, images: np.ndarray, device: int
) -> Outcome:
    """Return the logits of a run whose memory types are the first of an answer to 03-1.

    Args:
        rank: function with the parameters of rank_memory_types.
        model: path of the model of the digits.
        images: the pictures.
        device: index of the device.
    """
    return run_limited(_on_types, rank, str(model), images, device, seconds=SECONDS)


def _on_types(rank: Any, model: str, images: np.ndarray, device: int) -> np.ndarray:
    info = open_devices.open_device(device).info

    def first(bits: Sequence[int], type_bits: int, required: int, preferred: int = 0) -> int:
        flags = [{name for bit, name in FLAGS.items() if bit & mask}
                 for mask in (required, preferred)]  # fmt: skip
        index = rank(info.heaps, info.memory_types, type_bits, 1, *flags)[0]
        if not (type_bits >> index & 1 and bits[index] & required == required):
            raise AssertionError(f"type {index} cannot hold the buffer")
        return int(index)

    with swap("vklab.vulkan.memory.choose_memory_type", first):
        return _logits(model, images, device)


def run_on_ranges(
    take: Callable[[Ranges, int, int], tuple[int, Ranges]], atom: int, model: Path,
    images: np.ndarray, device: int,
) -> Outcome:  # fmt: skip
    """Return the logits of a run whose buffers lie where an answer to 03-3 puts them.

    Args:
        take: function with the parameters of sub_allocate.
        atom: the bytes of which it takes a multiple.
        model: path of the model of the digits.
        images: the pictures.
        device: index of the device.
    """
    return run_limited(_on_ranges, take, atom, str(model), images, device, seconds=SECONDS)


def _on_ranges(take: Any, atom: int, model: str, images: np.ndarray, device: int) -> np.ndarray:
    class Ranges(FreeRanges):
        """Free ranges of a block, divided by the student's function."""

        def take(self, size_bytes: int, alignment: int) -> int | None:
            try:
                offset, free = take(list(self._free), size_bytes, alignment)
            except MemoryError:
                return None
            end = offset + size_bytes
            inside = any(start <= offset and end <= start + size for start, size in self._free)
            apart = all(start + size <= offset or end <= start for start, size in free)
            if offset % alignment or not inside or not apart:
                raise AssertionError(f"offset {offset} is wrong for {size_bytes} bytes, alignment "
                                     f"{alignment}, free ranges {self._free}")  # fmt: skip
            self._free = list(free)
            return int(offset)

        def give_back(self, offset: int, size_bytes: int) -> None:
            super().give_back(offset, -(-size_bytes // atom) * atom)

    with swap("vklab.vulkan.memory.FreeRanges", Ranges):
        return _logits(model, images, device)


def _logits(model: str, images: np.ndarray, device: int) -> np.ndarray:
    with vklab.load(model, device=device) as session:
        return np.asarray(session.run({"image": images})["logits"])
