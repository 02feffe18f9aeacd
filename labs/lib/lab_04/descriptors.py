"""Pictures of descriptor sets: the buffers of each set, and which kernel uses them.

Visited by lab 04c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vklab_course.picture import Picture
from vklab_labs.shared.diagram import Diagram

__all__ = ["draw_sets"]

LEFT, SLOT, HEAD, ROW = 150, 44, 26, 20


def draw_sets(
    kernels: Mapping[str, Sequence[str]], sets: Sequence[Sequence[str]], limit: int, caption: str
) -> Picture:
    """Draw each descriptor set as a row of slots, and below it the kernels that it serves.

    Args:
        kernels: the buffers of each kernel.
        sets: the kernels of each set, by name.
        limit: most slots of a set; slots beyond it are red, and empty ones dashed.
        caption: text below the picture.
    """
    if not isinstance(sets, list | tuple) or not all(isinstance(s, list | tuple) for s in sets):
        raise ValueError(f"expected a list of lists with names of kernels, got {sets!r}")
    strange = sorted({str(name) for one in sets for name in one} - set(kernels))
    if strange:
        raise ValueError(f"no kernel is called {', '.join(strange)}")
    slots = [list(dict.fromkeys(b for name in one for b in kernels[name])) for one in sets]
    total, wide = sum(map(len, slots)), max([limit, *map(len, slots)])
    missing = [name for name in kernels if not any(name in one for one in sets)]
    rows = sum(map(len, sets))
    page = Diagram(LEFT + SLOT * wide + 150, 30 + (HEAD + 12) * len(sets) + ROW * rows)
    top = 6
    for number, (one, buffers) in enumerate(zip(sets, slots, strict=True)):
        page.note((8, top + 17), f"set {number}", bold=True)
        for n in range(max(limit, len(buffers))):
            there = n < len(buffers)
            page.box(
                (LEFT + SLOT * n, top, SLOT - 4, HEAD - 2),
                buffers[n] if there else "",
                "red" if n >= limit else "orange" if there else "grey",
                dashed=not there,
                filled=there,
            )
        over = f", the limit is {limit}" if len(buffers) > limit else ""
        page.note((LEFT + SLOT * wide + 6, top + 17), f"{len(buffers)} descriptors{over}")
        top += HEAD
        for name in one:
            page.note((24, top + 14), name)
            for n, buffer in enumerate(buffers):
                if buffer in kernels[name]:
                    page.box(
                        (LEFT + SLOT * n + 10, top + 2, SLOT - 24, ROW - 4), "", "green", shade=0.6
                    )
            top += ROW
        top += 12
    said = f"{total} descriptors in all" + f"; without a set: {', '.join(missing)}" * bool(missing)
    page.note((8, top + 12), said, bold=True)
    listed = "; ".join(
        f"set {n}: buffers {', '.join(buffers)}, kernels {', '.join(one)}"
        for n, (one, buffers) in enumerate(zip(sets, slots, strict=True))
    )
    key = "Orange: the slots of a set; green: the kernel uses this buffer; dashed: an empty slot."
    return page.picture(f"{said}. {listed}.", f"{caption} {key}")
