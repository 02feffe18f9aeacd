"""Pictures of a parity report: errors by layer and backend, errors by ULP, and times.

They take the text colour of the page around them, so they suit light and dark pages. A cell that
fails has a cross beside its colour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from vklab.base.draw.svg import PALETTE, shorten, svg, text

BLUE, ORANGE = PALETTE[0], PALETTE[5]
# Upper limit of a share of the tolerance, fill, and colour of the text on it.
STEPS = ((0.0, "#f7fbff", "#222"), (0.01, "#deebf7", "#222"), (0.1, "#9ecae1", "#222"),
         (0.5, "#4292c6", "#000"), (1.0, "#08519c", "#fff"),
         (math.inf, ORANGE, "#000"))  # fmt: skip
NAMES, CELL, LINE = 250, 58, 19
LONGEST = 34  # characters of a backend's name
PLAIN = 'fill="currentColor"'
FAINT = 'stroke="currentColor" stroke-opacity="0.35"'


def heat_map(
    title: str, rows: Sequence[str], columns: Sequence[str],
    cells: Mapping[tuple[str, str], tuple[float, str]],
) -> str:  # fmt: skip
    """Return a drawing of a value for each row and column: shares of a tolerance.

    Args:
        title: the title, which screen readers read aloud.
        rows: names from top to bottom.
        columns: names from left to right.
        cells: share and tooltip by row and column; one that is missing is drawn as a dash.
    """
    longest = min(max(map(len, columns), default=0), LONGEST)
    head = round(26 + 4.0 * longest)  # the names above the columns are turned by 40 degrees
    width = round(NAMES + CELL * len(columns) + 5.2 * longest)
    parts = []
    for number, name in enumerate(columns):
        x = NAMES + CELL * (number + 0.4)
        parts.append(
            text(
                0,
                0,
                shorten(name, LONGEST),
                f'{PLAIN} transform="translate({x:.0f} {head - 6}) rotate(-40)"',
            )
        )
    for line, row in enumerate(rows):
        y = head + LINE * line
        parts.append(text(NAMES - 8, y + 14, shorten(row, 36), f'{PLAIN} text-anchor="end"'))
        for number, column in enumerate(columns):
            parts.append(_cell(NAMES + CELL * number, y, cells.get((row, column)), row, column))
    bottom = head + LINE * len(rows)
    return svg(title, max(width, 630), bottom + 42, [*parts, *_legend(bottom + 16)], "")


def _cell(x: float, y: float, given: tuple[float, str] | None, row: str, column: str) -> str:
    """Return one cell of a heat map.

    Args:
        x: its left side in pixels.
        y: its top in pixels.
        given: its share and tooltip; None for a cell without a value.
        row: name of its row.
        column: name of its column.
    """
    if given is None:
        words = f"{column}, {row}: not measured"
        dash = text(x + CELL / 2, y + 14, "-", f'{PLAIN} text-anchor="middle"')
        return f"<g>{dash}<title>{escape(words)}</title></g>"
    share, words = given
    fill, ink = next((fill, ink) for limit, fill, ink in STEPS if share <= limit)
    label = text(x + CELL / 2, y + 14, _share_text(share), f'fill="{ink}" text-anchor="middle"')
    return (
        f'<g><rect x="{x + 1:.0f}" y="{y + 1:.0f}" width="{CELL - 2}" height="{LINE - 2}" '
        f'fill="{fill}" stroke="#888" stroke-width="0.5"/>{label}'
        f"<title>{escape(f'{column}, {row}: {words}')}</title></g>"
    )


def _share_text(share: float) -> str:
    if share <= 1:
        return "0" if share == 0 else f"{share:.0%}" if share >= 0.01 else "<1%"
    return "\u2715 lost" if math.isinf(share) else f"\u2715 {share:.2g}x"


def _legend(y: float) -> list[str]:
    labels = ("equal", "to 1 %", "to 10 %", "to 50 %", "to 100 %", "\u2715 fails")
    parts = [text(10, y + 12, "error as a share of its tolerance:", PLAIN)]
    for number, ((_, fill, ink), label) in enumerate(zip(STEPS, labels, strict=True)):
        x = NAMES - 30 + 66 * number
        parts.append(
            f'<rect x="{x}" y="{y}" width="64" height="17" fill="{fill}" '
            'stroke="#888" stroke-width="0.5"/>'
        )
        parts.append(text(x + 32, y + 12, label, f'fill="{ink}" text-anchor="middle"'))
    return parts


def histogram_rows(
    title: str, bins: Sequence[str], counts: Mapping[str, Sequence[int]], axis: str
) -> str:
    """Return a drawing of one histogram for each name, one above the other, with common bins.

    Args:
        title: the title, which screen readers read aloud.
        bins: a label for each bin.
        counts: numbers by name, one for each bin.
        axis: what the bins are.
    """
    wide, high, top = 46, 44, 8
    parts = []
    for row, (name, numbers) in enumerate(counts.items()):
        base = top + (high + 8) * (row + 1)
        total = max(sum(numbers), 1)
        parts.append(f'<path d="M{NAMES},{base}h{wide * len(bins)}" {FAINT}/>')
        parts.append(text(NAMES - 8, base - 4, shorten(name, 38), f'{PLAIN} text-anchor="end"'))
        for column, count in enumerate(numbers):
            if count:
                tall = max((high - 12) * count / total, 1.5)
                x = NAMES + wide * column
                said = f"{name}: {count} of {total} elements, {bins[column]} {axis}"
                parts.append(
                    f'<g><rect x="{x + 2}" y="{base - tall:.1f}" width="{wide - 4}" '
                    f'height="{tall:.1f}" fill="{BLUE}"/>'
                    f"<title>{escape(said)}</title></g>"
                )
                parts.append(
                    text(
                        x + wide / 2,
                        base - tall - 2,
                        _percent(count / total),
                        f'{PLAIN} text-anchor="middle" font-size="9"',
                    )
                )
    bottom = top + (high + 8) * len(counts)
    for column, label in enumerate(bins):
        parts.append(
            text(NAMES + wide * (column + 0.5), bottom + 15, label, f'{PLAIN} text-anchor="middle"')
        )
    parts.append(
        text(NAMES + wide * len(bins) / 2, bottom + 32, axis, f'{PLAIN} text-anchor="middle"')
    )
    return svg(title, NAMES + wide * len(bins) + 20, bottom + 42, parts, "")


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else "<1%"


def bars(title: str, rows: Sequence[tuple[str, float, float, float, str]], axis: str) -> str:
    """Return horizontal bars with whiskers; the scale is logarithmic if they are far apart.

    Args:
        title: the title, which screen readers read aloud.
        rows: name, low end, value, high end, and the words beside each bar.
        axis: what the values are.
    """
    wide, top = 480, 10
    largest = max((row[3] for row in rows), default=1.0) or 1.0
    smallest = min((row[1] for row in rows if row[1] > 0), default=largest)
    is_log = largest > 30 * smallest
    start = 10.0 ** math.floor(math.log10(smallest)) if is_log else 0.0

    def across(value: float) -> float:
        if not is_log:
            return wide * value / largest
        span = math.log10(largest / start) or 1.0
        return wide * math.log10(max(value, start) / start) / span

    parts = []
    for number, (name, low, value, high, words) in enumerate(rows):
        y = top + 24 * number
        parts.append(text(NAMES - 8, y + 14, shorten(name, 38), f'{PLAIN} text-anchor="end"'))
        parts.append(
            f'<g><rect x="{NAMES}" y="{y + 3}" width="{max(across(value), 1):.1f}" '
            f'height="15" fill="{BLUE}" stroke="currentColor" stroke-opacity="0.4"/>'
            f"<title>{escape(f'{name}: {words}')}</title></g>"
        )
        a, b = NAMES + across(low), NAMES + across(high)
        parts.append(
            f'<path d="M{a:.1f},{y + 7}v7M{a:.1f},{y + 10.5}H{b:.1f}M{b:.1f},{y + 7}v7" '
            f'stroke="{PALETTE[1]}" stroke-width="2" fill="none"/>'
        )
        parts.append(text(NAMES + across(high) + 8, y + 14, words, PLAIN))
    bottom = top + 24 * len(rows)
    parts.append(f'<path d="M{NAMES},{top}V{bottom}" {FAINT}/>')
    for value in _ticks(start, largest):
        x = NAMES + across(value)
        parts.append(f'<path d="M{x:.1f},{bottom}v4" {FAINT}/>')
        parts.append(text(x, bottom + 16, f"{value:g}", f'{PLAIN} text-anchor="middle"'))
    scale = f"{axis}; logarithmic scale from {start:g}" if is_log else axis
    parts.append(text(NAMES + wide / 2, bottom + 33, scale, f'{PLAIN} text-anchor="middle"'))
    return svg(title, NAMES + wide + 210, bottom + 42, parts, "")


def _ticks(start: float, largest: float) -> list[float]:
    """Return values for the marks of an axis: powers of ten, or four to ten equal steps from 0."""
    if start > 0:
        return [start * 10.0**k for k in range(math.floor(math.log10(largest / start)) + 1)]
    power = 10.0 ** math.floor(math.log10(largest / 4))
    step = max(n * power for n in (1, 2, 5) if n * power <= largest / 4)
    return [step * k for k in range(math.floor(largest / step) + 1)]
