"""Pictures of schedulers: chunks in a row, hand-overs between threads, and traces of events.

Visited by lab 12b.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vklab_course.picture import Picture
from vklab_labs.lab_12 import races
from vklab_labs.lab_12.races import Event, Jobs, Machine
from vklab_labs.shared.diagram import Diagram

__all__ = ["draw_chunks", "draw_handover", "draw_ownership", "draw_queues", "draw_reclaim",
           "draw_step", "draw_workers"]  # fmt: skip

LEFT, EVENT, ROW = 96, 64, 44


def draw_chunks() -> Picture:
    """Draw two chunks in a row on GPU 0: as a chain, and with a detour over GPU 1."""
    page = Diagram(700, 150)
    page.note((8, 18), "A: a chain", bold=True).note((372, 18), "B: a detour", bold=True)
    for n, words in enumerate(("chunk 0\nGPU 0", "chunk 1\nGPU 0", "chunk 2\nGPU 1")):
        page.box((8 + 114 * n, 34, 84, 44), words, "orange" if n == 2 else "blue")
    page.arrow((92, 56), (120, 56)).arrow((206, 56), (234, 56))
    page.box((372, 34, 84, 44), "chunk 0\nGPU 0", "blue")
    page.box((600, 34, 84, 44), "chunk 1\nGPU 0", "blue")
    page.box((486, 98, 84, 44), "chunk 2\nGPU 1", "orange")
    page.arrow((456, 56), (598, 56)).arrow((456, 74), (492, 98)).arrow((566, 98), (600, 76))
    return page.picture(
        "A: chunk 0 on GPU 0, then chunk 1 on GPU 0, then chunk 2 on GPU 1. B: chunk 1 on GPU 0 "
        "reads chunk 0 on GPU 0 and chunk 2 on GPU 1; chunk 2 reads chunk 0.",
        "An arrow goes from a chunk to a chunk that reads its results. A has the shape of the "
        "figure on VKML's page.",
    )


Box = tuple[float, float, str, str]  # left, width, words, colour


def _timelines(
    width: int, height: int, rows: Mapping[str, tuple[float, Sequence[Box]]], tall: float = 34
) -> Diagram:  # fmt: skip
    """Draw a row of boxes for each thread or queue; time goes to the right.

    Args:
        width: width of the page.
        height: height of the page.
        rows: {name: (top, boxes)}.
        tall: height of each box.
    """
    page = Diagram(width, height)
    for name, (top, boxes) in rows.items():
        page.note((6, top + tall / 2 + 4 - 8 * name.count("\n")), name, bold=True)
        for left, wide, words, colour in boxes:
            page.box((left, top, wide, tall), words, colour)
    return page


def draw_handover() -> Picture:
    """Draw what a release publishes on a counter, and what an acquire takes from it."""
    page = _timelines(
        720,
        184,
        {
            "thread 0": (20, [(96, 84, "write a", "blue"), (200, 124, "count c: 2 → 1", "green")]),
            "thread 1": (
                126,
                [
                    (96, 84, "write b", "blue"),
                    (390, 124, "count c: 1 → 0", "green"),
                    (540, 160, "start c: read a, b", "orange"),
                ],
            ),
        },
    )
    page.box((252, 74, 210, 34), "counter of c, with the view {a}", "yellow")
    page.arrow((262, 54), (280, 73)).note((290, 67), "release: my view goes along", size=11)
    page.arrow((420, 108), (452, 125), dashed=True)
    page.note((462, 116), "acquire: I take the counter's view", size=11)
    page.note((96, 178), "Without acquire, thread 1 sees the number 0, and its own view {b} only.")
    return page.picture(
        "Thread 0 writes a, then counts c from 2 to 1 with release, so the counter carries the "
        "view that contains a. Thread 1 writes b and counts c to 0; only with acquire it takes the "
        "counter's view, and then starts c.",
        "Time goes to the right. Release publishes a view, acquire takes it. The dashed arrow is "
        "missing where a counter is lowered without acquire.",
    )


def draw_reclaim() -> Picture:
    """Draw a record that the caller frees while a worker still needs it."""
    page = _timelines(
        700,
        156,
        {
            "worker": (
                18,
                [
                    (96, 150, "outputs left: 1 → 0", "green"),
                    (470, 200, "whom do I wake? read run", "red"),
                ],
            ),
            "caller": (
                114,
                [(270, 120, "sees 0, returns", "blue"), (400, 110, "frees run", "orange")],
            ),
        },
    )
    page.box((270, 66, 240, 32), "run: counters, name of the caller", "yellow", dashed=True)
    page.arrow((180, 52), (290, 113)).arrow((455, 113), (455, 99)).arrow((560, 53), (500, 66))
    return page.picture(
        "The worker counts the last output down to 0. The caller sees 0, returns, and frees the "
        "record of the run. Then the worker reads the record to find whom to wake.",
        "Time goes to the right; red reads freed memory. The count says that the results are "
        "ready. It does not say that nobody uses the record any more.",
    )


def draw_step() -> Picture:
    """Draw one step: what comes in, and what goes out."""
    page = Diagram(700, 148)
    page.box((6, 20, 150, 62), "state\nleft, in_flight, failed", "blue")
    page.box((6, 100, 150, 34), 'event ("ended", "a")', "orange")
    page.box((236, 36, 120, 62), "step", "green", bold=True)
    page.box((440, 36, 150, 62), "next state", "blue")
    page.arrow((156, 52), (235, 60)).arrow((156, 114), (235, 84)).arrow((356, 67), (439, 67))
    page.note((440, 118), "new in in_flight: what may start now")
    return page.picture(
        "A state and an event go into step; the next state comes out.",
        "A pure step. Whoever runs it can keep old states, and try another event on each.",
    )


def draw_ownership() -> Picture:
    """Draw a buffer that goes from the queue family for transfers to the one for kernels."""
    barrier = "barrier: {} x\n(family 1 → 0)".format
    page = _timelines(
        720,
        150,
        {
            "transfer\nqueue": (
                16,
                [(90, 120, "copy into x", "blue"), (220, 170, barrier("release"), "orange")],
            ),
            "compute\nqueue": (
                96,
                [(440, 170, barrier("acquire"), "orange"), (620, 94, "kernel\nreads x", "green")],
            ),
        },
        tall=40,
    )
    page.arrow((390, 40), (470, 95))
    page.note((448, 62), "timeline: sets 1, waits for 1")
    return page.picture(
        "The transfer queue copies into x and releases it with a barrier; the compute queue "
        "acquires x with a second barrier, and then a kernel reads x. A timeline semaphore "
        "orders the two.",
        "A queue family ownership transfer: a barrier on each queue, both with the same buffer and "
        "the same two families; a semaphore orders them.",
    )


def _possible(
    machine: Machine, trace: Any
) -> tuple[list[Event], dict[int, list[str]], str]:  # fmt: skip
    """Return the events until the first impossible one, the bad reads, and the reason."""
    events: list[Event] = []
    bad: dict[int, list[str]] = {}
    for event in trace if isinstance(trace, list | tuple) else ():
        event = tuple(event) if isinstance(event, list | tuple) else (event,)
        if reason := machine.refusal(event):
            return events, bad, f" Event {len(events)}, {event}, cannot happen: {reason}."
        if early := machine.take(event):
            bad[len(events)] = early
        events.append(event)
    return events, bad, "" if bad else " Nothing in it reads too early."


def _page(rows: Sequence[str], count: int) -> Diagram:
    page = Diagram(max(420, LEFT + EVENT * max(count, 1) + 12), ROW * len(rows) + 26)
    for row, name in enumerate(rows):
        page.note((6, ROW * row + 27), name, bold=True)
    return page.arrow(
        (LEFT, ROW * len(rows) + 8), (LEFT + EVENT * max(count, 4), ROW * len(rows) + 8)
    ).note((6, ROW * len(rows) + 12), "time")


def draw_queues(jobs: Jobs, trace: Any, waits: bool = False) -> Picture:
    """Draw a trace of `races.Queues`: when each chunk was submitted, began and ended.

    Args:
        jobs: the chunks.
        trace: the events; the drawing ends before the first one that cannot happen.
        waits: as in `races.Queues`.
    """
    events, bad, reason = _possible(races.Queues(jobs, waits), trace)
    rows = [name for name in jobs if any(event[1] == name for event in events)]
    page = _page([f"{name}, {jobs[name][0]}" for name in rows], len(events))
    at = {event: number for number, event in enumerate(events)}
    for number, (kind, name) in enumerate(events):
        x, y = LEFT + EVENT * number, ROW * rows.index(name) + 8
        if kind == "submit":
            page.box((x, y, EVENT - 6, 30), kind, "grey")
        elif kind == "begin":
            last = at.get(("end", name), len(events) - 1)
            words = f"reads {', '.join(bad[number])}" if number in bad else "runs"
            page.box(
                (x, y, EVENT * (last + 1 - number) - 6, 30),
                words,
                "red" if number in bad else "blue",
            )
    stale = (
        "; ".join(
            f"{events[n][1]} reads {', '.join(early)} before it has ended"
            for n, early in bad.items()
        )
        or "no chunk reads too early"
    )
    return page.picture(
        f"A trace of {len(events)} events: {stale}.",
        f"The trace, a row for each chunk. Red: a chunk reads too early.{reason}",
    )


def draw_workers(
    jobs: Jobs, trace: Any, threads: int = 2, *, acquire: bool = False, views: bool = True
) -> Picture:  # fmt: skip
    """Draw a trace of `races.Workers`: the events of each thread, stale reads in red.

    Args:
        jobs: the jobs.
        trace: the events; the drawing ends before the first one that cannot happen.
        threads: as in `races.Workers`, and so are the others.
        acquire: see there.
        views: see there.
    """
    events, bad, reason = _possible(races.Workers(jobs, threads, acquire, views), trace)
    page = _page([f"thread {n}" for n in range(threads)], len(events))
    at = {
        event[2]: (number, event[1]) for number, event in enumerate(events) if event[0] == "write"
    }
    colours = {"start": "blue", "write": "sky", "count": "green"}
    for number, event in enumerate(events):
        x, y = LEFT + EVENT * number, ROW * event[1] + 8
        words = f"{event[0]} {event[3] if event[0] == 'count' else event[2]}"
        page.box((x, y, EVENT - 6, 30), words, "red" if number in bad else colours[event[0]])
        for read in bad.get(number, ()):
            wrote, row = at[read]
            down = 30 if row < event[1] else 0
            page.arrow(
                (LEFT + EVENT * (wrote + 0.5), ROW * row + 8 + down),
                (x + EVENT / 2, y + 30 - down),
                dashed=True,
            )
    stale = (
        "; ".join(
            f"{events[n][2]} reads old bytes of {', '.join(early)}" for n, early in bad.items()
        )
        or "no job reads old bytes"
    )
    return page.picture(
        f"A trace of {len(events)} events on {threads} threads: {stale}.",
        "The trace. Red: a start that may read old bytes; the dashed arrow comes "
        f"from the write that it does not see.{reason}",
    )
