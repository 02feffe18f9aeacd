"""Least times of steps and of frames in flight, measured by turns. Visited by lab 12.

As a program it prints a record as JSON, for `data/recorded/`: `frames.py > schedules_h200.json`.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import vklab
from vklab.base.trace.spans import Span
from vklab.base.trace.trace import Trace
from vklab.settings import settings
from vklab_course.data import data

__all__ = ["cost_lines", "least_us", "record", "recorded_times",
           "recorded_trace", "table_of"]  # fmt: skip

MODEL, ALL = "digits_cnn.onnx", "a whole run"
FITTED, ASKED, TURNS, FRAMES = (8, 16, 32), 64, 9, 8


def least_us(
    session: Any, name: str, values: np.ndarray, sizes: Sequence[int] = (*FITTED, ASKED),
    turns: int = TURNS,
) -> dict[int, dict[str, float]]:  # fmt: skip
    """Return the least microseconds of each step, and of a whole run, for each size.

    The sizes take turns, so that a busy moment of the machine meets all of them.

    Args:
        session: the session.
        name: the input.
        values: the input; runs take the first `size` of it.
        sizes: the sizes to time.
        turns: how often each size is timed.
    """
    found: dict[int, dict[str, float]] = {size: {} for size in sizes}
    for _ in range(turns):
        for size, least in found.items():
            feed = {name: values[:size]}
            times = {row.node: row.time_ns / 1e3 for row in session.profile(feed, repeats=1).rows}
            times[ALL] = min(session.time(feed, repeats=1).device_ns) / 1e3
            least.update({key: min(us, least.get(key, us)) for key, us in times.items()})
    return found


def cost_lines(times: Mapping[int, Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """Return (a, b) for each step: its time is about a + b * size microseconds, by least squares.

    Args:
        times: microseconds of each step by size; the lines go through the sizes of FITTED.
    """
    found = {}
    for node in (node for node in times[ASKED] if node != ALL):
        slope, start = np.polyfit(FITTED, [times[size][node] for size in FITTED], 1)
        found[node] = float(start), float(slope)
    return found


def table_of(times: Mapping[int, Mapping[str, float]]) -> str:
    """Return what the lines predict for ASKED pictures beside what was measured, as text."""
    lines, total = [], 0.0
    for node, (a, b) in cost_lines(times).items():
        guess, time = a + b * ASKED, times[ASKED][node]
        total += guess
        lines.append(
            f"{node:15} {a:7.1f} {b:+7.2f} * pictures: predicted {guess:7.1f} us, "
            f"measured {time:7.1f}, error {100 * (guess / time - 1):+4.0f} %"
        )
    whole = times[ASKED][ALL]
    return "\n".join(
        [
            *lines,
            f"their sum {total:.0f} us, a whole run {whole:.0f} us: "
            f"{100 * (total / whole - 1):+.0f} %",
        ]
    )


def record(device: int = 0, pictures: int = 1000) -> dict[str, Any]:
    """Return the times of a device, and the trace of two frames in flight.

    Args:
        device: number of the device.
        pictures: how many pictures a frame has.
    """
    with np.load(data("digits.npz")) as file:
        images = np.resize(file["images"], (max(ASKED, pictures), *file["images"].shape[1:]))
    # Without fusion the steps are the same at every size: a GPU fuses more at some of them.
    with settings(DISABLE_FUSION=1), vklab.load(data(MODEL), device=device) as session:
        times = least_us(session, "image", images)
    with vklab.load(data(MODEL), device=device) as session:
        traces = {
            flying: min(
                (
                    session.trace(images[:pictures], frames=FRAMES, in_flight=flying, steps=False)
                    for _ in range(2 * TURNS)
                ),
                key=lambda trace: trace.duration_ns,
            )
            for flying in (1, 2)
        }
        info = session.devices[0]
    return {
        "device": info.name,
        "driver": info.driver,
        "pictures": pictures,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "made_by": f"labs/lib/lab_12/frames.py, least of {TURNS} by turns; of the frames, of "
        f"{2 * TURNS}",
        "times_us": times,
        "traces": {
            flying: [dataclasses.asdict(span) for span in trace.spans]
            for flying, trace in traces.items()
        },
    }


def recorded_times(kept: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """Return the times of a record by size."""
    return {int(size): times for size, times in kept["times_us"].items()}


def recorded_trace(kept: Mapping[str, Any], in_flight: int) -> Trace:
    """Return the trace of a record with so many frames in flight.

    Args:
        kept: the record.
        in_flight: 1 or 2 frames.
    """
    spans = kept["traces"][str(in_flight)]
    return Trace(
        tuple(
            Span(
                **{
                    **span,
                    "after": tuple(
                        tuple(one) if isinstance(one, list) else one for one in span["after"]
                    ),
                }
            )
            for span in spans
        )
    )


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", type=int, default=0, help="number of the device")
    parser.add_argument("--pictures", type=int, default=1000, help="pictures of a frame")
    chosen = parser.parse_args()
    json.dump(record(chosen.device, chosen.pictures), sys.stdout, indent=1)


if __name__ == "__main__":
    _main()
