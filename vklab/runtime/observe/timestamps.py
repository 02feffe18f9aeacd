"""Timestamps of a program's steps: a second recording that measures when each step ran.

The device's clock is mapped to the host's, `time.perf_counter_ns`, by the driver if it supports
calibration, else by the times of submission and completion. Visited by lab 12.
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


@dataclass(frozen=True)
class Sample:
    """Times of one run: moments on the host's clock, and raw timestamps of the device.

    The host copies in from `begun_ns` to `submitting_ns`, and out from `done_ns` to `ended_ns`.
    """

    begun_ns: int
    submitting_ns: int
    done_ns: int
    ended_ns: int
    ticks: tuple[int, ...]
    step_ns: tuple[float, ...]


class _Submission(Submission):
    """A submission that notes when it is submitted, and when a wait for it ends."""

    begun_ns = done_ns = 0

    def submit(self) -> None:
        self.begun_ns = time.perf_counter_ns()
        super().submit()

    def wait(self, polls: bool = False) -> None:
        super().wait(polls)
        self.done_ns = time.perf_counter_ns()


class Timed:
    """A second recording of a program, with timestamps around every step or around all steps.

    Steps with timestamps of their own run one at a time, which takes longer than a normal run.
    Source: Vulkan 1.3, section 'Timestamp Queries'.

    Args:
        program: the program.
        whole: True for two timestamps around all steps.
    """

    def __init__(self, program: Program, whole: bool) -> None:
        pool = program.command_pool
        self.count = (1 if whole else len(program.chunk.steps)) + 1
        with contextlib.ExitStack() as stack:  # if one creation fails, the earlier ones are undone
            # `Program.record` times single steps only with more than two timestamps.
            number = 2 if whole else max(self.count, 3)
            self.queries = stack.enter_context(TimestampQueries(pool.device, number))
            fence = stack.enter_context(Fence(pool.device))
            self.commands = stack.enter_context(CommandBuffer(pool))
            self._parts = stack.pop_all()
        self.submission = _Submission(self.commands, fence)

    def sample(self, begun_ns: int = 0, ended_ns: int = 0) -> Sample:
        """Return the times of the last run, which must be complete.

        Args:
            begun_ns: the time at which the host began to copy in.
            ended_ns: the time at which the host had copied out.
        """
        ticks = tuple(self.queries.ticks(self.count))
        stamps = self.queries.nanoseconds(ticks)
        spans = tuple(b - a for a, b in zip(stamps, stamps[1:], strict=False))
        return Sample(
            begun_ns, self.submission.begun_ns, self.submission.done_ns, ended_ns, ticks, spans
        )

    def close(self) -> None:
        """Free the command buffer, the fence and the queries."""
        self._parts.close()


@contextlib.contextmanager
def timed(program: Program, whole: bool = False) -> Iterator[Timed]:
    """Record a program a second time, with timestamps, for the `with` block."""
    program.prepare()
    work = program.own(Timed(program, whole))
    kept = program.swap_descriptors(None)
    try:
        program.record(work.commands, work.queries)
        yield work
    finally:
        program.disown(work)
        program.swap_descriptors(kept)


def time_steps(
    program: Program, values: Mapping[str, Any], repeats: int, whole: bool = False
) -> list[Sample]:
    """Run a program with timestamps, after one warm-up run; return a sample for each run.

    Args:
        program: the program.
        values: arrays by input name.
        repeats: the number of runs.
        whole: True to time all steps together, recorded as in a normal run.
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
    """Conversion of a device's timestamps to the host's clock.

    Every sample bounds the offset between the clocks: no work begins before its submission, or ends
    after the wait for it. Within these bounds the driver's calibration is used if there is one.
    Source: Vulkan extension VK_EXT_calibrated_timestamps.
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
        """Return the largest possible error of `host_ns`, in nanoseconds."""
        if self._said:  # the driver's own figure, or the error that samples have shown
            return max(float(self._said[2]), abs(self._begin_ns() - self._said[1]))
        return max(0.0, self._high - self._low) / 2  # rounded ticks may make the bounds cross

    def see(self, sample: Sample) -> None:
        """Narrow the bounds by the times of a run."""
        self._start = sample.ticks[0] if self._start is None else self._start
        self._low = max(self._low, sample.submitting_ns - self._elapsed(sample.ticks[0]))
        self._high = min(self._high, sample.done_ns - self._elapsed(sample.ticks[-1]))

    def host_ns(self, ticks: int) -> int:
        """Return the time on the host's clock, in nanoseconds, of a device timestamp."""
        return round(self._begin_ns() + self._elapsed(ticks))

    def _begin_ns(self) -> float:
        """Return the host's time of the first known timestamp."""
        if self._said and self._low <= self._high:
            return min(max(float(self._said[1]), self._low), self._high)
        return (self._low + self._high) / 2

    def _elapsed(self, ticks: int) -> float:
        """Return the nanoseconds from the first known timestamp, negative for an earlier one."""
        half = 1 << (self._bits - 1)
        assert self._start is not None, "`see` is called before `host_ns`"
        return (((ticks - self._start + half) & (2 * half - 1)) - half) * self._period
