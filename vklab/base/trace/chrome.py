"""A trace in the Trace Event Format of Perfetto and Chrome: slices, names of lanes, arrows.

Source: Google, "Trace Event Format". Visited by lab 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from vklab.base.trace.spans import Span, Timeline

Track = tuple[int, int]  # (process id, thread id)
# Span fields that an event states elsewhere: in fields of its own, or as arrows.
LEFT_OUT = ("name", "kind", "device", "start_ns", "end_ns", "after")


def events(trace: Timeline) -> dict[str, Any]:
    """Return a process for each device, a thread for each lane, an arrow for each dependency."""
    listed: list[dict[str, Any]] = []
    tracks: dict[int, Track] = {}
    for number, ((device, lane), spans) in enumerate(trace.lanes().items(), 1):
        track = (trace.devices.index(device) + 1, number)
        listed += _names(track, device, lane)
        for span in spans:
            tracks[id(span)] = track
            listed.append(_slice(span, track, trace.start_ns))
    for target, sources in trace.predecessors().items():
        for source in sources:
            pair = trace.spans[source], trace.spans[target]
            listed += _arrow(pair, tracks, trace.start_ns, len(listed))
    return {"traceEvents": listed, "displayTimeUnit": "ns", "otherData": dict(trace.machine)}


def _names(track: Track, device: str, lane: str) -> list[dict[str, Any]]:
    facts: tuple[tuple[str, dict[str, Any]], ...] = (
        ("process_name", {"name": device}),
        ("process_sort_index", {"sort_index": track[0]}),
        ("thread_name", {"name": lane}),
        ("thread_sort_index", {"sort_index": track[1]}),
    )
    return [
        {"ph": "M", "pid": track[0], "tid": track[1], "name": name, "args": arguments}
        for name, arguments in facts
    ]


def _slice(span: Span, track: Track, start_ns: int) -> dict[str, Any]:
    facts = {
        key: value for key, value in asdict(span).items() if key not in LEFT_OUT and value != ""
    }
    return {
        "ph": "X",
        "name": span.name,
        "cat": span.kind,
        "pid": track[0],
        "tid": track[1],
        "ts": (span.start_ns - start_ns) / 1e3,
        "dur": span.duration_ns / 1e3,
        "args": facts,
    }


def _arrow(
    pair: tuple[Span, Span], tracks: Mapping[int, Track], start_ns: int, number: int
) -> list[dict[str, Any]]:
    source, target = pair
    # An arrow must start inside its slice, and no later than it ends.
    leaves = min(source.end_ns, max(source.start_ns, target.start_ns))
    ends: list[dict[str, Any]] = []
    for phase, span, moment in (("s", source, leaves), ("f", target, target.start_ns)):
        process, thread = tracks[id(span)]
        ends.append(
            {
                "ph": phase,
                "id": number,
                "name": "after",
                "cat": "dependency",
                "pid": process,
                "tid": thread,
                "ts": (moment - start_ns) / 1e3,
            }
        )
    ends[1]["bp"] = "e"  # the arrow ends at the slice around it
    return ends
