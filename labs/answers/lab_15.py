"""Answers to try the checks of lab 15 with: wrong ones, and a second right one for each."""

import collections

import numpy as np

from vklab_course.author.answers import alternative, equivalent, wrong
from vklab_labs.lab_15 import packages, shapes


def _counter(left=("const",), deep=True, functions=lambda named: named.values(), levels=99,
             skips=lambda kind: False, once=False):  # fmt: skip
    """Return an answer to 15-1 in which one decision may be wrong."""
    def kinds(block, level=0):
        for operation in block["operations"]:
            kind = operation["type"]
            if kind not in left and not skips(kind):
                yield kind
            inner = operation.get("blocks", []) if deep and level < levels else []
            for each in inner[:1] if once else inner:
                yield from kinds(each, level + 1)

    def count_operators(program):
        blocks = functions(program["functions"])
        return dict(collections.Counter(kind for block in blocks for kind in kinds(block)))

    return count_operators


@alternative("15-1")
def by_a_stack(program):
    counts, stack = collections.Counter(), [*program["functions"].values()]
    while stack:
        for operation in stack.pop()["operations"]:
            counts[operation["type"]] += 1
            stack.extend(operation.get("blocks", []))
    counts.pop("const", None)
    return dict(counts)


wrong("15-1", says="'const' is not to be counted here")(packages.page_counts)
for words, decision in (
    ("'const' is not to be counted here", {"left": ()}),
    ("operators of the type", {"deep": False}),
    ("operators of the type", {"functions": lambda named: [*named.values()][:1]}),
    ("on functions main and other", {"functions": lambda named: [named["main"]]}),
    ("on functions main and other", {"functions": lambda named: [named[n] for n in named
                                                                 if n == "main"]}),
    ("constexpr_affine_dequantize is not in your", {"skips": lambda kind: "const" in kind}),
    ("is not in your dictionary", {"left": ("const", "cast")}),
    ("is not in your dictionary", {"left": ("const", "reshape")}),
    ("is not in your dictionary", {"left": ("const", "transpose")}),
    ("is not in your dictionary", {"left": ("const", "cond", "while_loop")}),
    ("operators of the type", {"once": True}),
    ("on blocks in four levels", {"levels": 2}),
):
    wrong("15-1", says=words)(_counter(**decision))


@wrong("15-1", says="expected a dictionary of counts")
def a_sum(program):
    return sum(_counter()(program).values())


@wrong("15-1", says="expected 3, got 2")
def one_level_of_blocks(program):
    counts = collections.Counter()
    for block in program["functions"].values():
        for operation in block["operations"]:
            counts[operation["type"]] += 1
            for inner in operation.get("blocks", []):
                counts.update(each["type"] for each in inner["operations"])
    return {kind: count for kind, count in counts.items() if kind != "const"}


def _pooling(first, end, weight=None):
    """Return an answer to 15-2 with these bins."""
    def pooling_matrix(size, bins):
        made = np.zeros((bins, size), np.float32)
        for i in range(bins):
            low, high = first(i, size, bins), end(i, size, bins)
            made[i, low:high] = 1 / max(high - low, 1)
        return made

    return pooling_matrix


alternative("15-2")(
    _pooling(lambda i, s, b: i * s // b, lambda i, s, b: ((i + 1) * s + b - 1) // b))
for decision in (
    (lambda i, s, b: i * (s // b), lambda i, s, b: (i + 1) * (s // b)),  # equal windows
    (lambda i, s, b: i * (s // b), lambda i, s, b: s if i == b - 1 else (i + 1) * (s // b)),
    (lambda i, s, b: i * s // b, lambda i, s, b: (i + 1) * s // b),  # floors at both ends
    (lambda i, s, b: i * (s // b) + min(i, s % b),  # array_split
     lambda i, s, b: (i + 1) * (s // b) + min(i + 1, s % b)),
    (lambda i, s, b: -(-i * s // b), lambda i, s, b: -(-(i + 1) * s // b)),
    (lambda i, s, b: round(i * s / b), lambda i, s, b: round((i + 1) * s / b)),
):
    wrong("15-2", says="elements differ")(_pooling(*decision))


@wrong("15-2", says="elements differ")
def exact_areas(size, bins):
    left, right = np.arange(size), np.arange(1, size + 1)
    low = np.arange(bins)[:, None] * size / bins
    high = low + size / bins
    covered = np.clip(np.minimum(right, high) - np.maximum(left, low), 0, None)
    return (covered / covered.sum(axis=1, keepdims=True)).astype(np.float32)


@wrong("15-2", says="expected shape")
def turned(size, bins):
    good = _pooling(lambda i, s, b: i * s // b, lambda i, s, b: -(-(i + 1) * s // b))
    return np.ascontiguousarray(good(size, bins).T)


@alternative("15-3")
def by_two_moved_scores(scores, error):
    wide = np.asarray(scores, np.float64)
    best, flags = wide.argmax(axis=1), []
    for row, top in zip(wide, best, strict=True):
        others = np.delete(row, top) + error
        flags.append(bool((others > row[top] - error).any()))
    return np.array(flags, bool)


def _margins(scores):
    ordered = np.sort(np.asarray(scores, np.float64), axis=1)
    return ordered[:, -1] - ordered[:, -2]


def _softmax(scores):
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


for words, rule in (
    ("expected", lambda scores, error: _margins(scores) < error),
    ("expected", lambda scores, error: scores.max(axis=1) < 2 * error),
    ("expected", lambda scores, error: _margins(scores) / np.abs(scores).max(axis=1) < 2 * error),
    ("expected", lambda scores, error: _margins(_softmax(scores)) < 2 * error),
    ("expected", lambda scores, error: _margins(scores) <= 2 * error),
    ("expected", lambda scores, error: _margins(scores) < 4 * error),
    ("expected", lambda scores, error: _margins(scores) >= 2 * error),
    ("expected", lambda scores, error: np.ptp(scores, axis=1) < 2 * error),
    ("expected", lambda scores, error: (_margins(scores) < 2 * error) & (_margins(scores) > 0)),
    ("expected", lambda scores, error: np.abs(scores[:, 0] - scores[:, 1]) < 2 * error),
    ("expected an array, bool", lambda scores, error: int((_margins(scores) < 2 * error).sum())),
):
    wrong("15-3", says=words)(rule)


wrong("15-3", says="expected")(
    lambda scores, error: np.diff(np.sort(scores, axis=1)).min(axis=1) < 2 * error)


@wrong("15-3", says="expected")
def second_distinct_score(scores, error):
    tops = [sorted(set(row.tolist()))[-2:] for row in scores]
    return np.array([len(top) < 2 or top[1] - top[0] < 2 * error for top in tops], bool)


RIGHT = {
    "P": ("neuralNetwork", "iOS13", "Core ML's choice", "as computed"),
    "Q": ("mlProgram", "iOS16", "float16", "as computed"),
    "R": ("mlProgram", "iOS17", "float16", "int8"),
}
alternative("15-4")(dict(reversed(RIGHT.items())))
# the target from the newest operator: relu and conv are of iOS 15, constexpr_... of iOS 16
wrong("15-4", says="not all right")({
    "P": RIGHT["P"], "Q": ("mlProgram", "iOS15", "float16", "as computed"),
    "R": ("mlProgram", "iOS16", "float16", "int8")})  # fmt: skip
# the precision from the dtype of the input
wrong("15-4", says="not all right")({
    "P": ("neuralNetwork", "iOS13", "float32", "as computed"),
    "Q": ("mlProgram", "iOS16", "float32", "as computed"),
    "R": ("mlProgram", "iOS17", "float32", "int8")})  # fmt: skip
wrong("15-4", says="choose one of 'iOS13'")({**RIGHT, "Q": ("mlProgram", "iOS 16", "float16",
                                                            "as computed")})  # fmt: skip
wrong("15-4", says="expected {'P': (four texts)")({"P": "neuralNetwork"})
wrong("15-4", says="has no answer")({"P": RIGHT["P"]})
wrong("15-4", says="the packages are P, Q and R")({**RIGHT, "S": RIGHT["P"]})


@alternative("15-5")
def from_the_longest_down(sizes, most):
    """Return the best list by a table over lengths, not over inputs."""
    counts, longest = collections.Counter(sizes), max(sizes)
    held = np.cumsum([0, *(counts[n] for n in range(1, longest + 1))])
    added = np.cumsum([0, *(n * counts[n] for n in range(1, longest + 1))])
    best = {0: (0, [])}
    for _ in range(most):
        further = dict(best)
        for low, (cost, chosen) in best.items():
            for top in range(low + 1, longest + 1):
                if top not in counts:
                    continue
                more = cost + top * (held[top] - held[low]) - (added[top] - added[low])
                if top not in further or more < further[top][0]:
                    further[top] = int(more), [*chosen, top]
        best = further
    return best[longest][1]


for rule in (shapes.equal_steps, shapes.halves, shapes.quantiles):
    wrong("15-5", says="elements of padding")(rule)
for rule in (shapes.greedy, shapes.exchanges):
    wrong("15-5", says="elements of padding", status="partial")(rule)
wrong("15-5", says="at most")(lambda sizes, most: sorted(set(sizes)))
wrong("15-5", says="is not sorted")(lambda sizes, most: sorted(set(sizes))[::-1][:most])
wrong("15-5", says="holds the longest input")(lambda sizes, most: sorted(set(sizes))[:most])
wrong("15-5", says="is no whole number")(lambda sizes, most: [float(max(sizes))])
wrong("15-5", says="expected a list of lengths")(lambda sizes, most: max(sizes))

for start in ("1", "-1"):
    equivalent("15-5", "best = {0: (0, ())}", f"best = {{0: ({start}, ())}}",
               because="each list begins there once, so all costs change by the same number")
LONGER = ("longer = {top: min(((padded + top * (held[top] - held[low]), (*below, top)) for low, "
          "(padded, below) in best.items() if low < top)) for top in lengths}")  # fmt: skip
equivalent("15-5", LONGER, LONGER.replace("low < top", "low <= top"),
           because="a length twice holds no further input, and is not better")
