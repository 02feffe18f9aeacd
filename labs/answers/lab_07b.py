"""Answers to try the checks of lab 07b with: wrong ones, and a second right one for each."""

import numpy as np

from vklab_course.author.answers import alternative, equivalent, wrong
from vklab_labs.lab_07 import banks

HEAD = """
StructuredBuffer<uint> x;
RWStructuredBuffer<uint> y;
struct Params { uint count; };
[vk::push_constant] ConstantBuffer<Params> params;
groupshared uint own[64];
[shader("compute")]
[numthreads(64, 1, 1)]
void main(uint3 group : SV_GroupID, uint lane : SV_GroupIndex) {
"""
CLEAR, WAIT = "own[lane] = 0;", "GroupMemoryBarrierWithGroupSync();"
COUNT = """for (uint k = 0; k < 16; ++k) {
        uint i = group.x * 1024 + k * 64 + lane;
        if (i < params.count) InterlockedAdd(own[x[i]], 1); }"""
MERGE = "if (own[lane] != 0) InterlockedAdd(y[lane], own[lane]);"


def histogram(clear=CLEAR, first=WAIT, count=COUNT, second=WAIT, merge=MERGE):
    """Return a histogram of 64 bins of which one step may be wrong."""
    return HEAD + "\n".join((clear, first, count, second, merge)) + "}"


alternative("07b-1")(histogram(count="""
    uint first = group.x * 1024 + 16 * lane;
    for (uint i = first; i < min(params.count, first + 16); ++i) InterlockedAdd(own[x[i]], 1);"""))
for words, steps in (
    ("which another invocation of its workgroup", {"first": ""}),
    ("y counts", {"second": ""}),
    ("y counts", {"count": COUNT.replace("InterlockedAdd(own[x[i]], 1)", "own[x[i]] += 1")}),
    ("additions to y are not atomic", {"merge": "y[lane] += own[lane];"}),
    ("additions to y are not atomic", {"merge": "y[lane] = y[lane] + own[lane];"}),
    ("what is loaded may be out of date", {
        "merge": "uint old; InterlockedExchange(y[lane], y[lane] + own[lane], old);"}),
    ("if all 64 share the work", {
        "clear": "if (lane == 0) for (uint b = 0; b < 64; ++b) own[b] = 0;"}),
    ("barriers; two are enough", {"count": """for (uint k = 0; k < 1024; ++k) {
        if (k % 64 == lane && group.x * 1024 + k < params.count) own[x[group.x * 1024 + k]] += 1;
        GroupMemoryBarrierWithGroupSync(); }"""}),
    ("y counts", {"clear": ""}),
    ("element 3136 of x was read", {"count": COUNT.replace("if (i < params.count) ", "")}),
    ("y counts", {"count": COUNT.replace("k < 16", "k < 15")}),
    ("y counts", {"merge": "if (lane < 32) InterlockedAdd(y[lane], own[lane]);"}),
    ("y counts", {"merge": "if (lane == 0) for (uint b = 0; b < 63; ++b) "
                           "InterlockedAdd(y[b], own[b]);"}),
    ("the 64 of a workgroup share", {"merge": "if (lane == 0) for (uint b = 0; b < 64; ++b) "
                                              "InterlockedAdd(y[b], own[b]);"}),
    ("by 1 groups", {"count": COUNT.replace("own[x[i]]", "y[x[i]]")}),
    ("which nobody has written", {"clear": "", "merge": MERGE + " own[lane] = 0;"}),
    ("read", {"count": """if (lane == 0) for (uint i = group.x * 1024;
        i < min(params.count, group.x * 1024 + 1024); ++i) own[x[i]] += 1;"""}),
):  # fmt: skip
    wrong("07b-1", says=words)(histogram(**steps))
wrong("07b-1", says="the kernel does not compile")(histogram(merge="y[lane] += own[lane] "))
wrong("07b-1", says="does not end")(
    histogram(count="while (own[lane] < 1) InterlockedAdd(own[0], 0);"))

for done in ("own[bin] = 0;", "InterlockedAdd(y[bin], own[bin]);"):
    equivalent("07b-1", f"for (uint bin = lane; bin < 64; bin += 64) {done}",
               f"for (uint bin = lane; bin < 64; bin += 65) {done}",
               because="64 invocations have one bin each, so no loop makes a second turn")

# ------------------------------------------------------------------------------------------ 07b-2


@alternative("07b-2")
def by_sorting(words):
    needed = sorted({(word % 32, word) for word in words if word is not None})
    most = run = 0
    for n, (bank, _) in enumerate(needed):
        run = run + 1 if n and needed[n - 1][0] == bank else 1
        most = max(most, run)
    return most


def _counter(once=True, bank=lambda word: word % 32, active=lambda word: word is not None,
             of=max):  # fmt: skip
    """Return an answer to 07b-2 in which one decision may be wrong."""
    def transactions(words):
        found = {}
        for word in filter(active, words):
            found.setdefault(bank(word or 0), []).append(word)
        return of([len(set(each) if once else each) for each in found.values()] or [0])

    return transactions


for words, decision in (
    ("expected 1, got 32", {"once": False}),
    ("on words 1 apart: expected 1, got 32", {"bank": lambda word: word // 32}),
    ("expected", {"bank": lambda word: word % 16}),
    ("expected", {"bank": lambda word: word * 4 % 32}),
    ("on no active lane: expected 0, got 1", {"active": lambda word: True}),
    ("on words 32 apart: expected 32, got 31", {"active": bool}),
    ("expected", {"of": sum}),
    ("expected", {"of": len}),
):
    wrong("07b-2", says=words)(_counter(**decision))
wrong("07b-2", says="64 lanes")(lambda words: by_sorting(words[:32]))
wrong("07b-2", says="no lane at all")(lambda words: by_sorting(words) if words else None)
wrong("07b-2", says="no active lane")(lambda words: max(1, by_sorting(words)))
wrong("07b-2", says="expected 3, got 1")(
    lambda words: 32 // len({word and word % 32 for word in words}))

# ------------------------------------------------------------------------------------------ 07b-3


def _search(masks, accesses):
    """Return the best table that XORs the column with the masks of the row's bits."""
    number, best, least = np.arange(32), None, np.inf
    for some in masks:
        turn = np.bitwise_xor.reduce(np.where(number[:, None] >> np.arange(5) & 1, some, 0), axis=1)
        table = banks.lined_up(number ^ turn[:, None])
        total = banks.total(table, accesses)
        if total < least:
            best, least = table, total
        if least == len(accesses):
            break
    return best


@alternative("07b-3")
def more_at_random(accesses):
    chance = np.random.default_rng(30)
    return _search((chance.integers(0, 32, 5) for _ in range(1500)), accesses).reshape(32, 32)


ROW, COLUMN = np.arange(32)[:, None], np.arange(32)
wrong("07b-3", says="1504 transactions; no answer needs fewer than 192")(
    lambda accesses: list(range(1024)))
wrong("07b-3", says="1152 transactions")(
    lambda accesses: banks.lined_up(COLUMN ^ ROW))


@wrong("07b-3", says="288 transactions; no answer needs fewer than 192, the obvious answer")
def best_skew(accesses):
    return min((banks.lined_up(COLUMN + k * ROW) for k in range(32)),
               key=lambda table: banks.total(table, accesses))  # fmt: skip


@wrong("07b-3", says="transactions; no answer needs fewer than")
def few_tries(accesses):
    chance = np.random.default_rng(3)
    return _search((chance.integers(0, 32, 5) for _ in range(12)), accesses)


@wrong("07b-3", says="transactions; no answer needs fewer than")
def for_the_picture_only(accesses):
    return _search([[26, 13, 22, 3, 17]], banks.accesses_of(banks.PICTURE))


alternative("07b-3")(lambda accesses: more_at_random(accesses).astype(np.uint64))
wrong("07b-3", says="belongs to several elements")(lambda accesses: [0] * 1024)
wrong("07b-3", says="belongs to several elements")(lambda accesses: np.arange(1024) // 2)
wrong("07b-3", says="words are 0 to 1023")(lambda accesses: np.arange(1024) + 1)
wrong("07b-3", says="expected 1024 whole numbers")(lambda accesses: list(range(1056)))
wrong("07b-3", says="expected 1024 whole numbers")(lambda accesses: np.arange(1024.0))

for line in ("for _ in range(501):", "for _ in range(499):", "for _ in range(500 - 1):"):
    equivalent("07b-3", "for _ in range(500):", line,
               because="one table of hundreds, drawn at random, decides nothing")
equivalent("07b-2", "found = [set() for _ in range(32)]", "found = [set() for _ in range(33)]",
           because="no word lies in a bank that does not exist")
