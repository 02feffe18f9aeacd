"""Schedulers with one defect each, all of them shipped by somebody: the properties find them."""

from __future__ import annotations

import time

import pytest

from support.fakes.simulated_devices import Graph, Job, fails_well, holds
from support.runs.waits import work
from vklab.errors import DeviceLostError, TimeoutError
from vklab.runtime.many.scheduler import Order, Run


class LostDecrements(Run):
    """Counters change without the order that a lock or acquire gives: one of two is lost."""

    def _complete(self, number, failure):
        ready = []
        for other in self.order.dependents[number]:
            seen = self._waiting[other]
            work(0.0005)
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
            work(0.002)
        return super()._complete(number, failure)


class NoEdgeOnOneDevice(Run):
    """Two chunks of one device are submitted together: 'a queue runs them in order anyway'."""

    def __init__(self, order, jobs, lanes):
        kept = [
            [other for other in before if lanes[other] is not lanes[number]]
            for number, before in enumerate(jobs[0].world.graph.predecessors)
        ]
        super().__init__(Order(kept), jobs, lanes)


class Twice(Run):
    """Zero is looked at outside the lock: two completions start one job."""

    def _complete(self, number, failure):
        with self._lock:
            for other in self.order.dependents[number]:
                self._waiting[other] -= 1
        work(0.0005)
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


class FollowersForgotten(Run):
    """What waits for a start only is counted when the job before it ends, if at all."""

    def _begin(self, ready):
        kept, self.order = self.order, Order([()] * len(self.jobs))
        try:
            return super()._begin(ready)
        finally:
            self.order = kept


class FollowersOfAFailure(Run):
    """What follows on the device is started although the job before it could not be."""

    def _begin(self, ready):
        begun = super()._begin(ready)
        for number in [n for n in ready if n not in begun]:
            begun += super()._begin(self.order.followers[number])
        return begun


class NoDeviceWait(Job):
    """A queue runs what it is given without waiting for what it was given before."""

    def behind(self):
        return []

    def start(self):
        kept, self.world.behind[self.number] = super().behind(), []
        before = [self.world.jobs[n] for n in kept]
        now = time.perf_counter()
        super().start()
        early = [job for job in before if job.ready_at > now]
        self.world.wrong += [f"{self.name} before {job.name}" for job in early]


class WrongValue(Job):
    """The device waits for the value of the first of its predecessors only."""

    def behind(self):
        return super().behind()[:1]


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


QUEUED = [Graph(g.predecessors, g.devices, g.delays_us, is_queued=True) for g in (DIAMOND, WIDE)]
CHAIN = Graph([[], [0], [0, 1], [2]], [0] * 4, [100, 800, 200, 50], is_queued=True)
BROKEN += [
    Graph(g.predecessors, g.devices, g.delays_us, g.failing, is_queued=True) for g in BROKEN
] + [Graph(CHAIN.predecessors, CHAIN.devices, CHAIN.delays_us, {1: "start"}, is_queued=True)]


@pytest.mark.parametrize(
    "graph", [DIAMOND, WIDE, *QUEUED, CHAIN],
    ids=["diamond", "wide", "queued diamond", "queued wide", "chain"],
)  # fmt: skip
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


def test_followers_that_are_forgotten_are_found():
    assert finds(holds, [CHAIN, *QUEUED], FollowersForgotten)


@pytest.mark.parametrize("job", [NoDeviceWait, WrongValue])
def test_a_device_that_waits_for_nothing_or_for_the_wrong_value_is_found(job):
    with pytest.raises(AssertionError):
        holds(CHAIN, job=job)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("kind", [FollowersOfAFailure, ParkedCaller, GoesOn, Undrained, Unnamed])
def test_a_scheduler_that_fails_badly_is_found(kind):
    assert finds(fails_well, BROKEN * 5, kind)
