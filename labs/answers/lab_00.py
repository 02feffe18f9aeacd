"""Answers to try the checks of lab 00 with."""

import numpy as np

from vklab.plan import memory
from vklab_course.author.answers import alternative, equivalent, wrong


@wrong("00-1", says="on one picture, every pixel 85: expected dtype float32, got float64")
def divides_first(pixels):
    return (pixels / 255)[:, None]


@wrong("00-1", says="expected shape (1, 1, 28, 28), got (1, 28, 28, 1)")
def puts_the_axis_last(pixels):
    return pixels.astype(np.float32)[..., None] / 255


@wrong("00-1", says="white is 255, also where no pixel is white")
def divides_by_the_brightest(pixels):
    return pixels.astype(np.float32)[:, None] / pixels.max()


@wrong("00-1", says="784 of 784 elements differ; element 0, 0, 0, 0: expected 0.333333, got 0;")
def divides_whole_numbers(pixels):
    return (pixels // 255).astype(np.float32)[:, None]


@alternative("00-1")
def by_multiplying(pixels):
    return np.expand_dims(np.multiply(pixels, np.float32(1 / 255), dtype=np.float32), 1)


@wrong("00-2", says="on checks: ok, ok: expected [], got ['', '']")
def keeps_empty_lines(report):
    rank = sorted(report.checks, key=lambda c: (c.ok, not c.essential if not c.ok else False))
    return [c.repair for c in rank]


@wrong("00-2", says="failed and essential comes first, in the report's order (1)\n      on checks")
def in_the_order_of_the_report(report):
    lines = [c.repair for c in report.checks if not c.ok and c.repair]
    lines += [c.repair for c in report.checks if c.ok and c.repair]
    return list(dict.fromkeys(lines))


@wrong("00-2", says="no  each line is listed once, where it is needed first")
def says_lines_twice(report):
    rank = sorted(report.checks, key=lambda c: c.ok * 2 + (not c.ok and not c.essential))
    return [c.repair for c in rank if c.repair]


@wrong("00-2", says="no  notes come last, in the report's order")
def ranks_notes_by_essential(report):
    rank = sorted(report.checks, key=lambda c: (c.ok, not c.essential))
    return list(dict.fromkeys(c.repair for c in rank if c.repair))


@alternative("00-2")
def by_rank(report):
    found = []
    for check in sorted(report.checks, key=lambda c: 2 if c.ok else 0 if c.essential else 1):
        if check.repair and check.repair not in found:
            found.append(check.repair)
    return found


@wrong("00-3", says="the obvious answer needs")
def largest_first(pictures, sizes, run):
    runs = []
    for size in sorted(sizes, reverse=True):
        runs += [size] * (pictures // size)
        pictures %= size
    return runs + [min(sizes)] * (pictures > 0)


@wrong("00-3", says="pictures are read")
def rounds_down(pictures, sizes, run):
    return [max(sizes)] * (pictures // max(sizes))


@wrong("00-3", says="on 17 pictures, sizes [16, 32], run=6: 17 is none of the sizes [16, 32]")
def invents_sizes(pictures, sizes, run):
    return [pictures]


@wrong("00-3", says="the list has 32 rows: a run of 16 is not needed")
def never_stops_early(pictures, sizes, run):
    return [min(sizes)] * (pictures // min(sizes) + 1)


@wrong("00-3", says="no  the cost, between the obvious choices (0) and the least (all)")
def ignores_the_price(pictures, sizes, run):
    best = [[]]
    for left in range(1, pictures + 1):
        tries = [[size, *best[max(left - size, 0)]] for size in sizes]
        best.append(min(tries, key=lambda runs: sum(runs) + 6 * len(runs)))
    return best[pictures]


@wrong("00-3", says="on 180 pictures, sizes [55, 40, 6, 57], run=45: 406 units of cost")
def leaves_few_rows_empty(pictures, sizes, run):
    exact = {0: []}  # rows -> the shortest list with that sum, up to the smallest size too many
    for rows in range(1, pictures + min(sizes) + 1):
        lists = [[size, *exact[rows - size]] for size in sizes if rows - size in exact]
        exact |= {rows: min(lists, key=len)} if lists else {}
    ends = [exact[rows] for rows in exact if rows >= pictures]
    return min(ends, key=lambda runs: sum(runs) + run * len(runs))


@alternative("00-3")
def from_rows_to_runs(pictures, sizes, run):
    fewest = {0: ()}  # rows -> the shortest list with that sum
    waiting = [0]
    for rows in waiting:
        for size in sizes if rows < pictures else ():
            if rows + size not in fewest:
                waiting.append(rows + size)
                fewest[rows + size] = (*fewest[rows], size)
    enough = [rows for rows in fewest if rows >= pictures]
    return list(fewest[min(enough, key=lambda rows: rows + run * len(fewest[rows]))])


LOOP = "for left in range(1, pictures + {}):"
equivalent("00-3", LOOP.format(1), LOOP.format(2), because="one list more than needed is made")
TRIES = "tries = [[size, *best[max({})]] for size in sizes]"
equivalent("00-3", TRIES.format("left - size, 0"), TRIES.format("0, left - size"),
           because="the order of arguments of max is free")  # fmt: skip

def placed(lifetimes, rounded=memory.round_up):
    offsets, end = {}, 0
    for life in lifetimes:
        offsets[life.name] = end
        end += rounded(life.size_bytes)
    return offsets, end


@wrong("00-4", says="expected a multiple of 256, from 0 on, got 100 for v1")
def forgets_to_round(lifetimes, aliasing=True):
    return placed(lifetimes, int)


@wrong("00-4", says="v0 has bytes 0 to 256, v1 has 0 to 256: they share some")
def puts_all_at_the_start(lifetimes, aliasing=True):
    total = sum(memory.round_up(life.size_bytes) for life in lifetimes)
    return {life.name: 0 for life in lifetimes}, total


@wrong("00-4", says="on sizes 256, 256, 256: expected 768, got 512  (the total)")
def returns_the_last_offset(lifetimes, aliasing=True):
    offsets, _ = placed(lifetimes)
    return offsets, max(offsets.values(), default=0)


@wrong("00-4", says="image has bytes 512 to 5368709633, w has 5368709632")
def rounds_in_32_bits(lifetimes, aliasing=True):
    return placed(lifetimes, lambda size: int(np.ceil(np.float32(size) / 256)) * 256)


@wrong("00-4", says="on sizes 300, 0, 0, 20: expected 768, got 1280  (the total)")
def gives_each_value_a_place(lifetimes, aliasing=True):
    return placed(lifetimes, lambda size: max(256, memory.round_up(size)))


wrong("00-4", says="the runtime's own function is asked to answer")(memory.assign_offsets)


@alternative("00-4")
def from_the_last_to_the_first(lifetimes, aliasing=True):
    sizes = [-(-life.size_bytes // 256) * 256 for life in reversed(lifetimes)]
    names = [life.name for life in reversed(lifetimes)]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    return dict(zip(names, starts, strict=True)), sum(sizes)


wrong("00-5", says="not all right")({"A": 3, "B": 2, "C": 1, "D": 2})
wrong("00-5", says="'B': got 0; choose one of 1, 2, 3, 4")({"A": 2, "B": 0, "C": 0, "D": 1})
alternative("00-5")(dict(zip("DCBA", (2, 1, 4, 3), strict=True)))
