"""The scheduler on simulated devices: every order, every delay, every failure."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest
from hypothesis import HealthCheck, given, settings

from support.fakes.simulated_devices import Graph, World, fails_well, graphs, holds
from support.runs.scheduler_cost import scheduler_rows
from support.runs.waits import LIMIT_S, work
from vklab.errors import DeviceLostError, PlanError, TimeoutError
from vklab.runtime.many.scheduler import DeviceWorker, Order, Run

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(suppress_health_check=SLOW)
@given(graphs())
def test_any_graph_gives_the_reference_runs_each_job_once_and_keeps_every_edge(graph):
    holds(graph)


@settings(suppress_health_check=SLOW)
@given(graphs(most=40, fails=True))
def test_a_failure_is_raised_with_its_name_and_what_is_in_flight_comes_home(graph):
    fails_well(graph)


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
    return DeviceWorker("device")


def test_a_single_job_and_a_chain_stay_on_the_callers_thread():
    here, waiting = threading.current_thread(), lane()
    for count in (1, 5):
        jobs = [Noting() for _ in range(count)]
        order = Order([[n - 1] if n else [] for n in range(count)])
        Run(order, jobs, [waiting] * count).go(LIMIT_S)
        assert all(job.threads == [here, here] for job in jobs)
    assert not waiting.threads


def test_an_error_of_any_kind_names_its_job():
    for count in (1, 2):
        jobs = [Noting("the last", ValueError("x")), Noting("first")][:count][::-1]
        order = Order([[n - 1] if n else [] for n in range(count)])
        with pytest.raises(ValueError, match="x") as caught:
            Run(order, jobs, [lane()] * count).go(LIMIT_S)
        assert caught.value.__notes__ == ["in the last"]
        jobs[-1].error = DeviceLostError("vkQueueSubmit", "VK_ERROR_DEVICE_LOST")
        with pytest.raises(DeviceLostError, match="VK_ERROR_DEVICE_LOST: in the last"):
            Run(order, jobs, [lane()] * count).go(LIMIT_S)


def test_a_job_that_never_ends_is_a_time_out_that_names_it():
    hold = threading.Event()
    stuck = Noting("stuck")
    stuck.finish = hold.wait
    jobs = [stuck, Noting("other")]
    said = pytest.raises(TimeoutError, match="stuck did not finish within 0.05 s")
    with Closing() as waiting, said:
        try:
            Run(Order([[], []]), jobs, [waiting] * 2).go(0.05)
        finally:
            hold.set()


class Closing(DeviceWorker):
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
        finish = world.jobs[0].finish

        def cancelled_meanwhile():
            other = threading.Thread(target=run.cancel)
            other.start()
            other.join(LIMIT_S)
            finish()

        world.jobs[0].finish = cancelled_meanwhile
        with pytest.raises(CancelledError):
            run.go(LIMIT_S)
        assert [job.started for job in world.jobs] == [1, 0, 0, 0] and world.jobs[0].finished
        early = Run(Order(world.graph.predecessors), world.jobs, lanes)
        early.cancel()
        with pytest.raises(CancelledError):
            early.go(LIMIT_S)
        assert world.jobs[0].started == 1


def test_an_interrupt_of_the_caller_waits_for_what_is_in_flight():
    jobs = [Noting("slow"), Noting("interrupted", KeyboardInterrupt()), Noting("never")]
    ended = threading.Event()
    jobs[0].finish = lambda: (work(0.02), ended.set())
    with Closing() as waiting, pytest.raises(KeyboardInterrupt):
        Run(Order([[], [], [0, 1]]), jobs, [waiting] * 3).go(LIMIT_S)
    assert ended.is_set() and not jobs[2].threads


def test_a_closed_lane_makes_the_caller_wait_itself():
    waiting = lane()
    waiting.close()
    count = 300
    jobs = [Noting(str(n)) for n in range(count)]
    order = Order([[n - 2] if n > 1 else [] for n in range(count)])
    Run(order, jobs, [waiting] * count).go(LIMIT_S)
    assert all(len(job.threads) == 2 for job in jobs)


def test_orders_that_cannot_be_kept_are_refused():
    with pytest.raises(PlanError, match=r"jobs \[1, 2\] wait for each other in a circle"):
        Order([[], [0, 2], [1]])
    with pytest.raises(PlanError, match="job 0 waits for job 3; there are 1"):
        Order([[3]])
    assert Order([[], [0, 0]]).counts == (0, 1)


def test_empty_jobs_cost_microseconds():
    costs = scheduler_rows()  # 2 to 5 on an idle machine
    assert len(costs) == 4 and all(0 < cost < 500 for cost in costs.values()), costs


def test_many_runs_share_lanes_from_many_threads():
    graph = Graph([[], *[[0]] * 4, [1, 2, 3, 4]], [0, 0, 1, 2, 0, 0], [20] * 6)
    lanes = [DeviceWorker(f"device {number}") for number in range(3)]
    order, wrong = Order(graph.predecessors), []

    def work():
        for _ in range(50):
            world = World(graph)
            Run(order, world.jobs, [lanes[d] for d in graph.devices]).go(LIMIT_S)
            if [job.value for job in world.jobs] != graph.reference() or world.wrong:
                wrong.append(world.wrong)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert not wrong and not any(thread.is_alive() for thread in threads)
    for used in lanes:
        used.close()
        assert used.threads and not used.threads[0].is_alive()
