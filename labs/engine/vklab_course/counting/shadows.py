"""Races in shared memory: who wrote and who read each element since the last barrier.

Each element of a shared array has a shadow of three words in the counters: its last writer, its
reader, and who used it by atomic operations, with the number of barriers that they had passed. So a
race is seen even where a driver runs the two invocations in a lucky order, or in step. Source:
Serebryany and Iskhodzhanov, ThreadSanitizer: data race detection in practice (2009), for a shadow
of each memory cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vklab_course.counting.cells import Cells
from vklab_course.counting.layout import READ, SHADOW, WRITE
from vklab_course.counting.spirv import Code, Op

__all__ = ["Watched", "begin", "pass_barrier", "watch", "watched"]

_MANY = 0xFFFF  # in place of an invocation: more than one


class Watched(NamedTuple):
    """Elements of one shared array.

    Attributes:
        array: number of the array.
        first: number of its first element among those of all arrays.
        cells: how many elements it has.
        unit: bytes of an element.
    """

    array: int
    first: int
    cells: int
    unit: int


def watched(sizes: Mapping[int, int], units: Mapping[int, int]) -> dict[int, Watched]:
    """Return the shared arrays with a shadow, by number; none for arrays of unknown size.

    Args:
        sizes: bytes of each array; 0 if unknown.
        units: bytes of its smallest number.
    """
    found, first = {}, 0
    for number, size in sizes.items():
        if size:
            found[number] = Watched(number, first, -(-size // units[number]), units[number])
            first += found[number].cells
    return found


def begin(code: Code, counters: Cells, group: int) -> None:
    """Set the variables of the shadows, at the start of `main`.

    Args:
        code: receives the instructions.
        counters: the counters.
        group: id of the linear number of the workgroup.
    """
    number = code.module.number
    cells = counters.header(code, "cells")
    counters.set(code, "cells", cells)
    skipped = code.word(Op.I_MUL, code.word(Op.I_MUL, cells, group), number(SHADOW))
    start = code.word(Op.I_ADD, counters.header(code, "shadows_at"), skipped)
    counters.set(code, "shadows", start)
    counters.set(code, "epoch", number(1 << 16))


def pass_barrier(code: Code, counters: Cells) -> None:
    """Count a barrier of an invocation, before it."""
    later = code.word(Op.I_ADD, counters.get(code, "epoch"), code.module.number(1 << 16))
    counters.set(code, "epoch", later)


def watch(
    code: Code, counters: Cells, of: Watched, kind: int, place: tuple[int, int],
    is_atomic: bool = False,
) -> None:  # fmt: skip
    """Compare an access with the shadow of its element, and change the shadow.

    Atomic operations do not race with each other, but with all other accesses.

    Args:
        code: receives the instructions.
        counters: the counters.
        of: the shared array.
        kind: READ or WRITE.
        place: ids of the byte offset, and of the bool that tells whether it is inside.
        is_atomic: whether an atomic operation makes the access.
    """
    number = code.module.number
    is_on = code.flag(Op.I_NOT_EQUAL, counters.get(code, "cells"), number(0))
    end = counters.begin_if(code, code.flag(Op.LOGICAL_AND, is_on, place[1]))
    cell = code.word(Op.SHIFT_RIGHT, place[0], number(of.unit.bit_length() - 1))
    skipped = code.word(Op.I_ADD, cell, number(of.first))
    skipped = code.word(Op.I_MUL, skipped, number(SHADOW))
    writer = code.word(Op.I_ADD, counters.get(code, "shadows"), skipped)
    reader, third = (code.word(Op.I_ADD, writer, number(n)) for n in (1, 2))
    epoch = counters.get(code, "epoch")
    lane = code.word(Op.I_ADD, counters.get(code, "lane"), number(1))
    mine = code.word(Op.BITWISE_OR, epoch, lane)
    if kind == WRITE and not is_atomic:
        wrote = counters.atomic(code, Op.ATOMIC_EXCHANGE, writer, mine)
    else:
        wrote = code.word(Op.LOAD, counters.word_at(code, writer))
    is_race = _is_other(code, wrote, mine, epoch)
    for place_of, ours, races in (
        (reader, kind == READ and not is_atomic, kind == WRITE),
        (third, is_atomic, not is_atomic),
    ):
        known = code.word(Op.LOAD, counters.word_at(code, place_of))
        is_other = _is_other(code, known, mine, epoch)
        if races:
            is_race = code.flag(Op.LOGICAL_OR, is_race, is_other)
        if ours:
            many = code.word(Op.BITWISE_OR, epoch, number(_MANY))
            now = code.word(Op.SELECT, is_other, many, mine)
            code.do(Op.STORE, counters.word_at(code, place_of), now)
    is_good = code.flag(Op.LOGICAL_NOT, is_race)
    by = number(of.array * 4 + kind)
    counters.note(code, is_good, "races", {"races_by": by, "races_at": cell})
    if kind == READ and not is_atomic:
        was_set = code.flag(Op.I_NOT_EQUAL, code.word(Op.BITWISE_OR, wrote, known), number(0))
        counters.note(code, was_set, "unset", {"unset_by": by, "unset_at": cell})
    counters.end_if(code, end)


def _is_other(code: Code, word: int, mine: int, epoch: int) -> int:
    """Return the id of a bool: whether a shadow names another invocation since the barrier."""
    number = code.module.number
    is_now = code.flag(Op.I_EQUAL, code.word(Op.BITWISE_AND, word, number(0xFFFF0000)), epoch)
    return code.flag(Op.LOGICAL_AND, is_now, code.flag(Op.I_NOT_EQUAL, word, mine))
