"""Answers to try the checks of lab 18 with: wrong ones, and a second right one for each."""

import itertools
import math
from statistics import fmean, median

import numpy as np

from vklab_course.author.answers import alternative, equivalent, wrong
from vklab_labs.lab_18.designs import variance


def interval_by(chance):
    """Return an answer that takes the largest k with this chance of (n, k)."""

    def answer(samples, percent, forgotten=False, step=0, order=sorted):
        count, found = len(samples), 0
        for k in range(1, count // 2 + 1):
            if chance(count, k) >= percent * 2**count:
                found = k
        found = max(1, found) if forgotten else found
        if not found:
            return None
        ordered, k = order(samples), min(found + step, (count + 1) // 2)
        return ordered[k - 1], ordered[-k]

    return answer


def enclosed(count, k):
    return 100 * sum(math.comb(count, i) for i in range(k, count - k + 1))


def one_side(count, k):
    return 100 * sum(math.comb(count, i) for i in range(k, count + 1))


right_interval = interval_by(enclosed)


@alternative("18-1")
def by_growing(samples, percent):
    left = sorted(samples)
    kept, taken = None, 0
    while len(left) > 1:
        tails = 2 * sum(math.comb(len(samples), i) for i in range(taken + 1))
        if 100 * tails > (100 - percent) * 2 ** len(samples):
            break
        kept = left[0], left[-1]
        left, taken = left[1:-1], taken + 1
    return kept


def normal(samples, percent):
    z = {50: 0.674, 80: 1.282, 87: 1.514, 90: 1.645, 95: 1.96, 99: 2.576}[percent]
    k = math.floor((len(samples) + 1) / 2 - z * math.sqrt(len(samples)) / 2)
    return (sorted(samples)[k - 1], sorted(samples)[-k]) if k >= 1 else None


def of_mean(samples, percent):
    half = 1.96 * float(np.std(samples)) / math.sqrt(len(samples))
    return round(fmean(samples) - half), round(fmean(samples) + half)


for words, answer in (
    ("expected None", lambda samples, percent: right_interval(samples, percent, True)),
    ("on n = ", lambda samples, percent: right_interval(samples, percent, step=1)),
    ("on n = ", interval_by(one_side)),
    ("on n = ", lambda samples, percent: right_interval(samples, percent, order=list)),
    ("on n = ", normal),
    ("on n = ", of_mean),
    ("on n = ", lambda samples, percent: right_interval(sorted(set(samples)), percent)),
):
    wrong("18-1", says=words)(answer)


def audited(ten=10, skip=(), floor=max, counted=None, series=True, near=0.0):
    """Return an answer with some mistakes."""

    def answer(record):
        found = set()
        for runner in record["runners"]:
            times = runner["times"][record["warm_up"] if counted is None else counted :]
            middle, least = median(times), min(times)
            if abs(runner["reported"] / least - 1) <= near and (near or least < middle):
                found.add("fastest_only")
            elif runner["reported"] != middle:
                found.add("first_runs_counted")
            whole = 1e9 * floor(
                (runner["flops"] / record["flops_per_s"], runner["bytes"] / record["bytes_per_s"])
            )
            runs, ns = runner["series"]
            if ten * np.gcd.reduce(runner["times"]) > middle:
                found.add("coarse_clock")
            elif middle < whole:
                found.add("cached" if series and ns / runs < whole else "not_waited")
        one, other = record["runners"]
        if [one[key] for key in ("flops", "bytes")] != [other[key] for key in ("flops", "bytes")]:
            found.add("unequal_work")
        if one["begins"][-1] < other["begins"][0] or other["begins"][-1] < one["begins"][0]:
            found.add("one_after_the_other")
        return found - set(skip)

    return answer


right_audit = audited()
ALL = ["fastest_only", "first_runs_counted", "coarse_clock", "not_waited", "cached",
       "unequal_work", "one_after_the_other"]  # fmt: skip


@alternative("18-2")
def in_order(record):
    """Return the faults as a sorted list."""
    return sorted(right_audit(record))


def slow_first(name):
    def answer(record):
        found = right_audit(record) - {name}
        slow = any(each["times"][0] > 3 * median(each["times"]) for each in record["runners"])
        return found | {name} if slow else found

    return answer


def five_times(record):
    middles = sorted(median(each["times"]) for each in record["runners"])
    found = right_audit(record) - {"cached", "not_waited"}
    return found | {"not_waited"} if middles[1] > 5 * middles[0] else found


def few_distinct(record):
    found = right_audit(record) - {"coarse_clock"}
    few = any(len(set(each["times"])) <= 8 for each in record["runners"])
    return found | {"coarse_clock"} if few else found


def flops_only(record):
    one, other = record["runners"]
    found = right_audit(record) - {"unequal_work"}
    return found | {"unequal_work"} if one["flops"] != other["flops"] else found


def begins_first(record):
    one, other = record["runners"]
    apart = one["begins"][-1] < other["begins"][-1]
    return right_audit(record) | {"one_after_the_other"} if apart else right_audit(record)


for words, answer in (
    ("is missing", lambda record: set()),
    ("is named, and not there", lambda record: set(ALL)),
    ("`cached`", slow_first("cached")),
    ("`first_runs_counted` is named", slow_first("first_runs_counted")),
    ("`fastest_only` is named", audited(near=0.05)),
    ("of this part: `", five_times),
    ("of this part: `", audited(series=False)),
    ("is named, and not there", audited(floor=sum)),
    ("of this part: `coarse_clock`", few_distinct),
    ("`unequal_work` is missing", flops_only),
    ("`one_after_the_other` is named", begins_first),
    ("`first_runs_counted` is named", audited(counted=0)),
    ("is missing", audited(floor=min)),
    ("is missing", audited(floor=lambda terms: terms[0])),
    ("`coarse_clock` is missing", audited(skip=("coarse_clock",))),
    ("there is no fault 'slow'", lambda record: right_audit(record) | {"slow"}),
    ("expected a set of names", lambda record: len(right_audit(record))),
):
    wrong("18-2", says=words)(answer)


@alternative("18-3")
def by_polyfit(lengths, times, most):
    if len(lengths) == 1:
        return None
    middles = np.array([np.median(each) for each in times])
    matrix = np.stack([np.array(lengths, float), np.ones(len(lengths))], 1)
    found = np.linalg.lstsq(matrix, middles, rcond=None)[0]
    missed = np.abs(matrix @ found - middles) > most * middles
    return None if missed.any() else tuple(found.tolist())


def fitted(lengths, values):
    steep, start = np.polyfit(lengths, values, 1).tolist()
    return steep, start


def by(choose):
    def answer(lengths, times, most):
        return fitted(lengths, [choose(each) for each in times]) if len(lengths) > 1 else None

    return answer


def of_all(lengths, times, most):
    pairs = [(n, one) for n, each in zip(lengths, times, strict=True) for one in each]
    return fitted(*zip(*pairs, strict=True)) if len(lengths) > 1 else None


def of_logarithms(lengths, times, most):
    if len(lengths) == 1:
        return None
    steep, start = fitted(np.log(lengths), np.log([median(each) for each in times]))
    return math.exp(start) * steep, 0.0


def limited(miss):
    """Return an answer with another rule for a line that misses a median."""

    def answer(lengths, times, most):
        if len(lengths) == 1:
            return None
        middles = np.array([median(each) for each in times])
        steep, start = fitted(lengths, middles)
        on_line = start + steep * np.array(lengths)
        return (steep, start) if (miss(middles, on_line) <= most).all() else None

    return answer


def of_longest(lengths, times, most):
    n = max(lengths)
    return median(times[lengths.index(n)]) / n, 0.0


def of_ratios(lengths, times, most):
    return fmean(median(each) / n for n, each in zip(lengths, times, strict=True)), 0.0


for words, answer in (
    ("slope: expected", of_longest),
    ("slope: expected", of_ratios),
    ("slope: expected", of_all),
    ("slope: expected", by(min)),
    ("slope: expected", by(fmean)),
    ("slope: expected", of_logarithms),
    ("expected None", by(median)),
    ("most = ", limited(lambda middles, on_line: np.abs(middles - on_line) / np.abs(on_line))),
    ("most = ", limited(lambda middles, on_line: (on_line - middles) / middles)),
    ("most = ", limited(lambda middles, on_line: (middles - on_line) / middles)),
    ("most = ", limited(lambda middles, on_line: np.mean(np.abs(middles - on_line) / middles))),
):
    wrong("18-3", says=words)(answer)


def shared(cost, budget, parts):
    return [int(budget * part / sum(parts) / us) for part, us in zip(parts, cost, strict=True)]


@alternative("18-4")
def all_pairs(lengths, cost, sd, budget):
    found = []
    for pair in itertools.combinations(range(len(lengths)), 2):
        weights = [sd[n] * cost[n] ** 0.5 * (n in pair) for n in range(len(lengths))]
        runs = shared(cost, budget, weights)
        for n in pair:
            runs[n] = max(runs[n], 1)
        if sum(count * us for count, us in zip(runs, cost, strict=True)) <= budget:
            found.append((variance(lengths, sd, runs), runs))
    return min(found)[1]


def equal_time(lengths, cost, sd, budget):
    return shared(cost, budget, [1] * len(cost))


def both_ends(lengths, cost, sd, budget):
    ends = [n in (min(lengths), max(lengths)) for n in lengths]
    return shared(cost, budget, [s * c**0.5 * e for s, c, e in zip(sd, cost, ends, strict=True)])


for words, answer in (
    ("units of variance", lambda lengths, cost, sd, budget: shared(cost, budget, cost)),
    ("units of variance", equal_time),
    ("fewer than two lengths", both_ends),
    ("fewer than two lengths", lambda lengths, cost, sd, budget: [0] * len(lengths)),
    ("the budget is", lambda lengths, cost, sd, budget: [10**6] * len(lengths)),
    ("no whole number", lambda lengths, cost, sd, budget: [0.5] * len(lengths)),
    ("expected a list of", lambda lengths, cost, sd, budget: {}),
):
    wrong("18-4", says=words)(answer)

for line, other, why in (
    ("for k in range(1, n // 2 + 1):", "for k in range(1, n * 2 + 1):", "beyond the middle no way"),
    (
        "for k in range(1, n // 2 + 1):",
        "for k in range(1, n // 2 + 2):",
        "beyond the middle no way",
    ),
    (
        "for k in range(1, n // 2 + 1):",
        "for k in range(1, n // 1 + 1):",
        "beyond the middle no way",
    ),
):
    equivalent("18-1", line, other, because=why)

for line, other, why in (
    (
        "floor = max(of_flops, runner['bytes'] / record['bytes_per_s']) * 1000000000.0",
        "floor = max(runner['bytes'] / record['bytes_per_s'], of_flops) * 1000000000.0",
        "the larger of two",
    ),
    ("elif middle < floor:", "elif middle <= floor:", "cases stay 1 % off the floor"),
    (
        "found.add('not_waited' if together >= runs * floor else 'cached')",
        "found.add('not_waited' if together > runs * floor else 'cached')",
        "cases stay 3 % off the floor",
    ),
):
    equivalent("18-2", line, other, because=why)

for line, other, why in (
    ("return None", "return", "the same"),
    (
        "missed = np.any(np.abs(y - b * x) > most * middles)",
        "missed = np.any(np.abs(b * x - y) > most * middles)",
        "the same distance",
    ),
    (
        "missed = np.any(np.abs(y - b * x) > most * middles)",
        "missed = np.any(np.abs(y - b * x) >= most * middles)",
        "cases stay off the limit",
    ),
):
    equivalent("18-3", line, other, because=why)

equivalent(
    "18-4",
    "runs[n] = max(1, int(budget * part / cost[n]))",
    "runs[n] = max(int(budget * part / cost[n]), 1)",
    because="the larger of two",
)
