"""Pictures of schedules: chunks of a placed graph, frames in flight, tasks on two devices.

Visited by lab 12.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vklab.base.trace import Trace
from vklab_course.picture import Picture, picture
from vklab_labs.lab_12.list_scheduling import by_critical_path
from vklab_labs.lab_12.makespan import Placed, Tasks, ready, tails, timetable
from vklab_labs.shared.diagram import Diagram, draw_steps
from vklab_labs.shared.lanes import draw_timeline, timeline
from vklab_labs.shared.networks import draw_network

__all__ = ["draw_chunks", "draw_counters", "draw_frames", "draw_list_scheduling", "draw_replay",
           "draw_schedule", "two_in_flight"]  # fmt: skip

DEVICES = ("blue", "orange", "green")
FRAMES = ("blue", "orange", "green", "pink", "sky", "yellow")


def draw_replay() -> Picture:
    """Draw two runs that record their commands, and two that replay them."""
    again = [
        ("record", 0, 3, "red"),
        ("", 3, 3.6, "grey"),
        ("record", 8, 11, "red"),
        ("", 11, 11.6, "grey"),
    ]
    once = [("", 0, 0.6, "grey"), ("", 5, 5.6, "grey"), ("", 10, 10.6, "grey")]
    return draw_timeline(
        {
            "host, records again": again,
            "its device": [("run 0", 3.6, 8, "blue"), ("run 1", 11.6, 16, "blue")],
            "host, replays": once,
            "the same device": [
                ("run 0", 0.6, 5, "blue"),
                ("run 1", 5.6, 10, "blue"),
                ("run 2", 10.6, 15, "blue"),
            ],
        },
        alt="Above, the host records before each run, and the device waits. Below, it submits, "
        "and the device runs three times instead of two.",
        caption="Two ways to run the same list. Grey: vkQueueSubmit. Lengths are examples.",
    )


def draw_chunks(
    nodes: Iterable[tuple[str, int, Sequence[str]]],
    groups: Iterable[tuple[int, Iterable[str]]], caption: str,
) -> Picture:  # fmt: skip
    """Draw a placed graph: a colour for each device, in each box the number of its chunk.

    Args:
        nodes: (name, device, names that it reads) of each node.
        groups: (device, names) of each chunk.
        caption: the line below.
    """
    listed = list(nodes)
    home = {name: number for number, (_, names) in enumerate(groups) for name in names}
    devices = {device for _, device, _ in listed}
    return draw_network(
        [(name, name, reads, (name,)) for name, _, reads in listed],
        alt="; ".join(
            f"{name} on device {device}, in chunk {home.get(name, 'none')}"
            for name, device, _ in listed
        ),
        caption=caption,
        colours={name: DEVICES[device] for name, device, _ in listed},
        notes={name: [f"chunk {home[name]}" if name in home else ""] for name, _, _ in listed},
        legend={DEVICES[device]: f"device {device}" for device in sorted(devices)},
    )


def draw_counters() -> Picture:
    """Draw the counters of a diamond of four chunks after each completion."""
    page = Diagram(724, 172)
    steps = (
        ("at the start", (0, 1, 1, 2)),
        ("0 has completed", (-1, 0, 0, 2)),
        ("then 2", (-1, 0, -1, 1)),
        ("then 1", (-1, -1, -1, 0)),
    )
    places = ((0, 52), (60, 14), (60, 90), (120, 52))
    for number, (title, counts) in enumerate(steps):
        left = 8 + 182 * number
        page.note((left, 16), title, bold=True)
        for place, ((x, y), count) in enumerate(zip(places, counts, strict=True)):
            words = "done" if count < 0 else str(count)
            colour = "grey" if count < 0 else "blue" if count else "green"
            page.box((left + x, 26 + y, 42, 32), words, colour)
            page.note((left + x, 21 + y + 50 * (y > 52)), f"chunk {place}", size=10)
        for source, target in ((0, 1), (0, 2), (1, 3), (2, 3)):
            (x, y), (right, low) = places[source], places[target]
            page.arrow((left + x + 42, 42 + y), (left + right - 1, 42 + low + (y - low) / 4))
    return page.picture(
        "Four chunks in a diamond. Counters at the start are 0, 1, 1, 2; after chunk 0 completes "
        "the two in the middle are 0; after both of them complete the last one is 0.",
        "Dependency counters of four chunks. Green: the counter is zero, so the chunk is ready.",
    )


def draw_frames(frames: Sequence[tuple[int, int]], host: int, device: int, caption: str) -> Picture:
    """Draw frames on a host and a device.

    Args:
        frames: for each frame its start on the host and its end on the device.
        host: time of a frame on the host.
        device: time of a frame on the device.
        caption: the line below.
    """
    bars = [(str(n), start, end, FRAMES[n % 6]) for n, (start, end) in enumerate(frames)]
    return draw_timeline(
        {
            "host": [(n, start, start + host, colour) for n, start, _, colour in bars],
            "device": [(n, end - device, end, colour) for n, _, end, colour in bars],
        },
        alt="; ".join(f"frame {n} from {start} to {end}" for n, start, end, _ in bars),
        caption=f"{caption} The axis shows milliseconds.",
        step=2,
    )


def draw_schedule(tasks: Tasks, lists: Sequence[Sequence[str]], caption: str) -> Picture:
    """Draw a schedule of two devices, with an arrow to each reader on the other device.

    Args:
        tasks: the tasks.
        lists: for each device the names of its tasks, in order.
        caption: the line below; the makespan is added.
    """
    table = timetable(tasks, lists)
    stuck = [name for name in tasks if name not in table]
    more = f" Never started: {', '.join(stuck)}." if stuck else ""
    return _page(tasks, table, _end(table)).picture(
        _words(table) or "no task is placed",
        f"{caption} It ends at {_end(table)} units of time. An arrow leads from a result to a "
        f"task on the other device that reads it.{more}",
    )


def draw_list_scheduling(tasks: Tasks) -> Picture:
    """Draw how list scheduling places one task after another on two devices."""
    table, tail = timetable(tasks, by_critical_path(tasks)), tails(tasks)
    placed, pages = dict[str, Placed](), []
    while len(placed) < len(tasks):
        able = ready(tasks, placed)
        name = max(able, key=tail.__getitem__)
        placed[name] = device, _, end = table[name]
        words = (
            f"Ready: {', '.join(f'{each} (chain of {tail[each]})' for each in able)}. "
            f"{name} goes to device {device} and ends at {end}."
        )
        page = _page(tasks, placed, _end(table))
        page.note((6, page.height + 14), words, bold=True)
        page.height += 24
        pages.append((page, f"{words} {_words(placed)}."))
    return draw_steps(
        pages,
        "List scheduling: the ready task with the longest chain goes where it ends first, of equal "
        f"ends to device 0. All ends at {_end(table)} units of time. An arrow leads from a result "
        "to a task on the other device that reads it.",
    )


def _end(table: Mapping[str, Placed]) -> int:
    return max((end for _, _, end in table.values()), default=0)


def _words(table: Mapping[str, Placed]) -> str:
    return "; ".join(f"{n} on device {d} from {s} to {e}" for n, (d, s, e) in table.items())


def _page(tasks: Tasks, table: Mapping[str, Placed], length: int) -> Diagram:
    bars: Mapping[str, list[tuple[str, float, float, str]]] = {"device 0": [], "device 1": []}
    for name, (device, start, end) in table.items():
        bars[f"device {device}"].append((name, start, end, DEVICES[device]))
    moves = [
        (f"device {table[read][0]}", table[read][2], f"device {device}", start)
        for name, (device, start, _) in table.items()
        for read in tasks[name][1]
        if read in table and table[read][0] != device
    ]
    step = next(step for step in (1, 2, 5, 10, 50, length) if length <= 15 * step)
    return timeline(bars, moves, step, length)


def two_in_flight(trace: Trace, device: str) -> Picture:
    """Show a trace of eight frames of which two are in flight.

    Args:
        trace: what ran when.
        device: in words.
    """
    return picture(
        trace,
        alt=f"Gantt chart of eight frames, two in flight, {device}: a row for each place of work.",
        caption=f"Eight frames with two in flight, {device}.",
    )
