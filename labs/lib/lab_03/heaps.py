"""Pictures of memory as an answer sees it: heaps and types, ranges of a block, placed buffers.

Visited by lab 03.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vklab.types import MemoryHeap, MemoryType
from vklab.vulkan.memory import FreeRanges
from vklab_course import words
from vklab_course.picture import Picture
from vklab_labs.lab_03 import placing
from vklab_labs.shared.diagram import Diagram

__all__ = ["draw_heaps", "draw_placed", "draw_story"]

Table = tuple[tuple[MemoryHeap, ...], tuple[MemoryType, ...]]
SHORT = {"device_local": "local", "host_visible": "visible", "host_coherent": "coherent",
         "host_cached": "cached", "lazily_allocated": "lazy"}  # fmt: skip
COLOUR = {True: "blue", False: "orange"}  # of a heap: device-local, or the host's
GIB, MIB = 1 << 30, 1 << 20
ROW, BAR, LEFT = 62, 130, 282


def _bytes(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


def draw_heaps(
    tables: Mapping[str, Table], caption: str, ranked: Mapping[str, Any] | None = None
) -> Picture:
    """Draw heaps as bars with their budgets, and beside each the memory types that it offers.

    Args:
        tables: heaps and memory types by the device's name.
        caption: the caption.
        ranked: an answer's indices of types, the best first, by the device's name.
    """
    rows = sum(len(heaps) for heaps, _ in tables.values())
    diagram, told, top = Diagram(724, ROW * rows + 26 * len(tables)), [], 4
    for name, (heaps, types) in tables.items():
        order = list((ranked or {}).get(name, ()))
        strange = [words.short(index) for index in order if index not in range(len(types))]
        note = f"  no type {', '.join(strange)}" if strange else ""
        diagram.note((6, top + 14), name + note, bold=True)
        top += 22
        largest = max(heap.size_bytes for heap in heaps)
        for number, heap in enumerate(heaps):
            kind = "device-local" if heap.device_local else "host"
            diagram.note((6, top + 20), f"heap {number}: {_bytes(heap.size_bytes)}\n{kind}")
            _bar(diagram, heap, (140, top + 4), BAR * heap.size_bytes / largest)
            listed = [i for i, each in enumerate(types) if each.heap == number]
            width = min(128, (722 - LEFT) / max(len(listed), 1))
            for place, index in enumerate(listed):
                rank = order.index(index) + 1 if index in order else 0
                box = (LEFT + width * place, top, width - 4, ROW - 8)
                plain = "" if ranked is not None else COLOUR[heap.device_local]
                _type(diagram, types[index], index, rank, box, plain)
            top += ROW
        told.append(
            f"{name}: "
            + "; ".join(
                f"heap {number} of {_bytes(heap.size_bytes)}, budget {_bytes(heap.budget_bytes)}"
                for number, heap in enumerate(heaps)
            )
            + (f"; ranked types {words.short(order)}" if ranked else "")
        )
    return diagram.picture(". ".join(told), caption)


def _bar(diagram: Diagram, heap: MemoryHeap, at: tuple[float, float], width: float) -> None:
    """Draw a heap: its size, the bytes in use, and a line where the budget ends."""
    (x, y), across = at, max(width, 12) / heap.size_bytes
    diagram.box((x, y, max(width, 12), 24), "", COLOUR[heap.device_local])
    if heap.usage_bytes * across >= 1:
        diagram.box((x, y, heap.usage_bytes * across, 24), "", "grey", shade=0.7)
    end = x + heap.budget_bytes * across
    diagram.line((end, y - 4), (end, y + 28))
    diagram.note((x, y + 40), f"budget {_bytes(heap.budget_bytes)}", size=11)


def _type(
    diagram: Diagram, kind: MemoryType, index: int, rank: int,
    place: tuple[float, float, float, float], plain: str,
) -> None:  # fmt: skip
    """Draw a memory type with its flags, in colour if the answer lists it.

    Args:
        diagram: where to draw.
        kind: the memory type.
        index: its index.
        rank: position in the answer, from 1; 0 if the answer leaves it out.
        place: left, top, width and height.
        plain: the colour of its heap, or nothing if there is an answer to show.
    """
    flags = [short for flag, short in SHORT.items() if flag in kind.flags] or ["no flags"]
    text = f"type {index}" + (f" → {rank}." if rank else "")
    text += "\n" + " ".join(flags[:2]) + ("\n" + " ".join(flags[2:]) if flags[2:] else "")
    colour = plain or ("grey" if not rank else "green" if rank == 1 else "sky")
    diagram.box(place, text, colour, filled=bool(rank or plain), shade=0.12 if plain else 0.22)


Ranges = list[tuple[int, int]]
Take = Callable[[Ranges, int, int], tuple[int, Ranges]]
BLOCK = 8192


def draw_story(take: Take, caption: str) -> Picture:
    """Draw a block after five buffers came, two went and three more came: first fit, and yours.

    Args:
        take: an answer to 03-3: free ranges, bytes and alignment -> offset, free ranges.
        caption: the caption.
    """
    return _draw_ranges({"first fit": _story(_first_fit), "you": _story(take)}, caption)


def _story(take: Take) -> dict[str, tuple[int, int]]:
    """Return (offset, bytes) of the buffers that a block holds in the end; -1 for no offset."""
    free, held = [(0, BLOCK)], {}
    for name, size in zip("abcde", (2048, 512, 1024, 512, 1024), strict=True):
        offset, free = _taken(take, free, size)
        held[name] = offset, size
    for name in "ac":
        free = sorted([*free, held.pop(name)])
    for name, size in zip("xyz", (1024, 2048, 3072), strict=True):
        try:
            offset, free = _taken(take, free, size)
        except MemoryError:
            offset = -1
        held[name] = offset, size
    return held


def _taken(take: Take, free: Ranges, size: int) -> tuple[int, Ranges]:
    """Return what an answer returns; its check takes lists for pairs, too."""
    offset, left = take(free, size, 256)
    return offset, [(start, length) for start, length in left]


def _first_fit(free: Ranges, size: int, alignment: int) -> tuple[int, Ranges]:
    ranges = FreeRanges(BLOCK)
    ranges._free = list(free)
    offset = ranges.take(size, alignment)
    if offset is None:
        raise MemoryError
    return offset, ranges._free


def _draw_ranges(rows: Mapping[str, Mapping[str, tuple[int, int]]], caption: str) -> Picture:
    """Draw blocks of memory, with the ranges that are taken in each."""
    diagram, told, scale = Diagram(724, 66 * len(rows) + 6), [], 700 / BLOCK
    for row, (name, asked) in enumerate(rows.items()):
        top, ranges = 66 * row + 6, {n: placed for n, placed in asked.items() if placed[0] >= 0}
        gaps, end = [], 0
        for offset, size in sorted([*ranges.values(), (BLOCK, 0)]):
            gaps.append(max(offset - end, 0))
            end = max(end, offset + size)
        said = f"{name}: {sum(gaps)} bytes free, the largest free range has {max(gaps)}"
        said += "".join(
            f"; {n} with {asked[n][1]} bytes fits nowhere" for n in asked if n not in ranges
        )
        diagram.note((10, top + 12), said, bold=True)
        diagram.box((10, top + 20, 700, 34), "", "grey", dashed=True, filled=False)
        for label, (offset, size) in ranges.items():
            over = offset + size > BLOCK or any(
                offset < there + more and there < offset + size
                for other, (there, more) in ranges.items()
                if other != label
            )
            diagram.box(
                (10 + offset * scale, top + 20, max(size * scale, 2), 34),
                label,
                "red" if over else "blue",
            )
        told.append(said)
    return diagram.picture("; ".join(told), caption)


def draw_placed(
    buffers: Mapping[str, tuple[int, int, int]], heaps: Mapping[str, tuple[int, int]],
    placed: Mapping[str, str], caption: str,
) -> Picture:  # fmt: skip
    """Draw heaps as bars up to 95 % of their budgets, and the buffers that an answer puts there.

    Args:
        buffers: (MiB, MiB that the host writes, MiB that kernels read) by name.
        heaps: (budget, used) in MiB, by name: device, window and host.
        placed: heap of each buffer.
        caption: the caption.
    """
    diagram, told, total = Diagram(724, 62 * len(heaps) + 24), [], 0
    rooms = placing.rooms(heaps)
    for row, heap in enumerate(heaps):
        room, top, left = rooms[heap], 62 * row + 4, 90.0
        inside = [name for name in buffers if placed.get(name) == heap]
        load = sum(buffers[name][0] for name in inside)
        moved = sum(placing.moved(buffers[name], heap) for name in inside)
        total += moved
        scale = 624 / max(room, load)
        least = min(44.0, 600 / max(len(inside), 1))
        diagram.note((6, top + 18), heap, bold=True)
        diagram.box((90, top, room * scale, 34), "", "grey", dashed=True, filled=False)
        for name in inside:
            size = buffers[name][0]
            width = max(size * scale, least)
            label = f"{name}: {size}" if width > 40 else name
            diagram.box((left, top + 3, width, 28), label, "red" if load > room else "blue")
            left += width
        diagram.note((90, top + 48), f"{load} of {room} MiB; over the bus: {moved} MiB a run")
        told.append(f"{heap}: {', '.join(inside) or 'nothing'}, {load} of {room} MiB")
    lost = [name for name in buffers if placed.get(name) not in heaps]
    end = f"no heap: {', '.join(lost)}.  " if lost else ""
    diagram.note(
        (714, 62 * len(heaps) + 16), f"{end}{total} MiB over the bus a run", anchor="end", bold=True
    )
    return diagram.picture(f"{'; '.join(told)}. {total} MiB over the bus a run", caption)
