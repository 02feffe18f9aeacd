"""Pictures of lab 02: each shows the result of the student's own function."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from vklab.course.figures.machines import Needs
from vklab.course.words import short
from vklab.draw.svg import PALETTE
from vklab.types import DeviceInfo, QueueFamily

__all__ = [
    "draw_bits",
    "draw_drivers",
    "draw_families",
    "draw_heaps",
    "draw_missing",
    "draw_ranks",
]

BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, GREY = PALETTE
INK, PALE, WRONG = "#222222", "#EEEEEE", "#B00020"
Answer = Callable[..., Any]


def _blank(width: float, height: float, wide: float, high: float) -> tuple[Figure, Any]:
    """Return a figure in inches with axes from (0, 0) to (wide, high), y downwards, no frame."""
    figure = Figure((width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, wide), ylim=(high, 0))
    axes.axis("off")
    return figure, axes


def draw_drivers(files: Mapping[str, Any], drivers: Sequence[tuple[str, str]]) -> Figure:
    """Draw every file of a made-up tree, and the library that the answer reads from it.

    Args:
        files: paths below the tree.
        drivers: the answer's (file name, library) pairs.
    """
    figure, axes = _blank(9, 0.36 * len(files) + 0.5, 100, len(files) + 1.2)
    libraries = dict(drivers)
    axes.text(1, 0.6, "file", weight="bold", va="center")
    axes.text(61, 0.6, "what your function says", weight="bold", va="center")
    for row, name in enumerate(sorted(files), 1):
        library = libraries.get(name.rpartition("/")[2])
        colour = GREY if library is None else BLUE
        words = "skipped" if library is None else str(library)
        axes.text(1, row + 0.6, name, family="monospace", va="center", color=INK, size=9.5)
        axes.plot([52, 59], [row + 0.6] * 2, color=colour, ls=":" if library is None else "-")
        axes.text(61, row + 0.6, words, va="center", size=9.5, color="#666666" if library is None
                  else INK, family="monospace" if library else None)  # fmt: skip
    return figure


Fields = Sequence[tuple[str, int]]


def draw_bits(rows: Sequence[tuple[str, int, Fields, str]]) -> Figure:
    """Draw 32-bit numbers as fields of bits, with the answer's text for each.

    Args:
        rows: (title, packed number, (field, bits) from the left, the answer's text).
    """
    figure, axes = _blank(9, 1.15 * len(rows), 34, 3.3 * len(rows))
    colours = (GREY, SKY, ORANGE, GREEN)
    for row, (title, packed, fields, said) in enumerate(rows):
        top, left = 3.3 * row + 1.1, 0
        axes.text(1, top - 0.35, f"{title}: {packed}", weight="bold", size=11, color=INK)
        axes.text(33, top - 0.35, f"you: {said}", ha="right", size=11, color=INK)
        shift = 4 - len(fields)
        for number, (name, bits) in enumerate(fields):
            colour = colours[number + shift] if shift >= 0 else colours[number]
            for bit in range(left, left + bits):
                value = packed >> (31 - bit) & 1
                axes.add_patch(Rectangle((1 + bit, top), 1, 1, fc=colour, alpha=0.9 if value
                                         else 0.3, ec="white"))  # fmt: skip
                axes.text(1.5 + bit, top + 0.55, str(value), ha="center", va="center", size=9)
            middle = 1 + left + bits / 2
            axes.text(middle, top + 1.5, name, ha="center", va="center", size=9.5, color=INK)
            left += bits
    return figure


def draw_families(devices: Mapping[str, tuple[Sequence[QueueFamily], tuple[int, int]]]) -> Figure:
    """Draw the queue families of devices as boxes, the two that the answer chose in colour.

    Args:
        devices: name -> (families, (compute, copies)).
    """
    most = max(len(families) for families, _ in devices.values())
    figure, axes = _blank(9.4, 1.05 * len(devices), 22 + 20 * most, 3 * len(devices))
    for row, (name, (families, (compute, copies))) in enumerate(devices.items()):
        axes.text(1, 3 * row + 1.5, name, va="center", weight="bold", color=INK, size=10.5)
        known = [family.index for family in families]
        strange = [str(index) for index in (compute, copies) if index not in known]
        if strange:
            axes.text(1, 3 * row + 2.3, f"no family {' and '.join(strange)} here", va="center",
                      color=WRONG, size=9)  # fmt: skip
        for family in families:
            jobs = [word for word, index in (("compute", compute), ("copies", copies))
                    if index == family.index]  # fmt: skip
            colour = {"compute": BLUE, "copies": ORANGE}.get(jobs[0] if jobs else "", GREY)
            place = 22 + 20 * family.index, 3 * row + 0.3
            box = FancyBboxPatch(place, 19, 2.3, "round,pad=0,rounding_size=0.5", ec=colour,
                                 fc="white", lw=3 if jobs else 1)  # fmt: skip
            axes.add_patch(box)
            flags = " ".join(sorted(family.flags - {"sparse_binding"})).replace("_decode", "")
            clock = ", sparse" if "sparse_binding" in family.flags else ""
            clock += "" if family.timestamp_valid_bits else ", no clock"
            axes.text(place[0] + 0.7, place[1] + 0.6, f"{family.index}: {family.queue_count} "
                      f"queue{'s' * (family.queue_count > 1)}{clock}", va="center",
                      size=9, color=INK)  # fmt: skip
            axes.text(place[0] + 0.7, place[1] + 1.25, flags, va="center", size=8.5, color=INK)
            if jobs:
                axes.text(place[0] + 0.7, place[1] + 1.9, "↳ " + " + ".join(jobs), va="center",
                          size=9, weight="bold", color=INK)  # fmt: skip
    return figure


def _folded(code: str, width: int = 12) -> str:
    """Break a code such as limit:maxComputeWorkGroupInvocations into short lines, by its words."""
    lines = [""]
    for word in re.findall(r"[^:]*?:|[A-Z]?[a-z]+[0-9]*|[A-Z0-9]+", code):
        if len(lines[-1]) + len(word) > width or lines[-1].endswith(":"):
            lines.append("")
        lines[-1] += word
    return "\n".join(lines)


def draw_missing(devices: Sequence[DeviceInfo], needs: Needs, answer: Answer) -> Figure:
    """Draw how far each device gets through the requirements, as the answer says.

    The answer's code names the first column that a device fails; later columns stay empty. An
    answer that is not a code is written out instead of the row.

    Args:
        devices: one row each.
        needs: the requirements, one column each.
        answer: the student's function, called with a device and `needs`.
    """
    codes = ["version", f"queue:{needs.queue}", *(f"feature:{name}" for name in needs.features)]
    codes += [f"limit:{name}" for name in (*needs.at_least, *needs.at_most)] + ["heap"]
    figure, axes = _blank(9, 0.42 * len(devices) + 1.5, 24 + 14 * len(codes), len(devices) + 3.4)
    for column, code in enumerate(codes):
        x = 24 + 14 * column + 6.5
        axes.text(x, 1.5, _folded(code), ha="center", va="center", size=8.5, color=INK)
    for row, device in enumerate(devices):
        said = answer(device, needs)
        stop = codes.index(said) if said in codes else len(codes)
        y = row + 3
        axes.text(1, y + 0.5, device.name, va="center", size=9.5, color=INK)
        if said not in ("", *codes):
            lost = " (is a return missing?)" if said is None else ""
            axes.text(25, y + 0.5, f"?  not a code: {short(said)}{lost}", va="center", size=9.5,
                      color=WRONG)  # fmt: skip
            continue
        for column in range(len(codes)):
            mark, colour = ("✓", SKY) if column < stop else ("✗", RED)
            if column > stop:
                mark, colour = "", PALE
            axes.add_patch(Rectangle((24 + 14 * column, y), 13, 0.9, fc=colour, ec="white"))
            axes.text(24 + 14 * column + 6.5, y + 0.47, mark, ha="center", va="center", size=11)
    return figure


# (title, value of a device, format of the value)
CAPABILITIES: tuple[tuple[str, Callable[[DeviceInfo], float], Callable[[float], str]], ...] = (
    ("largest local\nheap, GiB", lambda d: _room(d) / 2**30, "{:.1f}".format),
    ("subgroup", lambda d: d.subgroup_size, "{:.0f}".format),
    ("invocations\na workgroup", lambda d: d.limit("maxComputeWorkGroupInvocations"),
     "{:.0f}".format),
    ("shared\nmemory, KiB", lambda d: d.limit("maxComputeSharedMemorySize") / 1024,
     "{:.0f}".format),
    ("storage\nbuffer, MiB", lambda d: d.limit("maxStorageBufferRange") / 2**20, "{:.0f}".format),
    ("fp16", lambda d: float("shaderFloat16" in d.features), lambda v: "yes" if v else "no"),
    ("int8", lambda d: float("shaderInt8" in d.features), lambda v: "yes" if v else "no"),
)  # fmt: skip


def _room(device: DeviceInfo) -> int:
    return max((heap.size_bytes for heap in device.heaps if heap.device_local), default=0)


def _title(device: DeviceInfo, real: Sequence[DeviceInfo]) -> str:
    if any(device is other for other in real):
        return "here: " + textwrap.shorten(device.name.partition(" (")[0], 20, placeholder=" …")
    return f"{device.name} {device.uuid[:2]}"


def draw_ranks(
    devices: Sequence[DeviceInfo], real: Sequence[DeviceInfo], ranks: Mapping[str, Sequence[Any]]
) -> Figure:
    """Draw capabilities as a heat map, and beside it the answer's ranks for each job.

    Args:
        devices: one row each.
        real: those of this machine.
        ranks: job -> the devices in the answer's order, best first.
    """
    columns = [[value(device) for device in devices] for _, value, _ in CAPABILITIES]
    shades = [_shades(column) for column in columns]
    count, width = len(devices), len(CAPABILITIES)
    figure, axes = _blank(10.5, 0.4 * count + 1.1, 30 + 10 * (width + len(ranks)), count + 2.6)
    colours = matplotlib.colormaps["cividis"]
    for column, (title, _, words) in enumerate(CAPABILITIES):
        x = 30 + 10 * column
        axes.text(x + 5, 1.2, title, ha="center", va="center", size=8.5, color=INK)
        for row in range(count):
            shade = shades[column][row]
            axes.add_patch(Rectangle((x, row + 2.3), 9.8, 0.94, fc=colours(shade)))
            axes.text(x + 5, row + 2.8, words(columns[column][row]), ha="center", va="center",
                      size=9, color="white" if shade < 0.45 else "black")  # fmt: skip
    for column, (job, ranked) in enumerate(ranks.items(), width):
        x = 30 + 10 * column + 5
        axes.text(x, 1.2, job, ha="center", va="center", size=9, weight="bold", color=INK)
        for row, device in enumerate(devices):
            place = [other.uuid for other in ranked].index(device.uuid) + 1 if any(
                other.uuid == device.uuid for other in ranked) else 0  # fmt: skip
            first = place == 1
            axes.text(x, row + 2.8, str(place or "–"), ha="center", va="center", size=10,
                      weight="bold" if first else "normal", color="#666666" if not place else INK,
                      bbox={"boxstyle": "circle,pad=0.25", "fc": ORANGE, "ec": "none"} if first
                      else None)  # fmt: skip
    for row, device in enumerate(devices):
        refused = "  ✗" if device.refusal else ""
        axes.text(1, row + 2.8, _title(device, real) + refused, va="center", size=9.5, color=INK)
    return figure


def _shades(column: Sequence[float]) -> list[float]:
    """Return a shade from 0 to 1 for each number, on a logarithmic scale."""
    logs = [math.log2(value) if value > 0 else None for value in column]
    known = [log for log in logs if log is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    if low == high:  # yes and no, or the same everywhere
        return [0.0 if log is None else 1.0 for log in logs]
    return [0.0 if log is None else (log - low) / (high - low) for log in logs]


# Where the logarithmic axis starts, in GiB.
LEFT = 0.125


def draw_heaps(
    devices: Sequence[DeviceInfo], real: Sequence[DeviceInfo], need_mib: int, ranked: Sequence[Any]
) -> Figure:
    """Draw every heap as a bar on a logarithmic axis, coloured by its rank in the answer.

    Args:
        devices: the devices whose heaps are drawn.
        real: those of this machine.
        need_mib: the required size of a heap, in MiB.
        ranked: the devices in the answer's order, best first.
    """
    chosen = [device.uuid for device in ranked]
    bars = [(device, heap) for device in devices for heap in device.heaps]
    figure = Figure((9.5, 0.27 * len(bars) + 1.1))
    axes = figure.add_subplot()
    y, ticks = 0.0, []
    for device in devices:
        start = y
        for heap in device.heaps:
            local, colour = heap.device_local, GREY
            if device.uuid in chosen and heap.size_bytes >= need_mib << 20:
                colour = ORANGE if device.uuid == chosen[0] else SKY
            axes.barh(y, heap.size_bytes / 2**30 - LEFT, 0.8, left=LEFT, hatch="" if local else
                      "////", fc=colour if local else "white",
                      ec=colour if local else GREY)  # fmt: skip
            y += 0.9
        ticks.append((start + (y - 0.9 - start) / 2, _title(device, real)))
        y += 0.5
    axes.axvline(need_mib / 1024, color=INK, ls="--", lw=1.2)
    axes.set_xscale("log", base=2)
    axes.set(xlim=(LEFT, 1100), ylim=(y, -1), xlabel="GiB, logarithmic")
    axes.set_xticks([2.0**n for n in range(-2, 11, 2)],
                    ["¼", "1", "4", "16", "64", "256", "1024"])  # fmt: skip
    axes.set_yticks([tick for tick, _ in ticks], [name for _, name in ticks])
    axes.spines[["top", "right"]].set_visible(False)
    marks = [Rectangle((0, 0), 1, 1, fc=colour) for colour in (ORANGE, SKY, GREY)]
    marks.append(Rectangle((0, 0), 1, 1, fc="white", ec=GREY, hatch="////"))
    words = ["your first", "also fits", "does not fit, or refused", "memory of the host"]
    axes.legend(marks, words, ncols=4, loc="lower center", bbox_to_anchor=(0.4, 1),
                frameon=False, fontsize=9)  # fmt: skip
    return figure
