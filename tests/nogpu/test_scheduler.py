"""The scheduler on simulated devices: every order, every delay, every failure; and its mutants.

Each mutant has one defect that schedulers have shipped with. The properties must find it.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vklab.errors import DeviceLostError, PlanError, TimeoutError
from vklab.runtime import scheduler
from vklab.runtime.scheduler import Lane, Order, Run

LIMIT_SECONDS = 5.0


@dataclass
class Graph:
    """Jobs that wait for earlier ones, each on a device, each taking a while."""

    predecessors: list[list[int]]
    devices: list[int]
    delays_us: list[int]
    failing: dict[int, str] = field(default_factory=dict)

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
        self._ready_at = 0.0

    def start(self) -> None:
        world = self.world
        self.started += 1
        before = [world.jobs[other] for other in world.graph.predecessors[self.number]]
        world.wrong += [f"{self.name} before {job.name}" for job in before if not job.finished]
        if world.failed.is_set():
            world.late_starts.append(self.number)
        if world.graph.failing.get(self.number) == "start":
            raise self._failure()
        self._values = [job.value or 0 for job in before]
        self._ready_at = time.perf_counter() + world.graph.delays_us[self.number] * 1e-6

    def finish(self) -> None:
        time.sleep(max(0.0, self._ready_at - time.perf_counter()))
        if self.world.graph.failing.get(self.number) == "finish":
            raise self._failure()
        self.value = combined(self.number, self._values)
        self.finished += 1

    def _failure(self) -> Exception:
        self.finished += 1
        self.world.failed.set()
        return DeviceLostError("vkQueueSubmit", "VK_ERROR_DEVICE_LOST", "gone")


class World:
    """The jobs of a graph, and lanes for their devices."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.wrong: list[str] = []
        self.late_starts: list[int] = []
        self.failed = threading.Event()
        self.jobs = [Job(self, number) for number in range(len(graph.devices))]
        self.lanes = [Lane(f"device {number}") for number in range(max(graph.devices) + 1)]

    def run(self, kind: type[Run] = Run, limit: float = LIMIT_SECONDS) -> None:
        order = Order(self.graph.predecessors)
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
    )
    if fails:
        for number in random.sample(range(count), random.randint(1, min(3, count))):
            graph.failing[number] = random.choice(["start", "finish"])
    return graph


def holds(graph: Graph, kind: type[Run] = Run, limit: float = LIMIT_SECONDS) -> None:
    """Assert what must hold of a run in which nothing fails."""
    with World(graph) as world:
        world.run(kind, limit)
        assert not world.wrong, world.wrong[:3]
        assert [(job.started, job.finished) for job in world.jobs] == [(1, 1)] * len(world.jobs)
        assert [job.value for job in world.jobs] == graph.reference()


def fails_well(graph: Graph, kind: type[Run] = Run, limit: float = LIMIT_SECONDS) -> None:
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
            if behind.intersection(before):
                behind.add(number)
                assert not world.jobs[number].started, f"job {number} follows a failure"
        count = sum(job.started for job in world.jobs)
        time.sleep(0.001)
        assert count == sum(job.started for job in world.jobs), "started after the end"


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(suppress_health_check=SLOW)
@given(graphs())
def test_any_graph_gives_the_reference_runs_each_job_once_and_keeps_every_edge(graph):
    holds(graph)


@settings(suppress_health_check=SLOW)
@given(graphs(most=40, fails=True))
def test_a_failure_is_raised_with_its_name_and_what_is_in_flight_comes_home(graph):
    fails_well(graph)


# -------------------------------------------------------------------------------------- mutants


class LostDecrements(Run):
    """Counters change without the order that a lock or acquire gives: one of two is lost."""

    def _complete(self, number, failure):
        ready = []
        for other in self.order.dependents[number]:
            seen = self._waiting[other]
            time.sleep(0.0005)
            self._waiting[other] = seen - 1
            if seen == 1:
                ready.append(other)
        with self._lock:
            self._in_flight.update(ready)
            self._in_flight.remove(number)
            if not self._in_flight:
                self._ended.set()
        return ready


class EarlyDecrements(Run):
    """Dependents are freed when a job is submitted, not when it is complete."""

    def _finish(self, number):
        ready = self._complete_early(number)
        self._launch(ready)
        super()._finish(number)
        return ()

    def _complete_early(self, number):
        with self._lock:
            ready = []
            for other in self.order.dependents[number]:
                self._waiting[other] -= 1
                if not self._waiting[other]:
                    ready.append(other)
                self._waiting[other] += 1000 * (not self._waiting[other])
            self._in_flight.update(ready)
        return ready


class LateDecrements(Run):
    """The end is told before the dependents of the last job are counted."""

    def _complete(self, number, failure):
        if len(self._in_flight) == 1:
            self._ended.set()
            time.sleep(0.002)
        return super()._complete(number, failure)


class NoEdgeOnOneDevice(Run):
    """Two chunks of one device are submitted together: 'a queue runs them in order anyway'."""

    def __init__(self, order, jobs, lanes, observe=None):
        kept = [
            [other for other in before if lanes[other] is not lanes[number]]
            for number, before in enumerate(jobs[0].world.graph.predecessors)
        ]
        super().__init__(Order(kept), jobs, lanes, observe)


class Twice(Run):
    """Zero is looked at outside the lock: two completions start one job."""

    def _complete(self, number, failure):
        with self._lock:
            for other in self.order.dependents[number]:
                self._waiting[other] -= 1
        time.sleep(0.0005)
        ready = [n for n in self.order.dependents[number] if self._waiting[n] <= 0]
        with self._lock:
            self._in_flight.update(ready)
            self._in_flight.discard(number)
            if not self._in_flight:
                self._ended.set()
        return ready


class ParkedCaller(Run):
    """A job that fails on a device's thread ends that thread's work, and nobody tells."""

    def _work(self, number):
        try:
            self.jobs[number].finish()
        except DeviceLostError:
            return
        self._launch(self._complete(number, None))


class GoesOn(Run):
    """After a failure the others are started as if nothing had happened."""

    def _complete(self, number, failure):
        first, self.error = self.error, None
        try:
            return super()._complete(number, None)
        finally:
            self.error = first or failure


class Undrained(Run):
    """The first failure is raised at once; what is in flight is left behind."""

    def _complete(self, number, failure):
        ready = super()._complete(number, failure)
        if failure is not None:
            self._ended.set()
        return ready


class Unnamed(Run):
    """The error says that something failed, not what."""

    def _complete(self, number, failure):
        ready = super()._complete(number, failure)
        self.error = self.error and failure
        return ready


# Two branches of unequal length that meet, over two devices; and a tail.
DIAMOND = Graph(
    [[], [0], [0], [1, 2], [3], [3, 4]], [0, 0, 1, 1, 0, 1], [100, 900, 950, 400, 300, 0]
)
WIDE = Graph([[], *[[0]] * 12, list(range(1, 13))], [0, *[0, 1, 2] * 4, 0], [200] * 14)
BROKEN = [
    Graph(DIAMOND.predecessors, DIAMOND.devices, [100, 200, 3000, 0, 0, 0], {1: "finish"}),
    Graph(DIAMOND.predecessors, DIAMOND.devices, [100, 3000, 200, 0, 0, 0], {2: "finish"}),
    Graph(DIAMOND.predecessors, DIAMOND.devices, DIAMOND.delays_us, {3: "start"}),
    Graph(WIDE.predecessors, WIDE.devices, WIDE.delays_us, {4: "start", 9: "finish"}),
]


@pytest.mark.parametrize("graph", [DIAMOND, WIDE], ids=["diamond", "wide"])
def test_the_graphs_that_find_mutants_pass(graph):
    for _ in range(20):
        holds(graph)


def test_the_failures_that_find_mutants_pass():
    for graph in BROKEN * 5:
        fails_well(graph)


def finds(check, graphs, kind):
    """Tell whether a property fails for a mutant; one that hangs fails by its time-out."""
    for graph in graphs:
        try:
            check(graph, kind, 0.05)
        except (AssertionError, TimeoutError, KeyError, pytest.fail.Exception):
            return True
    return False


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    "kind", [LostDecrements, EarlyDecrements, LateDecrements, NoEdgeOnOneDevice, Twice]
)
def test_a_scheduler_with_a_defect_is_found(kind):
    assert finds(holds, [DIAMOND, WIDE] * 5, kind)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("kind", [ParkedCaller, GoesOn, Undrained, Unnamed])
def test_a_scheduler_that_fails_badly_is_found(kind):
    assert finds(fails_well, BROKEN * 5, kind)


# ----------------------------------------------------------------------------- one at a time


class Noting:
    """A job that notes its thread, and may fail."""

    def __init__(self, name="only", error=None):
        self.name = name
        self.error = error
        self.threads = []

    def start(self):
        self.threads.append(threading.current_thread())

    def finish(self):
        self.threads.append(threading.current_thread())
        if self.error:
            raise self.error


def lane():
    return Lane("device")


def test_a_single_job_and_a_chain_stay_on_the_callers_thread():
    here, waiting = threading.current_thread(), lane()
    for count in (1, 5):
        jobs = [Noting() for _ in range(count)]
        order = Order([[n - 1] if n else [] for n in range(count)])
        scheduler.run(order, jobs, [waiting] * count, LIMIT_SECONDS)
        assert all(job.threads == [here, here] for job in jobs)
    assert waiting._thread is None


def test_an_error_of_any_kind_names_its_job():
    for count in (1, 2):
        jobs = [Noting("the last", ValueError("x")), Noting("first")][:count][::-1]
        order = Order([[n - 1] if n else [] for n in range(count)])
        with pytest.raises(ValueError, match="x") as caught:
            scheduler.run(order, jobs, [lane()] * count, LIMIT_SECONDS)
        assert caught.value.__notes__ == ["in the last"]
        jobs[-1].error = DeviceLostError("vkQueueSubmit", "VK_ERROR_DEVICE_LOST")
        with pytest.raises(DeviceLostError, match="VK_ERROR_DEVICE_LOST: in the last"):
            scheduler.run(order, jobs, [lane()] * count, LIMIT_SECONDS)


def test_a_job_that_never_ends_is_a_time_out_that_names_it():
    hold = threading.Event()
    stuck = Noting("stuck")
    stuck.finish = hold.wait
    jobs = [stuck, Noting("other")]
    said = pytest.raises(TimeoutError, match="stuck did not finish within 0.05 s")
    with Closing() as waiting, said:
        try:
            scheduler.run(Order([[], []]), jobs, [waiting] * 2, 0.05)
        finally:
            hold.set()


class Closing(Lane):
    """A lane for one `with` block."""

    def __init__(self):
        super().__init__("device")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def test_a_slow_run_is_no_time_out_as_long_as_jobs_complete():
    chain = [[n - 1] if n else [] for n in range(12)]
    holds(Graph([*chain, []], [0] * 12 + [1], [20_000] * 13), Run, 0.1)


def test_a_cancelled_run_starts_nothing_and_ends():
    with World(Graph([[], [0], [0], [1, 2]], [0, 1, 0, 1], [5000] * 4)) as world:
        lanes = [world.lanes[d] for d in world.graph.devices]
        run = Run(Order(world.graph.predecessors), world.jobs, lanes)
        threading.Timer(0.001, run.cancel).start()
        with pytest.raises(CancelledError):
            run.go(LIMIT_SECONDS)
        assert [job.started for job in world.jobs] == [1, 0, 0, 0] and world.jobs[0].finished
        early = Run(Order(world.graph.predecessors), world.jobs, lanes)
        early.cancel()
        with pytest.raises(CancelledError):
            early.go(LIMIT_SECONDS)
        assert world.jobs[0].started == 1


def test_a_callback_that_raises_fails_the_run_and_nothing_hangs():
    def observe(number, start_ns, end_ns):
        assert start_ns <= end_ns
        if number == 2:
            raise RuntimeError("the user's own")

    for device in (0, 1):
        with World(Graph([[], [0], [0], [1, 2]], [0, 1, device, 1], [300] * 4)) as world:
            lanes = [world.lanes[d] for d in world.graph.devices]
            with pytest.raises(RuntimeError, match="the user's own"):
                scheduler.run(Order(world.graph.predecessors), world.jobs, lanes, 5, observe)
            assert not world.jobs[3].started


def test_an_interrupt_of_the_caller_waits_for_what_is_in_flight():
    jobs = [Noting("slow"), Noting("interrupted", KeyboardInterrupt()), Noting("never")]
    ended = threading.Event()
    jobs[0].finish = lambda: (time.sleep(0.02), ended.set())
    with Closing() as waiting, pytest.raises(KeyboardInterrupt):
        scheduler.run(Order([[], [], [0, 1]]), jobs, [waiting] * 3, LIMIT_SECONDS)
    assert ended.is_set() and not jobs[2].threads


def test_a_closed_lane_makes_the_caller_wait_itself():
    waiting = lane()
    waiting.close()
    count = 300
    jobs = [Noting(str(n)) for n in range(count)]
    order = Order([[n - 2] if n > 1 else [] for n in range(count)])
    scheduler.run(order, jobs, [waiting] * count, LIMIT_SECONDS)
    assert all(len(job.threads) == 2 for job in jobs)


def test_orders_that_cannot_be_kept_are_refused():
    with pytest.raises(PlanError, match=r"jobs \[1, 2\] wait for each other in a circle"):
        Order([[], [0, 2], [1]])
    with pytest.raises(PlanError, match="job 0 waits for job 3; there are 1"):
        Order([[3]])
    assert Order([[], [0, 0]]).counts == (0, 1)


def test_many_runs_share_lanes_from_many_threads():
    graph = Graph([[], *[[0]] * 4, [1, 2, 3, 4]], [0, 0, 1, 2, 0, 0], [20] * 6)
    lanes = [Lane(f"device {number}") for number in range(3)]
    order, wrong = Order(graph.predecessors), []

    def work():
        for _ in range(50):
            world = World(graph)
            Run(order, world.jobs, [lanes[d] for d in graph.devices]).go(LIMIT_SECONDS)
            if [job.value for job in world.jobs] != graph.reference() or world.wrong:
                wrong.append(world.wrong)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong and not any(thread.is_alive() for thread in threads)
    for used in lanes:
        used.close()
        assert used._thread is not None and not used._thread.is_alive()
