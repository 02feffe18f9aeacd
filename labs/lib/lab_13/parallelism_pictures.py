"""Pictures of transfers and of one model on several devices: copies, shards, rings, pipelines.

Visited by lab 13b.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vklab_course.picture import Picture
from vklab_labs.lab_13.parallelism import Event, Send, pipeline, step_times
from vklab_labs.shared.diagram import Diagram
from vklab_labs.shared.lanes import draw_timeline

__all__ = ["draw_chosen", "draw_copies", "draw_cuts", "draw_layers", "draw_mlp", "draw_pipeline",
           "draw_reduction", "draw_ring", "draw_shards", "draw_spans", "draw_trace"]  # fmt: skip

PARTS = ("blue", "orange", "green", "pink", "sky", "red", "yellow", "grey")


def draw_copies() -> Picture:
    """Draw the copies of a value on three paths between two GPUs with memory of their own."""
    page = Diagram(700, 196)
    rows = (
        (
            "host copy",
            (
                "GPU 0 memory",
                "host memory, seen by GPU 0",
                "host memory, seen by GPU 1",
                "GPU 1 memory",
            ),
        ),
        ("ring", ("GPU 0 memory", "host memory, seen by both", "GPU 1 memory")),
        ("dma-buf", ("GPU 0 memory, seen by GPU 1", "GPU 1 memory")),
    )
    for row, (name, places) in enumerate(rows):
        y, gap = 10 + 62 * row, 46
        page.note((6, y + 27), name, bold=True)
        width = (600 - gap * (len(places) - 1)) / len(places)
        for n, words in enumerate(places):
            x = 90 + (width + gap) * n
            colour = "grey" if "host" in words else "blue" if "GPU 0" in words else "orange"
            page.box((x, y, width, 42), words.replace(", ", "\n"), colour)
            if n:
                page.arrow((x - gap, y + 21), (x - 2, y + 21), "copy")
    return page.picture(
        "Host copy: three copies, through two places in host memory. Ring: two copies, through one "
        "place that both GPUs see. dma-buf: one copy, from memory of GPU 0 that GPU 1 sees.",
        "Three paths between two GPUs with memory of their own. Each arrow is a copy of all bytes.",
    )


def draw_chosen(rows: Mapping[str, tuple[str, int]], size: int, caption: str) -> Picture:
    """Draw the path of a value between several pairs of devices, and what it copies.

    Args:
        rows: for each pair in words the path and the bytes that it copies.
        size: the bytes of the value.
        caption: the line below.
    """
    page = Diagram(700, 34 * len(rows) + 12)
    for n, (words, (path, copied)) in enumerate(rows.items()):
        y = 8 + 34 * n
        page.note((6, y + 17), words)
        page.note((290, y + 17), path, bold=True)
        for number in range(min(4, round(copied / size))):
            page.box((400 + 62 * number, y, 58, 26), f"{size >> 20} MiB", "orange")
        if not copied:
            page.note((400, y + 17), "no copy")
    told = "; ".join(f"{w}: {path}, {copied} bytes" for w, (path, copied) in rows.items())
    return page.picture(told, caption)


def draw_cuts() -> Picture:
    """Draw A @ B = C on two devices: B cut by columns, and B cut by rows."""
    page = Diagram(700, 196)
    colours = ("blue", "orange")
    for left, title in (
        (10, "B cut by columns: each device has columns of C"),
        (370, "B cut by rows: each has a part of every sum"),
    ):
        page.note((left, 14), title, bold=True)
        for x, words in ((left + 25, "A"), (left + 148, "B"), (left + 247, "C")):
            page.note((x, 37), words, bold=True)
        page.note((left + 72, 90), "@")
    page.note((206, 90), "=").note((554, 90), "=")
    for n, colour in enumerate(colours):
        page.box((136 + 28 * n, 42, 26, 90), f"{n}", colour)
        page.box((230 + 28 * n, 42, 26, 90), f"{n}", colour)
        page.box((375 + 28 * n, 42, 26, 90), f"{n}", colour)
        page.box((500, 42 + 46 * n, 46, 44), f"{n}", colour)
        page.box((570 + 62 * n, 42, 46, 90), f"{n}", colour)
    page.box((10, 42, 54, 90), "both", "grey").note((622, 90), "+")
    page.note(
        (10, 156),
        "Each device needs all of A. Nothing is added;\nan all-gather brings the columns together.",
    )
    page.note((370, 156), "Each device needs columns of A only. An\nall-reduce adds the two parts.")
    return page.picture(
        "Left: B is cut into two column blocks, device 0 and device 1 hold one half of the columns "
        "of C each. Right: B is cut into two row blocks and A into columns; each device holds a "
        "partial sum of all of C.",
        "One product on two devices. The number is that of the device.",
    )


def draw_shards(shape: Sequence[int], answer: Any, columns: int, caption: str) -> Picture:
    """Draw B as a grid of shards, and C with the devices that hold parts of its sums.

    Args:
        shape: m, k and n.
        answer: what `shard_matmul` has returned.
        columns: columns of the grid of devices.
        caption: the line below.
    """
    (m, k, n), (shards, reduced, gathered) = shape, answer
    page, height = Diagram(700, 250), 170
    across, down = 300 / max(n, 1), height / max(k, 1)
    page.note((10, 16), f"B [{k}, {n}]", bold=True).note((380, 16), f"C [{m}, {n}]", bold=True)
    empty = []
    for device, ((first, end), (left, right)) in enumerate(shards):
        if first == end or left == right:
            empty.append(str(device))
            continue
        box = (10 + across * left, 24 + down * first, across * (right - left), down * (end - first))
        page.box(box, str(device), PARTS[device % len(PARTS)], shade=0.45)
    for column in range(columns):
        left, right = shards[column][1]
        if left < right:
            words = "sum of\n" + ", ".join(map(str, range(column, len(shards), columns)))
            page.box((380 + across * left, 24, across * (right - left), height), words, "grey")
    page.note(
        (10, 218),
        f"all-reduce {reduced:,} bytes, all-gather {gathered:,} bytes"
        + (f"; nothing to do for device {', '.join(empty)}" if empty else ""),
    )
    return page.picture(
        f"B of {k} rows and {n} columns in {len(shards)} shards, one for each device.", caption
    )


def draw_mlp() -> Picture:
    """Draw two layers on two devices: columns, then rows, then one all-reduce."""
    page = Diagram(700, 150)
    page.box((6, 50, 60, 44), "x", "grey")
    for n, colour in enumerate(("blue", "orange")):
        y = 10 + 84 * n
        page.note((6, y + 26), f"device {n}", bold=True)
        page.arrow((66, 72), (98, y + 22))
        for x, words in ((100, f"columns {n}\nof W1"), (215, "Relu"), (330, f"rows {n}\nof W2")):
            page.box((x, y, 90, 44), words, colour)
        page.arrow((190, y + 22), (213, y + 22)).arrow((305, y + 22), (328, y + 22))
        page.arrow((420, y + 22), (458, 72))
    page.box((460, 50, 110, 44), "all-reduce", "green").arrow((570, 72), (618, 72))
    page.box((620, 50, 60, 44), "y", "grey")
    return page.picture(
        "x goes to two devices; each has half of the columns of W1, Relu, and the same half of the "
        "rows of W2; one all-reduce adds the two results.",
        "Two layers, one collective. Each device makes the part of the hidden layer that its "
        "rows of W2 read.",
    )


def draw_reduction() -> Picture:
    """Draw what three devices hold in a ring all-reduce, after 0, 1, 2 and 4 steps."""
    page = Diagram(700, 160)
    panels = (
        ("start", ("0 0 0", "1 1 1", "2 2 2")),
        ("after 1 step", ("0 0 0+2", "0+1 1 1", "2 1+2 2")),
        ("after 2 steps", ("0 sum 0+2", "0+1 1 sum", "sum 1+2 2")),
        ("after 4 steps", ("sum sum sum",) * 3),
    )
    for p, (title, rows) in enumerate(panels):
        page.note((70 + 158 * p, 16), title, bold=True)
        for device, row in enumerate(rows):
            for part, words in enumerate(row.split()):
                place = (70 + 158 * p + 49 * part, 24 + 42 * device, 47, 34)
                shade = 0.6 if words == "sum" else 0.2
                page.box(place, words, PARTS[part], shade=shade)
    for device in range(3):
        page.note((4, 46 + 42 * device), f"device {device}")
    return page.picture(
        "Three devices with three parts each. After one step each device has one part with two "
        "terms, after two steps one finished part, after four steps all three.",
        "A ring of three: each box is a part of the array, with the numbers of the devices that "
        "are in its sum. Dark: complete. In each step a device sends one part to the next one; "
        "2 sends to 0.",
    )


def draw_ring(devices: int, steps: Sequence[Sequence[Send]], caption: str) -> Picture:
    """Draw the sends of an all-reduce, a lane for each sender.

    Args:
        devices: the number of devices.
        steps: for each step its sends.
        caption: the line below.
    """
    lanes: dict[str, list[tuple[str, float, float, str]]] = {
        f"device {n}": [] for n in range(devices)
    }
    firsts = sorted({first for sends in steps for _, _, first, end, _ in sends if first < end})
    start = 0
    for sends, time in zip(steps, step_times(steps), strict=True):
        for source, target, first, end, adds in sends:
            if first < end:
                does, at = ("add", "to") if adds else ("set", "in")
                words = f"{does} {first}-{end - 1} {at} {target}"
                colour = PARTS[firsts.index(first) % len(PARTS)]
                lanes[f"device {source}"].append((words, start, start + end - first, colour))
        start += time
    return draw_timeline(lanes, alt=f"{len(steps)} steps on {devices} devices.", caption=caption)


def draw_pipeline(stages: int, batches: int, caption: str) -> Picture:
    """Draw a pipeline, a lane for each device; each bar has the number of its small batch.

    Args:
        stages: the number of devices.
        batches: the number of small batches.
        caption: the line below.
    """
    lanes = {
        f"device {stage}": [
            (str(batch), start, start + 1, PARTS[batch % len(PARTS)])
            for at, batch, start in pipeline(stages, batches)
            if at == stage
        ]
        for stage in range(stages)
    }
    return draw_timeline(lanes, alt=f"{stages} devices, {batches} batches.", caption=caption)


def draw_trace(events: Sequence[Event], caption: str) -> Picture:
    """Draw a trace, a lane for each unit that works; pieces have colours."""
    lanes: dict[str, list[tuple[str, float, float, str]]] = {}
    order = [event.lane for event in events if event.name.endswith("0")]  # as piece 0 goes
    for event in sorted(events, key=lambda event: order.index(event.lane)):
        bar = (event.name, event.start, event.end, PARTS[int(event.name[-1])])
        lanes.setdefault(event.lane, []).append(bar)
    told = ", ".join(f"{e.name} from {e.start} to {e.end}" for e in events)
    return draw_timeline(lanes, alt=told, caption=caption, step=5)


def draw_spans(spans: Sequence[Any], caption: str) -> Picture:
    """Draw the spans of a traced run: (lane, words, start, end, kind) in microseconds.

    The host is the first lane; the devices follow by their numbers.
    """
    colours = {"chunk": "blue", "transfer": "orange"}
    lanes: dict[str, list[tuple[str, float, float, str]]] = {}
    longest = max((end for *_, end, _ in spans), default=0)
    for lane, words, start, end, kind in sorted(spans, key=lambda span: (span[0] != "host", span)):
        told = f"{words}: {(end - start) / 1e3:.1f} ms" if end - start > longest / 6 else ""
        bar = (told, start, end, colours[kind])
        lanes.setdefault(lane.split("(")[0].replace(" Device", "").strip(), []).append(bar)
    told = ", ".join(f"{words} on {lane}" for lane, words, *_ in spans)
    return draw_timeline(lanes, alt=told, caption=caption)


def draw_layers() -> Picture:
    """Draw the way from a PyTorch model to a GPU, in ExecuTorch and in vklab."""
    page = Diagram(700, 138)
    rows = (
        (
            "ExecuTorch",
            (
                "torch.export:\nATen operators",
                "to_edge:\nedge dialect",
                "partitioner:\nwhat Vulkan can",
                "to_executorch:\na .pte file",
                "runtime:\nC++ on a phone",
            ),
            "orange",
        ),
        (
            "vklab",
            (
                "torch.onnx:\nONNX operators",
                "graph/passes:\nrewriting",
                "plan/partition:\nwhat Vulkan can",
                "vklab compile:\none file",
                "runtime/:\nPython, Vulkan",
            ),
            "blue",
        ),
    )
    for row, (name, boxes, colour) in enumerate(rows):
        y = 12 + 64 * row
        page.note((4, y + 27), name, bold=True)
        for n, words in enumerate(boxes):
            page.box((88 + 122 * n, y, 110, 44), words, colour)
            if n:
                page.arrow((76 + 122 * n, y + 22), (86 + 122 * n, y + 22))
    return page.picture(
        "ExecuTorch: torch.export, to_edge, partitioner, to_executorch, runtime. "
        "vklab: torch.onnx, passes, partition, compile, runtime.",
        "From a PyTorch model to a GPU, twice. In vklab the file is optional: vklab.load plans "
        "an ONNX file when it loads it.",
    )
