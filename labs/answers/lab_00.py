"""Answers to try the checks of lab 00 with."""

import numpy as np

from vklab.course.author.answers import alternative, equivalent, wrong
from vklab.plan import memory

# ------------------------------------------------------------------------------------- 00-1


@wrong("00-1", says="on three pictures: expected dtype float32, got float64")
def divides_first(pixels):
    return (pixels / 255)[:, None]


@wrong("00-1", says="expected shape (3, 1, 28, 28), got (3, 28, 28)")
def forgets_the_axis(pixels):
    return pixels.astype(np.float32) / 255


@wrong("00-1", says="expected shape (3, 1, 28, 28), got (3, 28, 28, 1)")
def puts_the_axis_last(pixels):
    return pixels.astype(np.float32)[..., None] / 255


@wrong("00-1", says="white is 255, also where no pixel is white")
def divides_by_the_brightest(pixels):
    return pixels.astype(np.float32)[:, None] / pixels.max()


@wrong("00-1", says="element 0, 0, 0: expected 0.2, got 0")
def divides_whole_numbers(pixels):
    return (pixels // 255).astype(np.float32)[:, None]


@wrong("00-1", says="an array, float32 of shape (3, 1, 28, 28), got None (is a return missing?)")
def forgets_to_return(pixels):
    pixels.astype(np.float32)[:, None] / 255


@alternative("00-1")
def by_multiplying(pixels):
    return np.expand_dims(np.multiply(pixels, np.float32(1 / 255), dtype=np.float32), 1)


# ------------------------------------------------------------------------------------- 00-2


@wrong("00-2", says="a failed check that names no repair: expected [], got ['']")
def keeps_empty_lines(report):
    rank = sorted(report.checks, key=lambda c: (c.ok, not c.essential if not c.ok else False))
    return list(dict.fromkeys(c.repair for c in rank if c.repair or not c.ok))


@wrong("00-2", says="expected ['B', 'A', 'C'], got ['C', 'B', 'A']")
def in_the_order_of_the_report(report):
    lines = [c.repair for c in report.checks if not c.ok and c.repair]
    lines += [c.repair for c in report.checks if c.ok and c.repair]
    return list(dict.fromkeys(lines))


@wrong("00-2", says="on B is a note, later an essential repair; A three times: expected ['A', 'B']")
def says_lines_twice(report):
    rank = sorted(report.checks, key=lambda c: c.ok * 2 + (not c.ok and not c.essential))
    return [c.repair for c in rank if c.repair]


@wrong("00-2", says="got ['A', 'B', 'C']")
def sorts_by_the_alphabet(report):
    return sorted({c.repair for c in report.checks if not c.ok and c.repair})


@wrong("00-2", says="expected ['B', 'C', 'D', 'A'], got ['B', 'C']")
def leaves_out_the_notes(report):
    rank = sorted((c for c in report.checks if not c.ok), key=lambda c: not c.essential)
    return list(dict.fromkeys(c.repair for c in rank if c.repair))


@alternative("00-2")
def by_rank(report):
    found = []
    for check in sorted(report.checks, key=lambda c: 2 if c.ok else 0 if c.essential else 1):
        if check.repair and check.repair not in found:
            found.append(check.repair)
    return found


# ------------------------------------------------------------------------------------- 00-3


@wrong("00-3", says="are three pictures in one cell three?")
def adds_once_a_cell(labels, logits):
    table = np.zeros((logits.shape[1], logits.shape[1]), int)
    table[labels, logits.argmax(axis=1)] += 1
    return table


@wrong("00-3", says="on labels 0 0 1 2, predicted 1 1 1 0: ")
def turns_the_table(labels, logits):
    table = np.zeros((logits.shape[1], logits.shape[1]), int)
    np.add.at(table, (logits.argmax(axis=1), labels), 1)
    return table


@wrong("00-3", says="on ten classes, three pictures: expected shape (10, 10), got (5, 5)")
def makes_room_for_the_labels_only(labels, logits):
    count = max(labels.max(), logits.argmax(axis=1).max()) + 1
    table = np.zeros((count, count), int)
    np.add.at(table, (labels, logits.argmax(axis=1)), 1)
    return table


@wrong("00-3", says="raised IndexError")
def looks_down_the_columns(labels, logits):
    table = np.zeros((logits.shape[1], logits.shape[1]), int)
    for label, predicted in zip(labels, logits.argmax(axis=0), strict=False):
        table[label, predicted] += 1
    return table


@wrong("00-3", says="expected 3 rows of 3 counts, got [[1], [1, 2], []]")
def forgets_the_empty_cells(labels, logits):
    return [[1], [1, 2], []]


@wrong("00-3", says="expected counts of shape (3, 3), got None (is a return missing?)")
def prints_it(labels, logits):
    print(logits.argmax(axis=1) == labels)


@alternative("00-3")
def by_bincount(labels, logits):
    count = logits.shape[1]
    pairs = labels * count + np.argmax(logits, axis=1)
    return np.bincount(pairs, minlength=count * count).reshape(count, count)


@alternative("00-3")
def as_lists(labels, logits):
    table = [[0.0] * logits.shape[1] for _ in range(logits.shape[1])]
    for truth, said in zip(labels, logits.argmax(axis=1), strict=True):
        table[truth][said] += 1
    return table


LOOP = "for truth, row in zip(labels, logits, strict={}):"
equivalent("00-3", LOOP.format(True), LOOP.format(False), because="both have one entry per picture")

# ------------------------------------------------------------------------------------- 00-4


@wrong("00-4", says="expected a multiple of 256, got 100 for v1")
def forgets_to_round(lifetimes, aliasing=True):
    offsets, end = {}, 0
    for life in lifetimes:
        offsets[life.name] = end
        end += life.size_bytes
    return offsets, end


@wrong("00-4", says="v0 has bytes 0 to 256, v1 has 0 to 256: they share some")
def puts_all_at_the_start(lifetimes, aliasing=True):
    total = sum(memory.round_up(life.size_bytes) for life in lifetimes)
    return {life.name: 0 for life in lifetimes}, total


@wrong("00-4", says="on three values of 256 bytes: expected 768, got 512")
def returns_the_last_offset(lifetimes, aliasing=True):
    offsets, end = {}, 0
    for life in lifetimes:
        offsets[life.name] = end
        end += memory.round_up(life.size_bytes)
    return offsets, max(offsets.values(), default=0)


@wrong("00-4", says="a dict of 3 offsets and the total, got a dict")
def forgets_the_total(lifetimes, aliasing=True):
    offsets, end = {}, 0
    for life in lifetimes:
        offsets[life.name] = end
        end += memory.round_up(life.size_bytes)
    return offsets


wrong("00-4", says="the runtime's own function is asked to answer")(memory.assign_offsets)


@wrong("00-4", says="the runtime's own function is asked to answer")
def asks_the_runtime(lifetimes, aliasing=True):
    return memory.assign_offsets(lifetimes, False)


@alternative("00-4")
def from_the_last_to_the_first(lifetimes, aliasing=True):
    sizes = [-(-life.size_bytes // 256) * 256 for life in reversed(lifetimes)]
    names = [life.name for life in reversed(lifetimes)]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    return dict(zip(names, starts, strict=True)), sum(sizes)
