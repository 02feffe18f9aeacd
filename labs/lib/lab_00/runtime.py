"""Pictures of the runtime: a session, its folders, and two placements in memory.

Visited by labs 00 and 11.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from vklab.base.draw import bytes_text
from vklab.base.draw.svg import memory_map, svg, text
from vklab.plan import memory
from vklab.plan.memory import MemoryPlan
from vklab.runtime.session import Session
from vklab_course.picture import Picture, picture
from vklab_labs.shared.diagram import Diagram

__all__ = ["draw_path", "draw_placements", "draw_session"]


def draw_session() -> Picture:
    """Draw what `load` and `run` do."""
    page = Diagram(720, 150)
    page.note((10, 22), "vklab.load, once", bold=True)
    page.note((400, 22), "session.run, often", bold=True)
    page.box((10, 40, 90, 50), "model file\n.onnx", "grey").arrow((100, 65), (130, 65))
    page.box((130, 40, 90, 50), "plan").arrow((220, 65), (250, 65))
    page.box((250, 40, 110, 50), "kernels and\nmemory ready", "green").arrow((360, 65), (400, 65))
    page.box((400, 40, 90, 50), "pictures in", "orange").arrow((490, 65), (510, 65))
    page.box((510, 40, 90, 50), "kernels run", "green").arrow((600, 65), (620, 65))
    page.box((620, 40, 90, 50), "logits out", "orange")
    page.note(
        (400, 118), "10 numbers for each picture: one for each digit.\nThe largest is the answer."
    )
    return page.picture(
        "vklab.load turns a model file into a plan, then into kernels and memory. session.run "
        "copies pictures in, runs kernels, and copies ten logits for each picture out.",
        "Loading prepares the work once; each run only copies and computes.",
    )


def draw_path(session: Session, logits: np.ndarray) -> Picture:
    """Draw the path of a model through the folders, with the result of each."""
    plan = session.plan
    kernels = len({step.kernel for step in plan.dispatches})
    rows, columns = logits.shape
    rooms = (
        ("graph", "reads the file", f"{len(session.graph.nodes)} nodes", "blue"),
        ("ops", "what to compute", f"{len(plan.dispatches)} dispatches", "blue"),
        ("plan", "where and when", bytes_text(plan.summary()["arena_bytes"]), "blue"),
        ("shader", "compiles kernels", f"{kernels} kernels", "green"),
        ("vulkan", "talks to the driver", "1 device", "green"),
    )
    page = Diagram(740, 190)
    page.note((220, 20), "needs no device", anchor="middle")
    page.note((594, 20), "works on the device", anchor="middle")
    for number, (name, does, gives, colour) in enumerate(rooms):
        left = 5 + 149 * number
        page.box((left, 30, 132, 80), f"vklab/{name}/\n{does}\n= {gives}", colour)
        if number:
            page.arrow((left - 17, 70), (left, 70))
    page.box(
        (5, 128, 728, 52),
        f"vklab/runtime/\nthe session: the model comes in, {rows} × {columns} logits come out",
        "orange",
    )
    return page.picture(
        "Five folders in a row, graph, ops, plan, shader and vulkan, above the runtime, which uses "
        "all of them",
        "The path of a model, with the result of each folder. Several dispatches may use one "
        "kernel.",
    )


def draw_placements(
    plan: MemoryPlan, yours: tuple[Mapping[str, int], int], caption: str
) -> Picture:
    """Draw two placements of a plan's values: time runs right, addresses run up.

    Args:
        plan: the values with the runtime's offsets.
        yours: the student's offsets in bytes by name, and their total.
        caption: text below the picture.
    """
    if not isinstance(yours, tuple | list) or len(yours) != 2 or not isinstance(yours[0], dict):
        raise ValueError(f"expected (offsets, total) with a dict, got {type(yours).__name__}")
    offsets, total = yours
    missing = [life.name for life in plan.lifetimes if life.name not in offsets]
    if missing:
        raise ValueError(f"{', '.join(missing)} has no offset")
    theirs = {life.name: plan.slots[life.name].offset_bytes for life in plan.lifetimes}
    most = max(
        plan.arena_bytes, total, *(offsets[life.name] + life.size_bytes for life in plan.lifetimes)
    )
    most = memory.round_up(most, 1 << 18)  # so that quarters are whole numbers of KiB
    steps = 1 + max(life.last for life in plan.lifetimes)
    ranges = [(offsets[life.name], life.size_bytes, life.name) for life in plan.lifetimes]
    shared = [
        f"{a} and {b} overlap"
        for (start, size, a), (other, more, b) in combinations(ranges, 2)
        if start < other + more and other < start + size
    ]
    parts, said = [], []
    for column, (name, placed, size) in enumerate(
        (("the runtime", theirs, plan.arena_bytes), ("you", offsets, total))
    ):
        left = 65 + 365 * column
        boxes = [
            (life.name, life.first, life.last, placed[life.name], life.size_bytes)
            for life in plan.lifetimes
        ]
        said.append(f"{name}: {bytes_text(size)}")
        parts.append(text(left, 18, said[-1], 'font-size="13" font-weight="bold"'))
        parts += memory_map((left, 30, 290, 240), boxes, steps, most)
    parts += [text(440, 48, one) for one in shared[:1]]
    alt = f"Maps of memory over time, side by side: {'; '.join(said + shared[:1])}"
    return picture(svg(alt, 730, 312, parts), alt, caption)
