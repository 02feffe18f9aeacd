"""Pictures of lab 04: its seven steps, and the elements that each invocation writes.

`ObjectStack` also owns the Vulkan objects of the steps, so that a step can be run again. Traces
come from `lab_04_trace`; the checks decide between right and wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from vklab.course.check import check
from vklab.course.figures.trace import Traced
from vklab.course.picture import Picture, picture
from vklab.draw.svg import PALETTE

__all__ = ["ObjectStack", "draw", "objects_svg"]

BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, GREY = PALETTE
T = TypeVar("T", bound=Callable[..., Any])

STEPS = (
    ("1 instance, device", "instance:the loader", "physical device:instance",
     "device:physical device", "queue:device"),
    ("2 compile", "SPIR-V:vector_add"),
    ("3 shader module", "shader module:device, SPIR-V"),
    ("4 pipeline", "set layout:device", "pipeline layout:set layout", "pipeline:module, layout"),
    ("5 buffers", "buffers:device", "memory:device", "descriptor set:set layout, buffers"),
    ("6 record", "command pool:queue family", "command buffer:pool, pipeline, set"),
    ("7 submit and wait", "fence:device"),
)  # fmt: skip


def objects_svg(existing: Collection[str], step: int, whole: bool = True) -> str:
    """Draw the objects after a step: new ones filled, older ones outlined, later ones dashed.

    Args:
        existing: names of the objects that exist.
        step: the step, from 1 to 7.
        whole: draw the rows of all steps, instead of this step's row.
    """
    parts, rows = [], [n for n in range(len(STEPS)) if whole or n + 1 == step]
    for place, row in enumerate(rows):
        label, *boxes = STEPS[row]
        y, new = place * 44 + 6, row + 1 == step
        weight = "bold" if new else "normal"
        parts.append(f'<text x="6" y="{y + 23}" font-weight="{weight}">{label}</text>')
        for column, (box, source) in enumerate(item.split(":") for item in boxes):
            x, there = 152 + column * 166, box in existing
            line, fill = (ORANGE, "#fde7bd") if new and there else (BLUE, "#fff")
            style = 'stroke-width="2.5"' if there else 'stroke-dasharray="4 3" opacity="0.45"'
            parts.append(  # fmt: skip
                f'<rect x="{x}" y="{y}" width="156" height="36" rx="5" stroke="{line}" {style} '
                f'fill="{fill}"/><text x="{x + 9}" y="{y + 16}">{box}</text>'
                f'<text x="{x + 9}" y="{y + 30}" font-size="11">from {source}</text>')
    high = 44 * len(rows) + 4
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 818 {high}" width="818" '
            'style="max-width:100%;background:#fff" font-family="sans-serif" font-size="13" '
            f'fill="#222">{"".join(parts)}</svg>')  # fmt: skip


class ObjectStack:
    """Vulkan objects of the seven steps so far, each with the call that destroys it."""

    def __init__(self) -> None:
        self.now = 0
        self.kept: list[tuple[int, str, Callable[[], object]]] = []

    def step(self, number: int) -> None:
        """Begin a step: destroy the objects of this and later steps, last created first."""
        if number > self.now + 1:
            # Not an error where an exercise is still open: `attempt` says what the step waits for.
            raise NotImplementedError(f"step {number} waits for step {number - 1}, whose cell has "
                                      "not run to its end yet")  # fmt: skip
        while self.kept and self.kept[-1][0] >= number:
            _, _, destroy = self.kept.pop()
            destroy()
        self.now = number

    def checked(self, identifier: str, answer: T) -> T:
        """Return an answer that its check calls correct; a driver may crash on any other."""
        verdict = check(identifier, answer)
        if verdict.status == "not_attempted":
            raise NotImplementedError(" ".join(verdict.messages))
        if verdict.status == "incorrect":
            raise NotImplementedError(f"the step waits until {verdict.title} is correct, for a "
                                      "driver takes it as it is, and may crash")  # fmt: skip
        return answer

    def keep(
        self, box: str, handle: Any, destroy: Callable[..., object] | None = None, *owner: Any
    ) -> Any:
        """Push an object and return it; `destroy(*owner, handle, None)` will destroy it.

        Args:
            box: name of its box in the picture.
            handle: the object.
            destroy: the Vulkan call that destroys it; None if none is needed.
            *owner: the arguments before the handle, usually the device.
        """
        end = (lambda: destroy(*owner, handle, None)) if destroy else (lambda: None)
        self.kept.append((self.now, box, end))
        return handle

    def end(self) -> int:
        """Destroy all objects, last created first; return their number."""
        count = len(self.kept)
        self.step(1)
        self.now = 0
        return count

    def picture(self) -> Picture:
        """Draw the row of the current step; all rows before the first and after the last step."""
        made = list(dict.fromkeys(box for _, box, _ in self.kept))
        new = list(dict.fromkeys(box for at, box, _ in self.kept if at == self.now))
        if not self.now:
            return picture(objects_svg((), 0), caption="The objects of the seven steps.",
                           alt="Seven rows of dashed boxes, one row a step: none exists yet.")
        said = f"New after step {self.now} of 7: {', '.join(new) or 'nothing'}."
        said += f" {len(made)} kinds of objects exist, the last in orange." * (self.now == 7)
        alt = f"Step {self.now}: boxes for {', '.join(new)}. Objects: {', '.join(made)}."
        return picture(objects_svg(made, self.now, self.now == 7), alt=alt, caption=said)


# ------------------------------------------------------------------------------------ the traces
BANDS = 4


def draw(traced: Traced, name: str = "y", shape: tuple[int, int] | None = None) -> Picture:
    """Draw a line from each invocation to each element of a buffer that it writes.

    Args:
        traced: the trace of a kernel.
        name: the buffer.
        shape: rows and columns, to draw a matrix in the colours of workgroups instead.
    """
    rows, end = traced.of(name), traced.lengths[name]
    count, writers = traced.size[0] * traced.size[1], len(np.unique(rows[:, :2], axis=0))
    outside, written = int((rows[:, 2] >= end).sum()), len(np.unique(rows[rows[:, 2] < end, 2]))
    said = (f"{count} invocations: {writers} write, {count - writers} do not. {name} has {end} "
            f"elements: {written} are written. Writes outside: {outside}.")  # fmt: skip
    if traced.full:
        said += " Log full: more was touched than is drawn."
    if shape is None:
        groups = traced.size[0] // traced.local[0]
        key = " Hollow: does not write, or is not written." + " Red: outside." * bool(outside)
        if groups > BANDS:
            key += f" Drawn are the first {BANDS} of {groups} workgroups."
        return picture(_lines(rows, end, traced, name, outside), alt=said, caption=said + key)
    return picture(_matrix(rows, end, traced, name, shape), alt=said, caption=said)


def _lines(rows: np.ndarray, end: int, traced: Traced, name: str, outside: int) -> Figure:
    """Draw a band for each workgroup: its invocations, and below them their share of elements."""
    local, wide = traced.local[0], traced.size[0]
    bands = min(wide // local, BANDS)
    share = local * max(1, -(-end // wide))
    figure = Figure((10, 1.3 * bands))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.012, 1.012), ylim=(-2 * bands + 1.35, 1.6))
    axes.axis("off")

    def marks(first: int, of: int, y: float, colours: list[str], filled: set[int]) -> None:
        # 72 points an inch: a mark takes two thirds of the space between marks.
        fills = [c if first + n in filled else "white" for n, c in enumerate(colours)]
        axes.scatter([(n + 0.5) / of for n in range(len(colours))], [y] * len(colours), c=fills,
                     s=min(64, (440 / of) ** 2), edgecolors=colours, marker="s", linewidths=0.8)

    paper = {"color": "white", "pad": 1.0}
    active, written = set(rows[:, 0].tolist()), set(rows[:, 2].tolist())
    for band in range(bands):
        top, colour = 1 - 2 * band, (BLUE, SKY)[band % 2]
        first, begin = band * local, band * share
        marks(first, local, top, [colour] * local, active)
        stop = max([end, *(e + 1 for e in written if e < begin + share)])
        there = range(begin, min(begin + share, stop))
        marks(begin, share, top - 1, [GREEN if e < end else RED for e in there], written)
        words = f"workgroup {band}: invocations {first} to {first + local - 1}"
        axes.text(0, top + 0.23, words, bbox=paper)
        last = min(begin + share, end) - 1
        words = f"{name}: elements {begin} to {last}" if last >= begin else f"{name} has ended"
        axes.text(0, top - 1.23, words, va="top", color="#00684b", bbox=paper)
    far = 0
    for i, _, element in rows.tolist():
        band, into = i // local, element // share
        x, y = (i % local + 0.5) / local, 1 - 2 * band
        if band >= bands or (into >= bands and element < end):
            continue
        colour = RED if element >= end else (BLUE, SKY)[band % 2]
        below = ((element % share + 0.5) / share, -2 * into) if into < bands else (1.01, y - 1)
        far += into >= bands
        axes.plot([x, below[0]], [y - 0.14, below[1] + 0.14], color=colour, lw=0.7, zorder=0)
    if outside:
        words = f"writes outside: {outside}" + f", {far} of them beyond this picture" * bool(far)
        axes.text(1, -2 * bands + 1.77, words, ha="right", va="top", color=RED)
    return figure


def _matrix(
    rows: np.ndarray, end: int, traced: Traced, name: str, shape: tuple[int, int]
) -> Figure:
    """Draw the grid of invocations and the elements of a matrix, in colours of workgroups."""
    wide, high = traced.size
    figure = Figure((9.5, 3.9))
    left, right = figure.subplots(1, 2)
    invocations, elements = np.full((high, wide, 3), 0.88), np.full((*shape, 3), 1.0)
    times = np.bincount(rows[:, 2][rows[:, 2] < end], minlength=end).reshape(shape)
    for x, y, element in rows.tolist():
        group = x // traced.local[0] + 2 * (y // traced.local[1])
        invocations[y, x] = to_rgb((BLUE, ORANGE, GREEN, PINK)[group % 4])
        if element < end:
            elements.reshape(-1, 3)[element] = invocations[y, x]
    elements[times > 1] = 0.1
    left.imshow(invocations)
    left.set_title(f"{wide} x {high} invocations (grey: writes nothing)", fontsize=10)
    right.imshow(elements)
    right.set_title(f"elements of {name}, in the colour of their workgroup\nwhite, never written: "
                    f"{(times == 0).sum()}; black, written again: {(times > 1).sum()}",
                    fontsize=10)  # fmt: skip
    return figure
