"""Exercises of lab 03: memory types under budgets, who flushes, a sub-allocator, placed buffers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vklab.types import MemoryHeap, MemoryType
from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Choice, Predict, Question
from vklab_course.definition.report import Report
from vklab_labs.lab_03 import placing, swapped_memory
from vklab_labs.shared.machines import memory_table

MIB = 1 << 20
LOCAL, VISIBLE, COHERENT, CACHED = "device_local", "host_visible", "host_coherent", "host_cached"
FLAGS = (LOCAL, VISIBLE, COHERENT, CACHED)
Table = tuple[tuple[MemoryHeap, ...], tuple[MemoryType, ...]]


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _with_budgets(table: Table, budgets: Sequence[tuple[float, float]]) -> Table:
    """Return a recorded table with other budgets and usages, in bytes."""
    heaps, types = table
    changed = (
        replace(heap, budget_bytes=int(budget), usage_bytes=int(used))
        for heap, (budget, used) in zip(heaps, budgets, strict=True)
    )
    return tuple(changed), types


def _drawn_table(random: np.random.Generator) -> Table:
    """Draw three heaps and six types; heaps and types are in no helpful order."""
    budgets = random.integers(60, 400, 3) * MIB
    heaps = tuple(
        MemoryHeap(
            int(budget) + 64 * MIB,
            bool(random.random() < 0.5),
            int(budget),
            int(budget * random.uniform(0, 0.5)),
        )
        for budget in budgets
    )
    types = tuple(
        MemoryType(
            int(random.integers(0, 3)),
            frozenset(flag for flag in FLAGS if random.random() < 0.5),
            0,
        )
        for _ in range(6)
    )
    return heaps, types


def _rooms(heaps: Sequence[MemoryHeap], percent: int) -> list[int]:
    return [heap.budget_bytes * percent // 100 - heap.usage_bytes for heap in heaps]


def _ranking(percent: int, part: str, table: Table, bits: int, size: int, required: set[str],
             preferred: set[str]) -> Case:  # fmt: skip
    """Return a case of 03-1, described with the room of each heap."""
    heaps, types = table
    kinds = ", ".join(
        f"{n} (heap {kind.heap}) {' '.join(sorted(kind.flags)) or 'no flags'}"
        for n, kind in enumerate(types)
    )
    on = (
        f"heaps with room for {_rooms(heaps, percent)} bytes; types {kinds}; type_bits={bits:#b},"
        f" size_bytes={size}, required={sorted(required)}, preferred={sorted(preferred)}"
    )
    return Case(part, (heaps, types, bits, size, required, preferred), on=on)


@exercise(
    "03-1",
    hints=(
        "Two steps: first the indices of all types that may be used at all, then their order. "
        "Three questions decide whether a type may be used: which?",
        "The room of a heap is a part of its budget, without what is used already. Integers stay "
        "exact: multiply by the percentage, then divide by 100 with //.",
        "For flags, sets have operators: one asks whether a set lies within another, one gives the "
        "common members. And sorted puts small keys first: how does more become small?",
    ),
    variants=({"percent": 95}, {"percent": 90}, {"percent": 80}, {"percent": 75}, {"percent": 60}),
    seams=("vklab.vulkan.memory.choose_memory_type",),
    builds=swapped_memory.MEMORY_TYPE,
)
class RankMemoryTypes(Function):
    parts = {"mask": ("the mask and the required flags are obeyed", 1),
             "budget": ("a heap without room drops out", 1),
             "order": ("preferred flags first, then room, then the lower index", 2)}  # fmt: skip
    follows = {"budget": "mask", "order": "mask budget"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        percent = self.params["percent"]
        radeon, m1, software = (memory_table(name) for name in ("radeon", "m1", "software"))
        upload = ({VISIBLE, COHERENT}, {LOCAL})
        asked = [
            ("mask", table, bits, MIB, *needs)
            for table, bits, needs in (
                (radeon, 0b1111, upload),
                (radeon, 0b1011, upload),
                (software, 0b1, upload),
                (radeon, 0b1110, ({VISIBLE, CACHED}, set())),
                (radeon, 0b0011, ({CACHED}, set())),
                (m1, 0b0101, ({VISIBLE}, {CACHED})),
                (m1, 0b0110, (set(), {LOCAL})),
            )
        ]
        # At the edge: the room is exactly what the buffer needs, and one byte less.
        for budget, used in ((100 * MIB, 20 * MIB), (1000 * MIB + 7, 0), (4001, 1000)):
            full, room = _with_budgets(software, [(budget, used)]), budget * percent // 100 - used
            asked += [
                ("budget", full, 1, size, {VISIBLE}, set())
                for size in (room, room + 1, budget - used)
            ]
        # Heap 1 has a byte more than heap 0; the same, once rounded down; more free, and less room.
        for budgets in (
            ((400, 390), (900, 0), (256, 8)),
            ((300, 100), (800, 0), (256, 0)),
            ((700, 500), (500, 100), (500, 100)),
            ((300, 100), (300, 100 - 1 / MIB), (256, 0)),
            ((300, 100), (300 + 1 / MIB, 100), (256, 0)),
            ((200, 100), (1000, 8 * percent + 110), (256, 0)),
        ):
            table = _with_budgets(radeon, [(b * MIB, u * MIB) for b, u in budgets])
            asked += [
                ("budget", table, 0b1111, size * MIB, set(), {LOCAL}) for size in (1, 150, 250)
            ]
            asked += [
                ("order", table, 0b1111, 2 * MIB, *needs)
                for needs in (
                    (set(), {LOCAL}),
                    ({VISIBLE}, {CACHED}),
                    ({LOCAL}, set()),
                    (set(), {LOCAL, CACHED}),
                    (set(), {LOCAL, COHERENT}),
                    (set(), set()),
                )
            ]
        # Of two types of one heap the one with more flags has the lower index.
        asked.append(("order", (table[0], table[1][::-1]), 0b1111, 2 * MIB, set(), {VISIBLE}))
        for _ in range(9):
            required, liked = (
                set(map(str, random.choice(FLAGS, random.integers(3), False))) for _ in range(2)
            )
            table, bits = _drawn_table(random), int(random.integers(1, 64)) | 0b001011
            asked += [
                ("mask", table, bits, MIB, required, liked),
                ("order", table, 0b111111, 2 * MIB, required, liked),
            ]
        return [_ranking(percent, *each) for each in asked]

    def expected(self, case: Case) -> Any:
        heaps, types, bits, size, required, preferred = case.args
        rooms = _rooms(heaps, self.params["percent"])
        able = [
            n
            for n, kind in enumerate(types)
            if bits & 1 << n and not required - kind.flags and rooms[kind.heap] >= size
        ]
        return sorted(able, key=lambda n: (len(preferred - types[n].flags), -rooms[types[n].heap]))

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, list | tuple) and all(map(_is_int, got)),
            f"expected a list of indices, got {words.short(got)}",
        )
        if report.part == "order":
            return report.equal(list(got), case.expected)
        _, types, bits, _, required, _ = case.args
        for index in got:
            report.expect(index in range(len(types)), f"there is no type {index}")
            report.expect(bits >> index & 1, f"type {index}: the mask forbids it")
            lacks = sorted(required - types[index].flags)
            report.expect(not lacks, f"type {index}: it lacks {lacks}")
            report.expect(index in case.expected, f"type {index}: its heap has no room")
        report.equal(sorted(got), sorted(case.expected), "in any order")


# ------------------------------------------------------------------------------------ who flushes

OPTIONS = ("nothing", "flush", "invalidate", "copy")
HOST_WRITES, HOST_READS = (
    "the host writes, then a kernel reads",
    "a kernel writes, then the host reads",
)
MANAGED = "Metal's managed mode, as MoltenVK lists it"
SITUATIONS = (
    f"{HOST_WRITES} | `host_visible, host_coherent`",
    f"{HOST_WRITES} | `host_visible, host_cached`",
    f"{HOST_READS} | `host_visible, host_cached`",
    f"{HOST_WRITES} | `device_local`",
    f"{HOST_READS} | `device_local, host_visible, host_coherent, host_cached`",
    "a kernel writes, then another kernel reads | `host_visible, host_cached`",
    f"{HOST_READS} | `device_local`",
    f"{HOST_WRITES} | {MANAGED}",
    f"{HOST_READS} | {MANAGED}",
    f"{HOST_WRITES} | Metal's shared mode, as MoltenVK lists it",
)
CALLS = ("nothing", "flush", "invalidate", "copy", "nothing", "nothing", "copy", "flush",
         "invalidate", "nothing")  # fmt: skip

# By situation: the fact that decides it, and the reason of the right answer.
WHY = (
    (
        "With `host_coherent`, host and device see each other's writes without a call.",
        "The memory is coherent: the device sees what the host wrote before the submission.",
    ),
    (
        "Without `host_coherent`, the host's writes may still lie in its cache.",
        "The memory is not coherent, and the host has written. The flush moves its writes out of "
        "the cache before the submission.",
    ),
    (
        "Without `host_coherent`, the host's cache may still hold old bytes.",
        "The memory is not coherent, and the host reads. The invalidate removes old bytes from its "
        "cache after the fence.",
    ),
    (
        "`host_visible` is missing: the host cannot map this memory.",
        "The host writes into a staging buffer, and the device copies from there.",
    ),
    (
        "`host_coherent` is among the flags: each side sees the other's writes without a call.",
        "The memory is coherent: after the fence the host reads the kernel's bytes. `host_cached` "
        "only makes its reads fast.",
    ),
    (
        "Both calls are about the host's cache, and the host does not touch this buffer.",
        "Kernels do not use the host's cache. The barrier between them is all that they need.",
    ),
    (
        "`host_visible` is missing: the host cannot map this memory, not even to read.",
        "The device copies the bytes into a staging buffer, and the host reads them there.",
    ),
    (
        "Managed mode lacks `host_coherent`: the device does not see the host's writes by itself.",
        "Managed mode is not coherent, and the host has written. In Metal the flush is "
        "`didModifyRange`.",
    ),
    (
        "Managed mode lacks `host_coherent`: the host does not see the kernel's writes by itself.",
        "Managed mode is not coherent, and the host reads. In Metal `synchronizeResource` brings "
        "the results back.",
    ),
    (
        "MoltenVK lists shared mode with `host_coherent`: both sides use the same bytes.",
        "Shared mode is coherent: the device sees what the host wrote before the submission.",
    ),
)


def _situations(*numbers: int) -> dict[str, str]:
    """Return the parameters of a variant: what happens to buffers A to E."""
    return {letter: SITUATIONS[number] for letter, number in zip("abcde", numbers, strict=True)}


@exercise(
    "03-2",
    hints=(
        "First question for each buffer: can the host reach this memory at all?",
        "Second question: are the writes of one side seen by the other without a call? One flag "
        "answers it.",
        "Third question: who writes and who reads? One call is for writes of the host, the other "
        "for reads of the host. Does the host touch the buffer?",
    ),
    variants=(
        _situations(1, 4, 6, 5, 8),
        _situations(2, 3, 0, 8, 5),
        _situations(5, 7, 4, 2, 3),
        _situations(6, 2, 7, 9, 1),
        _situations(0, 8, 1, 6, 4),
    ),
)
class WhatToCall(Choice):
    parts = {"all": ("every buffer", 3)}

    def questions(self) -> Mapping[str, Question]:
        rows = {
            shown: Question(call, OPTIONS, *why)
            for shown, call, why in zip(SITUATIONS, CALLS, WHY, strict=True)
        }
        return {letter.upper(): rows[shown] for letter, shown in self.params.items()}


# --------------------------------------------------------------------------------- sub-allocation


@exercise(
    "03-3",
    hints=(
        "Take one free range by hand: where is the first offset in it that may be used, and where "
        "does the buffer end, if it begins there?",
        "Both numbers are powers of two. So an offset that is a multiple of the larger one is a "
        "multiple of the other, too.",
        "First collect the ranges in which the buffer fits, each with its size; min finds the "
        "smallest. Only then cut. What is left of a range: a piece before, a piece after, or none?",
    ),
    variants=tuple(
        {
            "atom": atom,
            "after": 8192 + -(-100 // atom) * atom,
            "left": 1024 - -(-100 // atom) * atom,
        }
        for atom in (64, 128, 256, 32)
    ),
    seams=("vklab.vulkan.memory.FreeRanges.take",),
    builds=swapped_memory.RANGES,
)
class SubAllocate(Function):
    parts = {"aligned": ("the offset is aligned, and atoms are whole", 1),
             "smallest": ("the smallest free range that fits; the first of equals", 1),
             "rest": ("what is left is listed", 1),
             "none": ("nothing fits: MemoryError", 1)}  # fmt: skip
    follows = {"smallest": "aligned", "rest": "smallest", "none": "aligned"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        atom, asked = self.params["atom"], []
        uneven = [(1, 3 * atom), (5 * atom + 7, 3 * atom + 1), (12 * atom - 1, 2 * atom + 1)]
        odd = [(atom - 3, 4 * atom + 3), (10 * atom - 1, 20 * atom + 1)]
        half = [(0, 2 * atom + atom // 2), (10 * atom, 4 * atom)]
        for free, size, alignment in (
            ([(0, 8192)], 100, 16),
            ([(0, 8192)], 300, 1024),
            (uneven, atom, 1),
            (uneven, atom + 1, 2 * atom),
            (odd, 2 * atom, 4 * atom),
            (odd, atom // 2, 8 * atom),
            (odd, 20 * atom, 2),
            (half, 2 * atom + 1, 1),
            ([(5, 2 * atom)], 2 * atom, 1),
            ([(0, 3 * atom + 2), (4 * atom, 3 * atom + 1)], 1, 1),
        ):
            asked.append(("aligned", free, size, alignment))
        for _ in range(8):
            free, at = [], 0
            for _ in range(int(random.integers(3, 7))):
                at += int(random.integers(1, 6 * atom))
                free.append((at, int(random.integers(1, 24 * atom))))
                at += free[-1][1]
            asked.append(
                (
                    "aligned",
                    free,
                    int(random.integers(1, 14 * atom)),
                    int(2 ** random.integers(0, 12)),
                )
            )
        for sizes, size, alignment in (  # in atoms; the ranges lie apart, and begin a bit before
            ((9, 5, 7), 5, 1),
            ((9, 7, 7), 6, 1),
            ((2, 8, 8), 4, 2),
            ((9, 6, 12), 5, 8),
            ((30, 3, 14, 3), 2, 4),
            ((20, 8), 8, 16),
            ((6, 12), 3, 8),
            ((20, 12), 5, 8),
        ):
            free = [
                (atom * (sum(sizes[:n]) + n) - 5 * bool(n), atom * count + 5 * bool(n))
                for n, count in enumerate(sizes)
            ]
            asked += [
                (part, free, size * atom - 7, alignment * atom) for part in ("smallest", "rest")
            ]
        for free, size, alignment in (
            ([], 1, 1),
            ([(0, 1)], 2, 1),
            ([(1, 2)], 2, 2),
            ([(0, 2), (4, 2)], 3, 1),
        ):
            free = [(atom * offset, atom * there) for offset, there in free]
            asked.append(("none", free, size * atom, alignment * atom))
        for part, free, size, alignment in asked:
            on = f"sub_allocate({free}, {size}, {alignment})"
            able, *_ = self._able(free, size, alignment)
            mixed = part == "rest" or (part == "aligned" and len(able) > 1)
            yield Case(part, (list(free), size, alignment), on=on, mixed=mixed)

    def _able(
        self, free: Iterable[tuple[int, int]], size: int, alignment: int
    ) -> tuple[list[tuple[int, int]], int, int]:
        """Return size and offset of the ranges in which a buffer fits, its step and its length."""
        step = max(alignment, self.params["atom"])
        length = -(-size // self.params["atom"]) * self.params["atom"]
        able = [(there, offset) for offset, there in free if -offset % step + length <= there]
        return able, step, length

    def expected(self, case: Case) -> Any:
        free, size, alignment = case.args
        able, step, length = self._able(free, size, alignment)
        if not able:
            raise MemoryError
        there, offset = min(able)
        start = offset + -offset % step
        pieces = ((offset, start), (start + length, offset + there))
        rest = [each for each in free if each != (offset, there)]
        return start, sorted(rest + [(a, b - a) for a, b in pieces if a < b])

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, tuple | list)
            and len(got) == 2
            and _is_int(got[0])
            and isinstance(got[1], list | tuple)
            and all(
                isinstance(each, tuple | list) and len(each) == 2 and all(map(_is_int, each))
                for each in got[1]
            ),
            f"expected (offset, free ranges), got {words.short(got)}",
        )
        (free, size, alignment), atom = case.args, self.params["atom"]
        if report.part == "aligned":
            for number, name in ((alignment, "alignment"), (atom, "atom")):
                report.expect(
                    got[0] % number == 0, f"offset {got[0]} is no multiple of the {name}, {number}"
                )
            taken = sum(each for _, each in free) - sum(each[1] for each in got[1])
            report.equal(int(taken), -(-size // atom) * atom, "the bytes that are no longer free")
        if report.part == "rest":
            report.equal(got, case.expected)
        report.equal(got[0], case.expected[0], "the offset")


# --------------------------------------------------------------------------------- placed buffers


def fewest(buffers: placing.Buffers, heaps: placing.Heaps) -> np.ndarray:
    """Return the fewest MiB over the bus by the MiB used of the device's heap and of the window."""
    room = placing.rooms(heaps)
    table = np.full((room["device"] + 1, room["window"] + 1), np.inf)
    table[0, 0] = 0
    for buffer in buffers.values():
        size, better = buffer[0], table + placing.moved(buffer, "host")
        for heap, there, here in (
            ("device", better[size:], table[:-size]),
            ("window", better[:, size:], table[:, :-size]),
        ):
            there[:] = np.minimum(there, here + placing.moved(buffer, heap))
        table = better
    return table


def drawn_list(random: np.random.Generator) -> tuple[placing.Buffers, placing.Heaps]:
    """Draw until a better order earns a part of what separates the obvious from the fewest.

    Neither the device's heap nor the window has a MiB that could be spared.
    """
    while True:
        sizes = random.integers(5, 60, 12)
        columns = (
            sizes,
            sizes * random.choice([0, 0.1, 0.25, 0.5, 1], 12),
            sizes * random.integers(1, 4, 12),
        )
        buffers = {
            name: tuple(int(column[n]) for column in columns)
            for n, name in enumerate("abcdefghijkl")
        }
        heaps = {
            "device": (int(sizes.sum()) // 2, 5),
            "window": (60, int(random.integers(20))),
            "host": (4 * int(sizes.sum()), 10),
        }
        table, room = fewest(buffers, heaps), placing.rooms(heaps)
        for heap, needed in zip(room, np.argwhere(table == table.min())[0], strict=False):
            heaps[heap] = heaps[heap][0], heaps[heap][1] + room[heap] - int(needed)
        rules = placing.greedy(buffers, heaps)
        obvious = min(rules[rule] for rule in placing.OBVIOUS)
        gap = obvious - table.min()
        if gap > obvious / 5 and 0.25 <= (obvious - min(rules.values())) / gap <= 0.75:
            return buffers, heaps


# The list that the lab draws.
PICTURE = (
    {
        "a": (144, 0, 432),
        "b": (96, 48, 96),
        "c": (112, 0, 336),
        "d": (128, 16, 128),
        "e": (64, 64, 128),
        "f": (64, 32, 192),
        "g": (144, 72, 288),
    },
    {"device": (340, 20), "window": (240, 36), "host": (8000, 500)},
)


@exercise(
    "03-4",
    hints=(
        "Which buffers lose most in the host's memory, in all or for each MiB of their size? What "
        "happens if those are placed first?",
        "The obvious answer never takes a decision back. What would you gain if two buffers "
        "changed places, or if one went out to make room for two? Repeat until nothing helps.",
        "For the fewest: go through the buffers one by one, and keep, for each pair of (MiB used "
        "of the device's heap, MiB used of the window), only the cheapest placement so far.",
    ),
    extra=True,
)
class PlaceBuffers(Function):
    parts = {"valid": ("every buffer has a heap, and every heap has room", 1),
             "0": ("the bytes of the picture's list", 1),
             **{str(n): (f"the bytes of drawn list {n}", 1) for n in (1, 2, 3)}}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        small = {"device": (208, 100), "window": (40, 8), "host": (2000, 50)}
        for buffers, heaps in (
            ({"a": (97, 0, 97)}, small),
            ({"a": (98, 0, 98), "b": (31, 2, 31)}, small),
            ({"a": (60, 0, 60), "b": (60, 0, 90), "c": (30, 30, 60)}, small),
        ):
            yield Case("valid", (buffers, heaps), on=f"buffers={buffers}, heaps={heaps}")
        drawn = (drawn_list(random) for _ in range(3))
        for number, (buffers, heaps) in enumerate((PICTURE, *drawn)):
            rules = placing.greedy(buffers, heaps)
            on = f"buffers={buffers}, heaps={heaps}" if number else "the picture's list"
            yield Case(
                str(number),
                (buffers, heaps),
                on=on,
                facts={"obvious": min(rules[rule] for rule in placing.OBVIOUS)},
            )

    def expected(self, case: Case) -> Any:
        return int(fewest(*case.args).min())

    def compare(self, case: Case, got: Any, report: Report) -> None:
        buffers, heaps = case.args
        report.expect(
            isinstance(got, dict) and all(isinstance(h, str) for h in got.values()),
            f"expected a dictionary from buffer to heap, got {words.short(got)}",
        )
        report.expect(got.keys() == buffers.keys(), f"expected a heap for each of {[*buffers]}")
        for name, heap in got.items():
            report.expect(heap in placing.HEAPS, f"buffer {name}: there is no heap {heap!r}")
        for heap, room in placing.rooms(heaps).items():
            load = sum(buffers[name][0] for name in got if got[name] == heap)
            budget, used = heaps[heap]
            report.expect(
                load <= room,
                f"{heap}: 95 % of {budget} MiB less {used} are {room} MiB, "
                f"your buffers there need {load}",
            )
        if report.part != "valid":
            total = sum(placing.moved(buffers[name], heap) for name, heap in got.items())
            report.score(total, case.expected, case.facts["obvious"], "MiB over the bus a run")


# ------------------------------------------------------------------------------------ predictions


@exercise("03-p1", hints=("Which flags does each use need, and which help?",))
class ThreeUses(Predict):
    explains = (
        "Weights: type 0. No host reaches them, and the window of type 2 stays free for "
        "others. The input: type 2, which the host can map and which lies beside the GPU. "
        "The result: type 3. It is in the host's memory, and cached, so that reading it is "
        "fast."
    )
    right = {"weights": 0, "input": 2, "result": 3}


@exercise("03-p3", hints=("The file passes two links. Which one takes longer?",))
class SlowestLink(Predict):
    explains = (
        "In the desktop the SSD is the slower link: 32 / 7.9 is about 4 seconds, although "
        "the GPU's link would need only 1. In the laptop the cable is the slower one: "
        "32 Gbit are 4 GB a second, so 8 seconds at the least."
    )
    right = {"desktop": 4, "laptop": 8}


@exercise("03-p4", hints=("Does the second thread see that the first one has found a range?",))
class SameOffset(Predict):
    explains = (
        "Both threads find range 0 before either of them takes it. So there is one offset "
        "for two buffers, and no call has failed. A lock around both steps makes them one. "
        "The runtime has such a lock, in Allocator.take."
    )
    right = {"without_lock": 1, "with_lock": 2}
