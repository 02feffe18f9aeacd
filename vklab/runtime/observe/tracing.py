"""Traces of a session's runs: spans of the host and of every device, on the host's clock.

During a trace, a recorder replaces each program. Visited by lab 12.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from vklab import settings
from vklab.base.trace import Trace
from vklab.runtime.many import streams
from vklab.runtime.many.frames import Frames
from vklab.runtime.observe import profile
from vklab.runtime.observe.notes import RUN, Notes
from vklab.runtime.observe.recorded import RecordedRunner, RunOrder
from vklab.runtime.plan_cache import PlanCache

Values = dict[str, Any]


def trace_session(
    session: Any, *inputs: Any, repeats: int = 1, steps: bool = True, frames: int = 0,
    in_flight: int = 0,
) -> Trace:  # fmt: skip
    """Record the times of `repeats` runs, with all devices on one clock; inputs as in `run`.

    Args:
        session: the session.
        inputs: one dict of arrays by input name, or the arrays.
        repeats: the number of runs.
        steps: True to time each dispatch, which then runs alone between barriers; False to time
            each submission as a whole, recorded as in a normal run.
        frames: the number of frames to trace instead of runs, submitted as `map` submits them.
        in_flight: the number of frames in flight; default two for each device.
    """
    with profile.timed_arrays(session, inputs) as values:
        if frames or in_flight:
            return _trace_frames(session, values, frames, in_flight, steps)
        return _trace_runs(session.roots[0], values, repeats, steps)


def _trace_runs(root: PlanCache, values: Values, repeats: int, steps: bool) -> Trace:
    """Run once to warm up, then `repeats` times with recorders."""
    if repeats < 1:
        raise ValueError(f"repeats={repeats}: trace at least one run")
    executor = root.executor
    executor.run(root, dict(values))
    notes = Notes(steps)
    with contextlib.ExitStack() as stack:
        _watch(notes, root, stack)
        for number in range(repeats):
            _numbered(number, lambda given: executor.run(root, given), dict(values))
    return notes.trace()


def _trace_frames(session: Any, values: Values, count: int, in_flight: int, steps: bool) -> Trace:
    """Run frames as `Session.map` does, with recorders, after a warm-up run of each slot."""
    frames = Frames(session.roots, profile=profile.once)
    in_flight = streams.room(session, in_flight)
    if count < 1:
        raise ValueError(f"frames={count}: trace at least one frame")
    notes = Notes(steps)
    with contextlib.ExitStack() as stack:
        stack.callback(frames.close)
        frames.grow(min(in_flight, count))
        for slot in frames.slots:
            slot.executor.run(slot.plans, dict(values))
            _watch(notes, slot.plans, stack)
        stack.callback(frames.end)  # before anything is freed, after an interrupt too

        def submit(number: int) -> Any:
            return _numbered(number, frames.submit, dict(values))

        taken = streams.ahead(session.roots, in_flight)
        for _ in streams.in_order(submit, iter(range(count)), taken):
            pass
    return notes.trace(is_queue=True)


def _numbered(number: int, call: Any, values: Values) -> Any:
    # Without replay every run would record again, and discard the recording with timestamps.
    with settings.within(RUN, number), settings.settings(DISABLE_REPLAY=False):
        return call(values)


def _sequences(notes: Notes, overlap: Any, count: int) -> Sequence[RunOrder]:
    """Return the positions of entries that run in turn, or as their Overlap schedules them."""
    in_turn = [{number - 1} if number else set() for number in range(count)]
    before = overlap.before if overlap and overlap.overlaps else in_turn
    made = [RunOrder(notes) for _ in before]
    last = [one for number, one in enumerate(made) if not any(number in b for b in before)]
    for one, numbers in zip(made, before, strict=True):
        one.before = [made[number] for number in sorted(numbers)] or last
    return made


def _watch(notes: Notes, root: PlanCache, stack: contextlib.ExitStack) -> None:
    """Replace the runners of the last run's entries by recorders until the stack is closed."""
    entries = [*root.path()]
    working = [entry for entry in entries if entry.runner]
    overlap = entries[0].overlap if entries else None
    for entry, sequence in zip(working, _sequences(notes, overlap, len(working)), strict=True):
        stack.callback(setattr, entry, "runner", entry.runner)
        stack.callback(setattr, entry, "whole", entry.whole)
        entry.runner = RecordedRunner(sequence, entry, stack)
        entry.whole = entry.runner if entry.whole is not None else None
