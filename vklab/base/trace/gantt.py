"""Gantt chart of a trace: a row for each lane, a box for each span, the critical path.

Draws with matplotlib and computes no times: those are in `spans`. Visited by lab 12.
"""

from __future__ import annotations

import io
from typing import Any

from vklab.base import draw
from vklab.base.trace.spans import Span, Timeline
from vklab.errors import SetupError

# Okabe-Ito colours of the kinds of spans. Labels are dark on LIGHT kinds and white on the others.
FILLS = {
    "host": "#56B4E9", "chunk": "#0072B2", "dispatch": "#009E73", "transfer": "#E69F00",
    "wait": "#DDDDDD",
}  # fmt: skip
LIGHT = {"host", "transfer", "wait"}
INK = "#222222"
PATH = "#D55E00"
WIDTH, ROW, HEAD, FRAME = 10.0, 0.30, 0.34, 1.35  # inches
LEFT, RIGHT = 0.17, 0.98  # edges of the plot, as shares of the width
POINTS = 7.5  # font size of the labels in boxes
LEAST = 3.5  # points of the narrowest box
LETTERS = 100  # most characters of a name
# A fixed style and hash salt make equal traces equal SVGs, whatever the user's settings are.
STYLE = {"svg.hashsalt": "vklab", "svg.fonttype": "none", "font.family": "sans-serif",
         "font.size": 9.0}  # fmt: skip


def _matplotlib() -> Any:
    try:
        import matplotlib.collections
        import matplotlib.figure
        import matplotlib.font_manager
        import matplotlib.patches
        import matplotlib.textpath
        import matplotlib.ticker
    except ImportError as error:
        raise SetupError(
            f"a Gantt chart needs matplotlib, which cannot be imported ({error})",
            "pip install matplotlib",
        ) from error
    return matplotlib


def svg(trace: Timeline, title: str) -> str:
    """Return the chart as SVG."""
    text = io.StringIO()
    drawn = figure(trace, title)
    with _matplotlib().rc_context(STYLE):
        drawn.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def figure(trace: Timeline, title: str) -> Any:
    """Return the chart as a matplotlib Figure."""
    matplotlib = _matplotlib()
    with matplotlib.rc_context(matplotlib.rcParamsDefault), matplotlib.rc_context(STYLE):
        return _Chart(matplotlib, trace, title).figure


class _Chart:
    """One chart under construction; y coordinates are inches below the top of the plot."""

    def __init__(self, matplotlib: Any, trace: Timeline, title: str) -> None:
        self.matplotlib = matplotlib
        self.trace = trace
        self.lanes = trace.lanes()
        inches = max(ROW * len(self.lanes) + HEAD * len(trace.devices), ROW)
        height = inches + FRAME
        self.figure = matplotlib.figure.Figure(figsize=(WIDTH, height), facecolor="white")
        self.axes = self.figure.add_axes(
            (LEFT, 0.55 / height, RIGHT - LEFT, inches / height), ylim=(inches, 0)
        )
        self.font = matplotlib.font_manager.FontProperties(size=POINTS)
        self.path = trace.critical_path()
        self.numbered = any(span.run for span in trace.spans)
        self.unit, self.scale = _unit(trace.duration_ns)
        # The least width of a box, in units of the time axis.
        self.least = LEAST / (72 * WIDTH * (RIGHT - LEFT)) * trace.duration_ns / self.scale
        self.rows: dict[int, float] = {}  # id of a span -> y of its row's centre
        self._draw_rows()
        self._draw_path()
        self._finish(title, height)

    def _draw_rows(self) -> None:
        top, device = 0.0, None
        ticks: list[tuple[float, str]] = []
        for (owner, lane), spans in self.lanes.items():
            if owner != device:
                self._draw_head(owner, top)
                top, device = top + HEAD, owner
            middle = top + ROW / 2
            ticks.append((middle, self._cut(lane, 0.9 * LEFT * WIDTH * 72 * POINTS / 9)))
            self.rows |= dict.fromkeys(map(id, spans), middle)
            for kind, colour in FILLS.items():
                chosen = [span for span in spans if span.kind == kind]
                self.axes.broken_barh(
                    self._boxes(chosen),
                    (middle - 0.4 * ROW, 0.7 * ROW),
                    facecolor=colour,
                    zorder=2,
                    edgecolor=INK,  # also where a light fill hardly differs from the page
                    linewidth=0.5,
                )
                for span in chosen:
                    self._label(span, middle - 0.05 * ROW)
            top += ROW
        self.axes.set_yticks([y for y, _ in ticks], [name for _, name in ticks], parse_math=False)

    def _box(self, span: Span) -> tuple[float, float]:
        return self._x(span.start_ns), max(span.duration_ns / self.scale, self.least)

    def _boxes(self, spans: list[Span]) -> list[tuple[float, float]]:
        """Return the (start, width) of each box; adjacent boxes of least width become one box."""
        boxes: list[tuple[float, float]] = []
        narrow = False  # whether the last box has the least width
        for start, width in map(self._box, spans):
            if narrow and width == self.least and start - sum(boxes[-1]) < self.least:
                boxes[-1] = boxes[-1][0], start + width - boxes[-1][0]
            else:
                boxes.append((start, width))
            narrow = width == self.least
        return boxes

    def _draw_head(self, device: str, top: float) -> None:
        if top:
            self.axes.axhline(top, color="#999999", linewidth=0.6)
        busy = self.trace.busy_ns(device)
        share = f"busy {draw.time_text(busy)}, {100 * busy / max(self.trace.duration_ns, 1):.0f} %"
        for x, text, side in ((0.004, self._cut(device, 360), "left"), (0.996, share, "right")):
            self.axes.text(
                x,
                top + 0.58 * HEAD,
                text,
                transform=self.axes.get_yaxis_transform(),
                color=INK,
                fontsize=9,
                fontweight="bold" if side == "left" else "normal",
                ha=side,
                va="center",
                zorder=5,
                parse_math=False,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
            )

    def _label(self, span: Span, y: float) -> None:
        """Write a span's name into its box, shortened to fit; too narrow a box stays empty."""
        share = span.duration_ns / max(self.trace.duration_ns, 1)
        points = share * WIDTH * 72 * (RIGHT - LEFT) * 0.98 - 4
        text, numbered = self._cut(span.name, points), f"{span.run}: {span.name}"
        if self.numbered and self._cut(numbered, points) == numbered:  # both fit
            text = numbered
        if text:
            colour = INK if span.kind in LIGHT else "white"
            self.axes.text(
                self._x((span.start_ns + span.end_ns) / 2),
                y,
                text,
                fontsize=POINTS,
                zorder=4,
                color=colour,
                ha="center",
                va="center",
                clip_on=True,
                parse_math=False,
            )

    def _cut(self, text: str, points: float) -> str:
        if points < 2 * POINTS:  # no room for two letters
            return ""
        text = text[:LETTERS]
        for length in range(len(text), 2, -1):
            cut = text if length == len(text) else text[:length].rstrip() + "…"
            width, _, _ = self.matplotlib.textpath.text_to_path.get_text_width_height_descent(
                cut, self.font, ismath=False
            )
            if width <= points:
                return cut
        return ""

    def _draw_path(self) -> None:
        """Underline the spans of the critical path and join each to the next."""
        rails: list[list[tuple[float, float]]] = []
        joints: list[list[tuple[float, float]]] = []
        for span in self.path:
            (start, width), y = self._box(span), self.rows[id(span)] + 0.38 * ROW
            if rails and rails[-1][1][1] == y and start - rails[-1][1][0] < self.least:
                rails[-1][1] = start + width, y
                continue
            if rails:
                end, above = rails[-1][1]
                joints.append([(min(end, start), above), (start, above), (start, y)])
            rails.append([(start, y), (start + width, y)])
        for lines, width in ((joints, 0.8), (rails, 2.2)):
            self.axes.add_collection(
                self.matplotlib.collections.LineCollection(
                    lines, colors=PATH, linewidths=width, zorder=3
                ),
                autolim=False,
            )

    def _finish(self, title: str, height: float) -> None:
        axes, patches = self.axes, self.matplotlib.patches
        length = self.trace.duration_ns / self.scale or 1.0
        axes.set_xlim(-0.01 * length, 1.01 * length)
        number = "; before a name, the number of its run or frame" if self.numbered else ""
        axes.set_xlabel(f"time ({self.unit}){number}")
        axes.xaxis.set_major_locator(self.matplotlib.ticker.MaxNLocator(10))
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color="#E5E5E5", linewidth=0.6)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        there = {span.kind for span in self.trace.spans}
        keys = [patches.Patch(facecolor=c, label=k) for k, c in FILLS.items() if k in there]
        if self.path:
            total = draw.time_text(self.trace.critical_ns())
            keys += axes.plot([], [], color=PATH, linewidth=2.2, label=f"critical path, {total}")
        self.figure.legend(
            handles=keys,
            loc="upper left",
            bbox_to_anchor=(LEFT - 0.008, 1 - 0.36 / height),
            ncols=len(keys) or 1,
            frameon=False,
            fontsize=8.5,
            borderaxespad=0,
            handlelength=1.4,
            columnspacing=1.4,
        )
        self.figure.text(
            LEFT,
            1 - 0.2 / height,
            title or f"Trace: {self.trace.length_text()}",
            fontsize=11,
            fontweight="bold",
            color=INK,
            va="center",
            parse_math=False,
        )

    def _x(self, moment: float) -> float:
        return (moment - self.trace.start_ns) / self.scale


def _unit(nanoseconds: int) -> tuple[str, float]:
    """Return the name and the length in ns of the unit that suits a duration."""
    for unit, scale in (("ns", 1.0), ("us", 1e3), ("ms", 1e6)):
        if nanoseconds < 2000 * scale:
            return unit, scale
    return "s", 1e9
