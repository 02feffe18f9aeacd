"""Exercises of lab 12: chunks, a bad cutter, frames in flight, a schedule."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, Value, exercise
from vklab_course.definition.kinds import Predict
from vklab_course.definition.report import Report
from vklab_labs.lab_12 import chunking, makespan
from vklab_labs.lab_12.list_scheduling import looking_ahead, naturals, one_device
from vklab_labs.lab_12.makespan import Tasks, bounds, timetable
from vklab_labs.shared import recorded_graphs

Node = tuple[str, int, tuple[str, ...]]
Groups = list[tuple[int, list[str]]]


def fewest_groups(nodes: Sequence[Node], width: int | None = None) -> Groups:
    """Return a cut with the fewest chunks, or what a search that keeps `width` cuts finds."""
    level: dict[frozenset[str], Groups] = {frozenset(): []}
    while level:
        further: dict[frozenset[str], Groups] = {}
        for done, groups in level.items():
            if len(done) == len(nodes):
                return groups
            for device in sorted({place for _, place, _ in nodes}):
                if more := chunking.fill(nodes, done, device):
                    further.setdefault(done.union(more), [*groups, (device, more)])
        level = dict(sorted(further.items(), key=lambda item: -len(item[0]))[:width])
    raise ValueError("nodes wait for each other, or for a node that is not there")


def obvious_cuts(nodes: Sequence[Node]) -> dict[str, int]:
    """Return how many chunks rules need that choose a device from (chunk, nodes by device)."""
    rules: dict[str, Callable[[int, Mapping[int, int]], int]] = {
        "lowest device": lambda count, able: min(able),
        "device of the first node": lambda count, able: (
            nodes[0][1] if nodes[0][1] in able else min(able)
        ),
        "in turn": lambda count, able: min(able, key=lambda device: (device - count) % 3),
        "most nodes": lambda count, able: max(able, key=lambda device: able[device]),
        **{
            f"{first}, then {tie} * most nodes": lambda count, able, first=first, tie=tie: (
                first
                if not count and first in able
                else max(able, key=lambda device: able[device] * tie)
            )
            for first in range(3)
            for tie in (1, -1)
        },
    }
    counts = {}
    for title, rule in rules.items():
        done, counts[title] = list[str](), 0
        while len(done) < len(nodes):
            able = {d: found for d in range(3) if (found := len(chunking.fill(nodes, done, d)))}
            done += chunking.fill(nodes, done, rule(counts[title], able))
            counts[title] += 1
    return counts


@exercise(
    "12-1",
    hints=(
        "Choose a device. Which of its nodes can run now? After these, which others of the same "
        "device can run? Take all of them: a node that waits longer never saves a chunk.",
        "With two devices only the first choice is free: then they take turns. Try both.",
        "With three devices keep several cuts. If a loop appends to the list that it goes through, "
        "all cuts of two chunks come before those of three. Two cuts with the same nodes done are "
        "equally good: keep a set of frozensets of nodes, and skip a cut that is in it.",
    ),
    seams=(chunking.CUT,),
    builds=chunking.CHUNKS,
)
class BuildChunks(Function):
    parts = {"cut": ("every node in one chunk of its device, no chunk reads a later one", 1),
             "links": ("what each chunk waits for, and what it gets from other devices", 2),
             "two": ("fewest chunks on two devices", 1),
             "three": ("fewest chunks on three devices", 1),
             "refused": ("an empty graph is cut; a wrong graph is refused", 1)}  # fmt: skip
    follows = {"links": "cut", "two": "cut", "three": "cut two", "refused": "cut"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        chain = [("a", 0, ()), ("b", 0, ("a",)), ("c", 1, ("b",)), ("d", 0, ("c",))]
        detour = [("a", 0, ()), ("b", 1, ("a",)), ("c", 0, ("a", "b"))]
        twice = [("a", 0, ()), ("b", 1, ("a",)), ("c", 1, ("a", "b")), ("d", 0, ("b", "c"))]
        for part in ("cut", "links"):
            yield Case(part, (chain,))
            yield Case(part, (detour,))
            yield Case(part, (twice,))
            for count, network in ((6, ""), (9, ""), (14, "inception_v1"), (30, "unet")):
                nodes = chunking.draw_placed(random, 2 + count % 2, count, network)
                order = random.permutation(count) if count > 9 else range(count)
                yield Case(part, ([nodes[n] for n in order],), on=f"{count} nodes in any order")
        yield Case("cut", ([("a", 7, ()), ("b", 3, ("a",)), ("c", 7, ("a",))],))
        late = [("a", 0, ()), ("b", 1, ()), ("c", 0, ("b",)), ("d", 1, ("c",))]
        for nodes in (late, [(name, 1 - device, reads) for name, device, reads in late]):
            yield Case("two", (nodes,))
        for part, devices, count in (
            ("two", 2, 9),
            ("two", 2, 16),
            ("three", 3, 9),
            ("three", 3, 14),
            ("three", 3, 14),
        ):
            while True:
                nodes = chunking.draw_placed(random, devices, count)
                found = obvious_cuts(nodes)
                other = (
                    min(found.values())
                    if devices == 3
                    else min(found["lowest device"], found["device of the first node"])
                )
                if len(fewest_groups(nodes)) < other:
                    break
            yield Case(part, (nodes,), on=f"{count} nodes on {devices} devices")
        while True:  # taking the nodes that wait for nothing is tempting, and too early
            nodes = chunking.draw_tempting(random)
            other = min(len(fewest_groups(nodes, 5)), *obvious_cuts(nodes).values())
            if len(fewest_groups(nodes)) < other:
                break
        yield Case("three", (nodes,), on=f"{len(nodes)} nodes on 3 devices")
        yield Case("refused", ([],))
        yield Case("refused", ([("a", 2, ())],))
        for wrong, why in (
            ([("a", 0, ("b",)), ("b", 1, ("a",))], "a circle"),
            ([*chain, ("e", 0, ("e",))], "a node that reads itself"),
            ([*chain, ("a", 1, ("d",))], "two nodes called a"),
            ([*chain, ("d", 0, ("c",))], "two equal nodes"),
            ([*chain, ("e", 1, ("x",))], "a node x that is not there"),
        ):
            yield Case("refused", (wrong,), on=why)

    def expected(self, case: Case) -> Any:
        nodes = case.args[0]
        if len({name for name, _, _ in nodes}) < len(nodes):
            raise ValueError("two nodes have one name")
        return len(fewest_groups(nodes))

    def compare(self, case: Case, got: Any, report: Report) -> None:
        flaw = chunking.flaw(case.args[0], got, with_links=report.part == "links")
        report.expect(not flaw, flaw)
        if report.part in ("two", "three"):
            report.expect(
                len(got) <= case.expected, f"{len(got)} chunks; {case.expected} are enough"
            )


@exercise(
    "12-2",
    hints=(
        "The smallest circle needs a node that joins an early chunk, and reads a later one.",
        "Give a node two inputs: one on its own device, one on another.",
        "The way from the early chunk over other devices and back has as many chunks as you like.",
    ),
    variants=({"chunks": 3}, {"chunks": 2}, {"chunks": 4}, {"chunks": 5}),
)
class BreakCutter(Value):
    parts = {"circle": ("the chunks wait in a circle", 1), "size": ("of the size asked for", 1)}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for part in self.parts:
            yield Case(part, on="your graph")

    def expected(self, case: Case) -> Any:
        return self.params["chunks"]

    def compare(self, case: Case, got: Any, report: Report) -> None:
        flaw = chunking.graph_flaw(got, most=12, devices=3)
        report.expect(not flaw, flaw)
        groups = chunking.join_inputs(got)
        found = chunking.circles(chunking.predecessors(got, groups))
        cut = words.short([names for _, names in groups])
        report.expect(found, f"its chunks {cut} wait in no circle")
        if report.part == "size":
            sizes = " and ".join(str(len(each)) for each in found)
            report.expect(
                sizes == str(case.expected),
                f"{sizes} of the chunks {cut} wait in a circle, expected {case.expected}",
            )


def frames(host: int, device: int, count: int, in_flight: int) -> list[tuple[int, int]]:
    """Return (start on the host, end on the device) of each frame."""
    found, free = [(0, 0)] * in_flight, 0  # frames before the first one
    for _ in range(count):
        start = max(free, found[-in_flight][1])
        free = start + host
        found.append((start, max(free, found[-1][1]) + device))
    return found[in_flight:]


def _numbers(host: int, device: int, count: int) -> dict[str, int]:
    return {"host": host, "device": device, "count": count}


@exercise(
    "12-3",
    hints=(
        "Draw the bars of four frames on paper, two rows: host and device.",
        "With two in flight, which of the two rows has no gap? It decides the time of a frame.",
        "With three in flight, frame k begins when frame k - 3 ends. How many results does the "
        "device give from then to the end of frame k?",
    ),
    variants=(
        _numbers(2, 5, 20),
        _numbers(3, 4, 30),
        _numbers(1, 6, 12),
        _numbers(4, 7, 25),
        _numbers(2, 9, 16),
    ),
)
class InFlight(Value):
    parts = {"alone": ("frames that run alone", 1), "together": ("frames in flight", 2)}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for part in self.parts:
            yield Case(part, on="your answer")

    def expected(self, case: Case) -> Any:
        host, device, count = (self.params[name] for name in ("host", "device", "count"))
        alone, two, three = (frames(host, device, count, n) for n in (1, 2, 3))
        return {
            "one_ms": alone[0][1],
            "alone_ms": alone[-1][1],
            "two_ms": two[-1][1],
            "three_ms": three[-1][1],
            "late_ms": three[-1][1] - three[-1][0],
        }

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, dict) and got.keys() == case.expected.keys(),
            f"expected a dictionary with {', '.join(case.expected)}, got {words.short(got)}",
        )
        names = (
            ("one_ms", "alone_ms") if report.part == "alone" else ("two_ms", "three_ms", "late_ms")
        )
        wrong = [
            name for name in names if not _is_number(got[name]) or got[name] != case.expected[name]
        ]
        report.expect(not wrong, f"{' and '.join(wrong)}: not right yet")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def shortest(tasks: Tasks, upper: float, most: int = 400, listed: bool = False) -> int | None:
    """Return the least makespan on two devices up to `upper`, by A*; None if not found so far.

    With `listed`, each task goes where it ends first: what list scheduling does in any order.
    Source: Hart, Nilsson and Raphael 1968; the estimate is the bound of critical path and work.
    """
    facts = [
        (times, [[*tasks].index(read) for read in reads], move)
        for times, reads, move in tasks.values()
    ]
    least = [min(time for time in times if time is not None) for times, _, _ in facts]
    tails, numbers, seen = makespan.tails(tasks), itertools.count(), set[Any]()
    behind = [tails[name] - time for name, time in zip(tasks, least, strict=True)]
    # (estimate, - tasks, tie, (device, end) of each task or None, ends, work, chain, last start)
    heap: list[Any] = [(0, 0, 0, (None,) * len(facts), (0, 0), sum(least), 0, 0)]
    for _ in range(most):
        if not heap:
            break
        estimate, minus, _, table, free, left, chain, last = heapq.heappop(heap)
        if minus == -len(facts):
            return int(estimate)
        for n, (times, reads, _) in enumerate(facts):
            if table[n] or not all(table[read] for read in reads):
                continue
            places = [
                (
                    time
                    + max(
                        [
                            free[device],
                            *(
                                table[read][1] + facts[read][2] * (table[read][0] != device)
                                for read in reads
                            ),
                        ]
                    ),
                    device,
                    time,
                )
                for device, time in enumerate(times)
                if time is not None
            ]
            for end, device, time in [min(places)] if listed else places:
                ends = (free[0], end) if device else (end, free[1])
                longest = max(chain, end + behind[n])
                reached = max(longest, (sum(ends) + left - least[n]) / 2)
                new = (*table[:n], (device, end), *table[n + 1 :])
                if reached <= upper and new not in seen and (listed or end - time >= last):
                    seen.add(new)
                    heapq.heappush(
                        heap,
                        (
                            reached,
                            minus - 1,
                            next(numbers),
                            new,
                            ends,
                            left - least[n],
                            longest,
                            end - time,
                        ),
                    )
    return None


def _length(tasks: Tasks, lists: Sequence[Sequence[str]]) -> int:
    return max((end for _, _, end in timetable(tasks, lists).values()), default=0)


def is_hard(tasks: Tasks, several: bool) -> bool:
    """Tell whether list scheduling misses the best, in any order, and looking ahead."""
    found = naturals(tasks)
    alone = found.pop("one device")
    simple = max(bounds(tasks, 2).values())
    if simple + 1 >= min(found.values()) or alone <= min(found.values()):
        return False
    best = shortest(tasks, min(found.values()) - 1, 400)
    return (
        best is not None
        and shortest(tasks, best, 100_000, listed=True) is None
        and (
            several
            or best < min(_length(tasks, looking_ahead(tasks, every)) for every in (True, False))
        )
    )


def draw_hard(random: np.random.Generator, requests: str) -> Tasks:
    """Draw windows of Inception, one for each request, until list scheduling misses the best."""
    graph = recorded_graphs.recorded("inception_v1")
    sizes, nodes = ({"a": (3,), "b": (5,)}, 6) if len(requests) > 1 else ({"n": (8, 9)}, 14)
    while True:
        tasks: dict[str, Any] = {}
        for letter in requests:
            drawn: Tasks = {}
            while len(drawn) not in sizes[letter]:
                drawn = makespan.draw_tasks(graph.part(random, nodes), random, letter)
            tasks.update(drawn)
        if is_hard(tasks, len(requests) > 1):
            return tasks


@exercise(
    "12-4",
    hints=(
        "Start with list scheduling. Print its picture: where does a device wait for a transfer?",
        "A partial schedule is a table of placed tasks. Keep many of them, all with the same "
        "number of tasks; extend each by every ready task on every device.",
        "Which of them are worth keeping? None ends before the end of a placed task plus the "
        "longest chain behind it; nor before the devices have shared the rest of the work. Two "
        "tables with equal entries are one.",
    ),
    seams=("vklab.plan.place.search.Search._cheapest_path",),
    builds=makespan.SCHEDULE,
)
class Schedule(Function):
    parts = {"valid": ("every task once, on a device that can run it, and no deadlock", 1),
             "picture": ("the tasks of the picture", 1),
             "inception": ("a part of Inception", 2),
             "requests": ("two requests in flight", 2)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        yield Case("valid", ({},), on="no tasks")
        yield Case("valid", ({"a": ((3, None), (), 1), "b": ((None, 2), ("a",), 1)},))
        yield Case(
            "valid", ({"a": ((None, 1), (), 9), "b": ((1, 1), ("a",), 9), "c": ((1, None), (), 0)},)
        )
        yield Case("valid", ({"a": ((0, None), (), 1), "b": ((None, 0), ("a",), 0)},))
        yield self._scored("picture", makespan.EXAMPLE)
        yield self._scored("inception", draw_hard(random, "n"))
        yield self._scored("requests", draw_hard(random, "ab"))

    def _scored(self, part: str, tasks: Tasks) -> Case:
        facts = {"natural": _length(tasks, one_device(tasks)), **bounds(tasks, 2)}
        return Case(part, (tasks,), on=f"the tasks of part {part!r}", facts=facts)

    def expected(self, case: Case) -> Any:
        tasks = case.args[0]
        return shortest(tasks, _length(tasks, one_device(tasks)), 100_000)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        tasks: Tasks = case.args[0]
        flaw = makespan.flaw(tasks, got)
        report.expect(not flaw, flaw)
        length = _length(tasks, got)
        if report.part != "valid":
            limits = {
                name: case.facts[name]
                for name in ("critical path", "work over devices", "work of one device")
            }
            name = max(limits, key=lambda each: limits[each])
            report.note(
                f"{report.part}: the simple bound ({name}) is {limits[name]}. The best "
                f"schedule, found by search, ends at {case.expected}."
            )
            report.score(length, case.expected, case.facts["natural"], "units of time")


@exercise("12-p1", hints=("Loading records the list once. What does each run add?",))
class Recorded(Predict):
    explains = (
        "Loading records the 6 steps once. With replay the runs record nothing: 6 in all. "
        "Without it, each of the ten runs records all 6 again: 6 + 60 = 66."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"replayed": 6, "recorded_again": 66}


@exercise("12-p2", hints=("For chunk 3: what is its counter after 0, then after each 2?",))
class ReportedTwice(Predict):
    explains = (
        "Chunk 3 waits for 1 and 2. The first report of 2 takes its counter to 1, so "
        "nothing becomes ready. The second takes it to 0, and chunk 3 starts before 1 has "
        "completed: it reads a result that is not there."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"ready_at_first": 0, "starts_at_second": 3}
