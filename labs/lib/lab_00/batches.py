"""Pictures of batches: the pictures of each run, and rows that stay empty. Visited by lab 00."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vklab_course.picture import Picture
from vklab_labs.shared.diagram import Diagram

__all__ = ["draw_batches", "obvious_choices", "obvious_cost"]

WIDTH, LEFT = 720, 150


def obvious_choices(pictures: int, sizes: Sequence[int]) -> dict[str, list[int]]:
    """Return the choices of batch sizes that come to mind first, by name: one size, or greedy."""
    choices = {f"only {size}": [size] * -(-pictures // size) for size in sizes}
    fitting, left = [], pictures
    for size in sorted(sizes, reverse=True):
        fitting += [size] * (left // size)
        left %= size
    choices["largest first"] = fitting + [min(sizes)] * (left > 0)
    full, rest = divmod(pictures, max(sizes))
    last = [min(size for size in sizes if size >= rest)] * (rest > 0)
    return choices | {"one for the rest": [max(sizes)] * full + last}


def obvious_cost(pictures: int, sizes: Sequence[int], run: int) -> int:
    """Return the least cost of the obvious choices.

    Args:
        pictures: number of pictures to read.
        sizes: the batch sizes that there are.
        run: price of a run, in rows.
    """
    choices = obvious_choices(pictures, sizes).values()
    return min(sum(each) + run * len(each) for each in choices)


def draw_batches(
    pictures: int,
    choices: Mapping[str, Sequence[int]],
    run: int,
    caption: str,
    prepared: Sequence[int] = (),
) -> Picture:
    """Draw the runs of some choices of batch sizes as bars, each with its size above it.

    Empty rows are dashed.

    Args:
        pictures: number of pictures to read.
        choices: batch sizes of the runs, by the name of the choice.
        run: price of a run, in rows.
        caption: text below the picture.
        prepared: the sizes that exist; another one is named. Empty: do not look.
    """
    for name, sizes in choices.items():
        if not isinstance(sizes, list | tuple):
            raise ValueError(f"{name}: expected a list of batch sizes, got {type(sizes).__name__}")
    costs = {name: sum(sizes) + run * len(sizes) for name, sizes in choices.items()}
    scale = (WIDTH - LEFT - 110) / max(1, *costs.values())
    page = Diagram(WIDTH, 16 + 50 * len(choices))
    for row, (name, sizes) in enumerate(choices.items()):
        top, x, left = 20 + 50 * row, float(LEFT), pictures
        page.note((8, top + 20), name, bold=True)
        for size in sizes:
            filled = min(size, max(left, 0))
            page.box((x, top, run * scale, 30), "", "grey")
            x += run * scale
            page.note((x + size * scale / 2, top - 4), str(size), anchor="middle", size=11)
            if filled:
                page.box((x, top, filled * scale, 30), "", "blue")
            if size > filled:
                page.box(
                    (x + filled * scale, top, (size - filled) * scale, 30),
                    "",
                    "orange",
                    dashed=True,
                )
            x, left = x + size * scale, left - size
        strange = [size for size in sizes if prepared and size not in prepared]
        fault = f", no size: {strange[0]}" if strange else f", {left} unread" if left > 0 else ""
        page.note((x + 6, top + 20), f"= {costs[name]}{fault}")
    listed = "; ".join(
        f"{name}: sizes {list(sizes)}, cost {costs[name]}" for name, sizes in choices.items()
    )
    return page.picture(f"Runs as bars for {pictures} pictures. {listed}", caption)
