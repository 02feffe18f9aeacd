"""Exercises of lab 03: memory types under budgets, who flushes, a sub-allocator, placed buffers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vklab.course import words
from vklab.course.definition.case import Case
from vklab.course.definition.exercise import Function, exercise
from vklab.course.definition.kinds import Choice, Predict
from vklab.course.definition.report import Report
from vklab.course.figures.machines import memory_table
from vklab.course.labs import placing
from vklab.types import MemoryHeap, MemoryType

MIB = 1 << 20
LOCAL, VISIBLE, COHERENT, CACHED = "device_local", "host_visible", "host_coherent", "host_cached"
FLAGS = (LOCAL, VISIBLE, COHERENT, CACHED)
Table = tuple[tuple[MemoryHeap, ...], tuple[MemoryType, ...]]


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _with_budgets(table: Table, budgets: Sequence[tuple[int, int]]) -> Table:
    """Return a recorded table with made-up budgets and usages, in bytes."""
    heaps, types = table
    changed = (replace(heap, budget_bytes=budget, usage_bytes=used)
               for heap, (budget, used) in zip(heaps, budgets, strict=True))  # fmt: skip
    return tuple(changed), types


@exercise(
    "03-1",
    hints=(
        "Two steps: first the indices of all types that may be used at all, then their order. "
        "Three questions decide whether a type may be used: which?",
        "The room of a heap is a part of its budget, without what is used already. Integers stay "
        "exact: multiply by the percentage, then divide by 100 with //.",
        "For flags, sets have operators: one asks whether a set lies within another, one gives the "
        "common members. And sorted takes a key that may be a tuple: small comes first, and equal "
        "keys keep their order.",
    ),
    variants=({"percent": 95}, {"percent": 90}, {"percent": 80}, {"percent": 75},
              {"percent": 60}),
    seams=("vklab.vulkan.memory.choose_memory_type",),
)  # fmt: skip
class RankMemoryTypes(Function):
    parts = {"mask": ("the mask and the required flags are obeyed", 1),
             "budget": ("a heap without room drops out", 1),
             "order": ("preferred flags first, then room, then the lower index", 2)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        percent = self.params["percent"]
        radeon, m1, software = (memory_table(name) for name in ("radeon", "m1", "software"))
        upload = ({VISIBLE, COHERENT}, {LOCAL})
        for table, bits, needs in (
            (radeon, 0b1111, upload), (radeon, 0b1011, upload), (radeon, 0b0001, upload),
            (radeon, 0b1000, ({VISIBLE}, set())), (m1, 0b1111, ({VISIBLE, COHERENT}, set())),
            (m1, 0b1101, ({VISIBLE}, {CACHED})), (m1, 0b1110, (set(), {LOCAL})),
            (software, 0b1, upload), (software, 0b1, ({"lazily_allocated"}, set())),
        ):  # fmt: skip
            yield self._case("mask", table, bits, MIB, *needs)
        # At the edge: the room is exactly what the buffer needs, and one byte less.
        for budget, used in ((100 * MIB, 20 * MIB), (1000 * MIB + 7, 0), (4001, 1000)):
            room = budget * percent // 100 - used
            for size in (room, room + 1, budget - used):
                full = _with_budgets(software, [(budget, used)])
                yield self._case("budget", full, 1, size, {VISIBLE}, set())
        for size in (MIB, 200 * MIB):  # the recorded budgets: the window drops out
            yield self._case("budget", radeon, 0b1111, size, *upload)
        for budgets in (((400, 390), (900, 0), (256, 8)), ((300, 100), (800, 0), (256, 0)),
                        ((700, 500), (500, 100), (500, 100))):  # fmt: skip
            table = _with_budgets(radeon, [(b * MIB, u * MIB) for b, u in budgets])
            for size in (MIB, 150 * MIB, 250 * MIB):
                yield self._case("budget", table, 0b1111, size, set(), {LOCAL})
            for needs in ((set(), {LOCAL}), ({VISIBLE}, {CACHED}), ({LOCAL}, set()),
                          (set(), {LOCAL, CACHED})):  # fmt: skip
                yield self._case("order", table, 0b1111, 2 * MIB, *needs)
        for _ in range(9):
            flags = [set(map(str, random.choice(FLAGS, int(random.integers(0, 3)), False)))
                     for _ in range(2)]  # fmt: skip
            yield self._case("", self._table(random), int(random.integers(1, 64)) | 0b001011,
                             int(random.integers(1, 120)) * MIB, *flags)  # fmt: skip

    def _table(self, random: np.random.Generator) -> Table:
        """Draw three heaps and six types; heaps and types are in no helpful order."""
        budgets = random.integers(60, 400, 3) * MIB
        heaps = tuple(MemoryHeap(int(budget) + 64 * MIB, bool(random.random() < 0.5), int(budget),
                                 int(budget * random.uniform(0, 0.5))) for budget in budgets)
        types = tuple(MemoryType(int(random.integers(0, 3)), frozenset(
            flag for flag in FLAGS if random.random() < 0.5), 0) for _ in range(6))  # fmt: skip
        return heaps, types

    def _case(self, part: str, table: Table, bits: int, size: int, required: set[str],
              preferred: set[str]) -> Case:  # fmt: skip
        heaps, types = table
        kinds = ", ".join(f"{n} (heap {kind.heap}) {' '.join(sorted(kind.flags)) or 'no flags'}"
                          for n, kind in enumerate(types))
        budgets = [(heap.budget_bytes, heap.usage_bytes) for heap in heaps]
        on = (f"heaps with (budget, usage) {budgets}; types {kinds}; type_bits={bits:#b}, "
              f"size_bytes={size}, required={sorted(required)}, preferred={sorted(preferred)}")
        return Case(part, (heaps, types, bits, size, required, preferred), on=on)

    def expected(self, case: Case) -> Any:
        heaps, types, bits, size, required, preferred = case.args
        rooms = [h.budget_bytes * self.params["percent"] // 100 - h.usage_bytes for h in heaps]
        able = [n for n, kind in enumerate(types) if bits & 1 << n and not required - kind.flags
                and rooms[kind.heap] >= size]  # fmt: skip
        return sorted(able, key=lambda n: (len(preferred - types[n].flags), -rooms[types[n].heap]))

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(isinstance(got, list | tuple) and all(map(_is_int, got)),
                      f"expected a list of indices, got {words.short(got)}")
        if report.part != "order":
            got, wanted = sorted(got), sorted(case.expected)
            extra = [n for n in got if n not in wanted]
            _, types, bits, _, required, _ = case.args
            why = ("the mask forbids it" if not bits >> extra[0] & 1 else
                   f"it lacks {sorted(required - types[extra[0]].flags)}"
                   if required - types[extra[0]].flags else "its heap has no room"
                   ) if extra and extra[0] in range(len(types)) else ""  # fmt: skip
            report.equal(got, wanted, f"type {extra[0]}: {why}" if why else "in any order")
        report.equal(list(got), sorted(case.expected) if report.part != "order" else case.expected)


# ------------------------------------------------------------------------------------ who flushes

OPTIONS = ("nothing", "flush", "invalidate", "copy")
HOST_WRITES, HOST_READS = ("the host writes, then a kernel reads",
                           "a kernel writes, then the host reads")  # fmt: skip
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
    variants=(_situations(1, 4, 6, 5, 8), _situations(2, 3, 0, 8, 5), _situations(5, 7, 4, 2, 3),
              _situations(6, 2, 7, 9, 1), _situations(0, 8, 1, 6, 4)),
)  # fmt: skip
class WhatToCall(Choice):
    parts = {"all": ("every buffer", 3)}

    def questions(self) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        right = dict(zip(SITUATIONS, CALLS, strict=True))
        return {letter.upper(): (right[shown], OPTIONS) for letter, shown in self.params.items()}


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
    variants=tuple({"atom": atom, "after": 8192 + -(-100 // atom) * atom,
                    "left": 1024 - -(-100 // atom) * atom} for atom in (64, 128, 256, 32)),
    seams=("vklab.vulkan.memory.FreeRanges.take",),
)
class SubAllocate(Function):
    parts = {"aligned": ("the offset is aligned, and atoms are whole", 1),
             "smallest": ("the smallest free range that fits; the first of equals", 1),
             "rest": ("what is left is listed", 1),
             "none": ("nothing fits: MemoryError", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        atom = self.params["atom"]
        uneven = [(1, 3 * atom), (5 * atom + 7, 3 * atom + 1), (12 * atom - 1, 2 * atom + 1)]
        odd = [(atom - 3, 4 * atom + 3), (10 * atom - 1, 20 * atom + 1)]
        for free, size, alignment in (
            ([(0, 8192)], 100, 16), ([(0, 8192)], atom, 4), ([(0, 8192)], atom + 1, 2 * atom),
            ([(0, 8192)], 1, 1), ([(0, 8192)], 300, 1024), (uneven, atom, 1), (uneven, 1, 2),
            (uneven, 2 * atom, atom // 2), (uneven, atom + 1, 2 * atom), (odd, 4 * atom, atom),
            (odd, 2 * atom, 4 * atom), (odd, 3 * atom, 4 * atom), (odd, atom // 2, 8 * atom),
            (odd, 20 * atom, 2), (odd, 4 * atom - 1, atom // 2),
        ):  # fmt: skip
            for part in ("aligned", "rest", "smallest"):
                yield self._case(part, free, size, alignment)
        for sizes, size, alignment in (  # in atoms; the ranges lie apart
            ((9, 5, 7), 5, 1), ((9, 5, 7), 6, 1), ((9, 7, 7), 6, 1), ((4, 4, 4), 4, 1),
            ((9, 6, 12), 5, 8), ((30, 3, 14, 3), 2, 4), ((2, 8, 8, 3), 3, 1), ((20, 8), 8, 16),
        ):  # fmt: skip
            free = [(atom * (sum(sizes[:n]) + n), atom * count) for n, count in enumerate(sizes)]
            for part in ("smallest", "rest"):
                yield self._case(part, free, size * atom, alignment * atom)
        for free, size, alignment in (
            ([], 1, 1), ([(5, 2 * atom)], 2 * atom, 1), ([(0, atom)], atom + 1, 1),
            ([(atom, atom)], atom, 2 * atom), ([(0, atom)], atom, 1),
            ([(0, 2 * atom), (4 * atom, 2 * atom)], 3 * atom, 1),
            ([(atom, 2 * atom)], 1, 2 * atom), ([(atom, 2 * atom)], atom + 1, 2 * atom),
        ):  # fmt: skip
            yield self._case("none", free, size, alignment)
        for _ in range(8):
            free, at = [], 0
            for _ in range(int(random.integers(3, 7))):
                at += int(random.integers(1, 6 * atom))
                free.append((at, int(random.integers(1, 24 * atom))))
                at += free[-1][1]
            yield self._case("", free, int(random.integers(1, 14 * atom)),
                             int(2 ** random.integers(0, 12)))  # fmt: skip

    def _case(self, part: str, free: list[tuple[int, int]], size: int, alignment: int) -> Case:
        return Case(part, (list(free), size, alignment),
                    on=f"sub_allocate({free}, {size}, {alignment})")  # fmt: skip

    def expected(self, case: Case) -> Any:
        free, size, alignment = case.args
        atom = self.params["atom"]
        step, length = max(alignment, atom), -(-size // atom) * atom
        able = [(there, offset) for offset, there in free
                if -offset % step + length <= there]  # fmt: skip
        if not able:
            raise MemoryError
        there, offset = min(able)
        start = offset + -offset % step
        pieces = ((offset, start), (start + length, offset + there))
        rest = [each for each in free if each != (offset, there)]
        return start, sorted(rest + [(a, b - a) for a, b in pieces if a < b])

    def compare(self, case: Case, got: Any, report: Report) -> None:
        if report.part == "none":
            report.equal(got, case.expected)
        report.expect(isinstance(got, tuple | list) and len(got) == 2 and _is_int(got[0])
                      and isinstance(got[1], list | tuple) and all(
                          isinstance(each, tuple | list) and len(each) == 2
                          and all(map(_is_int, each)) for each in got[1]),
                      f"expected (offset, free ranges), got {words.short(got)}")  # fmt: skip
        (free, size, alignment), (start, rest), atom = case.args, case.expected, self.params["atom"]
        if report.part == "aligned":
            for number, name in ((alignment, "alignment"), (atom, "atom")):
                report.expect(got[0] % number == 0,
                              f"offset {got[0]} is no multiple of the {name}, {number}")
            whole = -(-size // atom) * atom
            taken = sum(each for _, each in free) - sum(each[1] for each in got[1])
            report.equal(int(taken), whole, "the bytes that are no longer free")
        if report.part in ("aligned", "smallest"):
            report.equal(got[0], start, "the offset")
        else:
            report.equal(got, (start, rest))


# --------------------------------------------------------------------------------- placed buffers

Buffers = Mapping[str, tuple[int, int, int]]
Heaps = Mapping[str, tuple[int, int]]


def _fewest(buffers: Buffers, heaps: Heaps) -> np.ndarray:
    """Return the fewest MiB over the bus by the MiB that are used of the device's heap."""
    room = placing.rooms(heaps)
    table = np.full((room["device"] + 1, room["window"] + 1), np.inf)
    table[0, 0] = 0
    for buffer in buffers.values():
        size, better = buffer[0], table + placing.moved(buffer, "host")
        for heap, axis in (("device", 0), ("window", 1)):
            if size <= room[heap]:
                there, here = np.moveaxis(better, axis, 0), np.moveaxis(table, axis, 0)
                there[size:] = np.minimum(there[size:], here[:-size] + placing.moved(buffer, heap))
        table = better
    return table.min(axis=1)


def least(buffers: Buffers, heaps: Heaps) -> int:
    """Return the fewest MiB over the bus of any placement, exactly."""
    return int(_fewest(buffers, heaps).min())


def tight(buffers: Buffers, heaps: Heaps) -> Heaps:
    """Take away all room of the device's heap that a placement with the fewest bytes can spare."""
    (budget, used), by_room = heaps["device"], _fewest(buffers, heaps)
    return {**heaps, "device": (budget, used + len(by_room) - 1 - int(by_room.argmin()))}


def lists(random: np.random.Generator) -> Iterator[tuple[Buffers, Heaps]]:
    """Draw buffers and heaps without end: weights, tables, inputs and results of a run."""
    while True:
        drawn = []
        for kind in random.choice(["weights", "table", "input", "result"], random.integers(9, 12),
                                  p=[0.35, 0.45, 0.1, 0.1]):
            times = int(random.integers(1, 4))
            if kind == "weights":  # never written
                size = int(random.integers(60, 320))
                drawn.append((size, 0, size * times))
            elif kind == "table":  # the host changes a part
                size = int(random.integers(30, 160))
                drawn.append((size, int(size * random.uniform(0.05, 0.6)),
                              int(size * random.uniform(0.8, 3))))
            else:
                size = int(random.integers(20, 110))
                drawn.append((size, size, size * times if kind == "input" else size))
        buffers = dict(zip("abcdefghijk", drawn, strict=False))
        needed = sum(size for size, _, _ in drawn)
        device = int(needed * random.uniform(0.4, 0.6)) // 20 * 20 + 40
        yield buffers, {"device": (device, int(random.integers(10, 50))),
                        "window": (240, int(random.integers(20, 70))),
                        "host": (4 * needed // 20 * 20, 100)}  # fmt: skip


def hard(random: np.random.Generator, fit: bool = False) -> tuple[Buffers, Heaps]:
    """Draw until no obvious answer moves the fewest bytes, or nearly the fewest.

    Args:
        random: where to draw.
        fit: leave no room in the device's heap that could be spared.
    """
    drawn = ((buffers, tight(buffers, heaps) if fit else heaps)
             for buffers, heaps in lists(random))
    return next(each for each in drawn
                if least(*each) <= 0.96 * min(placing.greedy(*each).values()))


def shuffled(random: np.random.Generator, buffers: Buffers, heaps: Heaps) -> tuple[Buffers, Heaps]:
    """Give the buffers other names and another order, in which no greedy rule does best."""
    while True:
        order = [list(buffers.values())[n] for n in random.permutation(len(buffers))]
        drawn = dict(zip(buffers, order, strict=True)), heaps
        if least(*drawn) < min(placing.greedy(*drawn).values()):
            return drawn


# A small list in which one MiB decides, and the list that the lab draws.
SMALL = ({"a": (6, 3, 11), "b": (3, 3, 7), "c": (6, 0, 4), "d": (9, 7, 13), "e": (6, 5, 9),
          "f": (2, 0, 2)}, {"device": (20, 4), "window": (20, 8), "host": (400, 10)})
PICTURE = ({"a": (192, 0, 576), "b": (144, 0, 432), "c": (144, 24, 432), "d": (96, 16, 96),
            "e": (32, 32, 64), "f": (48, 48, 48), "g": (80, 16, 80)},
           {"device": (340, 20), "window": (240, 36), "host": (8000, 500)})  # fmt: skip


@exercise(
    "03-4",
    hints=(
        "Write the three costs of each buffer down. For which buffers does the heap hardly matter, "
        "and which lose most in the wrong one?",
        "A greedy rule never takes a decision back. What would you gain if two buffers changed "
        "places, or if one went out to make room for two? Repeat until nothing helps.",
        "For the fewest: go through the buffers one by one, and keep, for each pair of (MiB used "
        "of the device's heap, MiB used of the window), only the cheapest placement so far.",
    ),
)
class PlaceBuffers(Function):
    parts = {"valid": ("every buffer has a heap, and every heap has room", 1),
             "picture": ("the bytes of the picture's list", 1),
             "small": ("the bytes of a small list, in which one MiB decides", 1),
             "drawn": ("the bytes of a drawn list", 1),
             "tight": ("the bytes of a drawn list with hardly any room", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        small = {"device": (100, 5), "window": (40, 8), "host": (2000, 50)}
        for part, buffers, heaps in (
            ("valid", {}, small), ("valid", {"a": (90, 0, 90)}, small),
            ("valid", {"a": (905, 0, 905)}, {**small, "device": (1000, 50)}),
            ("valid", {"a": (91, 0, 91), "b": (31, 2, 31)}, small),
            ("valid", {"a": (60, 0, 60), "b": (60, 0, 90), "c": (30, 30, 60)}, small),
            ("small", *shuffled(random, *SMALL)), ("picture", *PICTURE),
        ):  # fmt: skip
            yield self._case(part, buffers, heaps)
        for part in ("drawn", "drawn", "tight"):
            drawn = hard(random, fit=part == "tight")
            yield from (self._case(each, *drawn) for each in ("valid", part))

    def _case(self, part: str, buffers: Buffers, heaps: Heaps) -> Case:
        rules = placing.greedy(buffers, heaps)
        facts = {"natural": min(rules[rule] for rule in placing.OBVIOUS),
                 "bound": math.floor(10 * placing.linear_bound(buffers, heaps)) / 10}
        on = "the picture's list" if buffers is PICTURE[0] else f"buffers={buffers}, heaps={heaps}"
        return Case(part, (dict(buffers), dict(heaps)), facts=facts, on=on)

    def expected(self, case: Case) -> Any:
        return least(*case.args)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        buffers, heaps = case.args
        report.expect(isinstance(got, dict) and all(isinstance(h, str) for h in got.values()),
                      f"expected a dictionary from buffer to heap, got {words.short(got)}")
        report.equal(sorted(map(str, got)), sorted(buffers), "the buffers that have a heap")
        report.expect(got.keys() == buffers.keys(), "names of buffers are texts")
        for name, heap in got.items():
            report.expect(heap in placing.HEAPS, f"buffer {name}: there is no heap {heap!r}")
        for heap, room in placing.rooms(heaps).items():
            load = sum(buffers[name][0] for name in got if got[name] == heap)
            budget, used = heaps[heap]
            report.expect(load <= room, f"{heap}: 95 % of {budget} MiB less {used} are {room} MiB, "
                          f"your buffers there need {load}")  # fmt: skip
        if report.part != "valid":
            total = sum(placing.moved(buffers[name], heap) for name, heap in got.items())
            report.score(total, case.facts["bound"], case.facts["natural"],
                         "MiB over the bus a run", full=case.expected)  # fmt: skip


# ------------------------------------------------------------------------------------ predictions


@exercise("03-p1", hints=("Which flags does each use need, and which help?",))
class ThreeUses(Predict):
    explains = ("Weights: type 0. No host reaches them, and the window of type 2 stays free for "
                "others. The input: type 2, which the host can map and which lies beside the GPU. "
                "The result: type 3. It is in the host's memory, and cached, so that reading it is "
                "fast.")

    def answers(self) -> Mapping[str, Any]:
        return {"weights": 0, "input": 2, "result": 3}


@exercise("03-p2", hints=("Count the arrows in the picture.",))
class HowOften(Predict):
    explains = ("With staging each byte is moved twice: by the host into the staging buffer, and "
                "by the device over the bus. Through a mapping it is moved once.")

    def answers(self) -> Mapping[str, Any]:
        return {"staging": 2, "mapped": 1}


@exercise("03-p3", hints=("The file passes two links. Which one takes longer?",))
class SlowestLink(Predict):
    explains = ("In the desktop the SSD is the slower link: 32 / 7.9 is about 4 seconds, although "
                "the GPU's link would need only 1. In the laptop the cable is the slower one: "
                "32 Gbit are 4 GB a second, so 8 seconds at the least.")

    def answers(self) -> Mapping[str, Any]:
        return {"desktop": 4, "laptop": 8}


@exercise("03-p4", hints=("Does the second thread see that the first one has found a range?",))
class SameOffset(Predict):
    explains = ("Both threads find range 0 before either of them takes it. So there is one offset "
                "for two buffers, and no call has failed. The lock makes finding and taking one "
                "step.")

    def answers(self) -> Mapping[str, Any]:
        return {"without_lock": 1, "with_lock": 2}


@exercise("03-p5", hints=("Where does the range end that the function returns?",))
class FlushesEnough(Predict):
    explains = ("The size is rounded up, but the start has moved to the left, so the range can end "
                "before the last written byte. With atoms of 1 byte nothing moves. With 256 bytes "
                "the range is wide enough by luck. With 64 it ends at byte 128, and 12 bytes never "
                "leave the host's cache.")

    def answers(self) -> Mapping[str, Any]:
        return {"atom_1": True, "atom_64": False, "atom_256": True}
