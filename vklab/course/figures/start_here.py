"""Pictures of lab 00, and the made-up machine that its second exercise repairs.

Each picture shows the result of the student's own function.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from vklab.course.definition.verdict import Verdict
from vklab.course.picture import Picture, picture
from vklab.doctor import Check, Report
from vklab.draw import bytes_text
from vklab.draw.svg import PALETTE
from vklab.plan.memory import Lifetime, MemoryPlan
from vklab.runtime.session import Session
from vklab.types import DeviceInfo

__all__ = [
    "BROKEN_MACHINE",
    "draw_card",
    "draw_confusion",
    "draw_digits",
    "draw_path",
    "draw_placements",
    "draw_repairs",
    "readable",
]

BLUE, ORANGE, GREEN, _, _, RED, _, GREY = PALETTE
INK, PALE = "#222222", "#555555"

LOADER = "apt install libvulkan1"
BROKEN_MACHINE = Report(
    (
        Check("Python", True, "3.11.2"),
        Check("instance layers", True, "none; the validation layer is optional",
              "apt install vulkan-validationlayers"),
        Check("Vulkan loader", False, "libvulkan.so.1 is not there", LOADER),
        Check("Vulkan bindings", False, "the loader cannot be opened", LOADER),
        Check("drivers", False, "no driver manifest was found", "apt install mesa-vulkan-drivers"),
        Check("GLSL compiler (not essential)", False, "glslc does not run", "apt install glslc",
              essential=False),
        Check("Slang compiler", True, "slangc 2026.1"),
        Check("devices", False, "the loader cannot be opened", LOADER),
    )
)  # fmt: skip


def readable(report: Report) -> Report:
    """Return a report with short paths: `~` for your home, `.venv` for Python's environment."""
    short = {sys.prefix: ".venv", str(Path.home()): "~"}

    def shortened(text: str) -> str:
        for long, brief in short.items():
            text = text.replace(long, brief) if len(long) > 1 else text
        return text

    return replace(report, checks=tuple(
        replace(one, detail=shortened(one.detail), repair=shortened(one.repair))
        for one in report.checks
    ))  # fmt: skip


# ------------------------------------------------------------------------------------- matplotlib


def draw_digits(
    pictures: Any, predicted: Sequence[int], truth: Sequence[int], caption: str
) -> Picture:
    """Draw pictures in a row, the prediction above each; a wrong one with the true digit.

    Args:
        pictures: array of shape (count, 1, 28, 28) or (count, 28, 28), from 0 to 1.
        predicted: the predicted digit of each picture.
        truth: the true digit of each picture.
        caption: text below the picture.
    """
    figure = Figure(figsize=(1.1 * len(pictures), 1.75))
    axes = figure.subplots(1, len(pictures), squeeze=False)[0]
    words = []
    grey = colormaps["gray"].with_extremes(bad=ORANGE)
    if np.isnan(pictures).any():
        caption += " Orange pixels are no numbers (NaN)."
    for axis, image, said, is_true in zip(axes, pictures, predicted, truth, strict=True):
        right = bool(said == is_true)
        words.append(f"{said}" if right else f"{said} (is {is_true})")
        axis.imshow(np.squeeze(image), cmap=grey, vmin=0, vmax=1)  # a wrong range shows
        axis.axis("off")
        axis.set_title(f"{said}" if right else f"{said} ✘\nis {is_true}", fontsize=13,
                       color=BLUE if right else RED)  # fmt: skip
    alt = f"{len(words)} pictures of digits, read by the network as {', '.join(words)}"
    return picture(figure, alt, caption)


def draw_confusion(table: Any, caption: str) -> Picture:
    """Draw a confusion matrix with its counts: blue on the diagonal, orange beside it."""
    counts = np.asarray(table)
    size = len(counts)
    figure = Figure(figsize=(5.2, 5))
    axis = figure.subplots()
    axis.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5), xticks=range(size),
             yticks=range(size), xlabel="the network says", ylabel="it is")  # fmt: skip
    axis.set_xticks(np.arange(size) - 0.5, minor=True)
    axis.set_yticks(np.arange(size) - 0.5, minor=True)
    axis.grid(True, which="minor", color="#DDDDDD", linewidth=0.5)
    axis.tick_params(which="both", length=0)
    for row, column in zip(*np.nonzero(counts), strict=True):
        colour, alpha = (BLUE, 0.45) if row == column else (ORANGE, 0.9)
        axis.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, color=colour, alpha=alpha))
        axis.text(column, row, f"{counts[row, column]}", ha="center", va="center", fontsize=11)
    right, beside = int(np.trace(counts)), np.count_nonzero(counts - np.diag(np.diag(counts)))
    alt = (f"Confusion matrix of {size} classes: {right} of {int(counts.sum())} pictures on the "
           f"diagonal, the others in {beside} cells beside it")  # fmt: skip
    return picture(figure, alt, caption)


def draw_placements(
    plan: MemoryPlan, yours: tuple[Mapping[str, int], int], caption: str
) -> Picture:
    """Draw two placements of a plan's values: time runs right, addresses run up.

    Args:
        plan: the values with the runtime's offsets.
        yours: the student's offsets in bytes by name, and their total.
        caption: text below the picture.
    """
    offsets, total = yours
    theirs = {life.name: plan.slots[life.name].offset_bytes for life in plan.lifetimes}
    figure = Figure(figsize=(11, 4.4), layout="tight")
    axes = figure.subplots(1, 2, sharey=True)
    said = [
        _placement(axes[0], plan.lifetimes, theirs, plan.arena_bytes, "the runtime"),
        _placement(axes[1], plan.lifetimes, offsets, total, "you"),
    ]
    axes[0].set_ylabel("offset in KiB")
    return picture(figure, f"Maps of memory over time, side by side: {'; '.join(said)}", caption)


def _placement(
    axis: Axes, lifetimes: Sequence[Lifetime], offsets: Mapping[str, int], total: int, title: str
) -> str:
    """Draw one placement, even a wrong one; return its title, which names the faults."""
    said = f"{title}: {bytes_text(total)}"
    ends = [0]
    for number, life in enumerate(lifetimes):
        if life.name not in offsets:
            continue
        start, size = offsets[life.name] / 1024, life.size_bytes / 1024
        steps = (life.first - 0.5, life.last - life.first + 1)
        colour = PALETTE[number % len(PALETTE)]
        axis.broken_barh([steps], (start, size), facecolor=colour, edgecolor=INK, alpha=0.75)
        ends.append(offsets[life.name] + life.size_bytes)
    axis.axhline(total / 1024, color=INK, linestyle="--", linewidth=1)
    missing = sum(life.name not in offsets for life in lifetimes)
    faults = ([f"{missing} values have no offset"] if missing else []) + (
        ["a value ends above the total"] if max(ends) > total else [])  # fmt: skip
    said = ", ".join([said, *faults])
    axis.set_title(said, color=RED if faults else INK)
    # Every step writes one value, so the names below the steps do not collide.
    axis.set_xticks([life.first for life in lifetimes],
                    [f"{life.first}  {life.name}" for life in lifetimes],
                    rotation=40, ha="right", rotation_mode="anchor")  # fmt: skip
    axis.set_xlabel("step, and the value that it writes")
    axis.spines[["top", "right"]].set_visible(False)
    return said


# -------------------------------------------------------------------------------------------- SVG


class _Svg:
    """Text, boxes and curves on a white page of 940 units."""

    def __init__(self, height: int) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 940 {height}" width="940" '
            'style="max-width:100%;background:#fff" font-family="sans-serif">'
        ]

    def text(
        self, x: int, y: int, words: str, size: int = 15, ink: str = INK, bold: bool = False,
        anchor: str = "start",
    ) -> None:  # fmt: skip
        weight = "bold" if bold else "normal"
        self.parts.append(
            f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" fill="{ink}" '
            f'text-anchor="{anchor}">{escape(words)}</text>'
        )

    def box(self, x: int, y: int, width: int, height: int, ink: str, radius: int = 6) -> None:
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}" fill="{ink}" '
            f'fill-opacity=".13" stroke="{ink}" stroke-width="1.5"/>'
        )

    def curve(self, x: int, y: int, to_x: int, to_y: int, ink: str) -> None:
        middle = (x + to_x) // 2
        self.parts.append(
            f'<path d="M{x} {y} C {middle} {y}, {middle} {to_y}, {to_x} {to_y}" fill="none" '
            f'stroke="{ink}" stroke-width="2.5"/>'
        )

    def __str__(self) -> str:
        return "".join([*self.parts, "</svg>"])


def draw_repairs(report: Report, lines: Sequence[str]) -> Picture:
    """Draw the checks on the left, the repairs on the right, a curve from each to its repair."""
    lines = [str(line) for line in lines]
    page = _Svg(48 + 38 * max(len(report.checks), len(lines)))
    page.text(10, 22, "the report", bold=True)
    page.text(520, 22, "your list", bold=True)
    colours = {"ok": GREY, "note": BLUE, "FAILED": RED}
    for row, one in enumerate(report.checks):
        top, ink = 38 + 38 * row, colours[one.mark]
        page.box(10, top, 340, 30, ink)
        page.text(22, top + 20, f"{one.mark} · {one.name}")
        if one.repair in lines:
            page.curve(350, top + 15, 520, 53 + 38 * lines.index(one.repair), ink)
    for row, line in enumerate(lines):
        page.box(520, 38 + 38 * row, 410, 30, INK)
        page.text(532, 58 + 38 * row, f"{row + 1}.  {line}")
    alt = (f"{len(report.checks)} checks on the left, {len(lines)} numbered repairs on the right, "
           "a curve from each check to its repair in the list")  # fmt: skip
    return picture(str(page), alt, "A curve leads from each check to the line that repairs it.")


def draw_path(session: Session, logits: np.ndarray) -> Picture:
    """Draw the path of a model through the folders, with the result of each."""
    plan = session.plan
    kernels = len({step.kernel for step in plan.dispatches})
    rows, columns = logits.shape
    rooms = (
        ("graph", "reads the file", f"{len(session.graph.nodes)} nodes", BLUE),
        ("ops", "says what to compute", f"{len(plan.dispatches)} dispatches", BLUE),
        ("plan", "says where and when", bytes_text(plan.summary()["arena_bytes"]), BLUE),
        ("shader", "compiles kernels", f"{kernels} kernels", GREEN),
        ("vulkan", "talks to the driver", "1 device", GREEN),
    )
    page = _Svg(225)
    page.text(277, 24, "describe: no device needed", anchor="middle")
    page.text(753, 24, "drive: no models known", anchor="middle")
    for number, (name, does, gives, ink) in enumerate(rooms):
        left = 10 + 180 * number + (24 if number > 2 else 0)
        page.box(left, 38, 172, 92, ink)
        page.text(left + 86, 63, f"vklab/{name}/", 16, bold=True, anchor="middle")
        page.text(left + 86, 88, does, 14, anchor="middle")
        page.text(left + 86, 115, f"→ {gives}", anchor="middle")
    page.box(10, 150, 916, 62, ORANGE)
    page.text(468, 175, "vklab/runtime/", 16, bold=True, anchor="middle")
    page.text(468, 200, "the meeting place: the model comes in, the session lives here   → "
                        f"{rows} × {columns} logits", 14, anchor="middle")  # fmt: skip
    return picture(
        str(page),
        "Three rooms that describe (graph, ops, plan) and two that drive (shader, vulkan), above "
        "the runtime, in which they meet",
        "The path of a model, with what comes out of each room. Blue and green never import each "
        "other.",
    )


def _abilities(report: Report, device: DeviceInfo) -> tuple[tuple[str, bool, str], ...]:
    """Return abilities of a machine: (ability, whether it is there, the labs that need it)."""
    marks = {one.name: one.mark for one in report.checks}
    return (
        ("run models on a Vulkan device", marks.get("devices") == "ok", "every lab"),
        ("compile Slang kernels", marks.get("Slang compiler") == "ok", "from lab 04 on"),
        ("compile GLSL shaders", marks.get("GLSL compiler") == "ok", "lab 04"),
        ("have Vulkan calls validated", marks.get("instance layers") == "ok", "optional"),
        ("measure the speed of a GPU", not device.is_cpu, "optional"),
    )


def draw_card(
    report: Report, device: DeviceInfo, verdicts: Sequence[Verdict], todo: Sequence[str]
) -> Picture:
    """Draw the readiness card: the device, its abilities, the exercises, the repairs.

    Args:
        report: the doctor's report on this machine.
        device: the device of the banner.
        verdicts: the verdict of each exercise.
        todo: the student's repair list.
    """
    signs = {True: ("✔", GREEN), False: ("○", PALE)}
    page = _Svg(332)
    page.box(3, 3, 934, 326, BLUE, 12)
    ready = "ready" if report.ok else "not ready yet"
    page.text(28, 44, f"This machine is {ready}", 24, bold=True)
    kind = "a CPU that plays a GPU" if device.is_cpu else f"a GPU ({device.type})"
    page.text(28, 74, f"{device.name}: {kind}", 16)
    page.text(28, 118, "This machine can", bold=True)
    for row, (ability, can, where) in enumerate(_abilities(report, device)):
        sign, ink = signs[can]
        page.text(28, 148 + 30 * row, sign, 17, ink, bold=True)
        page.text(54, 148 + 30 * row, ability)
        page.text(310, 148 + 30 * row, where, ink=PALE)
    solved = sum(verdict.status == "correct" for verdict in verdicts)
    page.text(540, 118, f"You have solved {solved} of {len(verdicts)}", bold=True)
    for row, verdict in enumerate(verdicts):
        sign, ink = signs[verdict.status == "correct"]
        page.text(540, 148 + 30 * row, sign, 17, ink, bold=True)
        page.text(566, 148 + 30 * row, f"{verdict.id}  {verdict.title}")
        page.text(790, 148 + 30 * row, verdict.status.replace("_", " "), ink=PALE)
    listed = "; ".join(str(line) for line in todo) or "nothing"
    listed = listed if len(listed) < 110 else f"{listed[:106]} ..."
    page.text(28, 310, f"To repair: {listed}", 14)
    return picture(
        str(page),
        f"A card: this machine is {ready}, {solved} of "
        f"{len(verdicts)} exercises are solved, to repair: {listed}",
        "A tick is something you have; a ring is something you do not have, or not yet.",
    )
