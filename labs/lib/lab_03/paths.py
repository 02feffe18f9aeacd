"""Concept diagrams of memory: what reaches what, paths of a byte, atoms; curves of copies.

Visited by lab 03.
"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from vklab_course.picture import Picture, picture
from vklab_labs.shared.diagram import COLOURS, Diagram

__all__ = ["draw_atoms", "draw_block", "draw_copies", "draw_paths", "draw_reach"]

Speeds = Mapping[str, Mapping[str, float]]
LINES = {"staging": ("blue", "o", "-"), "mapped": ("orange", "s", "-"),
         "readback": ("green", "^", "--"), "mapped read": ("red", "x", "--"),
         "host": ("grey", ".", ":")}  # fmt: skip


def draw_reach() -> Picture:
    """Draw which memory the host can map: none, a window, or all of it."""
    page = Diagram(724, 190)
    for place, (title, heaps) in enumerate(
        (
            (
                "discrete GPU, small window",
                (("device-local\n8 GB", "blue", 62), ("window 256 MB", "sky", 26)),
            ),
            ("discrete GPU, ReBAR", (("device-local;\nthe window\ncovers all of it", "sky", 92),)),
            ("one memory for both (UMA)", (("device-local, and the\nhost reaches it", "sky", 92),)),
        )
    ):
        x, top = 6 + 254 * place, 72
        page.note((x + 102, 16), title, anchor="middle", bold=True)
        page.box((x, 26, 66, 30), "host", "grey").box((x + 98, 26, 106, 30), "GPU", "pink")
        page.arrow((x + 151, 58), (x + 151, 71), both=True)
        if place:
            page.line((x - 25, 4), (x - 25, 186))
        for words, colour, height in heaps:
            left, width = (x + 98, 106) if place < 2 else (x, 204)
            page.box((left, top, width, height), words, colour)
            top += height + 4
        if place < 2:
            page.box((x, 72, 66, 92), "host's\nmemory", "orange")
            page.arrow((x + 33, 58), (x + 33, 71), both=True)
            page.arrow((x + 68, 151), (x + 96, 151), both=True)
            page.note((x + 82, 180), "PCIe", anchor="middle")
        else:
            page.arrow((x + 33, 58), (x + 33, 71), both=True)
    return page.picture(
        "Three machines. A discrete GPU with a window of 256 MB through which the host reaches a "
        "part of the GPU's memory; a discrete GPU with ReBAR, whose window covers all of its "
        "memory; and a machine with one memory that host and GPU share.",
        "Light blue: memory that is device-local and that the host can map, too. Dark blue: memory "
        "that only the GPU reaches.",
    )


def draw_paths() -> Picture:
    """Draw the two paths of an array to a kernel: by a staging buffer, and by a mapping."""
    page = Diagram(724, 150)
    page.box((504, 2, 44, 146), "PCIe", "grey", dashed=True)
    page.box((6, 48, 120, 44), "NumPy array\nin host memory", "orange")
    page.box((230, 8, 130, 44), "staging buffer\nvisible, coherent", "orange")
    page.box((560, 8, 150, 44), "buffer\ndevice-local", "blue")
    page.arrow((128, 60), (228, 30)).note((132, 22), "1 host writes")
    page.arrow((362, 30), (558, 30)).note((372, 22), "2 vkCmdCopyBuffer")
    page.box((560, 94, 150, 44), "buffer\nlocal, visible", "sky")
    page.arrow((128, 80), (558, 116)).note((196, 128), "1 host writes through the mapping")
    return page.picture(
        "Above: the host writes into a staging buffer, then the device copies that over the bus. "
        "Below: the host writes through a mapping straight into device-local memory.",
        "Staging: two steps, works everywhere. Mapped: one step, needs memory that is both "
        "device-local and host-visible.",
    )


def draw_atoms() -> Picture:
    """Draw two buffers that share an atom of memory that is not coherent."""
    page = Diagram(724, 146)
    for number in range(4):
        page.box(
            (90 + 150 * number, 20, 150, 40),
            f"atom {number}",
            "red" if number == 1 else "grey",
            dashed=True,
            filled=number == 1,
        )
        page.note((90 + 150 * number, 76), str(64 * number), size=11)
    page.note((690, 76), "256", anchor="end", size=11)
    page.box((90, 84, 234, 26), "x: 100 bytes, the host writes", "orange")
    page.box((325, 84, 230, 26), "y: 98 bytes, a kernel writes", "blue")
    page.note((6, 44), "memory", bold=True)
    page.note(
        (325, 132), "atom 1 holds the end of x and the beginning of y", anchor="middle", bold=True
    )
    return page.picture(
        "Memory in atoms of 64 bytes. Buffer x takes bytes 0 to 99 and the host writes it; buffer "
        "y begins at byte 100 and a kernel writes it. Both have bytes in atom 1.",
        "A flush moves whole atoms. Here it can overwrite the beginning of y with old bytes.",
    )


def draw_block() -> Picture:
    """Draw one allocation that is divided into buffers, with a gap and a free end."""
    page = Diagram(724, 132)
    page.note((6, 16), "one vkAllocateMemory: a block", bold=True)
    blocks = (
        ("a\n100 bytes", 100, "blue"),
        ("free", 28, "grey"),
        ("b\n300 bytes", 300, "blue"),
        ("free", 84, "grey"),
        ("c\n128 bytes", 128, "blue"),
        ("free", 256, "grey"),
    )
    at, scale = 0, 708 / 896
    for words, size, colour in blocks:
        page.box(
            (6 + at * scale, 26, size * scale, 48),
            words if size > 60 else "",
            colour,
            dashed=colour == "grey",
            filled=colour == "blue",
        )
        page.note((6 + at * scale, 90), str(at) if size != 28 else "", size=11)
        at += size
    page.note((714, 90), "896", anchor="end", size=11)
    page.note(
        (6, 112),
        "Offsets are multiples of 128, so 28 bytes stay free before b.\n"
        "368 bytes are free, and a buffer of 300 fits nowhere.",
    )
    return page.picture(
        "A block of 896 bytes: a at 0, 28 bytes free, b at 128, 84 bytes free, c at 512, 256 bytes "
        "free at the end.",
        "Buffers are ranges of a large allocation. Fragmentation: free bytes in pieces that are "
        "too small.",
    )


def draw_copies(records: Mapping[str, Speeds], caption: str) -> Picture:
    """Draw bytes a second over bytes moved, both logarithmic: one panel a device.

    Args:
        records: by the device's name, for each path bytes a second by size.
        caption: the caption.
    """
    figure = Figure(figsize=(3.9 * max(len(records), 1.5), 3.4), layout="constrained")
    panels = figure.subplots(1, len(records), sharey=True, squeeze=False)[0]
    told = []
    for panel, (name, speeds) in zip(panels, records.items(), strict=True):
        for path, by_size in speeds.items():
            colour, mark, line = LINES[path]
            panel.plot(
                [int(size) / 2**20 for size in by_size],
                [speed / 1e9 for speed in by_size.values()],
                marker=mark,
                linestyle=line,
                color=COLOURS[colour],
                label=path,
            )
            told.append(f"{name}, {path}: at most {max(by_size.values()) / 1e9:.1f} GB/s")
        panel.set(xscale="log", yscale="log", title=name, xlabel="moved at once")
        panel.set_xticks(
            [2.0**power for power in (-8, -4, 0, 4, 8)],
            ["4 KiB", "64 KiB", "1 MiB", "16 MiB", "256 MiB"],
        )
        panel.tick_params(axis="x", labelsize=8)
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("GB a second")
    panels[0].legend(fontsize=8)
    return picture(figure, "; ".join(told), caption)
