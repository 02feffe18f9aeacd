"""SVG charts of numbers: samples as histograms on one axis, and marks on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from vklab.base.draw.svg import PALETTE, shorten, svg, text

WIDTH, LEFT, RIGHT, BAND, BINS = 640, 150, 20, 78, 48
LINE = 20
BLUE, ORANGE = PALETTE[0], PALETTE[5]
UNITS = ((1e3, 1.0, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms"), (math.inf, 1e9, "s"))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile of at least one value, interpolated between the nearest two."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * percent / 100
    low = ordered[math.floor(at)]
    return low + (ordered[math.ceil(at)] - low) * (at - math.floor(at))


def _step(span: float) -> float:
    """Return a step of 1, 2 or 5 times a power of ten that cuts a span into four to ten parts."""
    power = 10.0 ** math.floor(math.log10(span / 4))
    return max(n * power for n in (1, 2, 5) if n * power <= span / 4)


def histograms(title: str, samples: Mapping[str, Sequence[float]]) -> str:
    """Return a drawing of durations: one histogram for each name, above one axis in one unit.

    Args:
        title: the title, which screen readers read aloud.
        samples: nanoseconds by name; names without samples are left out.
    """
    shown = {name: values for name, values in samples.items() if values}
    top = max((max(values) for values in shown.values()), default=1.0) or 1.0
    scale, unit = next((scale, unit) for limit, scale, unit in UNITS if top < limit)
    across = (WIDTH - LEFT - RIGHT) / top
    parts = [text(10, 18, title, 'font-size="13" font-weight="bold"')]
    base = 18
    for number, (name, values) in enumerate(shown.items()):
        base += BAND
        parts += _histogram(name, values, (BLUE, ORANGE)[number % 2], base, across, scale, unit)
    step = _step(top / scale)
    for number in range(math.floor(top / scale / step) + 1):
        x = LEFT + number * step * scale * across
        parts.append(f'<path d="M{x:.1f},{base}v4" stroke="#555"/>')
        parts.append(text(x, base + 16, f"{number * step:g}", 'text-anchor="middle"'))
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    parts.append(text(middle, base + 31, f"time of one run in {unit}", 'text-anchor="middle"'))
    return svg(title, WIDTH, base + 40, parts)


def _histogram(
    name: str,
    values: Sequence[float],
    colour: str,
    base: float,
    across: float,
    scale: float,
    unit: str,
) -> list[str]:
    """Return the elements of one histogram.

    Args:
        name: the name of the samples.
        values: the samples in nanoseconds.
        colour: the colour of the bars.
        base: the bottom of the bars in pixels.
        across: pixels for each nanosecond.
        scale: nanoseconds for each unit.
        unit: the unit's name.
    """
    width = (WIDTH - LEFT - RIGHT) / BINS
    counts = [0] * BINS
    for value in values:
        counts[min(int(value * across / width), BINS - 1)] += 1
    parts = [f'<path d="M{LEFT},{base}H{WIDTH - RIGHT}" stroke="#555"/>']
    for number, count in enumerate(counts):
        if count:
            high = (BAND - 30) * count / max(counts)
            low, end = number * width / across / scale, (number + 1) * width / across / scale
            parts.append(
                f'<rect x="{LEFT + number * width:.1f}" y="{base - high:.1f}" '
                f'width="{width - 1:.1f}" height="{high:.1f}" fill="{colour}" fill-opacity="0.55">'
                f"<title>{count} runs of {low:.4g} to {end:.4g} {unit}</title></rect>"
            )
    marks = (("median", percentile(values, 50), ""), ("95 %", percentile(values, 95), "4 3"))
    for word, value, dashes in marks:
        x = LEFT + value * across
        parts.append(
            f'<path d="M{x:.1f},{base}v-{BAND - 26}" stroke="#000" stroke-width="1.5" '
            f'stroke-dasharray="{dashes or "none"}"><title>{word}</title></path>'
        )
    parts.append(text(10, base - 36, shorten(name, 22), 'font-weight="bold"'))
    for line, (word, value, dashes) in enumerate(marks):
        y = base - 20 + 15 * line
        parts.append(
            f'<path d="M10,{y - 4}h18" stroke="#000" stroke-width="1.5" '
            f'stroke-dasharray="{dashes or "none"}"/>'
        )
        parts.append(text(33, y, f"{word} {value / scale:.4g} {unit}"))
    return parts


def log_marks(title: str, rows: Sequence[tuple[str, float]], axis: str, note: str = "") -> str:
    """Return a drawing of one mark for each row on a logarithmic scale with a limit at 1.

    A blue circle is up to the limit, an orange cross above it; 0 is drawn at the left end, and what
    is not finite at the right end.

    Args:
        title: the title, which screen readers read aloud.
        rows: name and value, in the order of the drawing.
        axis: what the values are.
        note: a line below the axis.
    """
    finite = [value for _, value in rows if 0 < value < math.inf]
    low = math.floor(math.log10(min([*finite, 0.1]))) - 1
    high = math.ceil(math.log10(max([*finite, 1.0]))) + 1
    across = (WIDTH - LEFT - RIGHT) / (high - low)
    top = 46
    bottom = top + LINE * max(len(rows), 1)
    limit = LEFT - low * across
    parts = [text(10, 18, title, 'font-size="13" font-weight="bold"')]
    for power in range(low + 1, high):
        x = LEFT + (power - low) * across
        if power % max(1, (high - low) // 8) == 0:
            label = f"{10.0**power:g}" if -4 <= power <= 4 else f"1e{power}"
            parts.append(f'<path d="M{x:.1f},{top}V{bottom + 4}" stroke="#ddd"/>')
            parts.append(text(x, bottom + 16, label, 'text-anchor="middle"'))
    parts.append(
        f'<path d="M{limit:.1f},{top - 6}V{bottom + 4}" stroke="#000" stroke-width="1.5" '
        'stroke-dasharray="6 4"/>'
    )
    parts.append(text(limit, top - 8, "tolerance", 'text-anchor="end"'))
    for number, (name, value) in enumerate(rows):
        y = top + LINE * number + LINE / 2
        parts.append(text(LEFT - 8, y + 4, shorten(name, 22), 'text-anchor="end"'))
        parts += _mark(name, value, LEFT, y, (low, high), across)
    parts.append(text(LEFT + (WIDTH - LEFT - RIGHT) / 2, bottom + 31, axis, 'text-anchor="middle"'))
    parts += [text(10, bottom + 48, note)] if note else []
    return svg(title, WIDTH, bottom + (56 if note else 40), parts)


def _mark(
    name: str, value: float, left: float, y: float, powers: tuple[int, int], across: float
) -> list[str]:
    """Return the line and the mark of one row.

    Args:
        name: the row's name, for the tooltip.
        value: its value.
        left: left end of the axis in pixels.
        y: middle of the row in pixels.
        powers: the powers of ten at both ends of the axis.
        across: pixels for each power of ten.
    """
    low, high = powers
    at = low if value <= 0 else high if value == math.inf else math.log10(value)
    x = left + (at - low) * across
    good = value <= 1
    words = "equal" if value <= 0 else "infinite" if value == math.inf else f"{value:.2g}"
    colour = BLUE if good else ORANGE
    shape = (
        f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="{colour}"/>'
        if good
        else f'<path d="M{x - 5:.1f},{y - 5}l10,10m0,-10l-10,10" stroke="{colour}" '
        'stroke-width="3"/>'
    )
    anchor, beside = ("start", x + 9) if at < high - 1.2 else ("end", x - 9)
    return [
        f'<path d="M{left},{y}H{x:.1f}" stroke="{colour}" stroke-opacity="0.5"/>',
        f"<g>{shape}<title>{escape(name)}: {words}</title></g>",
        text(
            beside,
            y + 4,
            words,
            f'text-anchor="{anchor}" stroke="#fff" stroke-width="4" paint-order="stroke"',
        ),
    ]
