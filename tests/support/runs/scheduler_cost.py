"""What the scheduler costs for each chunk, beside one submission.

    python tests/support/runs/scheduler_cost.py

Jobs are empty; lanes are real threads. A submission is an empty command buffer and its fence.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from vklab.runtime import open_devices
from vklab.runtime.many.scheduler import DeviceWorker, Order, Run
from vklab.vulkan.command import CommandBuffer, Submission
from vklab.vulkan.sync import Fence

JOBS = 64
LANES = 2


class Empty:
    """A job that does nothing."""

    name = "empty"

    def start(self) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


def median_us(call: Callable[[], object], repeats: int = 200) -> float:
    """Return the median time of a call, after some that are not counted."""
    times = []
    for number in range(repeats + 10):
        start = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - start) * (number >= 10))
    return statistics.median(times[10:]) / 1e3


def scheduler_rows() -> dict[str, float]:
    """Return microseconds a chunk, by the form of the graph."""
    lanes = [DeviceWorker(f"lane {number}") for number in range(LANES)]
    chain = [[n - 1] if n else [] for n in range(JOBS)]
    fan = [[], *[[0]] * (JOBS - 2), list(range(1, JOBS - 1))]
    orders = {
        "chain, each behind the other on its device": (Order(chain, chain), [0] * JOBS),
        "chain, each waited for": (Order(chain), [0] * JOBS),
        "chain that changes device each time": (Order(chain), [n % LANES for n in range(JOBS)]),
        "fan over two devices": (Order(fan), [n % LANES for n in range(JOBS)]),
    }
    jobs = [Empty() for _ in range(JOBS)]
    try:
        return {
            name: _run_us(order, jobs, [lanes[n] for n in numbers])
            for name, (order, numbers) in orders.items()
        }
    finally:
        for lane in lanes:
            lane.close()


def _run_us(order: Order, jobs: list[Empty], lanes: list[DeviceWorker]) -> float:
    return median_us(lambda: Run(order, jobs, lanes).go(10)) / len(jobs)


def submission_us(index: int) -> float:
    """Return microseconds of submitting nothing and waiting for that."""
    opened = open_devices.open_device(index)
    with opened.command_pool() as pool, CommandBuffer(pool) as commands:
        commands.begin()
        commands.end()
        with Fence(opened.device) as fence:
            work = Submission(commands, fence)
            return median_us(lambda: (work.submit(), fence.wait()))


def main() -> None:
    """Print the table."""
    for name, cost in scheduler_rows().items():
        print(f"{cost:8.2f} us a chunk: {name}")
    for info in open_devices.devices():
        if not info.refusal:
            print(
                f"{submission_us(info.index):8.2f} us: one empty submission and its fence on "
                f"{info.index}: {info.name}"
            )


if __name__ == "__main__":
    main()
