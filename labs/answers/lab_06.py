"""Answers to try the checks of lab 06 with: wrong ones, and a second right one for each."""

from itertools import combinations, pairwise

from vklab.course.author.answers import alternative, taught, wrong

KINDS = (("RAW", 2, 1), ("WAR", 1, 2), ("WAW", 2, 2))


def _finder(touch=lambda a, b, c, d: a < d and c < b, same=lambda x, y: x == y, kinds=KINDS,
            cuts=lambda i, p, j: i < p <= j, near=False):  # fmt: skip
    """Return an answer to 06-1 in which one decision may be wrong."""
    def find_hazards(commands, barriers=()):
        found = []
        for i, one in enumerate(commands):
            for j, other in enumerate(commands):
                if j <= i or near and j > i + 1 or any(cuts(i, p, j) for p in barriers):
                    continue
                for kind, first, second in kinds:
                    if any(same(x, y) and touch(a, b, c, d) for x, a, b in one[first]
                           for y, c, d in other[second]):  # fmt: skip
                        found.append((i, j, kind))
        return found

    return find_hazards


alternative("06-1")(_finder())
for words, decision in (
    ("(0, 1, 'RAW') is no hazard here", {"touch": lambda a, b, c, d: a <= d and c <= b}),
    ("the hazard (0, 1, 'RAW') is missing", {"touch": lambda a, b, c, d: a == c}),
    ("(0, 1, 'RAW') is no hazard here", {"same": lambda x, y: True}),
    ("the hazard (0, 1, 'WAW') is missing", {"kinds": KINDS[:2]}),
    ("the hazard (0, 1, 'WAR') is missing", {"kinds": KINDS[::2]}),
    ("'RAR') is no hazard here", {"kinds": (*KINDS, ("RAR", 1, 1))}),
    ("barriers=(0,): the hazard", {"cuts": lambda i, p, j: i <= p <= j}),
    ("barriers=(1,): (0, 1,", {"cuts": lambda i, p, j: i < p < j}),
    ("barriers=(0,): the hazard", {"cuts": lambda i, p, j: True}),
    ("barriers=(1,):", {"cuts": lambda i, p, j: False}),
    ("the hazard (0, 2, 'RAW') is missing", {"near": True}),
):
    wrong("06-1", says=words)(_finder(**decision))
wrong("06-1", says="a hazard is listed twice")(
    lambda commands, barriers=(): 2 * _finder()(commands, barriers))

# ------------------------------------------------------------------------------------------- 06-2


@alternative("06-2")
def from_the_end(hazards):
    barriers, proof = [], []
    for earlier, later, _ in sorted(hazards, key=lambda hazard: -hazard[0]):
        if not any(earlier < number <= later for number in barriers):
            barriers.append(earlier + 1)
            proof.append((earlier, later))
    return barriers, proof


def _greedy(key=lambda hazard: hazard[1], place=lambda first, behind: behind, served=None):
    """Return an answer to 06-2 in which one decision may be wrong."""
    def fewest_barriers(hazards):
        barriers, proof = [], []
        for first, behind, _ in sorted(hazards, key=key):
            done = any(first < p <= behind for p in barriers)
            if not (done if served is None else barriers and served(first, barriers[-1])):
                barriers.append(place(first, behind))
                proof.append((first, behind))
        return barriers, proof

    return fewest_barriers


for words, decision in (
    ("barriers are enough, you need", {"key": lambda hazard: 0}),
    ("barriers are enough, you need", {"key": lambda hazard: hazard[0]}),
    ("barriers are enough, you need", {"place": lambda first, behind: first + 1}),
    ("is in the gap of", {"place": lambda first, behind: behind - 1}),
    ("is in the gap of", {"served": lambda first, last: first <= last}),
    ("you need", {"served": lambda first, last: first < last - 1}),
):
    wrong("06-2", says=words)(_greedy(**decision))
@wrong("06-2", says="2 barriers are enough, you need 3")
def where_most_are_served(hazards):
    left, barriers = hazards, []
    while left:
        barriers.append(max(range(60), key=lambda p: sum(i < p <= j for i, j, _ in left)))
        left = [hazard for hazard in left if not hazard[0] < barriers[-1] <= hazard[1]]
    return barriers, []


for words, change in (
    ("you need", lambda hazards, barriers: (list(range(1, 30)), [])),
    ("you need", lambda hazards, barriers: (sorted({later for _, later, _ in hazards}), [])),
    ("your proof has 0 hazards of 1", lambda hazards, barriers: (barriers, [])),
    ("can share the barrier", lambda hazards, barriers: (barriers, [h[:2] for h in hazards])),
    ("is no (earlier, later) of a hazard", lambda hazards, barriers: (
        barriers, list(pairwise([0, *barriers])))),
    ("expected two lists (barriers, proof)", lambda hazards, barriers: barriers),
    ("expected numbers of commands", lambda hazards, barriers: ([["1"]], [])),
):
    wrong("06-2", says=words)(lambda hazards, change=change: change(hazards, _greedy()(hazards)[0]))

# ------------------------------------------------------------------------------------------- 06-3

RIGHT = {"F": "right", "E": "target stage", "D": "not needed", "C": "target access", "B": "right",
         "A": "source access"}  # fmt: skip
alternative("06-3")(RIGHT)
wrong("06-3", says="5 of 6 are right")({**RIGHT, "B": "source access"})
wrong("06-3", says="choose one of 'right'")({**RIGHT, "B": "wrong"})
wrong("06-3", says="2 of 6 are right")(dict.fromkeys("ABCDEF", "right"))

# ------------------------------------------------------------------------------------------- 06-4


@alternative("06-4")
def by_bytes(sizes, ring):
    last, plan, at = {}, [], 0
    for value, size in enumerate(sizes, 1):
        if at > ring - size:
            at = 0
        places = range(at, at + size)
        plan.append((at, max(last.get(byte, 0) for byte in places)))
        last.update(dict.fromkeys(places, value))
        at += size
    return plan


def _changed(change):
    """Return an answer to 06-4 whose values are changed: change(value, number, pieces)."""
    return lambda sizes, ring: [(at, change(value, n, len(sizes)))
                                for n, (at, value) in enumerate(by_bytes(sizes, ring))]


for words, change in (
    ("waiting for 0 is not enough", lambda value, n, count: 0),
    ("is not enough", lambda value, n, count: max(0, value - 1)),
    ("a smaller value is enough", lambda value, n, count: n),
    ("a smaller value is enough", lambda value, n, count: value and n),
    ("a smaller value is enough", lambda value, n, count: value + 1),
):
    wrong("06-4", says=words)(_changed(change))
wrong("06-4", says="expected 3 pairs (offset, value)")(lambda sizes, ring: [0] * len(sizes))
wrong("06-4", says="the offset of piece")(lambda sizes, ring: [(0, n) for n in range(len(sizes))])
wrong("06-4", says="the offset of piece")(lambda sizes, ring: [
    (sum(sizes[:n]) % ring, value) for n, (_, value) in enumerate(by_bytes(sizes, ring))])

# ------------------------------------------------------------------------------------------- 06-5


def _live(work, done):
    wanted = {read for name, (_, reads) in work.items() if name not in done for read in reads}
    ever = {read for _, reads in work.values() for read in reads}
    return sum(work[name][0] for name in done if name in wanted or name not in ever)


@alternative("06-5")
def deeper_and_deeper(work, cap):
    def within(done, left):
        if len(done) == len(work):
            return []
        able = [n for n in work if n not in done and done.issuperset(work[n][1])]
        for count in range(len(able) if left else 0, 0, -1):
            for group in combinations(able, count):
                state = done | set(group)
                if (state, left) not in failed and _live(work, done) + sum(
                        work[n][0] for n in group) <= cap:  # fmt: skip
                    rest = within(state, left - 1)
                    if rest is not None:
                        return [list(group), *rest]
                    failed.add((state, left))
        return None

    failed = set()
    return next(found for most in range(1, 11)
                if (found := within(frozenset(), most)) is not None)  # fmt: skip


def _filled(work, cap, key=lambda n: 0, fits=True):
    """Fill groups with ready commands; where this gets stuck, one command after the other."""
    groups, done = [], frozenset()
    while len(done) < len(work):
        group, room = [], cap - _live(work, done)
        for name in sorted((n for n in work if n not in done and done.issuperset(work[n][1])),
                           key=key):  # fmt: skip
            if work[name][0] <= room or not fits:
                group.append(name)
                room -= work[name][0]
        if not group:
            return [[name] for name in work]
        groups, done = [*groups, group], done | set(group)
    return groups


wrong("06-5", says="the obvious answer needs 6")(lambda work, cap: [[name] for name in work])
wrong("06-5", says="5 groups; no answer needs less than 4")(_filled)
wrong("06-5", says="no answer needs less than")(
    lambda work, cap: _filled(work, cap, lambda n: work[n][0]))
wrong("06-5", says="bytes are live in group")(lambda work, cap: _filled(work, cap, fits=False))
wrong("06-5", says="which no earlier group has written")(lambda work, cap: [list(work)])
wrong("06-5", says="the commands")(lambda work, cap: [[name] for name in work][:-1])
wrong("06-5", says="expected a list of lists of names")(lambda work, cap: list(work))

taught("sum(work[name][0] for name in group)", because="lab 02b gives a sum over names")
taught("(work[name][0] for name in group)", because="lab 02b gives a sum over names")
