"""Pictures of bank conflicts: transactions by stride, and of each access to a tile.

Visited by lab 07b.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vklab.base.draw.svg import svg, text
from vklab_course.picture import Picture, picture
from vklab_labs.lab_07 import banks
from vklab_labs.shared.diagram import COLOURS

__all__ = ["draw_bank_grid", "draw_strides"]

SIDE, CELL = 32, 8
CENTRED, SMALL = 'text-anchor="middle" font-size="12"', 'text-anchor="middle" font-size="10"'
END = 'text-anchor="end"'
# Dark blue, grey and yellow: the order is visible without colours, too.
RAMP = ((0, 34, 78), (124, 123, 120), (254, 232, 56))


def draw_strides(count: Callable[[int], int], record: Mapping[str, Any]) -> Picture:
    """Draw transactions by the distance of words, beside the recorded time of a GPU.

    Args:
        count: transactions of an access whose words lie so far apart.
        record: the recorded measurements.
    """
    heights = {stride: float(count(stride)) for stride in range(34)}
    times = {int(stride): time for stride, time in record["banks"]["time_ns"].items()}
    ratios = {stride: time / times[1] for stride, time in times.items()}
    blue, red = COLOURS["blue"], COLOURS["red"]

    def place(stride: int, value: float) -> tuple[float, float]:
        return 66 + 17.5 * stride, 238 - 36 * math.log2(max(value, 0.5))

    parts = ['<path d="M50,256h602M50,256v-230" fill="none" stroke="#888"/>']
    for value in (1, 2, 4, 8, 16, 32):
        y = place(0, value)[1]
        parts.append(f'<path d="M50,{y:g}h602" stroke="#ddd"/>' + text(44, y + 4, f"{value}", END))
    for stride in range(0, 34, 4):
        parts.append(text(place(stride, 1)[0], 272, f"{stride}", 'text-anchor="middle"'))
    for x, y in (place(*pair) for pair in heights.items()):
        parts.append(
            f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" fill="none" '
            f'stroke="{blue}" stroke-width="1.5"/>'
        )
    for x, y in (place(*pair) for pair in ratios.items()):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{red}"/>')
    parts += [
        f'<rect x="66" y="26" width="10" height="10" fill="none" stroke="{blue}"/>',
        text(84, 35, "your count of transactions"),
        f'<circle cx="71" cy="48" r="3.5" fill="{red}"/>',
        text(84, 52, f"time on {record['device']}, {record['date']}, divided by that of stride 1"),
        text(351, 290, "distance of two lanes' words", CENTRED),
        text(14, 140, "transactions, or times", f'{CENTRED} transform="rotate(-90 14 140)"'),
    ]
    said = "counted for " + ", ".join(f"{s}: {h:g}" for s, h in heights.items())
    said += "; measured " + ", ".join(f"{s}: {r:.2f}" for s, r in ratios.items())
    alt = f"Transactions by distance, {said}."
    return picture(
        svg(alt, 680, 300, parts),
        alt,
        "Transactions of 32 lanes on 32 banks, by the distance of their words.",
    )


def _shade(bank: int) -> str:
    """Return the colour of a bank, from dark to light."""
    at = 2 * bank / (SIDE - 1)
    first = min(int(at), 1)
    mixed = (
        round(a + (b - a) * (at - first)) for a, b in zip(RAMP[first], RAMP[first + 1], strict=True)
    )
    return "#" + "".join(f"{each:02x}" for each in mixed)


def _squares(places: np.ndarray, size: int, left: int, top: int) -> str:
    """Return a path of squares in the middle of some cells, given as rows and columns."""
    gap = (CELL - size) / 2
    return "".join(
        f"M{left + CELL * c + gap:g},{top + CELL * r + gap:g}h{size}v{size}h-{size}z"
        for r, c in places.tolist()
    )


def draw_bank_grid(table: Sequence[int], accesses: np.ndarray, kinds: Mapping[str, int]) -> Picture:
    """Draw the bank of each element of a tile, and the transactions of each access.

    Args:
        table: word of each element, 32 x 32.
        accesses: rows of 32 elements.
        kinds: number of accesses of each kind, by its name, in order.
    """
    counts = banks.of_each(np.asarray(table), accesses)
    bank = np.asarray(table).reshape(SIDE, SIDE) % SIDE
    worst, most, (left, top, side) = int(counts.argmax()), int(counts.max()), (46, 30, CELL * SIDE)
    parts = [text(left + side / 2, 18, "bank of each element", CENTRED)]
    for n in range(SIDE):
        squares = _squares(np.argwhere(bank == n), CELL, left, top)
        parts.append(
            f'<path d="{squares}" fill="{_shade(n)}"/><rect x="316" y="{top + CELL * n}" '
            f'width="12" height="{CELL}" fill="{_shade(n)}"/>'
        )
        if n % 8 == 0 or n == SIDE - 1:
            middle = CELL * n + CELL / 2
            parts += [
                text(left + middle, top + side + 14, f"{n}", 'text-anchor="middle"'),
                text(left - 5, top + middle + 4, f"{n}", END),
                text(332, top + middle + 4, f"{n}"),
            ]
    parts += [
        f'<path d="{_squares(np.argwhere(bank == 0), 5, left, top)}" fill="#fff" '
        'stroke="#222" stroke-width="0.8"/>',
        text(322, 18, "bank", CENTRED),
        text(left + side / 2, 316, "column", CENTRED),
        text(14, 158, "row", f'{CENTRED} transform="rotate(-90 14 158)"'),
    ]
    for element in accesses[worst].tolist():
        x, y = left + CELL * (element % SIDE) + 1, top + CELL * (element // SIDE) + 1
        cross = f'<path d="M{x},{y}l6,6m0,-6l-6,6" stroke-linecap="round" '
        parts += [
            f'{cross}stroke="#fff" stroke-width="5"/>',
            f'{cross}stroke="{COLOURS["red"]}" stroke-width="2.4"/>',
        ]
    start, across, up = 400, 278 / counts.size, side / (1.1 * most)
    base = top + side
    steps = "".join(f"V{base - up * n:.1f}h{across:.3f}" for n in counts.tolist())
    parts.append(f'<path d="M{start},{base}{steps}V{base}z" fill="{COLOURS["blue"]}"/>')
    for n in range(0, most + 1, -(-most // 8)):
        parts.append(text(start - 5, base - up * n + 4, f"{n}", END))
    edges, said = np.cumsum([0, *kinds.values()]).tolist(), []
    for name, a, b in zip(kinds, edges, edges[1:], strict=False):
        middle = start + across * (a + b) / 2
        parts += [
            f'<path d="M{start + across * b:.1f},{top}V{base + 4}" stroke="#222" '
            'stroke-width="0.7"/>',
            text(middle, base + 14, name, SMALL),
            text(middle, base + 26, f"{a} to {b - 1}", SMALL),
        ]
        said.append(f"{name}: {counts[a:b].sum()}")
    parts += [
        f'<path d="M{start},{top}V{base}h278" fill="none" stroke="#222"/>',
        text(539, 18, f"{counts.sum()} transactions for {counts.size} accesses", CENTRED),
        text(539, 328, "access", CENTRED),
        text(372, 158, "transactions", f'{CENTRED} transform="rotate(-90 372 158)"'),
    ]
    alt = (
        f"A tile of 32 x 32 elements by bank; {counts.size} accesses take {counts.sum()} "
        f"transactions ({'; '.join(said)}), the worst {most}."
    )
    return picture(
        svg(alt, 690, 336, parts),
        alt,
        f"White squares: elements in bank 0. Orange-red crosses: access {worst}, with "
        f"{most} transactions the first of the worst ones.",
    )
