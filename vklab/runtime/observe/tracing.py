"""Traced runs of a session: spans of the host and of every device, on the host's clock.

While a trace runs, each program is replaced by a recorder of its steps. Visited by labs 12 and 18.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from vklab import settings
from vklab.runtime.observe import profile
from vklab.runtime.observe.notes import RUN, Notes
from vklab.runtime.observe.recorded import RecordedRunner, RunOrder
from vklab.runtime.plan_cache import PlanCache
from vklab.trace import Trace

__all__ = ["trace_session"]

Values = dict[str, Any]


def trace_session(
    session: Any, *inputs: Any, repeats: int = 1, steps: bool = True, frames: int = 0,
    in_flight: int = 0,
) -> Trace:  # fmt: skip
    """Note when everything happens in `repeats` runs, on one clock; inputs as in `run`.

    Args:
        session: the session.
        inputs: one dict, or arrays.
        repeats: how many runs.
        steps: time each dispatch, which then runs alone between barriers; else only the whole of
            each submission, recorded as `run` records it.
        frames: trace so many frames instead, as `map` runs them.
        in_flight: how many frames are in flight; default two for each device.
    """
    with profile.timed_arrays(session, inputs) as values:
        if frames or in_flight:
            return _trace_frames(session, values, frames, in_flight, steps)
        return _trace_runs(session.roots[0], values, repeats, steps)


def _trace_runs(root: PlanCache, values: Values, repeats: int, steps: bool) -> Trace:
    """Run once, then `repeats` times with notes of all that happens."""
    if repeats < 1:
        raise ValueError(f"repeats={repeats}: at least one run is traced")
    executor = root.executor
    executor.run(root, dict(values))
    notes = Notes(steps)
    with contextlib.ExitStack() as stack:
        _watch(notes, root, stack)
        for number in range(repeats):
            _numbered(number, lambda given: executor.run(root, given), dict(values))
    return notes.trace()


def _trace_frames(
    session: Any, values: Values, count: int, in_flight: int, steps: bool
) -> Trace:
    """Run frames as `Session.map` does, each slot warm, with notes of all that happens."""
    frames = session.optional_module("many.frames").Frames(
        session.roots, profile=session.optional_module("observe.profile").once)
    streams = session.optional_module("many.streams")
    in_flight = streams.room(session, in_flight)
    if count < 1:
        raise ValueError(f"frames={count}: at least one frame is traced")
    notes = Notes(steps)
    with contextlib.ExitStack() as stack:
        stack.callback(frames.close)
        frames.grow(in_flight)
        for slot in frames.slots:
            slot.executor.run(slot.plans, dict(values))
            _watch(notes, slot.plans, stack)
        stack.callback(frames.end)  # after an interrupt, too, before anything is freed

        def submit(number: int) -> Any:
            return _numbered(number, frames.submit, dict(values))

        taken = streams.ahead(session.roots, in_flight)
        for _ in streams.in_order(submit, iter(range(count)), taken):
            pass
    return notes.trace(is_queue=True)


def _numbered(number: int, call: Any, values: Values) -> Any:
    token = RUN.set(number)
    # A command buffer that every run records anew would take the notes' own recording with it.
    with settings.settings(DISABLE_REPLAY=False):
        try:
            return call(values)
        finally:
            RUN.reset(token)


def _sequences(notes: Notes, overlap: Any, count: int) -> Sequence[RunOrder]:
    """Return the sequence of entries that run in turn, or as soon as their overlap lets them."""
    in_turn = [{number - 1} if number else set() for number in range(count)]
    before = overlap.before if overlap and overlap.overlaps else in_turn
    made = [RunOrder(notes) for _ in before]
    last = [one for number, one in enumerate(made) if not any(number in b for b in before)]
    for one, numbers in zip(made, before, strict=True):
        one.before = [made[number] for number in sorted(numbers)] or last
    return made


def _watch(notes: Notes, root: PlanCache, stack: contextlib.ExitStack) -> None:
    """Have the entries used last note what they do, until the stack ends."""
    entries = [*root.path()]
    working = [entry for entry in entries if entry.runner]
    overlap = entries[0].overlap if entries else None
    for entry, sequence in zip(working, _sequences(notes, overlap, len(working)), strict=True):
        stack.callback(setattr, entry, "runner", entry.runner)
        stack.callback(setattr, entry, "whole", entry.whole)
        entry.runner = RecordedRunner(sequence, entry, stack)
        entry.whole = entry.runner if entry.whole is not None else None
