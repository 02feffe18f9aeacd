"""Rooflines: the speed that a device can reach, by the operations that a program does per byte.

Visited by lab 01b.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vklab.base.draw.svg import svg, text
from vklab_course.picture import Picture, picture
from vklab_labs.shared.diagram import COLOURS

__all__ = ["KINDS", "Roof", "draw_rooflines"]

WIDTH, LEFT, RIGHT, TOP, PITCH = 760, 62, 226, 14, 14.5
KINDS = {"vector": "", "matrix": "7 4", "dual issue": "2 3"}  # kind of peak -> dashes of its line


@dataclass(frozen=True)
class Roof:
    """One device on the plot: its largest speed and its bandwidth.

    Attributes:
        name: label at the right end.
        tflops: peak in TFLOP/s.
        gb_s: bandwidth in GB/s.
        kind: one of KINDS.
        colour: one of the colours of `diagram`.
    """

    name: str
    tflops: float
    gb_s: float
    kind: str = "vector"
    colour: str = "blue"

    def __post_init__(self) -> None:
        if not (self.tflops > 0 and self.gb_s > 0 and self.kind in KINDS):
            raise ValueError(
                f"{self.name}: expected a positive peak and bandwidth and a kind of "
                f"{', '.join(KINDS)}; got {self}"
            )


def draw_rooflines(
    roofs: Sequence[Roof], caption: str, points: Sequence[tuple[str, float, float]] = (),
    span: tuple[float, float] = (0.25, 1024.0),
) -> Picture:  # fmt: skip
    """Draw roofs and measured or claimed points on logarithmic axes.

    Args:
        roofs: one line each: it rises with the bandwidth and is flat at the peak.
        caption: the caption.
        points: (label, operations per byte, TFLOP/s).
        span: smallest and largest number of operations per byte.
    """
    height = max(330, int(PITCH * len(roofs)) + 40) + 40
    low = min(roof.gb_s * span[0] / 1000 for roof in roofs)
    high = 1.6 * max(*(roof.tflops for roof in roofs), *(tflops for *_, tflops in points), 0)
    wide, tall = WIDTH - LEFT - RIGHT, height - TOP - 40

    def at(intensity: float, tflops: float) -> tuple[float, float]:
        across = math.log(intensity / span[0]) / math.log(span[1] / span[0])
        up = math.log(tflops / low) / math.log(high / low)
        return LEFT + wide * across, TOP + tall * (1 - up)

    parts = [
        f'<rect x="{LEFT}" y="{TOP}" width="{wide}" height="{tall}" fill="none" stroke="#222"/>'
    ]
    for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
        y = at(span[0], 10.0**power)[1]
        parts.append(f'<path d="M{LEFT},{y:.1f}h{wide}" stroke="#ddd"/>')
        parts.append(text(LEFT - 6, y + 4, f"{10.0**power:g}", 'text-anchor="end"'))
    for power in range(round(math.log2(span[0])), round(math.log2(span[1])) + 1, 2):
        parts.append(
            text(at(2.0**power, low)[0], height - 24, f"{2.0**power:g}", 'text-anchor="middle"')
        )
    parts.append(
        text(
            LEFT + wide / 2,
            height - 7,
            "operations per byte (FLOP/byte)",
            'text-anchor="middle" font-size="12"',
        )
    )
    turned = f'transform="translate(16,{TOP + tall / 2:.0f}) rotate(-90)"'
    parts.append(text(0, 0, "TFLOP/s", turned + ' text-anchor="middle" font-size="12"'))
    label, lines = TOP - PITCH / 2, []
    for roof in sorted(roofs, key=lambda roof: -roof.tflops):
        line, dashes = COLOURS[roof.colour], KINDS[roof.kind]
        ridge = min(max(1000 * roof.tflops / roof.gb_s, span[0]), span[1])
        (x, y), (right, flat) = at(ridge, roof.tflops), at(span[1], roof.tflops)
        start = at(span[0], max(low, roof.gb_s * span[0] / 1000))
        label = max(flat, label + PITCH)
        lines += [(start, (x, y)), ((x, y), (right, flat))]
        parts.append(
            f'<path d="M{start[0]:.1f},{start[1]:.1f}L{x:.1f},{y:.1f}L{right:.1f},'
            f'{flat:.1f}l34,{label - flat:.1f}" fill="none" stroke="{line}" '
            f'stroke-width="1.6" stroke-dasharray="{dashes}"/>'
        )
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4" fill="{line}"/>')
        kind = "" if roof.kind == "vector" else f" {roof.kind}"
        parts.append(text(right + 38, label + 4, f"{roof.name}: {roof.tflops:.4g}{kind}"))
    crosses = [at(min(max(each[1], span[0]), span[1]), each[2]) for each in points]
    taken = [(x - 6, y + 5, 12.0) for x, y in crosses]
    for number, ((name, *_), (x, y)) in enumerate(zip(points, crosses, strict=True)):
        near = any(math.dist((x, y), other) < 8 for other in crosses[:number])
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="none" stroke="#222" '
            'stroke-width="1.8"/>'
            if near
            else f'<path d="M{x - 5:.1f},{y - 5:.1f}l10,10m0,-10l-10,10" stroke="#222" '
            'stroke-width="2.4"/>'
        )
        left, base, anchor = _label(name, x, y, taken, lines)
        taken.append((left, base, 7.0 * len(name)))
        if abs(base - y) > 30:
            parts.append(
                f'<path d="M{x - 7:.1f},{y - 5:.1f}L{x - 38:.1f},{base:.1f}" '
                'stroke="#222" stroke-width="0.8"/>'
            )
        if near:
            caption += f" Ring: {name}."
        at_x = {"start": left, "middle": x, "end": left + 7 * len(name)}[anchor]
        parts.append(text(at_x, base, name, f'text-anchor="{anchor}" font-weight="bold"'))
    told = [f"{r.name} {r.tflops:.4g} TFLOP/s ({r.kind}) and {r.gb_s:.4g} GB/s" for r in roofs]
    told += [f"point {name}: {tflops:.4g} TFLOP/s" for name, _, tflops in points]
    alt = "Rooflines: " + "; ".join(told)
    return picture(svg("Rooflines", WIDTH, height, parts), alt, caption)


def _label(
    name: str, x: float, y: float, taken: Sequence[tuple[float, float, float]],
    lines: Sequence[tuple[tuple[float, float], tuple[float, float]]],
) -> tuple[float, float, str]:  # fmt: skip
    """Return left end, baseline and anchor of a point's label: above it, if there is room.

    Room is inside of the frame, where neither a line nor another label is.

    Args:
        name: the label.
        x: the point.
        y: the point.
        taken: left end, baseline and width of each label that is there.
        lines: both ends of each part of a roof.
    """
    wide = 7.0 * len(name)
    above = (x - wide / 2, y - 10, "middle") if x > LEFT + 5 * len(name) else (x, y - 10, "start")
    choices = (
        above,
        (x + 11, y + 4, "start"),
        (x - 11 - wide, y + 4, "end"),
        (x - wide / 2, y + 20, "middle"),
        (x + 6, y + 18, "start"),
        (x - 6 - wide, y - 10, "end"),
        (x - 6 - wide, y + 18, "end"),
        (x + 6, y - 10, "start"),
        (x - 40 - wide, y - 34, "end"),
    )

    def costs(choice: tuple[float, float, str]) -> tuple[bool, bool]:
        left, base, _ = choice
        is_on_label = any(
            abs(base - line) < 12 and left < other + width and other < left + wide
            for other, line, width in taken
        )
        points = [(left + wide * n / 8, base - 4) for n in range(9)]
        is_struck = any(
            start[0] <= px <= end[0]
            and abs(
                start[1] + (end[1] - start[1]) * (px - start[0]) / max(end[0] - start[0], 1e-9) - py
            )
            < 9
            for px, py in points
            for start, end in lines
        )
        is_outside = left < LEFT or left + wide > WIDTH - RIGHT
        return is_on_label, is_struck or is_outside

    return min(choices, key=costs)
