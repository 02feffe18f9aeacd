"""Schedulers in small: events in any order, and what they may do to each other's bytes.

Jobs are {name: (device, names of the jobs whose results it reads)}, in an order that works. A trace
is a list of events; a machine tells which events may come next, and which reads are stale. Visited
by lab 12b.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

__all__ = ["Event", "Jobs", "Machine", "Queues", "Workers", "count_states", "following",
           "listed", "replay", "state_key"]  # fmt: skip

Jobs = Mapping[str, tuple[str, tuple[str, ...]]]
Event = tuple[Any, ...]


class Machine(Protocol):
    """Interface of a sketched scheduler in one of its states."""

    def refusal(self, event: Event) -> str:
        """Return "" if the event may come next, or the reason why not."""

    def take(self, event: Event) -> list[str]:
        """Let the event happen; return the jobs whose results it reads too early."""

    def next_events(self) -> list[Event]:
        """Return the events that may come next."""


class Queues:
    """Sketch 1: a chunk is submitted when those it reads on other devices have ended.

    Those on its own device need only be submitted: "the queue runs them in order anyway". A queue
    begins chunks in the order in which they were submitted; it ends them in any order.

    Args:
        jobs: the chunks.
        waits: the repair: a chunk that reads another one on its device begins with a barrier, so
            it begins when all that was submitted before it to this device has ended.
    """

    def __init__(self, jobs: Jobs, waits: bool = False) -> None:
        self.jobs, self.waits = jobs, waits
        self.submit: list[str] = []
        self.begin: list[str] = []
        self.end: list[str] = []

    def refusal(self, event: Event) -> str:
        """Return "" if ("submit" | "begin" | "end", job) may come next, or why not."""
        if len(event) != 2 or event[0] not in ("submit", "begin", "end"):
            return 'an event is ("submit", job), ("begin", job) or ("end", job)'
        kind, name = event
        if name not in self.jobs:
            return f"there is no chunk {name!r}"
        if name in getattr(self, kind):
            return f"{name} did that before"
        device, reads = self.jobs[name]
        if kind == "submit":
            for read in reads:
                same = self.jobs[read][0] == device
                if read not in (self.submit if same else self.end):
                    return (
                        f"{name} reads {read}, which has not "
                        f"{'been submitted' if same else 'ended'}"
                    )
        elif kind == "end":
            return "" if name in self.begin else f"{name} has not begun"
        elif name not in self.submit:
            return f"{name} has not been submitted"
        else:
            has_barrier = self.waits and any(self.jobs[read][0] == device for read in reads)
            for other in self.submit[: self.submit.index(name)]:
                if self.jobs[other][0] == device and other not in self.begin:
                    return f"{other} is before {name} in the queue, and has not begun"
                if self.jobs[other][0] == device and has_barrier and other not in self.end:
                    return f"{name} begins with a barrier, and {other} has not ended"
        return ""

    def take(self, event: Event) -> list[str]:
        """Let the event happen; return the chunks that it reads, and that have not ended."""
        kind, name = event
        getattr(self, kind).append(name)
        return self._early(name) if kind == "begin" else []

    def _early(self, name: str) -> list[str]:
        return [read for read in self.jobs[name][1] if read not in self.end]

    def next_events(self) -> list[Event]:
        """Return the events that may come next."""
        events = [(kind, name) for name in self.jobs for kind in ("submit", "begin", "end")]
        return [event for event in events if not self.refusal(event)]


class Workers:
    """Sketch 2: threads run jobs; who counts a job's last predecessor down makes it ready.

    A thread's view is the set of results that it must see. Whatever lies outside of it may still be
    old in this thread's eyes. A ready job brings the view of the thread that made it ready.

    Args:
        jobs: the jobs; their devices do not matter.
        threads: how many threads there are.
        acquire: who counts down takes the views of all who did so before.
        views: False for plain memory, in which every thread sees every write at once.
    """

    def __init__(self, jobs: Jobs, threads: int = 2, acquire: bool = False,
                 views: bool = True) -> None:  # fmt: skip
        self.jobs, self.threads, self.acquire, self.views = jobs, threads, acquire, views
        self.left = {name: len(reads) for name, (_, reads) in jobs.items()}
        self.view: list[frozenset[str]] = [frozenset()] * threads
        self.ready = {name: frozenset[str]() for name, left in self.left.items() if not left}
        self.counter: dict[str, frozenset[str]] = {}  # the views that its decrements released
        self.busy: dict[int, tuple[str, frozenset[str]]] = {}  # job, and what it must still do
        self.written = frozenset[str]()

    def refusal(self, event: Event) -> str:
        """Return "" if ("start" | "write", thread, job) or ("count", thread, job, other) may come.

        Otherwise return the reason why not.
        """
        kind = event[0] if event else ""
        if (kind, len(event)) not in (("start", 3), ("write", 3), ("count", 4)):
            return (
                'an event is ("start", thread, job), ("write", thread, job) or '
                '("count", thread, job, dependent)'
            )
        thread, name = event[1], event[2]
        if type(thread) is not int or not 0 <= thread < self.threads:
            return f"there is no thread {thread!r}"
        if name not in self.jobs:
            return f"there is no job {name!r}"
        running, left = self.busy.get(thread, ("", frozenset[str]()))
        if kind == "start":
            if running:
                return f"thread {thread} has not finished {running}: write, then count"
            return "" if name in self.ready else f"{name} is not ready, or was started before"
        if running != name:
            return f"thread {thread} does not run {name}"
        if kind == "write":
            return "" if name not in self.written else f"{name} is written already"
        if name not in self.written:
            return f"{name} is not written yet"
        return "" if event[3] in left else f"{event[3]!r} does not read {name}, or was counted"

    def take(self, event: Event) -> list[str]:
        """Let the event happen; return the results that a started job may see as old bytes."""
        kind, thread, name = event[:3]
        if kind == "start":
            self.view[thread] |= self.ready.pop(name)
            self.busy[thread] = name, frozenset(self._dependents(name))
            known = self.view[thread] if self.views else self.written
            return [read for read in self.jobs[name][1] if read not in known]
        if kind == "write":
            self.written |= {name}
            self.view[thread] |= {name}
        else:
            self._count(thread, event[3])
        if not self.busy[thread][1] and name in self.written:
            del self.busy[thread]
        return []

    def _count(self, thread: int, other: str) -> None:
        """Count a dependent down: release the thread's view, and perhaps acquire the others'."""
        name, left = self.busy[thread]
        self.busy[thread] = name, left - {other}
        self.counter[other] = self.counter.get(other, frozenset()) | self.view[thread]
        if self.acquire:
            self.view[thread] |= self.counter[other]
        self.left[other] -= 1
        if not self.left[other]:
            self.ready[other] = self.view[thread]

    def _dependents(self, name: str) -> list[str]:
        return [other for other, (_, reads) in self.jobs.items() if name in reads]

    def next_events(self) -> list[Event]:
        """Return the events that may come next."""
        events: list[Event] = []
        for thread in range(self.threads):
            if thread not in self.busy:
                events += [("start", thread, name) for name in self.jobs if name in self.ready]
            else:
                name, left = self.busy[thread]
                events += (
                    [("count", thread, name, other) for other in sorted(left)]
                    if name in self.written
                    else [("write", thread, name)]
                )
        return events


def listed(jobs: Jobs) -> str:
    """Return the jobs as a dict in Python's words, a job a line: to read, and to paste."""
    return "{" + ",\n    ".join(f"{name!r}: {job}" for name, job in jobs.items()) + "}"


def replay(machine: Machine, trace: Sequence[Event]) -> list[tuple[int, list[str]]]:
    """Replay a trace; return (number of the event, results read too early) of each bad read.

    Raises ValueError at the first event that cannot happen.
    """
    found = []
    for number, event in enumerate(trace):
        if reason := machine.refusal(tuple(event)):
            raise ValueError(f"event {number}, {tuple(event)}, cannot happen: {reason}")
        if early := machine.take(tuple(event)):
            found.append((number, early))
    return found


def count_states(machine: Machine) -> tuple[int, int]:
    """Return how many states the machine can reach, and how many events there read too early."""
    seen, bad, todo = {state_key(machine)}, 0, [machine]
    for state in todo:  # grows
        for _, after, early in following(state):
            bad += bool(early)
            if state_key(after) not in seen:
                seen.add(state_key(after))
                todo.append(after)
    return len(seen), bad


def following(machine: Machine) -> Iterator[tuple[Event, Machine, list[str]]]:
    """Yield each event that may come next, the machine after it, and what was read too early."""
    for event in machine.next_events():
        after = copy.copy(machine)
        for name, value in vars(machine).items():
            if isinstance(value, list | dict) and name != "jobs":
                setattr(after, name, value.copy())
        yield event, after, after.take(event)


def state_key(machine: Machine) -> str:
    """Return a text that is equal for equal states."""
    return repr([_plain(value) for name, value in vars(machine).items() if name != "jobs"])


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((key, _plain(each)) for key, each in value.items())
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return sorted(value) if isinstance(value, frozenset) else value
