"""Pictures of bank conflicts: transactions by stride, and of each access to a tile.

Visited by lab 07b.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from vklab.course.figures.diagram import COLOURS
from vklab.course.labs import banks
from vklab.course.picture import Picture, picture

__all__ = ["draw_bank_grid", "draw_strides"]

SIDE = 32


def draw_strides(count: Callable[[int], int], record: Mapping[str, Any] | None) -> Picture:
    """Draw transactions by the distance of words, beside the recorded time of a GPU.

    Args:
        count: transactions of an access whose words lie so far apart.
        record: the recorded measurements; None draws the count alone.
    """
    figure = Figure((9.2, 3.0))
    axes = figure.subplots()
    strides = range(34)
    heights = [count(stride) for stride in strides]
    axes.plot(strides, heights, "s", mfc="none", color=COLOURS["blue"], ms=9,
              label="your count of transactions")
    said = "counted for " + ", ".join(f"{s}: {h}" for s, h in zip(strides, heights, strict=True))
    if record:
        times = {int(stride): time for stride, time in record["banks"]["time_ns"].items()}
        ratios = {stride: time / times[1] for stride, time in times.items()}
        axes.plot(list(ratios), list(ratios.values()), "o", color=COLOURS["red"],
                  label=f"time on {record['device']}, {record['date']}, by time of stride 1")
        said += "; measured " + ", ".join(f"{s}: {r:.2f}" for s, r in ratios.items())
    axes.set(xlabel="distance of two lanes' words", ylabel="transactions, or times", yscale="log",
             yticks=(1, 2, 4, 8, 16, 32), ylim=(0.7, 45))  # fmt: skip
    axes.set_yticklabels(["1", "2", "4", "8", "16", "32"])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=9)
    return picture(figure, alt=f"Transactions by distance, {said}.",
                   caption="Transactions of 32 lanes on 32 banks, by the distance of their words.")


def draw_bank_grid(
    table: Sequence[int], accesses: np.ndarray, kinds: Mapping[str, int]
) -> Picture:
    """Draw the bank of each element of a tile, and the transactions of each access.

    Args:
        table: word of each element, 32 x 32.
        accesses: rows of 32 elements.
        kinds: number of accesses of each kind, by its name, in order.
    """
    counts = banks.of_each(np.asarray(table), accesses)
    bank = np.asarray(table).reshape(SIDE, SIDE) % SIDE
    figure = Figure((9.4, 3.9))
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    drawn = left.imshow(bank, cmap="cividis")
    rows, columns = np.nonzero(bank == 0)
    left.plot(columns, rows, "s", ms=4, mfc="white", mec="#222", mew=0.8)
    worst = int(counts.argmax())
    at = np.divmod(accesses[worst], SIDE)
    left.plot(at[1], at[0], "x", ms=5, color=COLOURS["red"], mew=1.4)
    left.set(title="bank of each element", xlabel="column", ylabel="row")
    figure.colorbar(drawn, ax=left, label="bank")
    right.stairs(counts, fill=True, color=COLOURS["blue"])
    edges = np.cumsum([0, *kinds.values()])
    names = [f"{name}\n{a} to {b - 1}" for name, a, b in zip(kinds, edges, edges[1:], strict=False)]
    right.set_xticks((edges[:-1] + edges[1:]) / 2, names, fontsize=8)
    right.vlines(edges, 0, counts.max(), color="#222", lw=0.6)
    right.yaxis.get_major_locator().set_params(integer=True)
    right.set(title=f"{counts.sum()} transactions for {counts.size} accesses", xlabel="access",
              ylabel="transactions", ylim=(0, None), xlim=(0, counts.size))  # fmt: skip
    figure.tight_layout()
    each = "; ".join(f"{name}: {counts[a:b].sum()}"
                     for name, a, b in zip(kinds, edges, edges[1:], strict=False))  # fmt: skip
    return picture(
        figure,
        alt=f"A tile of 32 x 32 elements by bank; {counts.size} accesses take {counts.sum()} "
            f"transactions ({each}), the worst {counts.max()}.",
        caption=f"White squares: elements in bank 0. Red crosses: access {worst}, with "
                f"{counts.max()} transactions the first of the worst ones.",
    )  # fmt: skip
