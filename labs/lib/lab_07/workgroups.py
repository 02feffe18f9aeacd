"""Pictures of what a workgroup shares: trees, lanes of subgroups, histograms and banks.

Visited by labs 07 and 07b.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vklab.base.draw.svg import svg, text
from vklab.errors import ShaderError
from vklab_course.children.kernel_answers import named
from vklab_course.children.run_kernel import Run
from vklab_course.counting.observe import Observed, observe_kernel
from vklab_course.picture import Picture, picture
from vklab_labs.shared.diagram import COLOURS, Diagram, draw_steps
from vklab_labs.shared.lanes import draw_timeline

__all__ = ["draw_active", "draw_banks", "draw_bins", "draw_join", "draw_lost", "draw_scan",
           "draw_subgroups", "draw_tree", "draw_workgroup", "observe"]  # fmt: skip

FRAME = (60, 30, 610, 256)  # left, top, width and height of the plot of `draw_active`


def observe(
    text: str, arrays: Mapping[str, np.ndarray], groups: tuple[int, ...],
    push: Mapping[str, Any] | None = None, dispatches: Sequence[str] = ("counted",),
) -> Observed:  # fmt: skip
    """Run a kernel with counters; return its results and counts.

    Raises NotImplementedError for an unsolved stub, ShaderError where the kernel does not run.

    Args:
        text: the kernel.
        arrays: its buffers, by name.
        groups: workgroups along each axis.
        push: its push constants, by name.
        dispatches: the dispatches to make, of `counting.observe.DISPATCHES`.
    """
    run = Run(named(text, arrays), groups, push or {})
    done = observe_kernel(text, run, dispatches=dispatches)[0]
    if done.status == "not_attempted":
        raise NotImplementedError(done.message)
    if done.status != "ran":
        raise ShaderError(done.message)
    return done


# ------------------------------------------------------------------------------- what is shared


def draw_workgroup() -> Picture:
    """Draw a workgroup: registers of each invocation, shared memory, and a buffer."""
    page = Diagram(680, 196)
    page.box((6, 6, 560, 112), "", "grey", filled=False)
    page.note((574, 26), "one workgroup", bold=True)
    for n in range(8):
        page.box((14 + 68 * n, 14, 62, 34), f"{n}\nregisters", "blue")
        page.arrow((45 + 68 * n, 48), (45 + 68 * n, 76), both=True)
    page.box((14, 78, 538, 32), "shared memory: groupshared float part[8]", "green")
    page.box((6, 148, 668, 36), "buffers x, y: all workgroups", "orange")
    page.arrow((283, 118), (283, 146), both=True)
    return page.picture(
        "Eight invocations with registers of their own use one shared memory; below is a buffer "
        "that all workgroups use.",
        "Three places for a value. Registers belong to one invocation, shared memory to one "
        "workgroup, buffers to all.",
    )


def draw_tree() -> Picture:
    """Draw a tree that combines eight values in three steps, step by step."""
    rows, pages = [[5, 2, 7, 1, 8, 3, 4, 6]], []
    while (half := len(rows[-1]) // 2) > 0:
        rows.append([max(rows[-1][n], rows[-1][n + half]) for n in range(half)])
    for last, values in enumerate(rows):
        page, half = Diagram(680, 272), len(values)
        for step, row in enumerate(rows[: last + 1]):
            y = 8 + 64 * step
            words = f"distance {len(row)}" if step else "the values"
            page.note((8, y + 20), words, bold=step == last)
            for n in range(8):
                value = str(next(r[n] for r in reversed(rows[: step + 1]) if n < len(r)))
                colour = "green" if n < len(row) else "grey"
                shade = 0.06 if n >= len(row) else 0.45 if step == last else 0.2
                page.box((110 + 70 * n, y, 54, 30), value, colour, shade=shade)
            if step < last:
                page.box((110, y + 34, 544, 3), "", "red").note((8, y + 40), "barrier")
            for n in range(len(rows[step + 1]) if step < last else 0):
                page.arrow((137 + 70 * (n + len(row) // 2), y + 30), (145 + 70 * n, y + 62))
                page.arrow((131 + 70 * n, y + 30), (131 + 70 * n, y + 62))
        who = (
            "Invocation 0 combines"
            if half == 1
            else f"Invocations {', '.join(map(str, range(half)))} combine"
        )
        done = (
            f"{who} two values each; the others only wait."
            if last
            else ("Each invocation has written its value to shared memory.")
        )
        page.note((8, 264), done)
        pages.append((page, f"{done} {half} of 8 places count: {', '.join(map(str, values))}."))
    return draw_steps(
        pages,
        "A tree for the largest value. Invocation n combines its value with the one at that "
        "distance further on. At each barrier all eight invocations arrive before any goes on.",
    )


def draw_join() -> Picture:
    """Draw two parts of a row of logits, each with its largest value and sum, and their join."""
    page = Diagram(680, 150)
    for x, words in ((10, "logits 1, 3"), (370, "logits 5, 4")):
        page.box((x, 8, 140, 34), words, "blue")
    page.box((180, 8, 160, 46), "largest 3\nsum 1 + exp(1 - 3)", "green")
    page.box((540, 8, 134, 46), "largest 5\nsum 1 + exp(4 - 5)", "green")
    page.arrow((150, 28), (178, 28)).arrow((510, 28), (538, 28))
    page.box((230, 96, 250, 46), "largest 5\nsum ...", "orange")
    page.arrow((260, 54), (320, 94)).arrow((600, 54), (420, 94), "join")
    return page.picture(
        "Two parts of a row become pairs of a largest value and a sum; a join makes one pair of "
        "two.",
        "Each part of a row becomes a pair: its largest logit, and the sum of "
        "exp(logit - largest).",
    )


def draw_scan() -> Picture:
    """Draw a scan that adds from the end, in three steps of eight values."""
    page = Diagram(680, 214)
    values, y = [3, 1, 4, 1, 5, 9, 2, 6], 8
    for step in range(4):
        for n, value in enumerate(values):
            page.box((110 + 70 * n, y, 54, 28), str(value), "green" if step else "blue")
        far = 1 << step
        page.note((8, y + 19), f"distance {far // 2}" if step else "the values", bold=True)
        for n in range(8 - far if step < 3 else 0):
            page.arrow((133 + 70 * (n + far), y + 28), (143 + 70 * n, y + 54))
        values = [v + (values[n + far] if n + far < 8 else 0) for n, v in enumerate(values)]
        y += 56
    return page.picture(
        "Eight values; in three steps each adds the value 1, 2 and then 4 places further on.",
        "A scan from the end: afterwards place n holds the sum of value n and all values behind "
        "it.",
    )


# ------------------------------------------------------------------------------- subgroups


def draw_subgroups() -> Picture:
    """Draw the same 16 additions in scalar, SIMD and SIMT form."""
    page = Diagram(690, 180)
    for row, (title, code, width, count, colour) in enumerate(
        (
            ("scalar", "for (i = 0; ...)\n  y[i] = a[i] + b[i];", 1, 16, "grey"),
            ("SIMD", "y[0:8] = add8(a[0:8], b[0:8]);\ny[8:16] = add8(...);", 8, 2, "orange"),
            ("SIMT", "y[i] = a[i] + b[i];\nfor each i, written once", 8, 2, "blue"),
        )
    ):
        y = 10 + 58 * row
        page.note((6, y + 20), title, bold=True)
        page.note((64, y + 12), code, size=11)
        for n in range(count):
            words = "" if width == 1 else f"one instruction, {width} lanes"
            page.box((260 + (420 // count) * n, y, 420 / count - 5, 36), words, colour)
    return page.picture(
        "Sixteen additions: sixteen scalar instructions, or two instructions of eight lanes. In "
        "SIMD the program names the eight lanes, in SIMT it is written for one.",
        "SIMD and SIMT end in the same hardware: one instruction for several lanes. The program "
        "is written for the vector, or for one element.",
    )


def draw_active(turns: Sequence[int], width: int, caption: str) -> Picture:
    """Draw in which turns of a loop each invocation is active, by subgroups of one width.

    Args:
        turns: turns of each invocation.
        width: lanes of a subgroup.
        caption: the line below.
    """
    made = np.asarray(turns)
    groups = -(-made.size // width)
    padded = np.concatenate([made, np.zeros(groups * width - made.size, int)])
    longest = np.repeat(padded.reshape(groups, width).max(1), width)
    last, (left, top, wide, high) = max(int(made.max()), 1), FRAME
    across, down = wide / last, high / padded.size
    parts = [text(left, 18, f"subgroups of {width}: blue works, orange waits", 'font-size="13"')]
    for n, (works, ends) in enumerate(zip(padded.tolist(), longest.tolist(), strict=True)):
        for first, end, colour in ((0, works, "blue"), (works, ends, "orange")):
            if end > first:
                parts.append(
                    f'<path d="M{left + across * first:.1f},{top + down * (n + 0.5):.2f}'
                    f'h{across * (end - first):.1f}" stroke="{COLOURS[colour]}" '
                    f'stroke-width="{down if down < 4 else 0.9 * down:.2f}"/>'
                )
    for n in range(groups + 1):
        y = top + down * width * n
        parts.append(f'<path d="M{left},{y:.1f}h{wide}" stroke="#222" stroke-width="0.7"/>')
        if n < groups:
            parts.append(
                text(
                    left - 6,
                    y + min(12, 0.5 * down * width + 4),
                    str(n * width),
                    'text-anchor="end"',
                )
            )
    apart = next(n for n in (1, 5, 10, 20, 50, 100, 1000) if last / n <= 12)
    for turn in range(0, last + 1, apart):
        parts.append(text(left + across * turn, top + high + 16, str(turn), 'text-anchor="middle"'))
    parts.append(
        text(
            left + wide / 2,
            top + high + 34,
            "turns of the loop",
            'text-anchor="middle" font-size="12"',
        )
    )
    parts.append(
        text(
            16,
            top + high / 2,
            "invocation",
            f'text-anchor="middle" font-size="12" transform="rotate(-90 16 {top + high / 2:g})"',
        )
    )
    active, slots = int(made.sum()), int(longest.sum())
    said = f"{active} turns of work in {slots} lane turns: {active / max(slots, 1):.0%} active."
    alt = f"Subgroups of {width}: {said}"
    return picture(svg(alt, 680, top + high + 42, parts), alt, f"{caption} {said}")


# ------------------------------------------------------------------------------- atomics


def draw_lost() -> Picture:
    """Draw two invocations whose updates of one bin overlap."""
    return draw_timeline(
        {
            "invocation 0": [
                ("load 7", 0, 2, "blue"),
                ("7 + 1", 2, 3.4, "grey"),
                ("store 8", 3.4, 5.4, "orange"),
            ],
            "invocation 1": [
                ("load 7", 1, 3, "blue"),
                ("7 + 1", 3, 4.4, "grey"),
                ("store 8", 4.4, 6.4, "red"),
            ],
        },
        alt="Both invocations load 7, both store 8.",
        caption="Two elements were counted, and the bin has grown by one: an update is lost.",
    )


def draw_bins() -> Picture:
    """Draw private histograms of workgroups that are merged."""
    page = Diagram(680, 186)
    for n in range(3):
        x = 10 + 226 * n
        page.box((x, 6, 206, 30), f"elements of workgroup {n}", "orange")
        page.box((x, 74, 206, 34), "its own bins, in shared memory", "green")
        page.arrow((x + 103, 36), (x + 103, 72), "")
        page.note((x + 110, 60), "one atomic each", size=11)
        page.arrow((x + 103, 108), (340 + 60 * (n - 1), 146))
    page.box((160, 148, 360, 32), "bins in the buffer y", "blue")
    page.note((10, 136), "one atomic for each bin", size=11)
    return page.picture(
        "Three workgroups count their elements into bins of their own in shared memory, and then "
        "add these bins to the buffer y.",
        "A private histogram: many atomic additions in fast memory, few in the buffer.",
    )


# ------------------------------------------------------------------------------- banks


def draw_banks() -> Picture:
    """Draw words in eight banks, and two accesses."""
    page = Diagram(680, 166)
    for bank in range(8):
        page.note((137 + 68 * bank, 16), f"bank {bank}", anchor="middle", bold=True)
        for row in range(3):
            word = 8 * row + bank
            colour = "green" if row == 1 else "red" if bank == 3 else "grey"
            page.box(
                (108 + 68 * bank, 24 + 38 * row, 60, 32),
                f"word {word}",
                colour,
                shade=0.06 if colour == "grey" else 0.3,
            )
    page.note((8, 84), "words 8 to 15:\n1 transaction", size=11)
    page.note(
        (8, 156),
        "words 3 and 19: 2 transactions, because bank 3 serves one word at a time",
        size=11,
    )
    return page.picture(
        "Words 0 to 23 in eight banks. Words 8 to 15 lie in eight banks, words 3 and 19 both lie "
        "in bank 3.",
        "Word w lies in bank w mod 8 here. Banks work at the same time; each serves one word in a "
        "transaction.",
    )
