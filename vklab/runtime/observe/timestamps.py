"""Work recorded once more with timestamps: how long each step took, and when it did.

A device's clock is tied to the host's, `time.perf_counter_ns`, by the driver where it can, else
by what happened before and after. Visited by labs 12 and 18.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vklab.runtime.program import Program
from vklab.vulkan import query
from vklab.vulkan.command import CommandBuffer, Submission
from vklab.vulkan.device import Device
from vklab.vulkan.query import TimestampQueries
from vklab.vulkan.sync import Fence

__all__ = ["DeviceClock", "Sample", "Timed", "time_steps", "timed"]


@dataclass(frozen=True)
class Sample:
    """One run: moments on the host's clock, and raw timestamps of the device.

    Begun, submitting, done, ended: copies in and out lie before and after the work.
    """

    begun_ns: int
    submitting_ns: int
    done_ns: int
    ended_ns: int
    ticks: tuple[int, ...]
    step_ns: tuple[float, ...]


class _Submission(Submission):
    """Note when the queue is handed the work, and when a wait is over."""

    begun_ns = done_ns = 0

    def submit(self) -> None:
        self.begun_ns = time.perf_counter_ns()
        super().submit()

    def wait(self, polls: bool = False) -> None:
        super().wait(polls)
        self.done_ns = time.perf_counter_ns()


class Timed:
    """A program recorded once more, with timestamps around every step or around the whole.

    What stands alone for its timestamps takes longer than in a run.

    Args:
        program: the program.
        whole: two timestamps around all steps.
    """

    def __init__(self, program: Program, whole: bool) -> None:
        pool = program.command_pool
        self.count = (1 if whole else len(program.chunk.steps)) + 1
        with contextlib.ExitStack() as stack:  # undone if one of them cannot be made
            # One timestamp more than two keeps a chunk of one step in the step-by-step form.
            number = 2 if whole else max(self.count, 3)
            self.queries = stack.enter_context(TimestampQueries(pool.device, number))
            fence = stack.enter_context(Fence(pool.device))
            self.commands = stack.enter_context(CommandBuffer(pool))
            self._parts = stack.pop_all()
        self.submission = _Submission(self.commands, fence)

    def sample(self, begun_ns: int = 0, ended_ns: int = 0) -> Sample:
        """Return what was noted of the last run, which is complete.

        Args:
            begun_ns: when the host began to copy in.
            ended_ns: when the host had copied out.
        """
        ticks = tuple(self.queries.ticks(self.count))
        stamps = self.queries.nanoseconds(ticks)
        spans = tuple(b - a for a, b in zip(stamps, stamps[1:], strict=False))
        return Sample(begun_ns, self.submission.begun_ns, self.submission.done_ns, ended_ns, ticks,
                      spans)  # fmt: skip

    def close(self) -> None:
        """Free the command buffer, the fence and the queries."""
        self._parts.close()


@contextlib.contextmanager
def timed(program: Program, whole: bool = False) -> Iterator[Timed]:
    """Record a program once more, with timestamps around every step or around the whole."""
    program.prepare()
    kept, count = program.swap_descriptors(None), program.owned_count
    try:
        work = program.own(Timed(program, whole))
        program.record(work.commands, work.queries)
        yield work
    finally:
        program.disown(count)
        program.swap_descriptors(kept)


def time_steps(
    program: Program, values: Mapping[str, Any], repeats: int, whole: bool = False
) -> list[Sample]:
    """Run a program with timestamps, after one run that is not kept.

    Args:
        program: the program.
        values: arrays by input name.
        repeats: how many runs.
        whole: time all steps as one, recorded as in a run.
    """
    samples = []
    with timed(program, whole) as work:
        for _ in range(repeats + 1):
            begun_ns = time.perf_counter_ns()
            program.binding.copy_in(values)
            program.submit(work.submission)
            program.finish()
            samples.append(work.sample(begun_ns, time.perf_counter_ns()))
    return samples[1:]


class DeviceClock:
    """What the host's clock shows when a device's shows a number of ticks.

    Every run that is seen narrows it down: no work began before it was submitted, nor ended after
    it was done. Within that the driver is believed, where it says: then it is `calibrated`.
    """

    def __init__(self, device: Device) -> None:
        self._period = float(device.info.limits["timestampPeriod"])  # type: ignore[arg-type]
        self._bits = device.compute_queue.family.timestamp_valid_bits or 64
        same = time.get_clock_info("perf_counter").implementation
        self._said = query.calibrate(device) if "CLOCK_MONOTONIC)" in same else None
        self.calibrated = self._said is not None
        self._start: int | None = self._said[0] if self._said else None
        self._low, self._high = -math.inf, math.inf

    @property
    def deviation_ns(self) -> float:
        """Return how far off it may be."""
        if self._said:  # and what runs have shown it to be wrong by
            return max(float(self._said[2]), abs(self._begin_ns() - self._said[1]))
        return max(0.0, self._high - self._low) / 2  # ticks are round numbers: they may cross

    def see(self, sample: Sample) -> None:
        """Learn from a run."""
        self._start = sample.ticks[0] if self._start is None else self._start
        self._low = max(self._low, sample.submitting_ns - self._elapsed(sample.ticks[0]))
        self._high = min(self._high, sample.done_ns - self._elapsed(sample.ticks[-1]))

    def host_ns(self, ticks: int) -> int:
        """Return the moment on the host's clock."""
        return round(self._begin_ns() + self._elapsed(ticks))

    def _begin_ns(self) -> float:
        """Return when the first moment known was."""
        if self._said and self._low <= self._high:
            return min(max(float(self._said[1]), self._low), self._high)
        return (self._low + self._high) / 2

    def _elapsed(self, ticks: int) -> float:
        """Return the nanoseconds since the first moment known, before or after it."""
        half = 1 << (self._bits - 1)
        assert self._start is not None, "a clock knows a moment before it is asked"
        return (((ticks - self._start + half) & (2 * half - 1)) - half) * self._period
