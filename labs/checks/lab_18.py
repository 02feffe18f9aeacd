"""Exercises of lab 18: an interval, an audit, a line, and where to spend runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Predict
from vklab_course.definition.report import Report
from vklab_labs.lab_18 import designs


def interval(samples: Sequence[int], percent: int) -> tuple[int, int] | None:
    """Return the k-th smallest and largest sample that enclose the median; None if no k does."""
    count, ordered, tail = len(samples), sorted(samples), 1
    found = None
    for k in range(1, count // 2 + 1):  # tail: ways in which fewer than k samples lie below
        if 100 * (2**count - 2 * tail) >= percent * 2**count:
            found = ordered[k - 1], ordered[-k]
        tail += math.comb(count, k)
    return found


@exercise(
    "18-1",
    hints=(
        "Sort the samples. With k = 1 the interval goes from the smallest to the largest sample: "
        "the chance is largest. A larger k makes the interval and the chance smaller.",
        "Each sample lies below the median with chance 1/2, as a coin falls. The sum is the number "
        "of ways in which at least k coins of n show heads, and at least k show tails.",
        "`math.comb` and `range` do the sum in whole numbers. For n = 5 and k = 1 it is "
        "5 + 10 + 10 + 5 = 30 of 32.",
    ),
)
class MedianInterval(Function):
    parts = {"interval": ("distinct samples in order", 2),
             "none": ("few samples", 1),
             "ties": ("equal samples, in any order", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        def drawn(count: int, ties: bool = False) -> list[int]:
            base = int(random.integers(200, 90_000))
            spread = 4 if ties else 40 * count + 50
            return [base + int(step) for step in random.choice(spread, count, replace=ties)]

        counts = [6, 7, 8, 9, 10, *random.choice(np.arange(11, 100), 12, False).tolist(), 100, 120]
        for count in counts:
            for percent in random.choice([80, 90, 95, 99], 2, False).tolist():
                if interval(range(count), percent):
                    yield Case("interval", (sorted(drawn(count)), percent), on=f"n = {count}")
        yield Case("interval", (sorted(drawn(2)), 50), on="n = 2")
        yield Case("interval", (sorted(drawn(4)), 87), on="n = 4")
        for count, percent in itertools.product((1, 3, 4, 5, 6, 7, 8), (80, 90, 95, 99)):
            yield Case("none", (sorted(drawn(count)), percent), on=f"n = {count}")
        yield Case("none", ([725], 50))
        for count in (6, 9, 12, *random.choice(np.arange(13, 120), 6, False).tolist()):
            yield Case("ties", (drawn(count), 95), on=f"n = {count}")
            yield Case("ties", (drawn(count, ties=True), 90), on=f"n = {count}")
        yield Case("ties", ([300] * 9, 95))
        yield Case("ties", ([7, 3, 3, 3, 3, 3, 3], 95))

    def expected(self, case: Case) -> Any:
        return interval(*case.args)


OF_PART = {
    "reported": ("fastest_only", "first_runs_counted"),
    "floor": ("cached", "not_waited"),
    "work": ("unequal_work",),
    "clock": ("coarse_clock", "one_after_the_other"),
}
FAULTS = sum(OF_PART.values(), ())
APART = ({"fastest_only", "first_runs_counted"}, {"cached", "not_waited", "coarse_clock"})


def faults_of(record: Mapping[str, Any], ten: int) -> list[str]:
    """Return the faults of a record by name, sorted."""
    found: set[str] = set()
    for runner in record["runners"]:
        times = sorted(runner["times"][record["warm_up"] :])
        middle = times[len(times) // 2]
        if runner["reported"] == times[0] < middle:
            found.add("fastest_only")
        elif runner["reported"] != middle:
            found.add("first_runs_counted")
        floor = floor_ns(record, runner)
        count, together = runner["series"]
        if middle < ten * math.gcd(*runner["times"]):
            found.add("coarse_clock")
        elif middle < floor:
            found.add("cached" if together < count * floor else "not_waited")
    one, other = record["runners"]
    if one["flops"] != other["flops"] or one["bytes"] != other["bytes"]:
        found.add("unequal_work")
    first, second = sorted((each["begins"] for each in (one, other)), key=min)
    if max(first) < min(second):
        found.add("one_after_the_other")
    return sorted(found)


def floor_ns(record: Mapping[str, Any], runner: Mapping[str, Any]) -> float:
    """Return the least time that the work of one run takes on the device, in ns."""
    return 1e9 * max(
        runner["flops"] / record["flops_per_s"], runner["bytes"] / record["bytes_per_s"]
    )


def is_clear(record: Mapping[str, Any]) -> bool:
    """Tell whether no median and no series is so near the floor that rounding could decide."""
    for runner in record["runners"]:
        floor, (count, together) = floor_ns(record, runner), runner["series"]
        middle = median(runner["times"][record["warm_up"] :])
        if abs(middle / floor - 1) < 0.01 or abs(together / count / floor - 1) < 0.03:
            return False
    return True


def draw_record(
    random: np.random.Generator, planted: Sequence[str], ten: int, like: str = ""
) -> dict[str, Any]:
    """Return a record with exactly the planted faults.

    Args:
        random: draws it.
        planted: the faults.
        ten: the factor of a coarse clock.
        like: what makes rules go wrong: "loser", "first", "near" (a clock that is just
            fine enough), "below" (a coarse clock, and a median below the floor), "touching" (the
            runners take turns once only), "flops" or "bytes" (where the work is unequal),
            "flops long" or "bytes long" (what decides the floor, by far), "together 0" or "together
            1" (the last run of this runner and the first of the other begin at one time).
    """
    while True:
        record = _tried(random, planted, ten, like)
        if faults_of(record, ten) == sorted(planted) and is_clear(record):
            return record


def _tried(
    random: np.random.Generator, planted: Sequence[str], ten: int, like: str
) -> dict[str, Any]:
    rates = {
        "flops_per_s": 10 ** random.uniform(12, 14),
        "bytes_per_s": 10 ** random.uniform(11, 12.6),
    }
    rates = {name: float(f"{rate:.3g}") for name, rate in rates.items()}
    least = random.uniform(20_000, 300_000)
    other = random.uniform(0.3, 0.5) if like in LONGER else random.uniform(0.6, 0.97)
    flops_longer = LONGER.get(like, bool(random.integers(2)))
    shares = (1.0, other) if flops_longer else (other, 1.0)
    flops, moved = (
        int(least * share * 1e-9 * rate) for share, rate in zip(shares, rates.values(), strict=True)
    )
    warm_up = int(random.integers(1, 5))
    where = {name: int(random.integers(2)) for name in planted}
    for group in APART:
        both = [name for name in planted if name in group]
        if len(both) == 2:
            where[both[1]] = 1 - where[both[0]]
    slow = random.uniform(4, 9) if like == "loser" else random.uniform(1.1, 1.5)
    loser = int(random.integers(2))
    runners = []
    for number in range(2):
        own = {name for name, place in where.items() if place == number}
        work = {"flops": flops, "bytes": moved}
        if "unequal_work" in own:
            name = like if like in work else str(random.choice(["flops", "bytes"]))
            work[name] = int(work[name] * random.uniform(0.8, 0.97))
        floor = floor_ns(rates, work)
        each = floor * random.uniform(1.03, 1.4) * (slow if number == loser else 1)
        runners.append(_runner(random, own, (floor, each, warm_up), ten, like) | work)
    _begin(random, runners, "one_after_the_other" in planted, like)
    return {"runners": [{name: each[name] for name in ORDER} for each in runners], **rates,
            "warm_up": warm_up}  # fmt: skip


TOUCHING = {"together 0": 0, "together 1": 1}
LONGER = {"flops long": True, "bytes long": False}
ORDER = ("begins", "times", "reported", "flops", "bytes", "series")


def _runner(
    random: np.random.Generator, own: set[str], sizes: tuple[float, float, int], ten: int, like: str
) -> dict[str, Any]:
    floor, each, warm_up = sizes
    count, runs = 2 * int(random.integers(4, 13)) + 1, int(random.integers(10, 60))
    together = each * random.uniform(0.96, 1.0)
    if "not_waited" in own:
        each, together = random.uniform(1_500, 6_000), floor * random.uniform(1.05, 1.5)
    elif "cached" in own or (like == "below" and "coarse_clock" in own):
        each = floor * random.uniform(0.6 if like in LONGER else 0.05, 0.85)
        together = each * random.uniform(0.96, 1.0)
    times = each * (1 + 0.012 * np.abs(random.standard_normal(warm_up + count)))
    late = random.random(warm_up + count) < 0.08
    times = times * np.where(late, random.uniform(2, 7, warm_up + count), 1.0)
    many = random.uniform(3, 40) if like == "first" or random.random() < 0.7 else 1.0
    times[:warm_up] *= many
    tick = int(random.choice([1, 10]))
    if "coarse_clock" in own:
        tick = int(each / random.integers(max(2, ten // 2 + 1), ten))
    elif like == "near":
        tick = int(each / random.integers(ten, 2 * ten - 1))
    whole = [max(1, round(time / tick)) * tick for time in times.tolist()]
    counted = whole[warm_up:]
    reported = int(median(counted))
    if "fastest_only" in own:
        reported = min(counted)
    elif "first_runs_counted" in own:
        choices = [round(median(whole)), round(sum(whole) / len(whole))]
        reported = int(random.choice(choices))
    return {"times": whole, "reported": reported, "series": (runs, int(together * runs))}


def _begin(
    random: np.random.Generator, runners: list[dict[str, Any]], in_a_row: bool, like: str
) -> None:
    first = TOUCHING.get(like, int(random.integers(2)))
    one, other = (len(runners[number]["times"]) for number in (first, 1 - first))
    turns = [first] * one + [1 - first] * other
    if not in_a_row and like == "touching":
        # the last run of one begins after the first of the other
        turns[one - 1], turns[one] = turns[one], turns[one - 1]
    elif not in_a_row and like not in TOUCHING:
        random.shuffle(turns)
    clock, done = int(random.integers(1_000, 9_000_000)), [0, 0]
    for runner in runners:
        runner["begins"] = []
    for number in turns:
        runners[number]["begins"].append(clock)
        clock += runners[number]["times"][done[number]] + int(random.integers(500, 9_000))
        done[number] += 1
    if not in_a_row and like in TOUCHING:  # two runs begin together, on two queues
        runners[1 - first]["begins"][0] = runners[first]["begins"][-1]


@exercise(
    "18-2",
    hints=(
        "One fault after the other. Five concern one runner, two compare both runners. Leave out "
        "the first runs before you take a median or a minimum.",
        "A low median alone does not say why. With a coarse clock it says nothing. Otherwise look "
        "at the series: its one wait is at the end, so work that was done shows there.",
        "The clock's step divides every time of a runner, those of the warm-up, too: math.gcd "
        "takes any number of arguments.",
    ),
    variants=({"ten": 10}, {"ten": 5}, {"ten": 20}, {"ten": 40}),
)
class Audit(Function):
    parts = {"reported": ("which number is reported", 2),
             "floor": ("times below the floor", 2),
             "work": ("the same work for both", 1),
             "clock": ("the clock, and the order of the runs", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        ten = self.params["ten"]
        for part, own in OF_PART.items():
            rows: list[tuple[tuple[str, ...], str]] = [
                ((), like) for like in ("", "loser", "first", "near", "touching")
            ]
            rows += [((name,), like) for name in own for like in ("", "flops", "bytes", "first")]
            for name in own:
                others = random.permutation([each for each in FAULTS if each != name])[:3]
                rows += [((name, str(other)), "") for other in others]
            if part == "floor":
                rows += [(("cached",), like) for like in LONGER]
                rows += [(("coarse_clock",), "below")] * 3 + [((), "")] * 3
            if part == "clock":
                rows += [(("coarse_clock",), "")] * 3 + [((), "near"), ((), "touching")] * 2
                rows += [((), like) for like in TOUCHING]
            for number, (planted, like) in enumerate(rows, 1):
                record = draw_record(random, planted, ten, like)
                yield Case(part, (record,), on=f"record {number} of this part")

    def expected(self, case: Case) -> Any:
        return faults_of(case.args[0], self.params["ten"])

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, set | frozenset | list | tuple)
            and all(isinstance(name, str) for name in got),
            f"expected a set of names, got {words.short(got)}",
        )
        strange = sorted(set(got) - set(FAULTS))
        report.expect(not strange, f"there is no fault {words.short((strange or [''])[0])}")
        for name in OF_PART[report.part]:
            if name in case.expected:
                report.expect(name in got, f"`{name}` is missing")
            else:
                report.expect(name not in got, f"`{name}` is named, and not there")


def line(
    lengths: Sequence[int], times: Sequence[Sequence[float]], most: float
) -> tuple[float, float] | None:
    """Return slope and intercept of the line through the medians; None if it misses one."""
    middles = np.array([median(each) for each in times])
    if len(lengths) < 2:
        return None
    nodes = np.array(lengths, float)
    far = nodes - nodes.mean()
    steep = float((far * middles).sum() / (far**2).sum())
    start = float(middles.mean() - steep * nodes.mean())
    if (np.abs(start + steep * nodes - middles) > most * middles).any():
        return None
    return steep, start


LAVAPIPE = ([1, 10, 100, 1000], [[85.018], [579.931], [27_956.857], [69_758.044]])


@exercise(
    "18-3",
    hints=(
        "First one number for each length, then a line through these numbers. Convert the unit "
        "once.",
        "Least squares: with x and y measured from their means, the slope is the sum of x times y "
        "over the sum of x times x. The line goes through both means.",
        "Before you return, compare each median with the line at its length. What is `most` times "
        "the median?",
    ),
    variants=({"unit": "microseconds (us)", "us": 1.0}, {"unit": "nanoseconds (ns)", "us": 0.001},
              {"unit": "milliseconds (ms)", "us": 1000.0},
              {"unit": "ticks of 100 ns", "us": 0.1}),
)  # fmt: skip
class Slope(Function):
    parts = {"line": ("one run of each length", 2),
             "outliers": ("several runs, some of them slow", 2),
             "none": ("where there is no line", 1)}  # fmt: skip
    follows = {"outliers": "line"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        unit = self.params["us"]

        def record(count: int, most_runs: int, noise: float) -> tuple[list[int], list[list[float]]]:
            pool = [1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000, 2000]
            lengths = random.choice(pool, count, False).tolist()
            start, step = random.uniform(5, 40), 10 ** random.uniform(-2, 0.7)
            times = []
            for length in lengths:
                runs = int(random.integers(3, most_runs + 1)) if most_runs > 1 else 1
                values = (start + step * length) * random.uniform(1 - noise, 1 + noise, runs)
                if runs > 1:
                    slow = random.random(runs) < 0.15
                    slow[int(random.integers(runs))] = True
                    values = values * np.where(slow, random.uniform(2, 9, runs), 1.0)
                times.append([float(value / unit) for value in values])
            return lengths, times

        for count in (2, 3, 4, 5, 7, 10):
            yield Case("line", (*record(count, 1, 0.04), 9.0))
        yield Case("line", ([10, 1], [[30.0 / unit], [45.0 / unit]], 0.5))
        for count in (2, 3, 4, 4, 5, 6, 8):
            yield Case("outliers", (*record(count, 15, 0.05), 99.0), on=f"{count} lengths")
        lengths, times = LAVAPIPE
        yield Case("none", (lengths, [[one / unit for one in each] for each in times], 0.5))
        yield Case("none", ([100], [[250.0 / unit, 251.0 / unit]], 0.5))
        yield Case("none", ([7], [[12.0 / unit]], 9.0))
        for count, above in itertools.product((3, 4, 5, 7), (True, False)):
            while True:
                lengths, times = record(count, 1, 0.4)
                if misses(lengths, times)[0] == above and len(limits(lengths, times)) == 4:
                    break
            for most in limits(lengths, times):
                yield Case("none", (lengths, times, most), on=f"most = {most:.3g}")

    def expected(self, case: Case) -> Any:
        lengths, times, most = case.args
        found = line(lengths, times, most)
        return found and tuple(self.params["us"] * each for each in found)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        if case.expected is None:
            report.expect(got is None, f"expected None, got {words.short(got)}")
            return
        report.expect(
            isinstance(got, list | tuple) and len(got) == 2,
            f"expected (slope, submission), got {words.short(got)}",
        )
        for value, right, name in zip(got, case.expected, ("slope", "submission"), strict=True):
            report.expect(
                isinstance(value, int | float | np.number)
                and math.isclose(value, right, rel_tol=1e-9, abs_tol=1e-9),
                f"{name}: expected {words.short(right)}, got {words.short(value)}",
            )


def misses(
    lengths: Sequence[int], times: Sequence[Sequence[float]]
) -> tuple[bool, np.ndarray, np.ndarray]:
    """Return whether the worst miss is above the line, and misses over medians and over the line.

    A miss is worst in relation to its median.
    """
    nodes, middles = np.array(lengths, float), np.array([median(each) for each in times])
    steep, start = line(lengths, times, math.inf) or (0.0, 0.0)
    fitted = start + steep * nodes
    of_median, of_line = ((middles - fitted) / np.abs(by) for by in (middles, fitted))
    return bool(of_median.max() > -of_median.min()), np.abs(of_median), np.abs(of_line)


def limits(lengths: Sequence[int], times: Sequence[Sequence[float]]) -> list[float]:
    """Return limits that decide: beside the worst miss, above the mean miss, between two rules."""
    _, of_median, of_line = misses(lengths, times)
    worst, other = float(of_median.max()), float(of_line.max())
    chosen = [0.97 * worst, 1.03 * worst, (float(of_median.mean()) + worst) / 2]
    return [*chosen, (worst + other) / 2] if abs(other / worst - 1) > 0.05 else chosen


Design = tuple[list[int], list[float], list[float], float]


def shares(design: Design, parts: Sequence[float]) -> list[int]:
    """Return the whole runs if each length gets its part of the budget."""
    _, cost, _, budget = design
    total = math.fsum(parts)
    return [int(budget * part / total / us) for part, us in zip(parts, cost, strict=True)]


def simple_designs(design: Design) -> dict[str, list[int]]:
    """Return runs by rules that come to mind first."""
    lengths, cost, sd, _ = design
    ends = [length in (min(lengths), max(lengths)) for length in lengths]
    best = [deviation * us**0.5 for deviation, us in zip(sd, cost, strict=True)]
    return {
        "equal counts": shares(design, cost),
        "equal time": shares(design, [1.0] * len(cost)),
        "both ends, equal counts": shares(
            design, [us * end for us, end in zip(cost, ends, strict=True)]
        ),
        "both ends, equal time": shares(design, [float(end) for end in ends]),
        "both ends, in proportion": shares(
            design, [b * end for b, end in zip(best, ends, strict=True)]
        ),
        "all lengths, in proportion": shares(design, best),
    }


def pairs(design: Design) -> list[tuple[float, list[int]]]:
    """Return for each two lengths the least variance of fractional runs, and whole runs."""
    lengths, cost, sd, budget = design
    found = []
    for i, j in itertools.combinations(range(len(lengths)), 2):
        weights = [sd[n] * cost[n] ** 0.5 if n in (i, j) else 0.0 for n in range(len(lengths))]
        least = math.fsum(weights) ** 2 / budget / (lengths[i] - lengths[j]) ** 2
        found.append((least, shares(design, weights)))
    return sorted(found)


def draw_design(random: np.random.Generator) -> Design:
    """Return lengths, costs, deviations and a budget of which no simple rule makes good use."""
    while True:
        count = int(random.integers(5, 8))
        pool = [1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000]
        lengths = random.choice(pool, count, False).tolist()
        start, step = random.uniform(10, 40), random.uniform(0.5, 3)
        cost = [round(start + step * length, 1) for length in lengths]
        noise = [random.uniform(0.02, 0.1) * (1 + length / 150) for length in lengths]
        sd = [round(us * each, 2) for us, each in zip(cost, noise, strict=True)]
        design = (lengths, cost, sd, float(round(random.uniform(2e5, 2e6), -3)))
        bound, runs = pairs(design)[0]
        simple = [designs.variance(lengths, sd, each) for each in simple_designs(design).values()]
        if (
            min(simple[:5]) > 1.5 * bound
            and min(simple) > 1.05 * bound
            and designs.variance(lengths, sd, runs) < 1.005 * bound
        ):
            return design


@exercise(
    "18-4",
    hints=(
        "Start with two lengths. Which counts keep the budget, and what is the variance?",
        "For two lengths the variance is (sd1 squared / runs1 + sd2 squared / runs2) over the "
        "squared difference of the lengths. The noisy one needs more runs, the dear one fewer.",
        "It is least with runs in proportion to the deviation over the root of the cost. Compare "
        "all pairs: the longest chain is often not worth its time.",
    ),
    extra=True,
)
class Spend(Function):
    parts = {"valid": ("whole runs of two lengths or more, within the budget", 1),
             "first": ("a drawn design", 2),
             "second": ("another drawn design", 2)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        yield Case("valid", ([5, 1], [40.0, 20.0], [3.0, 1.0], 100.0))
        yield Case("valid", ([1, 10, 4000], [20.0, 40.0, 9_000.0], [1.0, 2.0, 1.0], 800.0))
        yield Case("valid", ([1000, 3, 30, 300], [2_000.0, 25.0, 90.0, 700.0], [5.0] * 4, 1_200.0))
        yield Case("valid", ([1, 100, 1000], [20.0, 100.0, 770.0], [2.0, 2.0, 2.9], 800.0))
        yield Case("valid", designs.EXAMPLE)
        for part in ("first", "second"):
            design = draw_design(random)
            lengths, _, sd, _ = design
            found = {name: designs.variance(lengths, sd, runs)
                     for name, runs in simple_designs(design).items()}  # fmt: skip
            natural = min(found["equal counts"], found["equal time"])
            bound = pairs(design)[0][0]
            yield Case(part, design, on="this design", facts={"natural": natural / bound})

    def expected(self, case: Case) -> Any:
        return pairs(case.args)[0][0]

    def compare(self, case: Case, got: Any, report: Report) -> None:
        lengths, cost, sd, budget = case.args
        flaw = designs.flaw(lengths, cost, budget, got)
        report.expect(not flaw, flaw)
        if report.part != "valid":
            achieved = designs.variance(lengths, sd, got) / case.expected
            report.score(
                round(achieved, 4), 1.0, round(case.facts["natural"], 4),
                "units of variance (the bound is 1)", full=1.01,
            )  # fmt: skip


@exercise("18-p1", hints=("Take 20 runs of 100 us, and make one of them 600 us.",))
class OneInTwenty(Predict):
    explains = (
        "20 runs of 100 us take 2,000 us. With one of 600 us they take 2,500 us: the mean is 125 "
        "us, 25 percent more. Of the sorted times, the two in the middle are still 100 us."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"mean_percent": 25, "median_percent": 0}


@exercise("18-p2", hints=("What runs between the two readings of the clock? How often?",))
class Planted(Predict):
    options = {"fault": ("cached", "not_waited", "coarse_clock", "first_runs_counted")}
    explains = (
        "`frame.result()` of a finished frame returns at once: nothing runs between the two "
        "readings of the clock. One more wait at the end of a series finds no work either, so the "
        "series is as short: `cached`."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"fault": "cached"}
