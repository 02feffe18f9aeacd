"""Exercises of lab 13: few changes of device, limits, a cheapest cut, a makespan."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Choice, Predict, Question
from vklab_course.definition.report import Report
from vklab_labs.lab_13 import placing_cases, schedules, spreading
from vklab_labs.lab_13 import placing_rules as rules
from vklab_labs.lab_13.placing_cases import Moves, Times
from vklab_labs.lab_13.schedules import CAPS, WORK, Work
from vklab_labs.lab_13.spreading import Row

MIB = (3, 3, 1, 14, 1, 1, 50, 1, 197, 1, 1, 1, 1, 1, 1)  # weights and results of conv_many
CONV_MANY: list[Row] = [(f"n{number}", size, (0, 1)) for number, size in enumerate(MIB)]


def fewest_changes(rows: Sequence[Row], caps: Sequence[int]) -> int | None:
    """Return the fewest changes of device, by sets of loads of device 0; None if nothing fits."""
    loads: dict[tuple[int, int], set[int]] = {(0, 0): {0}, (1, 0): {0}}  # by device and changes
    total = 0
    for number, (_, size, able) in enumerate(rows):
        total += size
        new: dict[tuple[int, int], set[int]] = {}
        for device, ((last, count), sums) in itertools.product(able, loads.items()):
            if number or device == last:
                new.setdefault((device, count + (device != last)), set()).update(
                    load
                    for load in {s + size * (device == 0) for s in sums}
                    if load <= caps[0] and total - load <= caps[1]
                )
        loads = {key: sums for key, sums in new.items() if sums}
    return min((count for _, count in loads), default=None)


def _rows(random: np.random.Generator, count: int, least: int) -> tuple[list[Row], list[int]]:
    """Draw until first fit changes more often than necessary, and `least` times are necessary."""
    while True:
        rows, caps = placing_cases.draw_rows(random, count)
        found, best = rules.first_fit_rows(rows, caps), fewest_changes(rows, caps)
        more = best is not None and (found is None or rules.changes(found) > best + 1)
        if more and best >= least:
            return rows, caps


@exercise(
    "13-1",
    hints=(
        "Two placements of the first nodes that end on the same device and fill device 0 equally "
        "have the same future. Which of the two do you need?",
        "Remember, for each pair (device of the last node, what device 0 holds), one placement "
        "with the fewest changes. What device 1 holds follows.",
    ),
    seams=("vklab.plan.place.search.first_fit",),
    builds=spreading.FEW_CHANGES,
)
class FewChanges(Function):
    parts = {"few": ("fewest changes, short lists", 2), "fits": ("tight memory, and None", 1),
             "long": ("fewest changes, long lists", 2)}  # fmt: skip
    follows = {"fits": "few", "long": "few fits"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for caps in ((128, 300), (128, 230), (90, 210), (300, 128), (280, 280)):
            yield Case("few", (CONV_MANY, list(caps)), on=f"conv_many with caps {caps}")
        yield Case("few", ([], [4, 4]))
        for least in (0, 1, 1, 2, 2):
            yield Case("few", _rows(random, 8, least))
        one, other, both = (0,), (1,), (0, 1)
        for rows, caps in (
            ([("a", 3, both), ("b", 5, both), ("c", 3, one)], [6, 5]),
            ([("a", 3, both), ("b", 5, both), ("c", 3, one)], [5, 7]),
            ([("a", 2, both), ("b", 2, one)], [2, 1]),
            ([("a", 2, both), ("b", 2, one)], [2, 2]),
            ([("a", 0, both), ("b", 0, other)], [0, 0]),
            ([("a", 1, ())], [4, 4]),
            ([("a", 1, both), ("b", 1, both), ("c", 1, other), ("d", 5, other)], [2, 6]),
            ([("a", 1, both), ("b", 1, both), ("c", 1, one), ("d", 5, one)], [6, 2]),
        ):
            yield Case("fits", (rows, caps))
        for least in (1, 2, 3):
            yield Case("long", _rows(random, 40, least), on=f"a list of 40 nodes ({least})")
        yield Case(
            "long", placing_cases.draw_full_rows(random, 40), on="40 nodes that fill both devices"
        )

    def expected(self, case: Case) -> Any:
        return fewest_changes(*case.args)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        (rows, caps), least = case.args, case.expected
        if least is None:
            report.expect(got is None, f"no placement fits, expected None, got {words.short(got)}")
            return
        report.expect(got is not None, "there is a placement that fits, got None")
        wrong = spreading.wrong_rows(rows, caps, got)
        report.expect(not wrong, f"{wrong}, in {words.short(got)}")
        count = rules.changes(got)
        report.expect(
            count <= least, f"{words.short(got)} changes device {count} times; {least} are enough"
        )


OPTIONS = ("right", "beyond a limit", "kept away for nothing")
NODES = {"P": (256, 64, ""), "Q": (512, 64, ""), "R": (256, 200, ""), "S": (128, 8, "half"),
         "T": (1024, 300, "")}  # fmt: skip


KEYS = ("threads0", "buffer0", "half0", "threads1", "buffer1", "half1")
ROWS = (
    (1024, 128, "yes", 256, 1024, "no"),
    (256, 1024, "no", 1024, 128, "yes"),
    (512, 256, "no", 256, 128, "yes"),
    (256, 128, "yes", 512, 512, "no"),
)


def _lack(name: str, limits: Mapping[str, Any], device: int) -> str:
    """Return which need of a node a device does not meet, or ""."""
    threads, size, half = NODES[name]
    if threads > (most := limits[f"threads{device}"]):
        return f"{name} needs {threads} invocations and gets {most}"
    if size > (most := limits[f"buffer{device}"]):
        return f"{name} needs a buffer of {size} MiB and gets {most}"
    return f"{name} needs float16 and gets none" if half and limits[f"half{device}"] == "no" else ""


def _about(name: str, limits: Mapping[str, Any]) -> Question:
    """Return the question about a node: what each device says, and what the planner says."""
    lacks = [_lack(name, limits, device) for device in (0, 1)]
    said = [lack or f"{name} can run" for lack in lacks]
    if bool(lacks[0]) == bool(lacks[1]):
        right, reason = "right", "The planner's answer about device 0 is true of device 1, too."
    elif lacks[1]:
        right = "beyond a limit"
        reason = f"On device 0 {name} can run, so the planner says yes. On device 1 {lacks[1]}."
    else:
        right = "kept away for nothing"
        reason = f"On device 0 {lacks[0]}, so the planner says no. On device 1 {name} can run."
    fact = f"On device 0 {said[0]}. On device 1 {said[1]}."
    return Question(right, OPTIONS, fact, reason)


@exercise(
    "13-2",
    hints=("For each node, ask twice: can device 0 run it? Can device 1? Compare the answers.",),
    variants=[dict(zip(KEYS, row, strict=True)) for row in ROWS],
)
class DeviceZero(Choice):
    parts = {"all": ("every node", 3)}

    def questions(self) -> Mapping[str, Question]:
        return {name: _about(name, self.params) for name in NODES}


def least_total(times: Times, moves: Moves, price: int) -> int:
    """Return the largest flow, which no placement undercuts: Edmonds and Karp 1972."""
    room, flow = rules.network(times, moves, price), 0
    while True:
        ways: dict[str, tuple[tuple[str, str], ...]] = {"source": ()}
        queue = ["source"]
        for here in queue:
            for there in (name for name, left in room[here].items() if left and name not in ways):
                ways[there] = (*ways[here], (here, there))
                queue.append(there)
        if "sink" not in ways:
            return flow
        sent = min(room[a][b] for a, b in ways["sink"])
        flow += sent
        for a, b in ways["sink"]:
            room[a][b] -= sent
            room[b][a] += sent


def _times(
    random: np.random.Generator, price: int, count: int, block: int = 0
) -> tuple[Times, Moves]:
    """Draw until moving single nodes does not reach the least total; perhaps in blocks."""
    while True:
        network = str(random.choice(["inception_v1", "resnet50"])) if count > 20 else ""
        times, moves = (
            placing_cases.draw_blocks(random, price, network, block)
            if block
            else placing_cases.draw_times(random, price, count, network)
        )
        best = least_total(times, moves, price)
        if best < min(rules.INFINITE, rules.one_by_one(times, moves, price)):
            return times, moves


@exercise(
    "13-3",
    hints=(
        "With few nodes, try every placement. That earns the first parts. How many placements have "
        "48 nodes?",
        "How much can you send along paths(room)['sink']? Take the room of its narrowest edge.",
        "What you send along a path becomes room in the other direction. At the end, the nodes "
        "that the source still reaches, the keys of paths(room), are on device 0.",
    ),
    variants=({"price": 4}, {"price": 2}, {"price": 7}, {"price": 11}, {"price": 16}),
    seams=("vklab.plan.place.placement.place", "vklab.plan.place.search.Search._cheapest_path"),
    builds=spreading.CHEAPEST_CUT,
)
class CheapestCut(Function):
    parts = {"few": ("few nodes", 2), "able": ("nodes that one device cannot run", 1),
             "many": ("48 nodes of a real network", 2)}  # fmt: skip
    follows = {"able": "few", "many": "few able"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        price = self.params["price"]
        edge, start, end = ("b", "c"), {"a": (1, None), "b": (1, 90)}, {"d": (1, None)}
        chain = {("a", "b"): 90, edge: 1, ("c", "d"): 0}
        never = {"e": (None, 5000), "f": (5000, None)}
        for saved in (-1, 1):  # one visit to device 1, just too dear or just worth it
            gain = 2 * price + 1 + saved
            yield Case("few", ({**start, "c": (50 + gain, 50), **end}, chain))
            yield Case(
                "able", ({**never, "c": (40 + gain, 40)}, {("e", "c"): gain, ("f", "c"): gain})
            )
        yield Case("few", ({}, {}), on="no nodes")
        one, most = 1 + price, 9 * price  # the first ways must be undone in part
        four = {"a": (1, one), "x": (1, 2 * price), "b": (one, 1), "y": (1 + most, 1)}
        apart = {("a", "b"): 0, ("a", "y"): most, ("x", "b"): most}
        yield Case("few", (four, apart))
        yield Case(
            "few",
            (
                {name: four[name] for name in "xyab"},
                {("a", "b"): 0, ("y", "a"): most, ("x", "b"): most},
            ),
        )
        for part, count in (("few", 6), ("few", 8), ("able", 7), ("able", 8)):
            times = _times(random, price, count)
            yield Case(part, times, on=f"{count} nodes", mixed=part == "able")
        for block in (0, 5, 8):
            yield Case("many", _times(random, price, 48, block), on="48 nodes")

    def expected(self, case: Case) -> Any:
        return least_total(*case.args, self.params["price"])

    def compare(self, case: Case, got: Any, report: Report) -> None:
        times, moves = case.args
        report.expect(type(got) is dict, f"expected a dictionary, got {words.short(got)}")
        for name in (*times, *got):
            report.expect(name in times, f"there is no node {words.short(name)}")
            report.expect(name in got, f"node {name} has no device")
            device = got[name]
            report.expect(
                spreading.is_number(device),
                f"the device of {name} is the int 0 or 1, "
                f"not {words.short(device)} ({type(device).__name__})",
            )
            report.expect(device in (0, 1), f"{name} is on device {device}; there are 0 and 1")
            report.expect(times[name][device] is not None, f"device {device} cannot run {name}")
        mine = rules.total(times, moves, self.params["price"], got)
        report.expect(
            mine <= case.expected,
            f"the sum of this placement is {mine}; the least is {case.expected}",
        )


def shortest(work: Work, caps: Sequence[int]) -> int:
    """Return the least makespan: branch and bound, by critical path and area."""
    quick = {name: min(ms for ms in node[0] if ms is not None) for name, node in work.items()}
    tail: dict[str, int] = {}
    for name in reversed(work):
        after = [tail[other] for other in tail if name in work[other][3]]
        tail[name] = quick[name] + max(after, default=0)
    best = rules.span(work, rules.earliest_end(work, caps, rules.ranks(work)))

    def extend(plan: list[tuple[str, int]], free: list[int], last: int) -> None:
        nonlocal best
        done = {name for name, _ in plan}
        left = sum(ms for name, ms in quick.items() if name not in done)
        best = best if len(done) < len(work) else min(best, max(free))
        if (sum(free) + left) / len(free) >= best:
            return
        steps = (
            (end + tail[name] - quick[name], start, name, d, end)
            for name, d, start, end in schedules.next_steps(work, caps, plan)
        )
        for low, start, name, d, end in sorted(steps):
            if low < best and start >= last:
                extend(
                    [*plan, (name, d)], [end if n == d else f for n, f in enumerate(free)], start
                )

    extend([], [0] * len(caps), 0)
    return best


def _work(random: np.random.Generator, count: int, network: str = "") -> tuple[Any, ...]:
    """Draw work and caps until no natural rule is best; return the least makespan, too."""
    while True:
        work, caps = placing_cases.draw_work(random, count, network)
        best = shortest(work, caps)
        if best < rules.span(work, rules.earliest_end(work, caps, rules.ranks(work))):
            found = rules.naturals(work, caps)
            if min(found.values()) > best and found["first fit"] > best + 4:
                return work, caps, best


@exercise(
    "13-4",
    hints=(
        "Begin with a list that works. Then give each node, in the given order, to the device "
        "where it ends first. Then try other orders.",
        "Try changes of a whole schedule: another device for a node, two neighbours exchanged; "
        "keep what is shorter.",
        "To reach the least: a function that calls itself extends a schedule by each of its next "
        "steps. It gives up a beginning that is not shorter than the best schedule so far. Two "
        "orders of the list may be one schedule: try only the one with rising starts.",
    ),
    seams=("vklab.plan.place.placement.place",),
)
class Makespan(Function):
    parts = {"valid": ("inputs first, every node once, memory", 1),
             "picture": ("the nodes of the picture", 1), "first": ("a drawn graph", 1),
             "second": ("a larger one", 1), "window": ("a window of Inception v1", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        drawn = {
            "picture": lambda: (WORK, list(CAPS), shortest(WORK, CAPS)),
            "first": lambda: _work(random, 9),
            "second": lambda: _work(random, 10),
            "window": lambda: _work(random, 9, "inception_v1"),
        }
        yield Case("valid", ({"a": ((4, 2, 9), 1, 1, ())}, [4, 4, 4]))
        yield Case(
            "valid",
            (
                {
                    "a": ((4, 2, 9), 3, 1, ()),
                    "b": ((None, None, 3), 3, 2, ("a",)),
                    "c": ((1, 1, 3), 3, 2, ("a", "b")),
                },
                [3, 3, 9],
            ),
        )
        for part, make in drawn.items():
            work, caps, least = make()
            yield Case(
                part,
                (work, caps),
                on="this graph",
                facts={"natural": rules.span(work, rules.first_fit(work, caps)), "least": least},
            )

    def expected(self, case: Case) -> Any:
        return case.facts.get("least") or shortest(*case.args)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        work, caps = case.args
        report.expect(
            isinstance(got, list | tuple)
            and all(
                isinstance(each, list | tuple)
                and len(each) == 2
                and type(each[0]) is str
                and spreading.is_number(each[1])
                for each in got
            ),
            f"expected a list of (name, device), got {words.short(got)}",
        )
        wrong = schedules.problem(work, caps, [(name, device) for name, device in got])
        report.expect(not wrong, f"{wrong}, in {words.short(got)}")
        if report.part != "valid":
            mine = rules.span(work, [(name, device) for name, device in got])
            report.score(mine, case.expected, case.facts["natural"], "ms")


@exercise("13-p1", hints=("The rule starts again at GPU 0 for every node.",))
class AfterConv4(Predict):
    explains = (
        "GPU 0 has no room for conv4, and room for everything after it. First fit asks GPU "
        "0 first, for each node anew. So the input of conv4 goes to GPU 1, and its result "
        "comes back: two transfers for one node."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"relu4_on_gpu": 0, "transfers": 2}


@exercise("13-p3", hints=("With b alone on device 1, two values move.",))
class FastestEach(Predict):
    explains = (
        "2 + 3 + 2 for the nodes and 3 + 3 for two moves: 13 ms. On device 0 alone: "
        "2 + 6 + 2 = 10 ms. Node b is faster on device 1 by 3 ms, and the visit costs 6."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"fastest_each": 13, "all_on_0": 10}


@exercise("13-p4", hints=("Which two nodes of a chain can run at the same time?",))
class ChainOnTwo(Predict):
    explains = (
        "Each node waits for the one before it, so no two run at the same time. The chain "
        "takes 12 ms on one GPU, and a move to the other GPU makes it longer. A second GPU "
        "helps with branches, or with several inputs at once (lab 13b)."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"milliseconds": 12}
