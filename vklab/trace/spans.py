"""Spans of host and devices on one clock, and what they tell: who waited, for whom, how long.

Pure data; what notes the spans is in the runtime. Visited by labs 12 and 18.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from vklab import draw
from vklab.errors import SetupError
from vklab.trace import chrome, gantt

__all__ = ["HOST", "KINDS", "Span", "Trace"]

HOST = "host"
# What a span is; a `wait` keeps nobody busy.
KINDS = ("host", "chunk", "dispatch", "transfer", "wait")
_LANES = {"host": "work", "chunk": "chunks", "dispatch": "dispatches", "transfer": "transfers",
          "wait": "waits"}  # fmt: skip


@dataclass(frozen=True)
class Span:
    """Something that took time, in nanoseconds on the host's clock, `time.perf_counter_ns`.

    Attributes:
        name: what other spans of its run know it by.
        kind: one of KINDS; the dispatches of a chunk lie inside the chunk's own span.
        device: whose time it takes: a device, or HOST.
        after: names of the spans of its run that had to end first, or (run, name).
        run: which run, or frame, it belongs to.
        bytes: moved by a transfer, or the operands of a dispatch.
        path: how a transfer from device to device is made, in the plan's words.
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
            raise ValueError(f"span {self.name!r} ends {self.start_ns - self.end_ns} ns before "
                             "it starts")  # fmt: skip

    @property
    def duration_ns(self) -> int:
        """Return how long it took."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Trace:
    """Spans in the order of their starts; draws itself as a Gantt chart.

    Attributes:
        machine: what ran, and how its clocks were tied together, in words.
    """

    spans: tuple[Span, ...]
    machine: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        order = sorted(self.spans, key=lambda span: (span.start_ns, -span.end_ns))
        object.__setattr__(self, "spans", tuple(order))

    @property
    def start_ns(self) -> int:
        """Return when the first span starts; 0 if there is none."""
        return self.spans[0].start_ns if self.spans else 0

    @property
    def duration_ns(self) -> int:
        """Return the time from the first start to the last end."""
        return max((span.end_ns for span in self.spans), default=0) - self.start_ns

    @property
    def devices(self) -> tuple[str, ...]:
        """Return the devices, the host first, then as they come."""
        found = dict.fromkeys(span.device for span in self.spans)
        return tuple(sorted(found, key=lambda name: name != HOST))

    def lanes(self) -> dict[tuple[str, str], list[Span]]:
        """Return the spans by device and lane; those of a lane follow each other.

        A device has a lane for each queue, one more for the dispatches inside chunks, one for
        waits, and further ones for what overlaps.
        """
        found: dict[tuple[str, str], list[Span]] = {}
        for span in self.spans:
            name = base = f"{span.queue} {_LANES[span.kind]}".strip()
            number = 1
            while (lane := found.setdefault((span.device, name), [])) and (
                lane[-1].end_ns > span.start_ns
            ):
                number += 1
                name = f"{base} {number}"
            lane.append(span)
        ranks = {device: rank for rank, device in enumerate(self.devices)}
        return dict(sorted(found.items(), key=lambda item: ranks[item[0][0]]))

    # --------------------------------------------------------------------------------- numbers

    def critical_path(self) -> list[Span]:
        """Return the chain of spans, each waiting for the one before, that took longest.

        Time that two of them share counts once, and waiting does not count. Raises ValueError for
        spans in a circle.
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
        """Return the time that the spans of the critical path take."""
        return _length((span.start_ns, span.end_ns) for span in self.critical_path())

    def predecessors(self) -> dict[int, list[int]]:
        """Return, for each span's number, those of the spans that it waited for, if noted."""
        named: dict[tuple[int, str], list[int]] = {}
        for number, span in enumerate(self.spans):
            named.setdefault((span.run, span.name), []).append(number)
        return {
            number: [p for name in span.after
                     for p in named.get((span.run, name) if isinstance(name, str) else name, ())]
            for number, span in enumerate(self.spans)
        }  # fmt: skip

    def busy_ns(self, device: str) -> int:
        """Return the time in which a device, or HOST, did anything but wait."""
        return _length(self._busy(device))

    def idle_ns(self, device: str) -> int:
        """Return the rest of the trace's time. Raises KeyError for a device that is not in it."""
        return self.duration_ns - self.busy_ns(device)

    def overlap_ns(self) -> int:
        """Return the time in which at least two of the devices, the host included, were busy."""
        edges = [
            edge for device in self.devices for start, end in self._busy(device)
            for edge in ((start, 1), (end, -1))
        ]  # fmt: skip
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
        """Return the numbers, ready for JSON."""
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
                {"name": s.name, "kind": s.kind, "device": s.device, "run": s.run,
                 "duration_ns": s.duration_ns} for s in path
            ],
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [self.length_text()]
        return "\n".join([*lines, *("  ".join(cells) for cells in self.cells())])

    def length_text(self) -> str:
        """Return how many spans there are, in how much time."""
        return f"{len(self.spans)} spans in {draw.time_text(self.duration_ns)}"

    headers = ("device", "busy", "idle", "share")

    def cells(self) -> list[tuple[str, ...]]:
        """Return busy and idle time by device, as text."""
        total = max(self.duration_ns, 1)
        return [
            (name, draw.time_text(self.busy_ns(name)), draw.time_text(self.idle_ns(name)),
             f"{100 * self.busy_ns(name) / total:.0f} %")
            for name in self.devices
        ]  # fmt: skip

    # -------------------------------------------------------------------------------- pictures

    def to_chrome(self) -> dict[str, Any]:
        """Return trace events for Perfetto (ui.perfetto.dev) or chrome://tracing, for JSON.

        A process for each device, a thread for each lane, an arrow for each dependency.
        """
        return chrome.events(self)

    def gantt(self, title: str = "") -> Any:
        """Draw the trace as a matplotlib Figure: a row for each lane, colour by kind.

        What each span of the critical path waited for is joined to it. Raises SetupError without
        matplotlib.
        """
        return gantt.figure(self, title)

    def svg(self, title: str = "") -> str:
        """Return the Gantt chart as SVG; the same text for the same trace."""
        return gantt.svg(self, title)

    def _repr_html_(self) -> str:
        table = draw.table_html("Busy and idle", self.headers, self.cells())
        try:
            said = escape(f"Gantt chart: {self}", quote=True)
            return (f'<div role="img" aria-label="{said}" style="max-width:100%">{self.svg()}'
                    f"</div>{table}")  # fmt: skip
        except SetupError as error:
            return f"<p>{escape(str(error))}</p>{table}"


def _length(intervals: Iterable[tuple[int, int]]) -> int:
    """Return how much time intervals take together, where they overlap once."""
    total, reached = 0, None
    for start, end in sorted(intervals):
        total += max(0, end - (start if reached is None else max(start, reached)))
        reached = end if reached is None else max(reached, end)
    return total
