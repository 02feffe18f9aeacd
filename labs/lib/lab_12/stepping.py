"""A step function of a scheduler: tried in every order of events, and inside the runtime.

`step(jobs, state, event)` returns the state after an event. A state is {"left": {job: predecessors
it still waits for}, "in_flight": [jobs started and not ended], "failed": [jobs without a result]}.
Visited by lab 12b.
"""

from __future__ import annotations

import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vklab.runtime.many import scheduler
from vklab_course.piece import Given, Piece
from vklab_course.swap import swap
from vklab_labs.lab_12.races import Event, Jobs
from vklab_labs.shared import recorded_graphs

__all__ = ["COMPLETIONS", "Explored", "State", "asking", "explore", "first_state", "next_events",
           "run_inside", "why_not"]  # fmt: skip

State = Mapping[str, Any]
Step = Callable[[Jobs, State, Event], State]


def first_state(jobs: Jobs) -> State:
    """Return the state before the event ("go", ""): nothing is started."""
    return {
        "left": {name: len(reads) for name, (_, reads) in jobs.items()},
        "in_flight": [],
        "failed": [],
    }


def next_events(jobs: Jobs, state: State, failing: str = "") -> Iterator[Event]:
    """Yield what may happen next: each job in flight may end; one device ends jobs in its order.

    Args:
        jobs: the jobs.
        state: the state.
        failing: the job that fails, or "".
    """
    for name in sorted(state["in_flight"]):
        device, reads = jobs[name]
        if not any(jobs[n][0] == device and n in state["in_flight"] for n in reads):
            yield ("failed" if name == failing else "ended"), name


def why_not(jobs: Jobs, state: State, name: str) -> str:
    """Return why a job must not start.

    Args:
        jobs: the jobs.
        state: a right state, in which the job is not in flight.
        name: the job.
    """
    if name not in jobs:
        return "there is no such job"
    bad = [read for read in jobs[name][1] if read in state["failed"]]
    if bad:
        return f"it reads {bad[0]}, which is in `failed`"
    left = state["left"][name]
    reads = f"{left} of its reads {'is' if left == 1 else 'are'}"
    return f"{reads} not counted yet" if left else "it was started before"


@dataclass(frozen=True)
class Explored:
    """Result of all orders: how many states, and the first problem with the events before it."""

    states: int
    problem: str = ""
    trace: tuple[Event, ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.problem}. Events: {', '.join(' '.join(e).strip() for e in self.trace)}"
            if self.problem
            else f"{self.states} states, no problem"
        )


def explore(jobs: Jobs, step: Step, failing: str = "") -> Explored:
    """Try every order of events from the first state; stop at the first problem.

    Args:
        jobs: the jobs.
        step: the step function.
        failing: a job that fails whenever it ends, or "".
    """
    start = first_state(jobs)
    todo: list[tuple[State, frozenset[str], tuple[Event, ...]]] = [(start, frozenset(), ())]
    seen: set[tuple[str, frozenset[str]]] = set()
    for state, started, trace in todo:  # grows
        events = list(next_events(jobs, state, failing)) if trace else [("go", "")]
        if not events and (problem := _at_the_end(jobs, state, started, failing)):
            return Explored(len(seen), problem, trace)
        for event in events:
            given = _copied(state)
            after = step(jobs, given, event)
            problem = "" if given == _copied(state) else "the step changes the state that it gets"
            if problem := problem or _problem(jobs, state, after, event, started):
                return Explored(len(seen), problem, (*trace, event))
            key = repr(_copied(after)), started
            if key not in seen:
                seen.add(key)
                todo.append((after, started | {*after["in_flight"]}, (*trace, event)))
    return Explored(len(seen))


def _copied(state: State) -> State:
    return {
        "left": dict(state["left"]),
        "in_flight": sorted(state["in_flight"]),
        "failed": sorted(state["failed"]),
    }


def _problem(
    jobs: Jobs, before: State, after: Any, event: Event, started: frozenset[str]
) -> str:  # fmt: skip
    """Return what is wrong with one step, or ""."""
    if not isinstance(after, dict) or after.keys() != before.keys():
        return "the step does not return a state with left, in_flight and failed"
    flying, (kind, name) = list(after["in_flight"]), event
    if name in flying:
        return f"{name} has {kind} and is still in flight: its caller waits for ever"
    for job in before["in_flight"]:
        if job != name and job not in flying:
            return f"{job} was in flight, and is lost"
    for job in flying:
        if flying.count(job) > 1 or (job in started and job not in before["in_flight"]):
            return f"{job} is started twice"
        for read in jobs[job][1] if job not in started else ():
            same = jobs[read][0] == jobs[job][0]
            if read in after["failed"]:
                return f"{job} is started, and reads {read}, which has failed"
            if read not in started and not (same and read in flying):
                return f"{job} is started before {read} was started"
            if read in flying and not same:
                return f"{job} is started before {read} has ended, on another device"
    return ""


def _at_the_end(jobs: Jobs, state: State, started: frozenset[str], failing: str) -> str:
    """Return what is wrong when nothing is in flight any more, or ""."""
    lost: set[str] = set()  # the failing job and all that need it
    for name, (_, reads) in jobs.items():
        if name == failing or lost & {*reads}:
            lost.add(name)
    if missing := [name for name in jobs if name not in lost and name not in started]:
        return f"nothing is in flight, and {missing[0]} was never started: deadlock"
    wrong = sorted(lost & started ^ {*state["failed"]})
    return f"{wrong[0]} is listed wrongly in failed" if wrong else ""


# ----------------------------------------------------------------------- inside the runtime


class _Task:
    """A job of the runtime's scheduler that sleeps, and checks what it may rely on."""

    def __init__(self, tasks: Sequence[_Task], jobs: Jobs, name: str) -> None:
        self.name, self.started, self.ended = name, False, threading.Event()
        self._tasks, (self.device, self._reads) = tasks, jobs[name]

    def start(self) -> None:
        """Check that what the job reads has ended, or is before it in its device's queue."""
        assert not self.started, f"{self.name} is started twice"
        for task in self._tasks:
            if task.name in self._reads:
                ready = task.started if task.device == self.device else task.ended.is_set()
                assert ready, f"{self.name} is started before {task.name}"
        self.started = True

    def finish(self) -> None:
        """Sleep, then wait for the jobs before it on its device."""
        time.sleep(random.random() * 2e-4)
        for task in self._tasks:
            if task.name in self._reads and task.device == self.device:
                task.ended.wait(5)
        self.ended.set()


def run_inside(step: Step, network: str = "inception_v1", runs: int = 3) -> str:
    """Run a recorded network's jobs in the runtime's scheduler, whose `_complete` asks `step`.

    What `step` returns is compared with the runtime's own answer before a job is started.

    Args:
        step: the step function.
        network: a recorded graph; its nodes are the jobs, on two devices.
        runs: how many runs.
    """
    before = recorded_graphs.recorded(network).predecessors()
    jobs: Jobs = {n: (f"GPU {i // 9 % 2}", reads) for i, (n, reads) in enumerate(before.items())}
    names = list(jobs)
    numbers = [[names.index(n) for n in reads] for _, reads in jobs.values()]
    behind = [
        [n for n in reads if jobs[names[n]][0] == jobs[name][0]]
        for name, reads in zip(names, numbers, strict=True)
    ]
    order = scheduler.Order(numbers, behind)
    lanes = {f"GPU {n}": scheduler.DeviceWorker(f"GPU {n}") for n in range(2)}
    queues = [lanes[device] for device, _ in jobs.values()]
    for _ in range(runs):
        tasks: list[_Task] = []
        tasks += [_Task(tasks, jobs, name) for name in names]
        with swap("vklab.runtime.many.scheduler.Run._complete", asking(step, jobs)):
            scheduler.Run(order, tasks, queues).go(20)
    for lane in lanes.values():
        lane.close()
    return f"{runs} runs of {len(jobs)} jobs on two devices: each job once, after what it reads"


def asking(step: Step, given: Jobs | None = None) -> Callable[..., Sequence[int]]:
    """Return a stand-in for Run._complete(self, number, failure) that asks a step function.

    After a wrong step, or one that raises, the run starts nothing more and raises that error.

    Args:
        step: the step function.
        given: the jobs; default: those of each run. A run that `_jobs_of` cannot describe is left
            to the runtime.
    """
    lock = threading.Lock()
    known: weakref.WeakKeyDictionary[scheduler.Run, _Steps | None] = weakref.WeakKeyDictionary()

    def complete(
        self: scheduler.Run, number: int, failure: BaseException | None
    ) -> Sequence[int]:  # fmt: skip
        with lock:
            usual = _REAL(self, number, failure)
            try:
                if self not in known:
                    jobs = _jobs_of(self) if given is None else given
                    known[self] = None if jobs is None else _Steps(jobs, step, self.order.roots)
                steps = known[self]
                if self.error is None and steps is not None:
                    return steps.after(number, usual)
            except BaseException as error:
                self.error = error
                for unstarted in usual:
                    _REAL(self, unstarted, error)
                return ()
            return usual

    return complete


class _Steps:
    """States of one run, as a step function gives them.

    A job may start behind another one of its device. The step function starts both at once, the
    runtime one after the other: so what it starts is judged by the jobs, and has to hold all that
    the runtime starts.
    """

    def __init__(self, jobs: Jobs, step: Step, roots: Sequence[int]) -> None:
        self.jobs, self.step, self.names = jobs, step, list(jobs)
        self.state, self.started = first_state(jobs), frozenset[str]()
        self._take(("go", ""), roots)

    def after(self, number: int, usual: Sequence[int]) -> Sequence[int]:
        """Return the jobs to start after the end of one, in the order of the step function."""
        return self._take(("ended", self.names[number]), usual)

    def _take(self, event: Event, usual: Sequence[int]) -> Sequence[int]:
        after = self.step(self.jobs, _copied(self.state), event)
        flying = list(after.get("in_flight", ())) if isinstance(after, dict) else []
        wanted = sorted(self.names[n] for n in usual)
        mine = sorted(name for name in flying if name not in self.state["in_flight"])
        where = event[1] or event[0]
        assert {*flying, *self.started}.issuperset(wanted), (
            f"after {where}: expected to start {wanted}, your step starts {mine}"
        )
        problem = _problem(self.jobs, self.state, after, event, self.started)
        assert not problem, f"after {where}: {problem}"
        self.state, self.started = after, self.started | {*flying}
        place = {name: at for at, name in enumerate(flying)}
        return sorted(usual, key=lambda n: place.get(self.names[n], -1))


def _jobs_of(run: scheduler.Run) -> Jobs | None:
    """Return the jobs of a run by their devices and reads; None if the exercise has no such jobs.

    In the exercise a job starts behind all that it reads on its own device, and behind no other.
    """
    order = run.order
    numbers = range(len(order.counts))
    behind: list[set[int]] = [set() for _ in numbers]
    reads: list[set[int]] = [set() for _ in numbers]
    for number in numbers:
        for other in order.followers[number]:
            behind[other].add(number)
        for other in (*order.followers[number], *order.dependents[number]):
            reads[other].add(number)
    devices: list[int] = list(numbers)  # nothing starts behind anything: each on its own
    if any(behind):
        devices = [id(queue) for queue in run.queues]
        if any(behind[n] != {m for m in reads[n] if devices[m] == devices[n]} for n in numbers):
            return None
    return {
        f"job {n}": (f"device {devices[n]}", tuple(f"job {m}" for m in sorted(reads[n])))
        for n in numbers
    }


# ------------------------------------------------------------------- the piece of exercise 4


class _Idle:
    """A job that does nothing."""

    name = "job"

    def start(self) -> None:
        """Begin nothing."""

    def finish(self) -> None:
        """Wait for nothing."""


def _runtime_step(params: Mapping[str, Any]) -> Step:
    """Return the runtime's counting of jobs behind the signature of exercise 4.

    After a failure the runtime starts nothing more, not even what could still run.
    """

    def step(jobs: Jobs, state: State, event: Event) -> State:
        (kind, name), names, failed = event, list(jobs), list(state["failed"])
        if kind != "go" and name not in state["in_flight"]:
            return _copied(state)
        reads = [[names.index(read) for read in each] for _, each in jobs.values()]
        device = [device for device, _ in jobs.values()]
        behind = [[m for m in each if device[m] == device[n]] for n, each in enumerate(reads)]
        run = scheduler.Run(scheduler.Order(reads, behind), [_Idle() for _ in names], [])
        run._waiting = [state["left"][each] for each in names]
        run._in_flight = {names.index(each) for each in state["in_flight"]}
        failure = RuntimeError("a job has failed") if kind == "failed" or failed else None
        if kind == "go":
            ready = run._first()
        else:
            ready = _REAL(run, names.index(name), failure)
            failed += [name] * (kind == "failed")
        run._begin(ready)
        return {
            "left": dict(zip(names, run._waiting, strict=True)),
            "in_flight": [names[n] for n in sorted(run._in_flight)],
            "failed": failed,
        }

    return step


def _completing(step: Given) -> Callable[..., Sequence[int]]:
    return asking(step.value)


_REAL = scheduler.Run._complete  # while a piece stands at the seam, the name means the piece
COMPLETIONS = Piece(
    "complete",
    "vklab.runtime.many.scheduler.Run._complete",
    {"12b-4": _runtime_step},
    _completing,
    devices=2,
    load={"policy": "greedy", "memory_caps": {0: 60_000}},
)
