"""Parallel work on simulated devices: even parts, all-reduces replayed, pipelines, and traces.

A send is (source, target, first, end, adds): elements first ... end - 1 go from one device to
another, which adds them to its own or overwrites its own. Visited by lab 13b.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Event", "Send", "even_parts", "events_of", "pipeline", "replay", "step_times"]

Send = tuple[int, int, int, int, bool]
SLOTS = 2


class Event(NamedTuple):
    """One event of a trace: what ran, where, when, and the values that it reads and writes."""

    name: str
    lane: str
    start: int
    end: int
    reads: str
    writes: str


def even_parts(count: int, parts: int) -> list[tuple[int, int]]:
    """Return (first, end) of each part of `count` elements; earlier parts get what is left over.

    Args:
        count: the number of elements.
        parts: the number of parts; some are empty if there are more parts than elements.
    """
    size, rest = divmod(count, parts)
    ends = [size * n + min(n, rest) for n in range(parts + 1)]
    return list(zip(ends[:-1], ends[1:], strict=True))


def replay(devices: int, elements: int, steps: Sequence[Sequence[Send]]) -> np.ndarray:
    """Run the sends of an all-reduce; return how often each device's number is in each element.

    The result has the shape [devices, elements, devices]: of the device that holds the element,
    of the element, and of the device whose number it is. Everywhere 1 is the sum over all devices.
    All sends of a step run at the same time. Raises ValueError for a send that cannot be.

    Args:
        devices: the number of devices.
        elements: the number of elements that each device has.
        steps: for each step its sends.
    """
    held = np.zeros((devices, elements, devices), np.int64)
    for device in range(devices):
        held[device, :, device] = 1
    for number, sends in enumerate(steps):
        before = held.copy()
        busy: set[tuple[str, int]] = set()
        for source, target, first, end, adds in sends:
            place = f"step {number}, send {(source, target, first, end, adds)}"
            if not (0 <= source < devices and 0 <= target < devices and source != target):
                raise ValueError(f"{place}: devices are two of 0 to {devices - 1}")
            if not 0 <= first <= end <= elements:
                raise ValueError(f"{place}: elements are 0 to {elements - 1}")
            if ("sends", source) in busy or ("receives", target) in busy:
                raise ValueError(f"{place}: in one step a device sends once and receives once")
            busy |= {("sends", source), ("receives", target)}
            arrived = before[source, first:end]
            held[target, first:end] = arrived + before[target, first:end] if adds else arrived
    return held


def step_times(steps: Sequence[Sequence[Send]]) -> list[int]:
    """Return the time of each step, in elements: that of its largest send."""
    return [max((end - first for _, _, first, end, _ in sends), default=0) for sends in steps]


def pipeline(stages: int, batches: int) -> list[tuple[int, int, int]]:
    """Return (stage, batch, start) of each piece of work, where every piece takes one unit of time.

    Args:
        stages: the number of devices, each with its layers.
        batches: the number of small batches that go through all stages, one after the other.
    """
    return [(s, batch, s + batch) for batch in range(batches) for s in range(stages)]


def events_of(trace: str) -> list[Event]:
    """Read a trace such as "a0 0-4, out0 4-6, in0 6-8, b0 8-11".

    Piece k: `a` computes h on GPU 0; `out` copies h to a slot, `in` copies the slot to g; `b`
    computes y from g on GPU 1. Pieces take turns with the slots.
    """
    found = []
    for words in trace.split(","):
        name, times = words.split()
        start, end = map(int, times.split("-"))
        kind, k = name[:-1], int(name[-1])
        lane, reads, writes = {
            "a": ("GPU 0 runs", f"x{k}", f"h{k}"),
            "out": ("GPU 0 copies", f"h{k}", f"slot {k % SLOTS}"),
            "in": ("GPU 1 copies", f"slot {k % SLOTS}", f"g{k}"),
            "b": ("GPU 1 runs", f"g{k}", f"y{k}"),
        }[kind]
        found.append(Event(name, lane, start, end, reads, writes))
    return found
