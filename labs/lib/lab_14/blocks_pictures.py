"""Pictures of blocks of four bits: the scales, the lanes of a row, the bytes that are read.

Visited by lab 14b.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vklab_course.picture import Picture
from vklab_labs.lab_14.blocks_q4k import BLOCK, draw_blocks
from vklab_labs.shared.diagram import Diagram

__all__ = ["draw_codes", "draw_lanes", "draw_read", "draw_scales", "read_bytes"]

CELL = 52
FIELDS = (("d", 2), ("dmin", 2), ("scales", 12), ("qs", 128))


def draw_scales() -> Picture:
    """Draw the 12 bytes that hold eight scales and eight minima of six bits."""
    page = Diagram(700, 172)
    page.note((4, 20), "byte of `scales`", size=11)
    page.note((4, 62), "bits 7, 6", size=11).note((4, 92), "bits 5 to 4", size=11)
    page.note((4, 112), "bits 3 to 0", size=11)
    for n in range(12):
        x, first = 76 + CELL * n, n % 4
        page.note((x + 22, 20), str(n), anchor="middle", bold=True)
        if n < 8:
            letter, high = ("s", "orange") if n < 4 else ("m", "green")
            page.box((x, 30, 46, 46), f"{letter}{first + 4}\nhigh", high)
            page.box((x, 78, 46, 46), f"{letter}{first}", "blue" if n < 4 else "sky")
        else:
            page.box((x, 30, 46, 46), f"m{first + 4}\nlow", "green")
            page.box((x, 78, 46, 46), f"s{first + 4}\nlow", "orange")
    page.note((76, 144), "bytes 0 to 7: two high bits, then six bits. Bytes 8 to 11: four bits of a "
                         "minimum, four of a scale.", size=11)  # fmt: skip
    page.note((76, 162), "s0 to s7: scales of the eight groups. m0 to m7: their minima.", size=11)
    return page.picture(
        "Bytes 0 to 3: the lower six bits are the scales s0 to s3, the two highest bits are the "
        "high bits of s4 to s7. Bytes 4 to 7: the same for the minima m0 to m3, and m4 to m7. "
        "Bytes 8 to 11: the lower four bits are the low bits of s4 to s7, the upper four those of "
        "m4 to m7.",
        "Sixteen numbers of six bits in 12 bytes.",
    )


def draw_codes() -> Picture:
    """Draw where the codes of the eight groups lie in 128 bytes."""
    page = Diagram(700, 110)
    for n in range(4):
        x = 60 + 156 * n
        page.note((x + 75, 16), f"bytes {32 * n} to {32 * n + 31}", anchor="middle")
        page.box((x, 24, 150, 32), f"group {2 * n + 1}", "orange")
        page.box((x, 58, 150, 32), f"group {2 * n}", "blue")
    page.note((2, 44), "upper\nhalves", size=10).note((2, 74), "lower\nhalves", size=10)
    return page.picture(
        "Bytes 0 to 31 of qs: group 0 in the lower halves, group 1 in the upper halves. Bytes 32 "
        "to 63: groups 2 and 3. Bytes 64 to 95: groups 4 and 5. Bytes 96 to 127: groups 6 and 7.",
        "The codes of a block, `qs`. Element i of a group is in byte i of its 32 bytes.",
    )


def draw_lanes() -> Picture:
    """Draw how 32 lanes share a row of blocks, and how their parts of the sum come together."""
    page = Diagram(700, 226)
    for block in range(3):
        x = 70 + 210 * block
        page.note((x + 95, 16), f"block {block} of the row", anchor="middle")
        page.box((x, 24, 34, 34), "head", "grey")
        for lane in range(4):
            words = ("0", "1", "...", "31")[lane]
            page.box((x + 40 + 38 * lane, 24, 34, 34), words, "blue")
            page.arrow((x + 57 + 38 * lane, 60), (x + 57 + 38 * lane, 96))
            page.box((x + 40 + 38 * lane, 98, 34, 34), "x 8", "orange")
    page.note((4, 45), "words of w").note((4, 120), "values of x")
    for lane in range(4):
        page.box((200 + 60 * lane, 150, 52, 26), f"lane {('0', '1', '...', '31')[lane]}", "green")
        page.arrow((226 + 60 * lane, 178), (330, 200))
    page.box((290, 200, 80, 24), "y[row]", "pink")
    page.note((4, 168), "32 parts of the sum")
    return page.picture(
        "A row of blocks. Of each block, lane n takes word n of the codes and eight values of x. "
        "At the end 32 parts of the sum are added to one element of y.",
        "32 lanes on one row. Each takes one word of codes in every block, and eight values of x. "
        "All lanes need the head: four words with the scales.",
    )


class RecordingRow(np.ndarray):
    """A row of bytes that notes which of them are read."""

    places: np.ndarray
    seen: set[int]

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        places = self.places[key]
        if np.ndim(places) == 0 or (np.size(places) <= 16 and not isinstance(key, slice)):
            self.seen.update(np.ravel(places).tolist())
        return _recording(found, places, self.seen) if isinstance(found, RecordingRow) else found

    def view(self, *kinds: Any, **more: Any) -> Any:
        self.seen.update(self.places.ravel().tolist() if self.places.size <= 16 else ())
        return np.asarray(self).view(*kinds, **more)

    def tobytes(self, *order: Any) -> bytes:
        self.seen.update(self.places.ravel().tolist() if self.places.size <= 16 else ())
        return np.asarray(self).tobytes(*order)

    def reshape(self, *shape: Any, **more: Any) -> Any:
        places = self.places.reshape(*shape, **more)
        return _recording(np.asarray(self).reshape(*shape, **more), places, self.seen)


def _recording(values: np.ndarray, places: np.ndarray, seen: set[int]) -> RecordingRow:
    made = np.asarray(values).view(RecordingRow)
    made.places, made.seen = places, seen
    return made


def read_bytes(value_at: Callable[..., Any], index: int) -> set[int]:
    """Return the numbers of the bytes that a function reads of one block.

    Args:
        value_at: the function, as exercise 14b-1 asks for it.
        index: the element.
    """
    block = draw_blocks(np.random.default_rng(0), 1)
    row = _recording(block, np.arange(BLOCK), set())
    value_at(row, index)
    return row.seen


def draw_read(value_at: Callable[..., Any], indices: tuple[int, ...], caption: str) -> Picture:
    """Draw the bytes of a block that a function reads for some elements.

    Args:
        value_at: the function, as exercise 14b-1 asks for it.
        indices: the elements.
        caption: the line below.
    """
    page = Diagram(700, 40 * len(indices) + 34)
    told, left, wide = [], 96, 4.1
    starts = np.cumsum([0, *(size for _, size in FIELDS)])
    for (name, size), start in zip(FIELDS, starts, strict=False):
        if size > 2:
            page.note((left + wide * (start + size / 2), 16), name, anchor="middle")
    page.note((left - 4, 16), "d dmin", anchor="end", size=10)
    for row, index in enumerate(indices):
        y, seen = 26 + 40 * row, sorted(read_bytes(value_at, index))
        page.note((2, y + 18), f"element {index}")
        for (_, size), start, colour in zip(
            FIELDS, starts, ("blue", "orange", "green", "grey"), strict=False
        ):
            page.box((left + wide * start, y, wide * size, 24), "", colour, shade=0.12)
        for byte in seen:
            page.box((left + wide * byte, y, wide, 24), "", "red", shade=0.9)
        told.append(f"element {index}: bytes {', '.join(map(str, seen))}")
    return page.picture("; ".join(told), caption)
