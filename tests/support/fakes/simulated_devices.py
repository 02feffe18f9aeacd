"""Simulated devices for tests of the scheduler: random graphs, and what must hold of a run."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st

from support.runs.waits import LIMIT_S, work
from vklab.errors import DeviceLostError
from vklab.runtime.many.scheduler import DeviceWorker, Order, Run


@dataclass
class Graph:
    """Jobs that wait for earlier ones, each on a device, each taking a while.

    With `is_queued`, devices wait by themselves for jobs of their own that were started before.
    """

    predecessors: list[list[int]]
    devices: list[int]
    delays_us: list[int]
    failing: dict[int, str] = field(default_factory=dict)
    is_queued: bool = False

    def behind(self) -> list[list[int]]:
        """Return, for each job, the predecessors that it need only be started behind."""
        return [
            [other for other in before if self.is_queued and self.devices[other] == device]
            for before, device in zip(self.predecessors, self.devices, strict=True)
        ]

    def order(self) -> Order:
        """Return it as the scheduler takes it."""
        return Order(self.predecessors, self.behind())

    def reference(self) -> list[int]:
        """Return what each job computes, one after another."""
        values: list[int] = []
        for number, before in enumerate(self.predecessors):
            values.append(combined(number, [values[other] for other in before]))
        return values


def combined(number: int, values: list[int]) -> int:
    """Compute something that every predecessor and its place changes."""
    return hash((number, *values))


class Job:
    """A job on a simulated device; it notes everything that must never happen."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.name = f"job {number}"
        self.started = self.finished = 0
        self.value: int | None = None
        self.ready_at = 0.0
        self.device_value = 0

    def start(self) -> None:
        world = self.world
        self.started += 1
        before = [world.jobs[other] for other in world.graph.predecessors[self.number]]
        queued = [world.jobs[other] for other in self.behind()]
        begin = max([time.perf_counter(), *(job.ready_at for job in queued)])
        for job in before:
            if not (job.started and job.ready_at <= begin if job in queued else job.finished):
                world.wrong.append(f"{self.name} before {job.name}")
        if world.failed.is_set():
            world.late_starts.append(self.number)
        if world.graph.failing.get(self.number) == "start":
            raise self._failure()
        self.device_value = combined(self.number, [job.device_value for job in before])
        self.ready_at = begin + world.graph.delays_us[self.number] * 1e-6

    def behind(self) -> list[int]:
        """Return what the device waits for before it begins this job."""
        return self.world.behind[self.number]

    def finish(self) -> None:
        work(max(0.0, self.ready_at - time.perf_counter()))
        if self.world.graph.failing.get(self.number) == "finish":
            raise self._failure()
        self.value = self.device_value
        self.finished += 1

    def _failure(self) -> Exception:
        self.finished += 1
        self.world.failed.set()
        return DeviceLostError("vkQueueSubmit", "VK_ERROR_DEVICE_LOST", "gone")


class World:
    """The jobs of a graph, and lanes for their devices."""

    def __init__(self, graph: Graph, kind: type[Job] = Job) -> None:
        self.graph = graph
        self.behind = graph.behind()
        self.wrong: list[str] = []
        self.late_starts: list[int] = []
        self.failed = threading.Event()
        self.jobs = [kind(self, number) for number in range(len(graph.devices))]
        self.lanes = [DeviceWorker(f"device {number}") for number in range(max(graph.devices) + 1)]

    def run(self, kind: type[Run] = Run, limit: float = LIMIT_S) -> None:
        order = self.graph.order()
        kind(order, self.jobs, [self.lanes[d] for d in self.graph.devices]).go(limit)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *exc: object) -> None:
        for lane in self.lanes:
            lane.close()


@st.composite
def graphs(draw: st.DrawFn, most: int = 200, fails: bool = False) -> Graph:
    """Return a random graph: up to 200 jobs on one to four devices, chains, forks and joins."""
    count = draw(st.integers(1, most))
    device_count = draw(st.integers(1, 4))
    random = draw(st.randoms(use_true_random=False))
    reach, longest = draw(st.sampled_from([1, 3, 20, 200])), draw(st.sampled_from([0, 50, 400]))
    predecessors = []
    for number in range(count):
        near = range(max(0, number - reach), number)
        predecessors.append(random.sample(near, random.randint(0, min(3, len(near)))))
    graph = Graph(
        predecessors,
        [random.randrange(device_count) for _ in range(count)],
        [random.randint(0, longest) for _ in range(count)],
        is_queued=draw(st.booleans()),
    )
    if fails:
        for number in random.sample(range(count), random.randint(1, min(3, count))):
            graph.failing[number] = random.choice(["start", "finish"])
    return graph


def holds(
    graph: Graph, kind: type[Run] = Run, limit: float = LIMIT_S, job: type[Job] = Job
) -> None:
    """Assert what must hold of a run in which nothing fails."""
    with World(graph, job) as world:
        world.run(kind, limit)
        assert not world.wrong, world.wrong[:3]
        assert [(job.started, job.finished) for job in world.jobs] == [(1, 1)] * len(world.jobs)
        assert [job.value for job in world.jobs] == graph.reference()


def fails_well(graph: Graph, kind: type[Run] = Run, limit: float = LIMIT_S) -> None:
    """Assert what must hold of a run in which jobs fail."""
    with World(graph) as world:
        with pytest.raises(DeviceLostError) as caught:
            world.run(kind, limit)
        ends = tuple(f"; in job {number}" for number in graph.failing)
        assert caught.value.detail.endswith(ends), caught.value
        assert all(job.started == job.finished <= 1 for job in world.jobs), "not drained"
        assert not world.wrong, world.wrong[:3]
        # Another device may start what it had in hand at that moment; no more than that.
        behind = set(graph.failing)
        for number, before in enumerate(graph.predecessors):
            # What a device does behind a job that fails at its end was started before that.
            ended = {
                n
                for n in before
                if n in world.behind[number]
                and world.jobs[n].started
                and graph.failing.get(n) != "start"
            }
            if behind.intersection(set(before) - ended):
                behind.add(number)
                assert not world.jobs[number].started, f"job {number} follows a failure"
        count = sum(job.started for job in world.jobs)
        work(0.001)
        assert count == sum(job.started for job in world.jobs), "started after the end"
