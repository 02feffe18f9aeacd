"""Answers to try the checks of lab 06 with: wrong ones, and a second right one for each."""

from functools import cache
from itertools import combinations

from vklab_course.author.answers import alternative, taught, wrong
from vklab_labs.shared.grouping import kept_bytes, ready

KINDS = (("RAW", 2, 1), ("WAR", 1, 2), ("WAW", 2, 2))


def _finder(touch=lambda a, b, c, d: a < d and c < b, same=lambda x, y: x == y, kinds=KINDS,
            cuts=lambda i, p, j: i < p <= j, near=False):  # fmt: skip
    """Return an answer to 06-1 in which one decision may be wrong."""
    return lambda commands, barriers=(): [
        (i, j, kind) for (i, one), (j, other) in combinations(enumerate(commands), 2)
        if not (near and j > i + 1 or any(cuts(i, p, j) for p in barriers))
        for kind, first, second in kinds
        if any(same(x, y) and touch(a, b, c, d) for x, a, b in one[first]
               for y, c, d in other[second])]  # fmt: skip


alternative("06-1")(_finder())
for words, decision in (
    ("(0, 1, 'RAW') is no hazard here", {"touch": lambda a, b, c, d: a <= d and c <= b}),
    ("(0, 1, 'RAW') is no hazard here", {"same": lambda x, y: True}),
    ("the hazard (0, 1, 'WAR') is missing", {"kinds": KINDS[::2]}),
    ("barriers=[0])\n      the hazard", {"cuts": lambda i, p, j: i <= p <= j}),
    ("barriers=[1])\n      (0, 1,", {"cuts": lambda i, p, j: i < p < j}),
    ("the hazard (0, 2, 'WAW') is missing", {"near": True}),
    ("a hazard is listed twice", {"kinds": KINDS * 2}),
):
    wrong("06-1", says=words)(_finder(**decision))


@alternative("06-2")
def from_the_end(hazards):
    barriers, proof = [], []
    for earlier, later, _ in sorted(hazards, key=lambda hazard: -hazard[0]):
        if not any(earlier < number <= later for number in barriers):
            barriers.append(earlier + 1)
            proof.append((earlier, later))
    return barriers, proof


def _greedy(key=lambda hazard: hazard[1], place=lambda first, end: end,
            ordered=lambda first, last: first < last):  # fmt: skip
    """Return an answer to 06-2 in which one decision may be wrong."""
    def fewest_barriers(hazards):
        barriers, proof = [], []
        for first, end, _ in sorted(hazards, key=key):
            if not (barriers and ordered(first, barriers[-1])):
                barriers.append(place(first, end))
                proof.append((first, end))
        return barriers, proof

    return fewest_barriers


for words, decision in (
    ("is in the gap of", {"key": lambda hazard: hazard[0]}),
    ("the fewest possible are", {"place": lambda first, end: first + 1}),
    ("is in the gap of", {"place": lambda first, end: end - 1}),
    ("is in the gap of", {"ordered": lambda first, last: first <= last}),
):
    wrong("06-2", says=words)(_greedy(**decision))


@wrong("06-2", says="you used 3 barriers; the fewest possible are 2")
def where_most_gaps_are(hazards):
    left, barriers = hazards, []
    while left:
        barriers.append(max(range(60), key=lambda p: sum(i < p <= j for i, j, _ in left)))
        left = [hazard for hazard in left if not hazard[0] < barriers[-1] <= hazard[1]]
    return barriers, []


for words, change in (
    ("the fewest possible are", lambda hazards, barriers: (sorted({h[1] for h in hazards}), [])),
    ("the proof needs 1 gaps, and has 0", lambda hazards, barriers: (barriers, [])),
    ("can share the barrier", lambda hazards, barriers: (barriers, [h[:2] for h in hazards])),
    ("expected two lists (barriers, proof)", lambda hazards, barriers: barriers),
):
    wrong("06-2", says=words)(lambda hazards, change=change: change(hazards, _greedy()(hazards)[0]))

RIGHT = {"D": "not needed", "C": "target access", "B": "right", "A": "source access"}
alternative("06-3")(RIGHT)
wrong("06-3", says="not all right")({**RIGHT, "B": "source access"})


def _by_bytes(sizes, ring):
    last, plan, at = {}, [], 0
    for value, size in enumerate(sizes, 1):
        at = 0 if at > ring - size else at
        places = range(at, at + size)
        plan.append((at, max(last.get(byte, 0) for byte in places)))
        last.update(dict.fromkeys(places, value))
        at += size
    return plan


@alternative("06-4")
def waits_only_for_what_is_not_sure_yet(sizes, ring):
    plan, waited = [], 0
    for at, value in _by_bytes(sizes, ring):
        plan.append((at, value if value > waited else 0))
        waited = max(waited, value)
    return plan


for words, change in (
    ("waiting for 0 is not enough", lambda value, n: 0),
    ("is not enough", lambda value, n: max(0, value - 1)),
    ("a smaller value is enough", lambda value, n: value and n),
    ("a smaller value is enough", lambda value, n: value + 1),
):
    wrong("06-4", says=words)(lambda sizes, ring, change=change: [
        (at, change(value, n)) for n, (at, value) in enumerate(_by_bytes(sizes, ring))])
wrong("06-4", says="expected 3 pairs (offset, value)")(lambda sizes, ring: [0] * len(sizes))
wrong("06-4", says="the offset of piece")(lambda sizes, ring: [
    (sum(sizes[:n]) % ring, value) for n, (_, value) in enumerate(_by_bytes(sizes, ring))])


@alternative("06-5")
def best_of_every_next_group(work, cap):
    @cache
    def best(done):
        able, room = ready(work, done), cap - kept_bytes(work, done)
        return () if len(done) == len(work) else min(
            ((group, *best(done | set(group))) for count in range(len(able))
             for group in combinations(able, count + 1) if sum(work[n][0] for n in group) <= room),
            key=len, default=("stuck",) * 99)  # fmt: skip

    return [list(group) for group in best(frozenset())]


def _filled(work, cap, key=lambda n: 0, fits=True, stuck=False):
    """Fill groups with ready commands; where this gets stuck, one command after the other."""
    groups, done = [], frozenset()
    while len(done) < len(work):
        group, room = [], cap - kept_bytes(work, done)
        for name in sorted(ready(work, done), key=key):
            if work[name][0] <= room or not fits:
                group.append(name)
                room -= work[name][0]
        if not group:
            return groups if stuck else [[name] for name in work]
        groups, done = [*groups, group], done | set(group)
    return groups


wrong("06-5", says="the obvious answer needs 6")(lambda work, cap: [[name] for name in work])
wrong("06-5", says="5 groups; no answer needs fewer than 4")(_filled)
wrong("06-5", says="b is in 0 groups")(lambda work, cap: _filled(work, cap, stuck=True))
wrong("06-5", says="bytes are live in group")(lambda work, cap: _filled(work, cap, fits=False))
wrong("06-5", says="which no earlier group has written")(lambda work, cap: [list(work)])
wrong("06-5", says="is empty")(lambda work, cap: [*_filled(work, cap), []])
wrong("06-5", says="expected a list of lists of names")(lambda work, cap: list(work))

taught("sum(work[name][0] for name in group)", because="lab 02b gives a sum over names")
taught("(work[name][0] for name in group)", because="lab 02b gives a sum over names")
