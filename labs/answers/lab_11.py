"""Answers to try the checks of lab 11 with: wrong ones, and a second right one for each."""

from functools import cache
from itertools import combinations

from vklab_course.author.answers import alternative, equivalent, wrong
from vklab_labs.lab_11.offload import farthest_first, gaps_of, live_bytes

VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
ELEMENTWISE = ("Add", "Mul", "Div", "Relu", "Sigmoid", "Erf")


def _lives(views=VIEWS, end=0, chains=True, raises=True, viewed=False, inputs=False):
    """Return an answer to 11-1 in which one decision may be wrong."""
    def find(nodes, outputs):
        shows, lives, names = {}, {}, [n for _, _, writes in nodes for n in writes]
        for step, (op, reads, writes) in enumerate(nodes):
            early = set(names[sum(len(w) for _, _, w in nodes[:step]) :]) & set(reads)
            if raises and (early or names.count(writes[0]) > 1):
                raise ValueError(step)
            if op in views:
                shows[writes[0]] = shows.get(reads[0], reads[0]) if chains else reads[0]
            for root in [shows.get(n, n) for n in reads] if viewed or op not in views else ():
                if root in lives or inputs:
                    lives[root] = lives.get(root, (step, step))[0], step
            lives |= {name: (step, step) for name in writes if op not in views}
        for root in {shows.get(name, name) for name in outputs} & lives.keys():
            lives[root] = lives[root][0], len(nodes) + end
        return lives

    return find


alternative("11-1")(_lives())
for words, decision in (
    ("expected (0, 4)", {"chains": False}), ("expected (2, 3), got (2, 2)", {"end": -1}),
    ("expected ValueError", {"raises": False}), ("'y' has no bytes", {"views": VIEWS[:2]}),
    ("has no bytes of its own", {"inputs": True}), ("the lifetime of", {"viewed": True}),
):  # fmt: skip
    wrong("11-1", says=words)(_lives(**decision))


def _lowest(counts=lambda size: size or 1, up=1, order=sorted, back=max, fits=lambda a, b: a <= b,
            begins=lambda first: first):  # fmt: skip
    """Return an answer to 11-2 in which one decision may be wrong."""
    def lowest(size, taken, alignment=256):
        at = 0
        for first, end in order(taken):
            if fits(at + counts(size), begins(first)):
                return at
            at = back(at, (end + up * (alignment - 1)) // alignment * alignment)
        return at

    return lowest


@alternative("11-2")
def by_trying(size, taken, alignment=256):
    ends = [-(-end // alignment) * alignment for _, end in taken]
    return min(at for at in (0, *ends) if not any(
        first < at + max(size, 1) and at < end for first, end in taken))  # fmt: skip


for words, decision in (
    ("share 1 bytes", {"counts": lambda size: size}), ("share 1 bytes", {"up": 0}),
    ("share", {"order": list}), ("share", {"back": lambda at, new: new}),
    ("and so is a lower one", {"fits": lambda a, b: a < b}),
    ("and so is a lower one", {"counts": lambda size: -(-max(size, 1) // 256) * 256}),
    ("share", {"begins": lambda first: -(-first // 256) * 256}),
):  # fmt: skip
    wrong("11-2", says=words)(_lowest(**decision))


def _over(ops=ELEMENTWISE, last=lambda last, step: last == step, fit=lambda a, b: a == b, own=True):
    """Return an answer to 11-3 in which one decision may be wrong."""
    return lambda nodes, sizes, lives: {
        result: able[0] for step, (op, reads, (result, *_)) in enumerate(nodes)
        if (able := [n for n in reads if ops is None or op in ops if n in lives or not own
                     if last(lives.get(n, (0, step))[1], step) if fit(sizes[n], sizes[result])])}


alternative("11-3")(_over())
for words, decision in (
    ("does not work element by element", {"ops": None}), ("reads it later", {"last": max}),
    ("belong to the caller", {"own": False}), ("bytes, the result", {"fit": lambda a, b: a >= b}),
    ("bytes, the result", {"fit": lambda a, b: True}), ("and does not", {"ops": ("Relu", "Add")}),
):  # fmt: skip
    wrong("11-3", says=words)(_over(**decision))

RIGHT = {"value": "b", "step": "4"}
alternative("11-4")(RIGHT)
wrong("11-4", says="not all right")({**RIGHT, "value": "c"})


@alternative("11-5")
def best_of_each_next_step(values, cap):
    live = live_bytes(values)
    size = {name: count for name, (count, _) in values.items()}

    @cache
    def best(step, away, copied):
        if step == len(live):
            return 0, ()
        back = frozenset(n for n in away if step not in values[n][1])
        left = [n for n in size if step - 1 in values[n][1][:-1] and step not in values[n][1]]
        found = [(float("inf"), ())]
        for count in range(len(left) + 1):
            for leave in combinations(left, count):
                gone = back | {*leave}
                if live[step] - sum(map(size.get, gone)) <= cap:
                    known = frozenset(n for n in copied | gone if values[n][1][-1] > step)
                    price, moves = best(step + 1, gone, known)
                    price += sum(size[n] * (2 - (n in copied)) for n in leave)
                    found.append((price, (*((n, step - 1) for n in leave), *moves)))
        return min(found)

    return list(best(0, frozenset(), frozenset())[1])


for words, answer in (
    ("bytes moved; no answer needs less than", farthest_first),
    ("the cap is 8", lambda values, cap: gaps_of(values)[1:]),
    ("is listed twice", lambda values, cap: gaps_of(values) * 2),
    ("is used again in the next", lambda values, cap: [(n, u[0]) for n, (_, u) in values.items()]),
    ("expected a list of (name, step)", lambda values, cap: list(values)),
    ("is no move", lambda values, cap: [("z", 0)]),
):  # fmt: skip
    wrong("11-5", says=words)(answer)

for before, after, because in (
    ("ways = {start: (0, [])}", "ways = {start: (1, [])}", "every way costs one byte more"),
    ("ways = {start: (0, [])}", "ways = {start: (-1, [])}", "every way costs one byte less"),
    ("for count in range(len(idle) + 1):", "for count in range(len(idle) + 2):", "no such set"),
    ("if state not in further or price < further[state][0]:",
     "if state not in further or price <= further[state][0]:", "both ways cost the same"),
):  # fmt: skip
    equivalent("11-5", before, after, because)
equivalent("11-2", "offset = max(offset, stop + -stop % alignment)",
           "offset = max(stop + -stop % alignment, offset)", "the same maximum")
