"""Exercises of lab 12b: a trace that overtakes, a stale read, words, and a step function."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, Value, exercise
from vklab_course.definition.kinds import Choice, Predict, Question
from vklab_course.definition.report import Report
from vklab_labs.lab_12 import races, stepping
from vklab_labs.lab_12.races import Event, Jobs, Machine, Queues, Workers

SCHEDULER = "vklab.runtime.many.scheduler."


def draw_jobs(random: np.random.Generator, count: int, devices: int, most: int = 2) -> Jobs:
    """Draw jobs that read up to `most` of the jobs before them, on devices drawn at random."""
    names = [f"{letter}{random.integers(10)}" for letter in "abcdefgh"[:count]]
    return {
        name: (
            f"GPU {random.integers(devices)}",
            tuple(
                sorted(map(str, random.permutation(names[:n])[: int(random.integers(0, most + 1))]))
            ),
        )
        for n, name in enumerate(names)
    }


def draw_branches(random: np.random.Generator) -> Jobs:
    """Draw two chains that change their device at every step, each with a job that can overtake.

    The last job of a chain is read by one to three jobs of one device, and they by a further one.
    """
    jobs: dict[str, tuple[str, tuple[str, ...]]] = {}
    order: dict[str, float] = {}
    for chain, letters in enumerate(("abcdef", "uvwxyz")):
        names = [f"{letter}{random.integers(10)}" for letter in letters]
        steps, wide = 1 + int(random.integers(2)), 1 + int(random.integers(3))
        device = int(random.integers(2))
        for n, name in enumerate(names[: steps + wide + 1]):
            reads = names[max(0, n - 1) : n] if n < steps else names[steps - 1 : steps]
            reads = names[steps : steps + wide] if n == steps + wide else reads
            jobs[name] = f"GPU {(device + min(n, steps)) % 2}", tuple(reads)
            order[name] = max([chain / 9, *(order[read] for read in reads)]) + random.random()
    if random.random() < 0.5:  # one of the jobs reads the other chain, too
        first, second = random.permutation([name for name in jobs if jobs[name][1]])[:2].tolist()
        if order[first] < order[second] and first not in jobs[second][1]:
            jobs[second] = jobs[second][0], (*jobs[second][1], first)
    return {name: jobs[name] for name in sorted(jobs, key=order.__getitem__)}


def bad_reads(machine: Machine, got: Any, report: Report) -> list[tuple[int, list[str]]]:
    """Replay a trace; what is no list of events, or cannot happen, is a difference."""
    right = isinstance(got, list | tuple) and all(isinstance(event, list | tuple) for event in got)
    trace = [
        [word.item() if isinstance(word, np.generic) else word for word in event]
        for event in (got if right else ())
    ]
    report.expect(
        right and all(type(word) in (str, int) for event in trace for word in event),
        f"expected a list of events, each a tuple of words and whole numbers, got "
        f"{words.short(got)}",
    )
    try:
        return races.replay(machine, [tuple(event) for event in trace])
    except ValueError as error:
        report.expect(False, str(error))
        raise


def in_order(jobs: Jobs) -> list[Event]:
    """Run all chunks one after another; overtake at the first read on one device that allows it."""
    trace: list[Event] = []
    for name, (device, reads) in jobs.items():
        for read in reads:
            tried = [e for e in trace if e != ("end", read)] + [("submit", name), ("begin", name)]
            if jobs[read][0] == device and _fails(jobs, tried):
                return tried
        trace += [("submit", name), ("begin", name), ("end", name)]
    return []


def ways_to_overtake(jobs: Jobs) -> list[tuple[int, int]]:
    """Return (chunks that it needs, events of its shortest trace) for each chunk that can overtake.

    All that it needs runs, except for the ends that only it would have to wait for. The tests prove
    by search that no trace is shorter than the shortest of these.
    """
    above: dict[str, set[str]] = {}
    found = []
    for name, (device, reads) in jobs.items():
        above[name] = {*reads}.union(*(above[read] for read in reads))
        free = [
            read
            for read in reads
            if jobs[read][0] == device and all(read not in jobs[other][1] for other in above[name])
        ]
        found += [(len(above[name]), 3 * len(above[name]) + 2 - len(free))] * bool(free)
    return found


def fewest_events(jobs: Jobs) -> float:
    """Return the length of a shortest trace that fails; infinity if there is none."""
    return min((events for _, events in ways_to_overtake(jobs)), default=np.inf)


def _fails(jobs: Jobs, trace: list[Event]) -> bool:
    try:
        return bool(races.replay(Queues(jobs), trace))
    except ValueError:
        return False


def draw_failing(random: np.random.Generator, wanted: bool) -> Jobs:
    """Draw jobs with a read on one device, with a trace that fails or without."""
    while True:
        jobs = draw_jobs(random, 5, 3)
        reads = [(device, jobs[read][0]) for device, before in jobs.values() for read in before]
        if any(a == b for a, b in reads) and np.isfinite(fewest_events(jobs)) == wanted:
            return jobs


# The first chunk, one that needs fewest, and one that leaves most running; each is wrong once.
PICKS: tuple[Callable[[list[tuple[int, int]]], tuple[int, int]], ...] = (
    lambda ways: ways[0],
    lambda ways: min(ways, key=lambda way: way[0]),
    lambda ways: min(reversed(ways), key=lambda way: way[0]),
    lambda ways: max(ways, key=lambda way: 3 * way[0] - way[1]),
)


def is_scored(jobs: Jobs, pick: int) -> bool:
    """Tell whether a rule of PICKS, one read left running, and the given order are all too long."""
    ways, least = ways_to_overtake(jobs), fewest_events(jobs)
    return bool(ways) and 9 < least < min(
        PICKS[pick](ways)[1], 3 * min(ways)[0] + 1, len(in_order(jobs)) - 3
    )


@exercise(
    "12b-1",
    hints=(
        "Which pair of chunks on one device could overlap? Nothing else may force the first of "
        "them to end before the second is submitted.",
        "A chunk on another device that reads the first one, and that the second one needs, forces "
        "the first one to end. So look at what the other needed chunks read.",
        "Run everything that the second chunk needs, except for the ends that nobody needs. Then "
        "submit it and begin it. Try every chunk as the second one, and keep the shortest trace.",
    ),
    seams=("vklab.runtime.many.split._behind",),
)
class Overtaking(Function):
    parts = {"fails": ("a possible trace in which a chunk reads too early", 2),
             "none": ("an empty list where no trace fails", 1),
             "short": ("few events", 2)}  # fmt: skip
    follows = {"none": "fails", "short": "fails none"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        g0, g1 = "GPU 0", "GPU 1"
        yield Case("fails", ({"a": (g0, ()), "b": (g0, ("a",))},))
        yield Case("fails", ({"a": (g0, ()), "b": (g1, ("a",)), "c": (g1, ("b",))},))
        yield Case(
            "fails", ({"a": (g0, ()), "b": (g1, ("a",)), "c": (g0, ("a", "b")), "d": (g0, ("c",))},)
        )
        yield Case("none", ({"a": (g0, ()), "b": (g1, ("a",))},))
        yield Case("none", ({"a": (g0, ()), "b": (g1, ("a",)), "c": (g0, ("a", "b"))},))
        yield Case("none", ({"a": (g0, ()), "b": (g0, ("a",)), "c": (g1, ("b",))},))
        yield Case("none", ({},))
        for part, wanted in (("fails", True), ("fails", True), ("none", False), ("none", True)):
            jobs = draw_failing(random, wanted)
            yield Case(part, (jobs,), on=races.listed(jobs))
        for pick in range(len(PICKS)):
            jobs = draw_branches(random)
            while not is_scored(jobs, pick):
                jobs = draw_branches(random)
            yield Case(
                "short", (jobs,), on=races.listed(jobs), facts={"natural": len(in_order(jobs))}
            )

    def expected(self, case: Case) -> Any:
        least = fewest_events(*case.args)
        return 0 if np.isinf(least) else least

    def compare(self, case: Case, got: Any, report: Report) -> None:
        (jobs,), least = case.args, case.expected
        found = bad_reads(Queues(jobs), got, report)
        if not least:
            report.expect(
                not got,
                "no trace can fail here: expected [], got a trace of "
                f"{len(got)} events that reads nothing too early",
            )
            return
        report.expect(got, "got [], and a trace can fail here")
        report.expect(
            found,
            f"the trace {words.short(got)} is possible, and no chunk in it begins "
            "before a chunk that it reads has ended",
        )
        if report.part == "short":
            report.score(len(got), least, case.facts["natural"], "events")


def _triangle(first: str, second: str, third: str, text: str) -> dict[str, str]:
    """Return the parameters of a variant; "a, b:a" stands for {"a": (), "b": ("a",)}."""
    reads = {part[0]: tuple(part[2:]) for part in text.split(", ")}
    return {"first": first, "second": second, "third": third, "reads": repr(reads)}


@exercise(
    "12b-2",
    hints=(
        "Which job reads two results? Two threads must write them.",
        "The thread that counts last makes the job ready, with its own view. Let a thread count "
        "last that was told nothing by the other one.",
        "One job reads both others. The thread of the earlier one may delay its second count.",
    ),
    variants=(
        _triangle("c", "d", "x", "c, d:c, x:cd, y:x"),
        _triangle("k", "m", "n", "h, k, m:k, n:km, o:h"),
        _triangle("p", "q", "t", "p, q:p, s, t:pq, u:st"),
        _triangle("a", "f", "g", "a, b, e:b, f:a, g:af"),
        _triangle("i", "l", "v", "i, j, l:i, v:il, w:jv"),
    ),
)
class StaleTrace(Value):
    parts = {
        "stale": ("a possible trace that reads old bytes", 2),
        "short": ("no event that could be left out", 1),
    }

    def _jobs(self) -> Jobs:
        return {name: ("", reads) for name, reads in ast.literal_eval(self.params["reads"]).items()}

    def expected(self, case: Case) -> Any:
        return 8  # in every variant: the tests prove it by search

    def compare(self, case: Case, got: Any, report: Report) -> None:
        found = bad_reads(threads := Workers(self._jobs()), got, report)
        report.expect(got, "expected a list of events, got an empty one")
        views = " and ".join("{" + ", ".join(sorted(view)) + "}" for view in threads.view)
        report.expect(
            found,
            "the trace is possible, and no start in it reads stale bytes. At its "
            f"end, the views of threads 0 and 1 are {views}",
        )
        if report.part == "short":
            report.expect(
                len(got) <= case.expected,
                f"the trace has {len(got)} events; "
                f"{case.expected} are enough: what could be left out?",
            )


WORDS = ("lock-free", "Miri verified", "atomic counter", "release and acquire", "none of them")
PROMISES = (
    "While one thread is suspended for ever in the middle of a push, some other thread can push.",
    "Each thread finishes its push after a bounded number of steps.",
    "In the runs of the tests, no freed memory was read.",
    "No order of the threads has a data race.",
    "A kernel never reads a buffer before a kernel of an earlier submission has written it.",
    "Of two threads that count down at the same time, neither decrement is lost.",
    "Who sees that the last predecessor was counted also sees the bytes written before.",
    "An idle worker never sleeps.",
    "A test that ended with memory which nobody can reach any more would have been reported.",
    "A job takes less time than with a lock.",
)
# Only `questions` may use these: a release ships what the variants use.
KEPT_BY = (0, 4, 1, 4, 4, 2, 3, 4, 1, 4)

# By promise: the fact that decides it, and the reason of the right answer.
WHY = (
    (
        "A suspended thread keeps whatever it holds. The others must be able to go on without it.",
        "Lock-free means that some thread always gets on. A thread that is suspended while it "
        "holds a lock stops all others.",
    ),
    (
        "That some thread gets on does not mean that each one does. A thread may have to try again "
        "for ever.",
        "This would be wait-free, which is more than lock-free. No other word is about progress.",
    ),
    (
        "The promise is about certain runs, and about memory. A tool can watch such runs.",
        "Miri interprets the tests and reports each read of freed memory in these runs.",
    ),
    (
        "A run of a test is one order of the threads. The promise is about every order.",
        "Miri speaks of the orders that were run. The other words do not exclude a data race in "
        "the rest of a pool's memory.",
    ),
    (
        "Kernels run on the device. All these words are about threads of the host.",
        "Barriers and semaphores order kernels. No word about the host's threads does.",
    ),
    (
        "A decrement is a load, a subtraction and a store. The promise is about this number alone.",
        "In an atomic decrement no other thread can come between load and store. It promises "
        "nothing about other bytes.",
    ),
    (
        "A number may arrive before the bytes. The promise is about the views of two threads.",
        "Release publishes a thread's view along with the number, and acquire takes it over.",
    ),
    (
        "A thread that waits for work breaks no promise of progress, of clean runs or of order.",
        "A lock-free pool may let idle workers sleep. No word says what an idle worker does.",
    ),
    (
        "Memory that nobody can reach is a leak. A tool that interprets the test can find it at "
        "the end.",
        "Miri reports leaks of memory at the end of a run.",
    ),
    (
        "Progress, clean runs, a number and its bytes: none of these is a time.",
        "No word is about speed. A lock-free structure can be slower than one with a lock.",
    ),
)


def _promises(*numbers: int) -> dict[str, str]:
    return {letter: PROMISES[number] for letter, number in zip("abcde", numbers, strict=True)}


@exercise(
    "12b-3",
    hints=(
        "One word is about progress, one about runs of tests, one about a number, and one about "
        "the bytes behind that number.",
        "For each row, look for a run that keeps the word and breaks the promise.",
    ),
    variants=(
        _promises(0, 3, 6, 2, 7),
        _promises(1, 8, 5, 4, 0),
        _promises(6, 9, 2, 1, 5),
        _promises(3, 0, 8, 6, 4),
        _promises(5, 2, 7, 0, 6),
    ),
    extra=True,
)
class Guarantees(Choice):
    parts = {"all": ("every row", 3)}

    def questions(self) -> Mapping[str, Question]:
        rows = {
            text: Question(WORDS[word], WORDS, *why)
            for text, word, why in zip(PROMISES, KEPT_BY, WHY, strict=True)
        }
        return {letter.upper(): rows[text] for letter, text in self.params.items()}


def next_state(jobs: Jobs, state: Any, event: Event) -> dict[str, Any]:
    """Return the state after an event; a list of ready jobs takes the place of recursion."""
    left, flying, failed = dict(state["left"]), [*state["in_flight"]], [*state["failed"]]
    kind, name = event
    ready = [job for job, (_, reads) in jobs.items() if kind == "go" and not reads]
    if kind != "go" and name in flying:
        flying.remove(name)
        if kind == "failed" or {*jobs[name][1]} & {*failed}:
            failed.append(name)
        else:
            counted = [
                job
                for job, (device, reads) in jobs.items()
                if name in reads and device != jobs[name][0]
            ]
            for job in counted:
                left[job] -= 1
            ready = [job for job in counted if not left[job]]
    for job in ready:  # grows
        if {*jobs[job][1]} & {*failed}:
            continue
        flying.append(job)
        for other, (device, reads) in jobs.items():
            if job in reads and device == jobs[job][0]:
                left[other] -= 1
                ready += [other] * (not left[other])
    return {"left": left, "in_flight": sorted(flying), "failed": sorted(failed)}


def cases_of(part: str, jobs: Jobs) -> Iterable[Case]:
    """Yield each state that some order of events reaches, with each event that may come next.

    In two parts any job may fail; part "twice" has events of jobs that are not in flight, too.
    """
    kinds = ("ended", "failed") if part in ("failures", "twice") else ("ended",)
    todo: list[tuple[Any, list[str]]] = [(stepping.first_state(jobs), [])]
    seen = set()
    for state, way in todo:  # grows
        names = [name for _, name in stepping.next_events(jobs, state)]
        names += [name for name in jobs if part == "twice" and name not in state["in_flight"]]
        for event in [(kind, name) for name in names for kind in kinds] if way else [("go", "")]:
            said = " ".join(event).strip()
            then = f"{', '.join(way)}; then {said}" if way else said
            yield Case(part, (jobs, state, event), on=f"{races.listed(jobs)}: {then}")
            after = next_state(jobs, state, event)
            if repr(after) not in seen:
                seen.add(repr(after))
                todo.append((after, [*way, said]))


@exercise(
    "12b-4",
    hints=(
        "Write `start(job)` and let it call itself for the jobs behind it on the same device.",
        "Each read is counted once: at the start of the job that is read if both are on one "
        "device, at its end if not.",
        "Whether a predecessor failed is asked twice: when a job ends, and before a job starts.",
    ),
    seams=(SCHEDULER + "Run._complete", SCHEDULER + "Run._freed", SCHEDULER + "Run._begin"),
    builds=stepping.COMPLETIONS,
)
class Step(Function):
    parts = {"ends": ("all devices different, every order of ends", 1),
             "device": ("jobs that start behind a job of their device", 2),
             "failures": ("any jobs fail", 2),
             "twice": ("events of jobs that are not in flight", 1)}  # fmt: skip
    follows = {"device": "ends", "failures": "ends device", "twice": "ends device failures"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        chain = {"a": ("X", ()), "b": ("X", ("a",)), "c": ("X", ("b",)), "d": ("Y", ("a", "c"))}
        fork = {"a": ("X", ()), "b": ("X", ("a",)), "c": ("Y", ("a",)), "d": ("X", ("b", "c"))}
        apart = {
            "a": ("X", ()),
            "b": ("Y", ("a",)),
            "c": ("X", ("b",)),
            "d": ("Y", ()),
            "e": ("X", ("d",)),
        }
        # Job a fails while b runs behind it: d starts, because b has not failed yet.
        early = {"a": ("X", ()), "b": ("X", ("a",)), "c": ("Y", ()), "d": ("X", ("b", "c"))}
        for part in self.parts:
            drawn = [draw_jobs(random, 5, 2, 3), draw_jobs(random, 4, 2)]
            most = (chain, fork, apart, *drawn, *[early] * (part == "failures"))
            for jobs in most if part != "twice" else (apart, drawn[1]):
                if part == "ends":
                    jobs = {
                        job: (f"GPU {n}", reads) for n, (job, (_, reads)) in enumerate(jobs.items())
                    }
                yield from cases_of(part, jobs)

    def expected(self, case: Case) -> Any:
        return next_state(*case.args)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        (_, before, (_, name)), right = case.args, case.expected
        report.expect(
            isinstance(got, dict)
            and got.keys() == right.keys()
            and all(
                isinstance(got[key], list | tuple) and all(type(job) is str for job in got[key])
                for key in ("in_flight", "failed")
            ),
            "expected a dict with left, in_flight and failed "
            f"(two lists of names), got {words.short(got)}",
        )
        flying = list(got["in_flight"])
        for job in flying:
            report.expect(flying.count(job) == 1, f"{job} is started twice")
            if job == name and job not in right["in_flight"]:
                report.expect(False, f"{job} is still in flight: its caller waits for ever")
            report.expect(
                job in right["in_flight"],
                f"{job} is in flight, and must not start: "
                f"{stepping.why_not(case.args[0], right, job)}",
            )
        for job in right["in_flight"]:
            report.expect(
                job in flying,
                f"{job} is lost: it was in flight"
                if job in before["in_flight"]
                else f"{job} may start now, and is not in flight: who starts it later?",
            )
        report.equal(sorted(got["failed"]), right["failed"], "failed: which results are worthless?")
        report.equal(got["left"], right["left"], "left: who was counted here, and who twice?")


@exercise("12b-p1", hints=("Which chunks have to end between the two?",))
class OneChunk(Predict):
    explains = (
        "In A nothing stands between chunks 0 and 1: one command buffer would do. In B "
        "chunk 2 has to end between them. One chunk of both would wait for chunk 2, and "
        "chunk 2 for it: a circle."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"A": True, "B": False}


@exercise("12b-p2", hints=("What does plain memory do with a write, before the next event?",))
class Views(Predict):
    explains = (
        "In plain memory every write is seen at once, and a job is ready only after its "
        "predecessors have written. So a test on such a model never fails. With views, the "
        "missing acquire lets a thread start a job with a view that lacks a result."
    )

    def answers(self) -> Mapping[str, Any]:
        return {
            "plain_without_acquire": False,
            "views_without_acquire": True,
            "views_with_acquire": False,
        }


@exercise("12b-p3", hints=("One queue takes its submissions in order. What does the first want?",))
class ReaderFirst(Predict):
    options = dict.fromkeys(("no_wait", "waits_for_1"), ("old", "new", "never"))
    explains = (
        "Without a wait the reader runs first and sees old bytes. With the wait, it holds "
        "up the queue for a value that only the submission behind it would set. With two "
        "queues the same wait is fine: the reader may be submitted before the writer."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"no_wait": "old", "waits_for_1": "never"}
