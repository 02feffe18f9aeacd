"""Pictures of pipelines: slots and ranges, bytes of a struct, times of creation, orders of binds.

Visited by lab 05.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vklab_course.picture import Picture
from vklab_labs.lab_05.ordering import EXAMPLE, Dispatches, binds_of, broken
from vklab_labs.shared.diagram import Diagram

__all__ = ["draw_binding", "draw_blocks", "draw_caches", "draw_common_layout", "draw_creation",
           "draw_example", "draw_offsets", "draw_order", "draw_specialized",
           "draw_two_rules"]  # fmt: skip

KINDS = {"storage": "blue", "uniform": "orange"}
HUES = ("blue", "orange", "green", "pink", "sky", "yellow", "red", "grey")
STAGES = {"create": ("creation", "blue"), "first": ("first dispatch", "orange"),
          "second": ("second dispatch", "green")}  # fmt: skip


def draw_binding() -> Picture:
    """Draw what connects a number in a kernel with a buffer: layout, descriptor set, buffer."""
    page = Diagram(700, 184)
    for x, words in (
        (10, "kernel (SPIR-V)"),
        (190, "set layout"),
        (370, "descriptor set"),
        (560, "memory"),
    ):
        page.note((x, 16), words, bold=True)
    for row, (name, slot) in enumerate((("a", 0), ("b", 1), ("y", 2))):
        top = 26 + 38 * row
        page.box((10, top, 140, 30), f"{name}: binding = {slot}", "grey")
        page.box((190, top, 140, 30), f"{slot}: storage buffer", "blue")
        page.box((370, top, 140, 30), f"{slot}: descriptor", "orange")
        page.box((560, top, 120, 30), f"buffer of {name}", "green")
        page.arrow((152, top + 15), (188, top + 15))
        page.arrow((368, top + 15), (332, top + 15))
        page.arrow((512, top + 15), (558, top + 15))
    page.box((10, 144, 140, 30), "push constants", "grey")
    page.box((190, 144, 140, 30), "range: 4 bytes", "blue")
    page.box((370, 144, 310, 30), "4 bytes in the command buffer", "orange")
    page.arrow((152, 159), (188, 159)).arrow((368, 159), (332, 159))
    return page.picture(
        "Each binding of a kernel meets a slot of the set layout; a descriptor in the same slot of "
        "a set points to a buffer. Push constants meet a range of bytes in the same way.",
        "Blue is decided when the pipeline is made, orange when commands are recorded.",
    )


def draw_common_layout(
    kernels: Mapping[str, tuple[Mapping[int, str], int]], layout: Any, caption: str
) -> Picture:
    """Draw the slots of kernels, and below them those of one layout for all.

    Args:
        kernels: bindings with their types, and bytes of push constants, by kernel.
        layout: (slots, bytes) as the student's function returns it, or None.
        caption: text below the picture.
    """
    rows = [(name, dict(bindings), size) for name, (bindings, size) in kernels.items()]
    common = {} if layout is None else dict(layout[0])
    rows.append(("one layout for all", common, 0 if layout is None else layout[1]))
    last = max((number for _, bindings, _ in rows for number in bindings), default=0)
    page = Diagram(190 + 82 * (last + 1) + 140, 34 + 40 * len(rows))
    for number in range(last + 1):
        page.note((227 + 82 * number, 16), f"binding {number}", anchor="middle", size=11)
    for row, (name, bindings, size) in enumerate(rows):
        top, is_last = 26 + 40 * row, row == len(rows) - 1
        page.note((8, top + 20), name, bold=is_last)
        for number in range(last + 1):
            place = (190 + 82 * number, top, 74, 30)
            if number in bindings:
                kind = bindings[number]
                page.box(place, str(kind), KINDS.get(kind, "red"), bold=is_last)
            else:
                page.box(place, "", "grey", dashed=True, filled=False)
        page.box(
            (190 + 82 * (last + 1) + 10, top, 120, 30), f"push: {size} bytes", "grey", bold=is_last
        )
    said = "; ".join(f"{name}: {bindings}, {size} bytes" for name, bindings, size in rows)
    return page.picture(f"Slots by binding number. {said}", caption)


def draw_offsets(layouts: Mapping[str, Sequence[tuple[str, int, int]]], caption: str) -> Picture:
    """Draw structs as bytes: one row for each layout, a cell for each four bytes.

    Args:
        layouts: (name, first byte, bytes) of each member, by the layout's title; a member that is
            called "" is a gap.
        caption: text below the picture.
    """
    names = dict.fromkeys(name for row in layouts.values() for name, *_ in row if name)
    hues = {name: HUES[number % 7] for number, name in enumerate(names)}
    total = max((first + size for row in layouts.values() for _, first, size in row), default=4)
    left = 24 + 8 * max(map(len, layouts), default=0)
    scale = min(14.0, (740 - left) / total)
    page = Diagram(left + int(total * scale) + 20, 20 + 62 * len(layouts))
    for number, (title, row) in enumerate(layouts.items()):
        top = 8 + 62 * number
        page.note((8, top + 20), title, bold=True)
        for name, first, size in row:
            place = (left + first * scale, top, size * scale, 30)
            if name:
                page.box(place, name if size * scale >= 7 * len(name) + 4 else "", hues[name])
            else:
                page.box(place, "", "grey", dashed=True, filled=False)
            page.note((place[0], top + 44), str(first), size=10)
        end = max((first + size for _, first, size in row), default=0)
        page.note((left + end * scale, top + 44), str(end), size=10)
    said = "; ".join(
        f"{title}: "
        + ", ".join(f"{name or 'gap'} at {first}, {size} bytes" for name, first, size in row)
        for title, row in layouts.items()
    )
    return page.picture(f"Members of a struct by byte. {said}", caption)


def draw_caches() -> Picture:
    """Draw the questions of a request, first for SPIR-V, then for a pipeline."""
    page = Diagram(760, 190)
    page.note((10, 16), "first key: text, target, defines", bold=True)
    page.note((452, 16), "second key: SPIR-V, constants", bold=True)
    for x, words in (
        (10, "SPIR-V\nin memory?"),
        (160, "SPIR-V\non disk?"),
        (452, "pipeline\nin memory?"),
    ):
        page.box((x, 28, 100, 44), words, "blue", bold=True)
    page.box((310, 28, 100, 44), "compiler\nmakes it", "orange")
    page.box((640, 28, 100, 44), "driver\nmakes it", "orange")
    page.box((452, 130, 100, 44), "reused", "green").box((640, 130, 100, 44), "made", "green")
    for left in (112, 262, 554):
        page.arrow((left, 50), (left + (84 if left > 500 else 46), 50), "no")
    page.arrow((502, 74), (502, 128)).note((508, 104), "yes")
    page.arrow((690, 74), (690, 128))
    for x, words in ((60, "yes"), (210, "yes"), (360, "kept on disk")):
        page.arrow((x, 74), (x, 108)).note((x - 6, 94), words, anchor="end", size=11)
    page.box((10, 110, 400, 26), "SPIR-V; from now on it is in memory", "green")
    page.arrow((412, 123), (450, 72))
    return page.picture(
        "A request asks for SPIR-V in memory, then on disk; else the compiler makes it. With the "
        "SPIR-V it asks for a pipeline in memory; else the driver makes one.",
        "What is in memory is lost when the program ends; what is on disk stays.",
    )


def draw_example() -> Picture:
    """Draw the eight dispatches of `ordering.EXAMPLE`, an arrow to each that waits."""
    places = {
        "d0": (0, 0.5),
        "d1": (0, 2),
        "d2": (1, 0),
        "d3": (1, 2),
        "d7": (2, 0),
        "d4": (2, 1),
        "d6": (2, 2),
        "d5": (3, 1),
    }
    colours, page = _colours(EXAMPLE), Diagram(680, 180)
    for name, (pipeline, earlier) in EXAMPLE.items():
        x, y = 10 + 180 * places[name][0], 8 + 58 * places[name][1]
        page.box((x, y, 120, 42), f"{name}: {pipeline}", colours[pipeline])
        for other in earlier:
            left, top = 130 + 180 * places[other][0], 29 + 58 * places[other][1]
            page.arrow((left, top), (x - 2, y + 21))
    said = "; ".join(
        f"{name} is {pipeline}, after {', '.join(some) or 'nothing'}"
        for name, (pipeline, some) in EXAMPLE.items()
    )
    return page.picture(
        said,
        "Eight dispatches of four pipelines. In the order d0, d1, d2 ... "
        f"they need {binds_of(EXAMPLE, list(EXAMPLE))} binds.",
    )


def _colours(dispatches: Dispatches) -> dict[str, str]:
    pipelines = sorted({pipeline for pipeline, _ in dispatches.values()})
    return {pipeline: HUES[number % 8] for number, pipeline in enumerate(pipelines)}


def draw_two_rules() -> Picture:
    """Draw one struct by both sets of rules."""
    return draw_offsets(
        {
            "std430": [("count", 0, 4), ("", 4, 12), ("low", 16, 12), ("gain", 28, 4)],
            "scalar": [("count", 0, 4), ("low", 4, 12), ("gain", 16, 4)],
        },
        "The same three members: 32 bytes by std430, 20 bytes by scalar. Dashed bytes are a gap.",
    )


def draw_blocks(
    blocks: Mapping[str, tuple[Mapping[str, int], int]],
    fields: Sequence[tuple[str, int, int, int | None]],
) -> Picture:
    """Draw structs by the offsets of their members, and the gaps; an array has all its bytes.

    Args:
        blocks: (offsets, bytes of the struct), by the name of the rules.
        fields: (name, bytes of a component, components, elements or None).
    """
    sizes = {
        name: None if count else width * components for name, width, components, count in fields
    }
    rows = {}
    for rules, (offsets, total) in blocks.items():
        row = rows[rules] = list[tuple[str, int, int]]()
        ends = [*offsets.values(), total][1:]
        for (name, first), end in zip(offsets.items(), ends, strict=True):
            size = sizes[name] or end - first
            row.append((name, first, size))
            if first + size < end:
                row.append(("", first + size, end - first - size))
    return draw_offsets(
        rows, "Your offsets. Dashed bytes are a gap; an array is drawn up to the next member."
    )


def draw_specialized() -> Picture:
    """Draw who knows each kind of number: define, specialization constant, push constant."""
    page = Diagram(700, 112)
    columns = (
        ("text", "defines", "the compiler", "grey"),
        ("SPIR-V", "specialization constants", "the driver", "blue"),
        ("pipeline", "push constants", "the running kernel", "orange"),
        ("dispatch", "", "", "green"),
    )
    for number, (name, numbers, who, colour) in enumerate(columns):
        x = 10 + 180 * number
        page.box((x, 36, 110, 44), name, colour, bold=True)
        if numbers:
            page.arrow((x + 112, 58), (x + 178, 58))
            page.note((x + 145, 24), numbers, anchor="middle", size=11)
            page.note((x + 145, 102), who, anchor="middle", size=11)
    page.note((10, 24), "supplied:", size=11).note((10, 102), "used by:", size=11)
    return page.picture(
        "From text to SPIR-V with defines, to a pipeline with specialization constants, to a "
        "dispatch with push constants.",
        "The further right a number is supplied, the cheaper it is to change it.",
    )


def draw_creation(records: Mapping[str, Mapping[str, Any]], caption: str) -> Picture:
    """Draw times of pipelines as bars on a logarithmic axis, a column for each device.

    Args:
        records: {title: {mode: {kernel: {stage: nanoseconds}}}}.
        caption: text below the picture.
    """
    page = Diagram(20 + 420 * len(records), 0)
    said = []
    for column, (title, modes) in enumerate(records.items()):
        left, top = 10 + 420 * column, 44.0
        page.note((left, 16), title[:52], bold=True)
        for mode, kernels in modes.items():
            nothing = "" if kernels else ": this driver puts nothing into it"
            page.note((left, top), mode + nothing, size=12, bold=True)
            top += 8
            for kernel, times in kernels.items():
                page.note((left + 4, top + 22), kernel, size=11)
                for row, (stage, (_, colour)) in enumerate(STAGES.items()):
                    ms = times[stage] / 1e6
                    page.box((left + 84, top + 2 + 11 * row, _bar(ms), 9), "", colour, shade=0.6)
                    page.note((left + 90 + _bar(ms), top + 11 + 11 * row), f"{ms:.3g} ms", size=10)
                    said.append(f"{title}, {mode}, {kernel}, {stage}: {ms:.3g} ms")
                top += 42
            top += 18
        page.height = max(page.height, int(top) + 26)
    for number, (words, colour) in enumerate(STAGES.values()):
        x, y = 10 + 140 * number, page.height - 22
        page.box((x, y, 14, 12), "", colour, shade=0.6).note((x + 20, y + 11), words)
    return page.picture("Bars of milliseconds. " + "; ".join(said), caption)


def _bar(ms: float) -> float:
    """Return a length in pixels: 45 for a factor of ten, from a hundredth of a millisecond on."""
    return max(3.0, 3 + 45 * math.log10(max(ms, 0.01) / 0.01))


def draw_order(
    dispatches: Dispatches, orders: Mapping[str, Sequence[str]],
    caption: str,
) -> Picture:  # fmt: skip
    """Draw orders of dispatches as strips; a thick mark stands where a pipeline is bound.

    Args:
        dispatches: pipeline and predecessors of each dispatch, by name.
        orders: lists of dispatches, by title.
        caption: text below the picture.
    """
    colours = _colours(dispatches)
    wide = min(62, 620 // max(1, len(dispatches)))
    page = Diagram(170 + wide * len(dispatches) + 80, 40 + 52 * len(orders))
    said = []
    for row, (title, order) in enumerate(orders.items()):
        top, before, fault = 10 + 52 * row, "", broken(dispatches, order)
        result = "not valid" if fault else f"{binds_of(dispatches, order)} binds"
        page.note((8, top + 22), title, bold=True)
        for number, name in enumerate(order):
            pipeline = dispatches[name][0]
            x = 170 + wide * number
            if pipeline != before:
                page.box((x - 2, top - 5, 4, 46), "", "grey", shade=0.9)
                before = pipeline
            page.box((x + 3, top, wide - 5, 36), name, colours[pipeline])
        page.note((176 + wide * len(order), top + 22), result, bold=bool(fault))
        said.append(f"{title}: {', '.join(order)}, {fault or result}")
    for number, (pipeline, colour) in enumerate(colours.items()):
        x, y = 170 + 90 * number, 18 + 52 * len(orders)
        page.box((x, y, 14, 12), "", colour).note((x + 20, y + 11), pipeline)
    return page.picture("Orders of dispatches. " + "; ".join(said), caption)
