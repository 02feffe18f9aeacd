"""Pictures of Core ML packages: the way to one, casts, units, operators, errors, padding.

Visited by lab 15.
"""

from __future__ import annotations

import bisect
import collections
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vklab_course.picture import Picture
from vklab_labs.lab_15.shapes import padding
from vklab_labs.shared.diagram import Diagram

__all__ = ["draw_casts", "draw_margins", "draw_mixes", "draw_operators", "draw_padding",
           "draw_pooling", "draw_units", "draw_way", "table_lines"]  # fmt: skip

NAMES = {"mini_classifier": "MiniClassifier", "text_classifier": "text classifier",
         "resnet18": "ResNet-18"}  # fmt: skip


def draw_way() -> Picture:
    """Draw the way from a module to a package, and who can execute it."""
    page = Diagram(700, 176)
    page.box((4, 60, 88, 44), "nn.Module\nin PyTorch", "grey")
    page.box((134, 14, 104, 44), "TorchScript\n(a trace)", "sky")
    page.box((134, 106, 104, 44), "exported\nprogram", "sky")
    page.arrow((92, 74), (132, 40)).arrow((92, 90), (132, 124))
    page.box((280, 60, 96, 44), "MIL\noperators", "orange")
    page.arrow((238, 40), (278, 74)).arrow((238, 124), (278, 90))
    page.box((418, 60, 104, 44), "package\n.mlpackage", "green")
    page.arrow((376, 82), (416, 82))
    page.box((580, 14, 114, 44), "Core ML:\nmacOS, iOS only", "pink")
    page.box((580, 106, 114, 44), "vklab: Vulkan,\nany system", "blue")
    page.arrow((522, 74), (578, 40)).arrow((522, 90), (578, 124))
    page.note((134, 170), "coremltools: macOS, Linux x86-64", size=11)
    page.line((134, 157), (522, 157))
    return page.picture(
        "A PyTorch module becomes TorchScript or an exported program; each becomes MIL operators, "
        "and those a package. coremltools does this on macOS and on Linux x86-64. Core ML executes "
        "the package on macOS and iOS only, vklab on any system with Vulkan.",
        "From a module to a package. Only the upper right box needs a Mac or an iPhone.",
    )


def draw_casts() -> Picture:
    """Draw one float16 program for two targets: with a cast at each end, and with one."""
    page = Diagram(700, 150)
    rows = (
        (
            "target iOS 15",
            ("image\nfloat32", "cast", "conv ... linear\nfloat16", "cast", "logits\nfloat32"),
        ),
        (
            "target iOS 16",
            ("image\nfloat32", "cast", "conv ... linear\nfloat16", "", "logits\nfloat16"),
        ),
    )
    widths, colours = (92, 60, 150, 60, 92), ("grey", "orange", "blue", "orange", "grey")
    for row, (name, boxes) in enumerate(rows):
        x, y = 112, 14 + 70 * row
        page.note((4, y + 26), name, bold=True)
        for n, (words, width, colour) in enumerate(zip(boxes, widths, colours, strict=True)):
            if words:
                page.box((x, y, width, 44), words, colour)
            if n:
                page.arrow((x - 28, y + 22), (x - 2, y + 22)) if words else None
            if not words:
                page.arrow((x - 28, y + 22), (x + width + 26, y + 22))
            x += width + 28
    return page.picture(
        "For target iOS 15 a cast to float16 comes first and a cast to float32 last; the result is "
        "float32. For target iOS 16 the last cast is missing, and the result is float16.",
        "MiniClassifier in float16. From target iOS 16 on, a program may return float16: one "
        "cast is left, where there were two.",
    )


def draw_units() -> Picture:
    """Draw which units each choice of compute units permits."""
    page = Diagram(700, 196)
    choices = {
        "ALL": (1, 1, 1),
        "CPU_AND_GPU": (1, 1, 0),
        "CPU_AND_NE": (1, 0, 1),
        "CPU_ONLY": (1, 0, 0),
    }
    for n, unit in enumerate(("CPU", "GPU", "Neural Engine")):
        page.note((205 + 140 * n, 18), unit, anchor="middle", bold=True)
    for row, (name, permitted) in enumerate(choices.items()):
        y = 28 + 41 * row
        page.note((4, y + 21), name, bold=True)
        for n, is_permitted in enumerate(permitted):
            place = (140 + 140 * n, y, 130, 32)
            if is_permitted:
                page.box(place, "permitted", "green")
            else:
                page.box(place, "forbidden", "grey", dashed=True, filled=False)
    page.note((570, 62), "Core ML chooses\na unit for each\noperator among\nthe permitted.")
    return page.picture(
        "; ".join(
            f"{name}: CPU permitted, GPU {'permitted' if gpu else 'forbidden'}, Neural Engine "
            f"{'permitted' if engine else 'forbidden'}"
            for name, (_, gpu, engine) in choices.items()
        ),
        "The four choices of compute units. Permitted is not used: a unit that may run an "
        "operator need not run it.",
    )


def draw_operators(counts: Mapping[str, Mapping[str, int]], caption: str) -> Picture:
    """Draw a histogram of operators: a bar for each type, a column for each package.

    Args:
        counts: for each package the count of each type.
        caption: the line below.
    """
    totals = sum((collections.Counter(each) for each in counts.values()), collections.Counter())
    kinds = sorted(totals, key=lambda kind: (-totals[kind], kind))
    largest = max((count for each in counts.values() for count in each.values()), default=1)
    page, width = Diagram(700, 34 + 21 * len(kinds)), 480 / max(len(counts), 1)
    for column, (name, each) in enumerate(counts.items()):
        left = 190 + (width + 12) * column
        page.note((left, 16), f"{name}: {sum(each.values())}", bold=True)
        for row, kind in enumerate(kinds):
            y, count = 24 + 21 * row, each.get(kind, 0)
            if count:
                bar = (left, y, (width - 30) * count / largest, 16)
                page.box(bar, "", ("blue", "orange", "green")[column % 3], shade=0.5)
                page.note((left + bar[2] + 5, y + 13), str(count))
    for row, kind in enumerate(kinds):
        page.note((182, 37 + 21 * row), kind, anchor="end")
    told = "; ".join(
        f"{name}: " + ", ".join(f"{count} {kind}" for kind, count in each.items())
        for name, each in counts.items()
    )
    return page.picture(told or "No operators.", caption)


def draw_pooling(matrix: Any, caption: str) -> Picture:
    """Draw a pooling matrix: rows are bins, columns elements; darker is a larger weight.

    Args:
        matrix: float [bins, size].
        caption: the line below.
    """
    bins, size = matrix.shape
    side = min(44, 600 // max(size, 1))
    page = Diagram(80 + side * size, 30 + side * bins)
    for column in range(size):
        page.note((76 + side * (column + 0.5), 16), str(column), anchor="middle")
    for row in range(bins):
        page.note((4, 24 + side * (row + 0.6)), f"bin {row}")
        for column in range(size):
            weight = float(matrix[row, column])
            place = (76 + side * column, 24 + side * row, side - 2, side - 2)
            page.box(place, f"{weight:.2g}" if weight else "", "blue", shade=0.6 * weight)
    told = "; ".join(
        f"bin {row} averages elements {[n for n in range(size) if matrix[row, n]]}"
        for row in range(bins)
    )
    return page.picture(told, caption)


def draw_margins(scores: NDArray[Any], error: float, caption: str) -> Picture:
    """Draw how many rows have which margin, and the border below which a class can flip.

    Args:
        scores: [rows, classes].
        error: the largest error of a score.
        caption: the line below.
    """
    second, first = np.partition(scores, [-2, -1], axis=1)[:, -2:].T
    margins = (first - second).tolist()
    edges = [error * 2**power for power in range(-3, 11)]
    counts = collections.Counter(bisect.bisect(edges, margin) for margin in margins)
    top, page = max(counts.values(), default=1), Diagram(700, 190)
    for place in range(len(edges) + 1):
        count = counts[place]
        height = 110 * count / top
        is_risky = place < len(edges) and edges[place] <= 2 * error
        if count:
            box = (24 + 44 * place, 140 - height, 38, height)
            page.box(box, "", "red" if is_risky else "blue", shade=0.5)
            page.note((43 + 44 * place, 135 - height), str(count), anchor="middle")
    for place, edge in enumerate(edges):
        page.line((65 + 44 * place, 140), (65 + 44 * place, 145))
        page.note((65 + 44 * place, 158), f"{edge:.2g}", anchor="middle", size=10)
    page.note((24, 180), "margin: highest score minus second highest; each step is twice the last")
    border = 65 + 44 * edges.index(2 * error)
    page.line((border, 24), (border, 140)).note((border + 4, 30), "2 x error")
    risky = sum(margin < 2 * error for margin in margins)
    return page.picture(
        f"{risky} of {len(margins)} rows have a margin below twice the error, {error:.2g}.", caption
    )


def draw_mixes(mixes: Mapping[str, Mapping[str, float]], caption: str) -> Picture:
    """Draw bytes and error of each mix of precisions.

    Args:
        mixes: by name, `bytes` and `error`.
        caption: the line below.
    """
    page = Diagram(700, 34 + 30 * len(mixes))
    page.note((200, 16), "KB", bold=True).note((460, 16), "largest error of a score", bold=True)
    most = {key: max(each[key] for each in mixes.values()) for key in ("bytes", "error")}
    for row, (name, each) in enumerate(mixes.items()):
        y = 24 + 30 * row
        page.note((192, y + 16), name, anchor="end")
        for left, key, colour, words in (
            (200, "bytes", "blue", f"{each['bytes'] / 1e3:,.0f}"),
            (460, "error", "orange", f"{each['error']:.4f}"),
        ):
            width = 180 * each[key] / most[key]
            page.box((left, y, width, 22), "", colour, shade=0.5)
            page.note((left + width + 5, y + 16), words)
    told = "; ".join(
        f"{name}: {each['bytes'] / 1e3:.0f} KB, error {each['error']:.4f}"
        for name, each in mixes.items()
    )
    return page.picture(told, caption)


def draw_padding(sizes: Sequence[int], lengths: Sequence[int], caption: str) -> Picture:
    """Draw inputs by length, each padded to the smallest allowed length that holds it.

    Args:
        sizes: the lengths of the inputs.
        lengths: the allowed lengths, sorted.
        caption: the line below.
    """
    ordered, allowed = sorted(sizes), sorted(lengths)
    tall, wide = 3 if len(ordered) > 60 else 5, 600 / max(allowed[-1], 1)
    page = Diagram(700, 40 + tall * len(ordered))
    for row, size in enumerate(ordered):
        place = bisect.bisect_left(allowed, size)
        y, held = 10 + tall * row, allowed[min(place, len(allowed) - 1)]
        page.box((20, y, wide * size, tall - 0.5), "", "blue", shade=0.7)
        if held > size:
            page.box((20 + wide * size, y, wide * (held - size), tall - 0.5), "", "orange")
    low = 14 + tall * len(ordered)
    for length in allowed:
        page.line((20 + wide * length, 8), (20 + wide * length, low))
        page.note((20 + wide * length, low + 14), str(length), anchor="middle")
    total = padding(ordered, allowed)
    return page.picture(
        f"{len(ordered)} inputs, {sum(ordered)} elements; the lengths {allowed} add {total}.",
        caption,
    )


def table_lines(table: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Return the recorded conversions as lines of text.

    Args:
        table: by model and form: bytes, error, specification, casts, operators.
    """
    head = f"{'':31}{'KB':>8}{'error':>9}{'spec':>6}{'result':>9}{'casts':>7}{'operators':>11}"
    lines = [head]
    for model, rows in table.items():
        largest = next(iter(rows.values()))["largest"]
        lines.append(f"{NAMES[model]}: scores up to {largest:.1f}")
        for form, row in rows.items():
            every = f"{row['operators']} ({row['with_constants']})"
            lines.append(
                f"    {form:27}{row['bytes'] / 1e3:8,.0f}{row['error']:9.1e}"
                f"{row['specification']:6}{row['result']:>9}{row['casts']:7}{every:>11}"
            )
    return "\n".join(lines)
