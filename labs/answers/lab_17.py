"""Answers to try the checks of lab 17 with: wrong ones, and a second right one for each."""

import functools

import numpy as np

from vklab_course.author.answers import alternative, wrong
from vklab_labs.lab_17 import plans

# ------------------------------------------------------------------------------------------- steps


def _rank(x, sign=lambda bits: (bits >> 31).astype(bool), negative=lambda low: -low,
          dtype=np.int64):  # fmt: skip
    """Return the place of each float32 on the ladder, with one decision that may be wrong."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    low = (bits & 0x7FFFFFFF).astype(dtype)
    return np.where(sign(bits), negative(low), low)


def _stepper(rank=_rank, distance=lambda p, q: np.abs(p - q), both=0, one=-1,
             nan=np.isnan):  # fmt: skip
    def ulp_distance(a, b):
        with np.errstate(all="ignore"):
            steps = distance(rank(a), rank(b)).astype(np.int64)
        steps[nan(a) | nan(b)] = one
        steps[nan(a) & nan(b)] = both
        return steps

    return ulp_distance


def _by_spacing(a, b):
    with np.errstate(all="ignore"):
        steps = np.rint(np.abs(a.astype("f8") - b) / np.spacing(np.abs(a)).astype("f8"))
    return np.nan_to_num(steps, nan=-1, posinf=2**31, neginf=-1).astype(np.int64)


def _by_epsilon(a, b):
    with np.errstate(all="ignore"):
        steps = np.abs(a.astype("f8") - b) / (np.abs(a) * np.finfo(np.float32).eps)
    return np.nan_to_num(np.rint(steps), nan=-1, posinf=2**31).astype(np.int64)


def _nulp_diff(a, b):
    from numpy.testing._private.utils import nulp_diff

    return np.nan_to_num(nulp_diff(a, b), nan=-1).astype(np.int64)


def _halves(bits):
    """Return the place of a float by comparing it with the number of smaller ones."""
    return np.where(bits >= 2**31, 2**31 - bits.astype(np.int64), bits.astype(np.int64))


alternative("17-1")(_stepper(rank=lambda x: _halves(np.asarray(x).view(np.uint32))))
for words, decision in (
    (
        "how many steps is each number from zero",
        {"rank": lambda x: _rank(x, negative=lambda low: low + 2**31)},
    ),
    (
        "how many steps is each number from zero",
        {"rank": lambda x: _rank(x, negative=lambda low: -low - 1)},
    ),
    ("do the numbers of steps fit", {"rank": lambda x: _rank(x, dtype=np.int32)}),
    ("expected", {"distance": lambda p, q: p - q}),
    ("the rules for NaN come last", {"both": -1}),
    ("the rules for NaN come last", {"one": 0}),
    ("the rules for NaN come last", {"nan": lambda x: ~np.isfinite(x)}),
    ("the rules for NaN come last", {"nan": lambda x: np.zeros(len(x), bool)}),
):
    wrong("17-1", says=words)(_stepper(**decision))
for words, answer in (
    ("elements differ", _by_spacing),
    ("elements differ", _by_epsilon),
    ("the rules for NaN come last", _nulp_diff),
    ("expected dtype int64, got float64", lambda a, b: np.abs(a - b).astype(float)),
):
    wrong("17-1", says=words)(answer)

# ----------------------------------------------------------------------------------------- verdict


@alternative("17-2")
def by_masks(actual, expected, rtol, atol):
    got, truth = np.float64(actual), np.float64(expected)
    if got.shape != truth.shape:
        return False, float("inf")
    good = np.isfinite(truth)
    if (np.isfinite(got) != good).any() or (
        ~good & (np.isnan(got) != np.isnan(truth)) | (np.isinf(truth) & (got != truth))
    ).any():
        return False, float("inf")
    got, truth = got[good], truth[good]
    if not truth.size:
        return True, 0.0
    with np.errstate(all="ignore"):
        parts = abs(got - truth) / (atol * abs(truth).max() + rtol * abs(truth))
    worst = float(np.where(got == truth, 0, parts).max())
    return worst <= 1, worst


def _absolute(passes):
    """Return an answer that compares absolute differences with a limit."""

    def verdict(actual, expected, rtol, atol):
        limit = atol + rtol
        with np.errstate(all="ignore"):
            difference = np.abs(actual - expected)
            return bool(passes(difference, limit)), float(np.max(difference) / limit)

    return verdict


def _cosine(actual, expected, rtol, atol):
    a, e = np.float64(actual).ravel(), np.float64(expected).ravel()
    with np.errstate(all="ignore"):
        angle = a @ e / (np.linalg.norm(a) * np.linalg.norm(e))
    return bool(angle > 1 - rtol), float(1 - angle)


def _allclose(actual, expected, rtol, atol):
    with np.errstate(all="ignore"):
        passed = np.allclose(actual, expected, rtol, atol, equal_nan=True)
        parts = np.abs(np.float64(actual) - expected) / (atol + rtol * np.abs(expected))
        return bool(passed), float(np.nanmax(parts))


def _varied(wide=np.float64, shapes=True, same=None, largest=None, passes=None, empty=True,
            divide=None):  # fmt: skip
    """Return an answer to 17-2 in which one decision may be wrong."""

    def verdict(actual, expected, rtol, atol):
        a, e = np.asarray(actual, wide), np.asarray(expected, wide)
        if shapes and a.shape != e.shape:
            return False, np.inf
        both = np.isfinite(a) & np.isfinite(e)
        equal = same(a, e) if same else (a == e) | (np.isnan(a) & np.isnan(e))
        if not (equal | both).all():
            return False, np.inf
        error, size = np.abs(a - e)[both], np.abs(e)[both]
        top = largest(a, e, both) if largest else size.max(initial=0.0) if empty else size.max()
        allowed = atol * top + rtol * size
        with np.errstate(all="ignore"):
            share = divide(error, allowed) if divide else np.where(error > 0, error / allowed, 0)
        share = float(share.max(initial=0.0))
        return bool(passes(share) if passes else share <= 1), share

    return verdict


for words, answer in (
    ("the share", _absolute(lambda difference, limit: not difference.max() > limit)),
    ("the share", _absolute(lambda difference, limit: not (difference > limit).any())),
    ("the share", _absolute(lambda difference, limit: np.nanmax(difference) < limit)),
    ("the share", _cosine),
    ("the share", _allclose),
    ("the share", _varied(wide=np.float32)),
    ("the share", _varied(shapes=False)),
    ("the share", _varied(same=lambda a, e: a == e)),
    ("the share", _varied(same=lambda a, e: ~np.isfinite(a) & ~np.isfinite(e))),
    ("the share", _varied(same=lambda a, e: ~np.isfinite(e))),
    ("the share", _varied(same=lambda a, e: ~np.isfinite(a))),
    ("the share", _varied(largest=lambda a, e, both: 1.0)),
    ("the share", _varied(largest=lambda a, e, both: np.abs(e).max(initial=0.0))),
    ("the share", _varied(largest=lambda a, e, both: np.abs(a[both]).max(initial=0.0))),
    ("the share", _varied(largest=lambda a, e, both: e[both].max(initial=0.0))),
    ("passed", _varied(passes=lambda share: share < 1)),
    ("the share", _varied(divide=lambda error, allowed: error / allowed)),
    ("the share", _varied(divide=lambda error, allowed: np.nan_to_num(error / allowed))),
    ("raised ValueError", _varied(empty=False)),
    ("expected (passed, share)", lambda *arguments: True),
    ("True or False", lambda a, e, rtol, atol: ("yes", by_masks(a, e, rtol, atol)[1])),
):
    wrong("17-2", says=words)(answer)

# -------------------------------------------------------------------------------- checks and terms

UNIT = 2.0**-23
RIGHT = {
    "CPU": "PFP", "CUDA": "PPP", "DirectML": "PPP", "convolution": (2 * UNIT, 4 * UNIT),
    "product": (2 * UNIT, 32 * UNIT), "softmax": (25 / 1024, 8 / 1024),
}  # fmt: skip
alternative("17-3")(RIGHT)
for words, change in (
    ("not all right", dict.fromkeys(("CPU", "CUDA", "DirectML"), "PPP")),  # one limit for all
    ("not all right", {"CPU": "FFP"}),
    ("not all right", {"convolution": (2 * UNIT, 8 * UNIT)}),  # the runtime's own
    ("not all right", {"convolution": (2 * UNIT, 9 * UNIT), "product": (2 * UNIT, 1024 * UNIT),
                       "softmax": (25 / 1024, 64 / 1024)}),  # terms for their root
    ("not all right", {"softmax": (2 / 1024, 31 / 1024)}),
    ("not all right", {"softmax": (25 * UNIT, 8 * UNIT)}),
    ("three letters P or F", {"CPU": "pass"}),
    ("expected (rtol, atol)", {"product": 32 * UNIT}),
):  # fmt: skip
    wrong("17-3", says=words)({**RIGHT, **change})
wrong("17-3", says="expected a dictionary of CPU")({"CPU": "PFP"})

# ----------------------------------------------------------------------------------------- blaming


@alternative("17-4")
def by_a_list(layers, passed):
    kinds = ["local"] if passed else ["local", "cumulative"]
    found = [row["name"] for kind in kinds for row in layers if (row[kind] or 0) > 1]
    return found[0] if found else None


def _above(layers, kind, limit=1.0):
    return [row for row in layers if row[kind] is not None and row[kind] > limit]


def _largest_jump(layers, passed):
    rows = [row for row in layers if row["cumulative"] is not None]
    jumps = [b["cumulative"] - a["cumulative"] for a, b in zip(rows, rows[1:], strict=False)]
    return rows[int(np.argmax(jumps)) + 1]["name"] if jumps else None


def _first_cumulative(layers, passed):
    found = _above(layers, "cumulative")
    return found[0]["name"] if found and not passed else None


def _last(layers, passed):
    found = _above(layers, "local") or ([] if passed else _above(layers, "cumulative"))
    return found[-1]["name"] if found else None


def _largest_local(layers, passed):
    found = _above(layers, "local") or ([] if passed else _above(layers, "cumulative")[:1])
    return max(found, key=lambda row: row["local"] or 0)["name"] if found else None


def _unread(layers, passed):
    return by_a_list(layers, False)


def _nothing_passed(layers, passed):
    return None if passed else by_a_list(layers, False)


def _local_only(layers, passed):
    return by_a_list(layers, True)


def _either(layers, passed):
    found = [row for row in layers if max(row["local"] or 0, row["cumulative"] or 0) > 1]
    return found[0]["name"] if found else None


def _from_the_limit(layers, passed):
    kinds = ["local"] if passed else ["local", "cumulative"]
    found = [row["name"] for kind in kinds for row in layers if (row[kind] or 0) >= 1]
    return found[0] if found else None


def _none_compared(layers, passed):
    return next((row["name"] for row in layers if row["local"] > 1), None)


def _bisected(layers, passed):
    """Return the layer that bisection over cumulative shares finds."""
    low, high = 0, len(layers) - 1
    while low < high:
        middle = (low + high) // 2
        if (layers[middle]["cumulative"] or 0) > 1:
            high = middle
        else:
            low = middle + 1
    return layers[low]["name"] if layers and not passed else None


for answer in (_largest_jump, _first_cumulative, _last, _largest_local, _unread, _nothing_passed,
               _local_only, _either, _from_the_limit, _bisected):  # fmt: skip
    wrong("17-4", says="expected")(answer)
wrong("17-4", says="raised TypeError")(_none_compared)

# -------------------------------------------------------------------------------------- the search


@alternative("17-5")
def over_masks(chances, costs, setup):
    count = len(chances)
    tests = [(i, j, sum(1 << n for n in range(i, j + 1)), setup + sum(costs[i : j + 1]))
             for i in range(count) for j in range(i, count)]  # fmt: skip

    @functools.cache
    def best(mask):
        if not mask & (mask - 1):
            return 0, None
        weight = sum(chances[n] for n in range(count) if mask >> n & 1)
        found = None
        for i, j, inside, price in tests:
            fails = mask & inside
            if fails and fails != mask:
                value = price * weight + best(fails)[0] + best(mask ^ fails)[0]
                if found is None or value < found[0]:
                    found = value, (i, j, fails)
        return found

    rows = []

    def place(mask):
        if not mask & (mask - 1):
            return "layer", mask.bit_length() - 1
        i, j, fails = best(mask)[1]
        number = len(rows)
        rows.append(None)
        rows[number] = i, j, place(fails), place(mask ^ fails)
        return "test", number

    place((1 << count) - 1)
    return rows


def _by_rule(rule):
    def search_plan(chances, costs, setup):
        return plans.built(plans.OBVIOUS[rule](chances, costs, setup), len(chances))

    return search_plan


def _prefixes(chances, costs, setup):
    """Return the best plan of those in which the suspects are always neighbours."""

    @functools.cache
    def best(i, j):
        if i == j:
            return 0, None
        weight = sum(chances[i : j + 1])
        return min(
            (best(i, k)[0] + best(k + 1, j)[0]
             + weight * (setup + min(sum(costs[i : k + 1]), sum(costs[k + 1 : j + 1]))), k)
            for k in range(i, j)
        )  # fmt: skip

    def split(group):
        k = best(group[0], group[-1])[1]
        left, right = (group[0], k), (k + 1, group[-1])
        return min(left, right, key=lambda ends: sum(costs[ends[0] : ends[1] + 1]))

    return plans.built(split, len(chances))


def _one_by_one(chances, costs, setup):
    last = len(chances) - 1
    return [(n, n, ("layer", n), ("test", n + 1) if n + 1 < last else ("layer", last))
            for n in range(last)]  # fmt: skip


for rule in plans.OBVIOUS:
    wrong("17-5", says="no answer needs less than")(_by_rule(rule))
for words, answer in (
    ("no answer needs less than", _prefixes),
    ("no answer needs less than", _one_by_one),
    ("the plan names layer", lambda chances, costs, setup: [(0, 5, ("layer", 0), ("layer", 6))]),
    ("go round in a circle", lambda chances, costs, setup: [(0, 5, ("test", 0), ("layer", 6))]),
    ("there is no test 9", lambda chances, costs, setup: [(0, 5, ("test", 9), ("layer", 6))]),
    ("there is no layer 12", lambda chances, costs, setup: [(0, 5, ("layer", 12), ("layer", 6))]),
    ("expected 0 <= i <= j <= 11", lambda *layers: [(0, 12, ("layer", 0), ("layer", 6))]),
    ("neither 'test' nor 'layer'", lambda *layers: [(0, 5, ("part", 0), ("layer", 6))]),
    ("expected (i, j, fails, passes)", lambda *layers: [(0, 5, ("layer", 0))]),
    ("expected a list of tests", lambda *layers: []),
):
    wrong("17-5", says=words)(answer)
