"""Boards with models on them: how much of each board's memory and bandwidth is taken.

Visited by lab 01b.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vklab_course.picture import Picture
from vklab_labs.shared.diagram import Diagram

__all__ = ["draw_boards"]

LEFT, WIDTH, ROW = 130, 440, 54


Boards = Mapping[str, tuple[int, int, int]]
Models = Mapping[str, tuple[int, int, tuple[str, ...]]]


def draw_boards(
    boards: Boards, models: Models, bought: Sequence[tuple[str, Sequence[str]]], caption: str
) -> Picture:
    """Draw two bars a board: GB above, GB/s below. Red: too much, or the wrong board.

    Args:
        boards: (watts, GB, GB/s) by name.
        models: (GB, GB/s, boards that it runs on) by name.
        bought: the boards of an answer, each with its models.
        caption: the caption.
    """
    page, told, total = Diagram(720, ROW * len(bought) + 30), [], 0
    for row, (board, names) in enumerate(bought):
        watts, *limits = boards[board]
        total, top = total + watts, ROW * row + 6
        page.note((6, top + 18), board, bold=True).note((6, top + 36), f"{watts} W")
        for bar, (limit, unit) in enumerate(zip(limits, ("GB", "GB/s"), strict=True)):
            needs = {name: models[name][:2][bar] for name in names}
            taken, x, y = sum(needs.values()), float(LEFT), top + 22 * bar
            scale = WIDTH / max(limit, taken)
            page.box((LEFT, y, limit * scale, 20), "", "grey", filled=False)
            for name, need in needs.items():
                width, wrong = need * scale, taken > limit or board not in models[name][2]
                page.box(
                    (x, y, width, 20),
                    name if width > 7 * len(name) + 4 else "",
                    "red" if wrong else ("blue", "sky")[bar],
                )
                x += width
            page.note((714, y + 14), f"{taken} of {limit} {unit}", anchor="end")
        told.append(f"{board}: {', '.join(names)}")
    lost = [name for name in models if not any(name in names for _, names in bought)]
    page.note((6, ROW * len(bought) + 22), f"without a board: {', '.join(lost)}" if lost else "")
    page.note((714, ROW * len(bought) + 22), f"{total} W", anchor="end", bold=True)
    return page.picture(f"{'; '.join(told)}: {total} W", caption)
