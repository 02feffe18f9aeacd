"""Draw a plan: its dispatches as a graph, and below them the memory of their values.

Dispatches between two barriers, which may run in parallel, share a column. Visited by lab 11.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import groupby

from vklab.base import draw
from vklab.base.draw import layers, svg
from vklab.base.draw.layers import LEFT, LETTERS, Box
from vklab.plan.barriers import Copy, Step
from vklab.plan.chunk import Chunk
from vklab.plan.memory import ACTIVATIONS, MemoryPlan, Slot
from vklab.types import Dispatch, Pointwise

# (purpose of kernels, their colour, prefixes of their names); the first match applies
KINDS = (
    ("convolution", "#0072B2", ("conv", "deform_conv", "col2im")),
    ("matrix product", "#D55E00", ("matmul", "matvec", "sum_splits", "linear", "recurrent")),
    ("reduction, softmax, normalisation", "#009E73",
     ("reduce", "arg_reduce", "softmax", "normalize", "attention", "lrn", "cumulative")),
    ("pooling", "#CC79A7", ("pool", "max_", "roi")),
    ("element by element", "#E69F00", ("elementwise", "pointwise", "rotary")),
    ("input, output, copy", "#999999", ("input", "output", "copy")),
    ("other", "#56B4E9", ("",)),
)  # fmt: skip
LEAST_WIDTH, PLOT_HEIGHT, MOST_TITLES, MOST_LINES = 760, 300, 8, 4


def kernel_label(dispatch: Dispatch) -> str:
    """Return a kernel's name with the work fused into it, such as "conv + relu, add"."""
    if dispatch.kernel in ("pointwise", "elementwise") and dispatch.pointwise:
        return f"{dispatch.kernel}: {_titles(dispatch.pointwise)}"
    if dispatch.siblings:
        return f"pointwise: {' | '.join(map(_titles, dispatch.siblings))}"
    before = f" of ({_titles(dispatch.prologue)})" if dispatch.prologue else ""
    after = f" + {_titles(dispatch.epilogue)}" if dispatch.epilogue else ""
    return dispatch.kernel + before + after


def _titles(work: Pointwise) -> str:
    each = [formula.title for formula in work.formulas if formula.arguments]
    each = [name[1:-1] if name.startswith("(") else name for name in each]
    runs = [(name, len(list(same))) for name, same in groupby(each)]
    words = [f"{name} x{count}" if count > 2 else ", ".join([name] * count) for name, count in runs]
    more = f" ... {len(each)} in all" if len(words) > MOST_TITLES else ""
    return ", ".join(words[:MOST_TITLES]) + more


def flows(
    steps: Sequence[Step], slots: Mapping[str, Slot], inputs: Mapping[str, Slot]
) -> tuple[list[set[int]], dict[str, set[int]]]:
    """Return for each step the steps whose results it reads, and the writers of values still alive.

    Args:
        steps: dispatches and copies in order; inputs count as steps -1, -2 and so on.
        slots: the memory of each value.
        inputs: the memory of each graph input.

    Views have no writers of their own: they are matched by the bytes that they share.
    """
    alive: dict[str, tuple[Slot, set[int]]] = {
        name: (slot, {-1 - number}) for number, (name, slot) in enumerate(inputs.items())
    }
    sources: list[set[int]] = []
    for number, step in enumerate(steps):
        read, written = _touched(step, slots)
        sources.append(
            {n for slot in read for other, by in alive.values() if slot.overlaps(other) for n in by}
        )
        for name, slot in written:
            for other in [n for n, (s, _) in alive.items() if n != name and s.overlaps(slot)]:
                del alive[other]
            alive.setdefault(name, (slot, set()))[1].add(number)
    return sources, {name: by for name, (_, by) in alive.items()}


def _touched(step: Step, slots: Mapping[str, Slot]) -> tuple[list[Slot], list[tuple[str, Slot]]]:
    if isinstance(step, Copy):
        return [step.source], [(f"{step.name}:copied", step.target)]
    return (
        [slots[info.name] for _, info in step.reads],
        [(info.name, slots[info.name]) for _, info in step.writes],
    )


def chunk_svg(title: str, chunk: Chunk) -> str:
    """Draw a chunk as SVG: its dispatches in order, their values, and the memory of these."""
    memory, outputs = chunk.memory, chunk.output_slots
    boxes = _boxes(chunk, memory, chunk.input_slots, outputs) if chunk.steps else {}
    width = max(layers.width_of(boxes), LEAST_WIDTH)
    used = {box.colour for box in boxes.values()}
    entries = {purpose: colour for purpose, colour, _ in KINDS if colour in used}
    parts = [
        svg.text(LEFT, 18, svg.shorten(title, int(width / 7.2)), 'font-size="14"'),
        *layers.legend(entries, 32),
        svg.text(
            LEFT,
            60,
            "dispatches, row by row: those of one column may run in parallel; "
            "dashed line: barrier; thick frame: generated Slang; from, to: other rows",
        ),
    ]
    drawn, bottom = layers.chart(boxes, 66)
    heading = (
        f"memory of activations: {draw.bytes_text(memory.arena_bytes)}; a box is a value, "
        "its width the lifetime and its height the bytes"
    )
    parts += [*drawn, svg.text(LEFT, bottom + 20, heading, 'font-size="13"')]
    frame = (LEFT + 70, bottom + 32, width - 2 * LEFT - 70, PLOT_HEIGHT)
    parts += svg.memory_map(
        frame, memory_boxes(memory), memory.steps, memory.arena_bytes, memory.lower_bound_bytes
    )
    return svg.svg(title, width, bottom + PLOT_HEIGHT + 76, parts)


def memory_svg(memory: MemoryPlan) -> str:
    """Draw the memory of activations: lifetimes to the right, addresses upwards."""
    return svg.memory_map_svg(
        str(memory),
        memory_boxes(memory),
        memory.steps,
        memory.arena_bytes,
        memory.lower_bound_bytes,
    )


def memory_boxes(memory: MemoryPlan) -> list[tuple[str, int, int, int, int]]:
    """Return the boxes of `svg.memory_map`, one for each value; arenas are stacked."""
    starts: dict[str, int] = {}
    for name in memory.arenas:
        if name.startswith(ACTIVATIONS):
            starts[name] = sum(memory.arenas[other] for other in starts)
    return [
        (life.name, life.first, life.last, starts[slot.arena] + slot.offset_bytes, life.size_bytes)
        for life in memory.lifetimes
        for slot in [memory.slots[life.name]]
    ]


def _boxes(
    chunk: Chunk, memory: MemoryPlan, inputs: Mapping[str, Slot], outputs: Mapping[str, Slot]
) -> dict[int, Box]:
    """Return a box for each step by its number; inputs have -1, -2 ..., outputs come last."""
    sources, writers = flows(chunk.steps, memory.slots, inputs)
    grey = _colour("input")
    boxes = {
        -1 - n: Box(name, name, ["input"], f"input {name}", grey) for n, name in enumerate(inputs)
    }
    fences = {barrier.before for barrier in chunk.barriers}
    column, dispatched = 1, 0
    for number, (node, step) in enumerate(zip(chunk.nodes, chunk.steps, strict=True)):
        column += number in fences
        box = boxes[number] = _step_box(node, step, str(dispatched))
        box.sources, box.column = sources[number], column
        dispatched += isinstance(step, Dispatch)
    for number, (name, slot) in enumerate(outputs.items(), len(chunk.steps)):
        box = boxes[number] = Box(name, name, ["output"], f"output {name}", grey, column + 1)
        slots = {n: memory.slots.get(n, slot) for n in writers}
        box.sources = {
            n for value, by in writers.items() if slots[value].overlaps(slot) for n in by if n >= 0
        }
    return boxes


def _step_box(node: str, step: Step, number: str) -> Box:
    if isinstance(step, Copy):
        name = svg.shorten(step.name, LETTERS)
        return Box("copy", f"copy {step.name}", [name], str(step), _colour("copy"))
    label = kernel_label(step)
    lines = textwrap.wrap(label[len(step.kernel) :].removeprefix(":").strip(), LETTERS)
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], f"{lines[MOST_LINES - 1][: LETTERS - 4]} ..."]
    written = step.writes[0][1]
    shape = "x".join(map(str, written.shape)) or "scalar"
    dtype = "" if written.dtype == "float32" else f" {written.dtype}"
    lines.append(svg.shorten(shape + dtype, LETTERS))
    about = f"dispatch {number}, {node}: {label}; {step}; writes {written}"
    return Box(
        f"{number} {step.kernel}",
        number,
        lines,
        about,
        _colour(step.kernel),
        thick=bool(step.fragment),
    )


def _colour(kernel: str) -> str:
    return next(colour for _, colour, names in KINDS if kernel.startswith(names))
