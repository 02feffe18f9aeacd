"""Spans of host and devices on one clock, and the numbers they give: busy, idle, critical path.

Pure data: the runtime records the spans, `trace` draws them. Visited by lab 12.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vklab.base import draw

HOST = "host"
# The kinds of spans; the host and a device are idle during a `wait`.
KINDS = ("host", "chunk", "dispatch", "transfer", "wait")
_LANES = {"host": "work", "chunk": "chunks", "dispatch": "dispatches", "transfer": "transfers",
          "wait": "waits"}  # fmt: skip


@dataclass(frozen=True)
class Span:
    """One interval of work or waiting, in nanoseconds of `time.perf_counter_ns`.

    Attributes:
        name: identifies the span within its run.
        kind: one of KINDS; the dispatches of a chunk lie inside the chunk's own span.
        device: label of the device that is busy, or HOST.
        node: name of the ONNX node, for a dispatch.
        kernel: name of the shader, for a dispatch.
        bytes: bytes moved by a transfer, or by a dispatch that reads each operand once.
        queue: name of the device's queue, such as compute.
        chunk: name of the chunk around a dispatch.
        after: spans that had to end first, as names within the run or as (run, name).
        run: number of the run, or of the frame.
        path: name of the transfer path between two devices, as in the plan.
    """

    name: str
    kind: str
    device: str
    start_ns: int
    end_ns: int
    node: str = ""
    kernel: str = ""
    bytes: int = 0
    queue: str = ""
    chunk: str = ""
    after: tuple[str | tuple[int, str], ...] = ()
    run: int = 0
    path: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"span {self.name!r}: {self.kind!r} is not one of {', '.join(KINDS)}")
        if self.end_ns < self.start_ns:
            raise ValueError(
                f"span {self.name!r} ends {self.start_ns - self.end_ns} ns before it starts"
            )

    @property
    def duration_ns(self) -> int:
        """Return the time from start to end."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Timeline:
    """Spans in the order of their starts, and the times derived from them.

    Attributes:
        spans: the spans of the host and of every device.
        machine: facts about the machine as text: devices, drivers, calibration of the clocks.
    """

    spans: tuple[Span, ...]
    machine: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        order = sorted(self.spans, key=lambda span: (span.start_ns, -span.end_ns))
        object.__setattr__(self, "spans", tuple(order))

    @property
    def start_ns(self) -> int:
        """Return the start of the first span; 0 if there is none."""
        return self.spans[0].start_ns if self.spans else 0

    @property
    def duration_ns(self) -> int:
        """Return the time from the first start to the last end."""
        return max((span.end_ns for span in self.spans), default=0) - self.start_ns

    @property
    def devices(self) -> tuple[str, ...]:
        """Return the devices: the host first, the others in the order of their first spans."""
        names = dict.fromkeys(span.device for span in self.spans)
        return tuple(sorted(names, key=lambda name: name != HOST))

    def lanes(self) -> dict[tuple[str, str], list[Span]]:
        """Return the spans by (device, lane); spans of one lane never overlap.

        A device has a lane for each queue, one more for the dispatches inside chunks, one for
        waits, and further lanes for spans that overlap those of the first.
        Source: Kleinberg and Tardos, Algorithm Design (2005), section 4.1, interval partitioning.
        """
        lanes: dict[tuple[str, str], list[Span]] = {}
        for span in self.spans:
            name = base = f"{span.queue} {_LANES[span.kind]}".strip()
            number = 1
            while (lane := lanes.setdefault((span.device, name), [])) and (
                lane[-1].end_ns > span.start_ns
            ):
                number += 1
                name = f"{base} {number}"
            lane.append(span)
        ranks = {device: rank for rank, device in enumerate(self.devices)}
        return dict(sorted(lanes.items(), key=lambda item: ranks[item[0][0]]))

    # --------------------------------------------------------------------------------- numbers

    def critical_path(self) -> list[Span]:
        """Return the longest chain of spans in which each span waited for the one before.

        Time in which two spans overlap counts once, `wait` spans count nothing. Raises ValueError
        if spans wait for each other.
        Source: Cormen et al., Introduction to Algorithms, section "Single-source shortest paths in
        directed acyclic graphs".
        """
        before = self.predecessors()
        try:
            order = list(graphlib.TopologicalSorter(before).static_order())
        except graphlib.CycleError as error:
            names = " -> ".join(self.spans[i].name for i in error.args[1])
            raise ValueError(f"these spans wait for each other: {names}") from None
        best: dict[int, tuple[int, int | None]] = {}
        for number in order:
            span = self.spans[number]
            best[number] = (0 if span.kind == "wait" else span.duration_ns), None
            for earlier in before[number]:
                start = max(span.start_ns, self.spans[earlier].end_ns)
                own = 0 if span.kind == "wait" else max(0, span.end_ns - start)
                if best[earlier][0] + own >= best[number][0]:
                    best[number] = best[earlier][0] + own, earlier
        path: list[Span] = []
        at: int | None = max(best, key=lambda n: (best[n][0], -n)) if best else None
        while at is not None:
            path.append(self.spans[at])
            at = best[at][1]
        return path[::-1]

    def critical_ns(self) -> int:
        """Return the time covered by the spans of the critical path."""
        return _length((span.start_ns, span.end_ns) for span in self.critical_path())

    def predecessors(self) -> dict[int, list[int]]:
        """Return, by span index, the indices of the recorded spans that the span waited for."""
        named: dict[tuple[int, str], list[int]] = {}
        for number, span in enumerate(self.spans):
            named.setdefault((span.run, span.name), []).append(number)
        return {
            number: [
                p
                for name in span.after
                for p in named.get((span.run, name) if isinstance(name, str) else name, ())
            ]
            for number, span in enumerate(self.spans)
        }

    def busy_ns(self, device: str) -> int:
        """Return the time in which a device, or HOST, was busy: its spans except waits.

        Raises KeyError for a device without spans.
        """
        return _length(self._busy(device))

    def idle_ns(self, device: str) -> int:
        """Return the time in which a device, or HOST, was not busy; KeyError as for busy_ns."""
        return self.duration_ns - self.busy_ns(device)

    def overlap_ns(self) -> int:
        """Return the time in which at least two of the devices, the host included, were busy."""
        edges = [
            edge
            for device in self.devices
            for start, end in self._busy(device)
            for edge in ((start, 1), (end, -1))
        ]
        total = count = since = 0
        for moment, change in sorted(edges):
            total += moment - since if count > 1 else 0
            count, since = count + change, moment
        return total

    def _busy(self, device: str) -> list[tuple[int, int]]:
        if device not in self.devices:
            known = ", ".join(self.devices) or "none"
            raise KeyError(f"no device {device!r} in this trace; there are: {known}")
        merged: list[tuple[int, int]] = []
        for span in self.spans:
            if span.device != device or span.kind == "wait":
                continue
            if merged and span.start_ns <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], span.end_ns))
            else:
                merged.append((span.start_ns, span.end_ns))
        return merged

    def summary(self) -> dict[str, Any]:
        """Return all numbers, ready for JSON."""
        path = self.critical_path()
        return {
            "machine": dict(self.machine),
            "duration_ns": self.duration_ns,
            "overlap_ns": self.overlap_ns(),
            "devices": {
                name: {"busy_ns": self.busy_ns(name), "idle_ns": self.idle_ns(name)}
                for name in self.devices
            },
            "spans": {kind: sum(span.kind == kind for span in self.spans) for kind in KINDS},
            "transferred_bytes": sum(s.bytes for s in self.spans if s.kind == "transfer"),
            "critical_path_ns": _length((s.start_ns, s.end_ns) for s in path),
            "critical_path": [
                {
                    "name": s.name,
                    "kind": s.kind,
                    "device": s.device,
                    "run": s.run,
                    "duration_ns": s.duration_ns,
                }
                for s in path
            ],
        }

    def __str__(self) -> str:
        return "\n".join([self.length_text(), *("  ".join(cells) for cells in self.cells())])

    __repr__ = __str__

    def length_text(self) -> str:
        """Return the number of spans and the duration, as text."""
        return f"{len(self.spans)} spans in {draw.time_text(self.duration_ns)}"

    headers = ("device", "busy", "idle", "share")

    def cells(self) -> list[tuple[str, ...]]:
        """Return the table of busy and idle time, one row of text for each device."""
        total = max(self.duration_ns, 1)
        return [
            (
                name,
                draw.time_text(self.busy_ns(name)),
                draw.time_text(self.idle_ns(name)),
                f"{100 * self.busy_ns(name) / total:.0f} %",
            )
            for name in self.devices
        ]


def _length(intervals: Iterable[tuple[int, int]]) -> int:
    """Return the length of the union of intervals."""
    total, reached = 0, None
    for start, end in sorted(intervals):
        total += max(0, end - (start if reached is None else max(start, reached)))
        reached = end if reached is None else max(reached, end)
    return total
