"""A trace as the JSON that Perfetto and Chrome read: slices, names of lanes, arrows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vklab.trace.spans import Span, Trace

__all__ = ["events"]

Place = tuple[int, int]
# These are fields of an event, or told by its arrows.
LEFT_OUT = ("name", "kind", "device", "start_ns", "end_ns", "after")


def events(trace: Trace) -> dict[str, Any]:
    """Return a process for each device, a thread for each lane, an arrow for each dependency."""
    found: list[dict[str, Any]] = []
    places: dict[int, Place] = {}
    for number, ((device, lane), spans) in enumerate(trace.lanes().items(), 1):
        place = (trace.devices.index(device) + 1, number)
        found += _names(place, device, lane)
        for span in spans:
            places[id(span)] = place
            found.append(_slice(span, place, trace.start_ns))
    for target, sources in trace.predecessors().items():
        for source in sources:
            pair = trace.spans[source], trace.spans[target]
            found += _arrow(pair, places, trace.start_ns, len(found))
    return {"traceEvents": found, "displayTimeUnit": "ns", "otherData": dict(trace.machine)}


def _names(place: Place, device: str, lane: str) -> list[dict[str, Any]]:
    facts: tuple[tuple[str, dict[str, Any]], ...] = (
        ("process_name", {"name": device}), ("process_sort_index", {"sort_index": place[0]}),
        ("thread_name", {"name": lane}), ("thread_sort_index", {"sort_index": place[1]}),
    )  # fmt: skip
    return [{"ph": "M", "pid": place[0], "tid": place[1], "name": name, "args": arguments}
            for name, arguments in facts]  # fmt: skip


def _slice(span: Span, place: Place, start_ns: int) -> dict[str, Any]:
    facts = {
        key: value for key, value in asdict(span).items()
        if key not in LEFT_OUT and value != ""
    }  # fmt: skip
    return {"ph": "X", "name": span.name, "cat": span.kind, "pid": place[0], "tid": place[1],
            "ts": (span.start_ns - start_ns) / 1e3, "dur": span.duration_ns / 1e3,
            "args": facts}  # fmt: skip


def _arrow(
    pair: tuple[Span, Span], places: Mapping[int, Place], start_ns: int, number: int
) -> list[dict[str, Any]]:
    source, target = pair
    # An arrow leaves inside its slice, and does not arrive before it has left.
    leaves = min(source.end_ns, max(source.start_ns, target.start_ns))
    found: list[dict[str, Any]] = []
    for phase, span, moment in (("s", source, leaves), ("f", target, target.start_ns)):
        process, thread = places[id(span)]
        found.append({"ph": phase, "id": number, "name": "after", "cat": "dependency",
                      "pid": process, "tid": thread, "ts": (moment - start_ns) / 1e3})  # fmt: skip
    found[1]["bp"] = "e"
    return found
