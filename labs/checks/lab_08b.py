"""Exercises of lab 08b: occupancy, matrix units and their errors, a footnote, orders of tiles."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.data import data
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, Value, exercise
from vklab_course.definition.kinds import Predict
from vklab_course.definition.report import Report
from vklab_labs.lab_08.ladder import peaks
from vklab_labs.lab_08.strips import SMALL, bytes_loaded
from vklab_labs.lab_08.units import GPUS, MADE_UP, UNITS, table_of

H200_TABLE = table_of(json.loads(data("recorded/products_h200.json").read_text("utf-8")))
LIMITS = ("subgroups", "workgroups", "registers", "shared memory")


@exercise(
    "08b-1",
    hints=(
        "Ask the same question of each resource: how many workgroups does it have room for?",
        "Registers are handed out to whole subgroups, in steps. Round up before you multiply.",
        "The resource with the smallest answer is the limit. Dictionaries keep their order.",
    ),
    variants=(
        {"step": 256, "real": "as on an H200"},
        *({"step": step, "real": "made up; an H200 has 256"} for step in (512, 1024, 64)),
    ),
)
class Occupancy(Function):
    parts = {"each": ("each of the four limits", 2), "steps": ("registers come in steps", 1),
             "share": ("the share of the subgroups, and the limit's name", 1)}  # fmt: skip
    follows = {"steps": "each", "share": "each steps"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        h200, small = dict(UNITS["H200"]), dict(UNITS["RTX 3080"])
        for unit, kernel in (
            (h200, (256, 16, 0)),
            (h200, (32, 16, 0)),
            (h200, (256, 128, 0)),
            (h200, (128, 16, 49152)),
            (small, (256, 16, 0)),
            (small, (96, 16, 0)),
            (small, (1024, 64, 1024)),
            (small, (256, 128, 103000)),
            (h200, (1024, 255, 0)),
        ):
            yield self._case("each", unit, kernel)
        for _ in range(5):
            kernel = (int(32 * random.integers(1, 9)), int(random.integers(33, 128)), 0)
            yield self._case("steps", h200, kernel)
        yield self._case("each", {**h200, "shared_bytes": 1900}, (64, 16, 500))  # few bytes limit
        yield replace(self._case("steps", h200, (100, 65, 0)), mixed=True)  # whole subgroups, too
        tight = {**h200, "registers": 65500}  # a workgroup of 16 subgroups lacks a few
        yield self._case("steps", tight, (512, 32, 0))
        yield self._case("steps", h200, (256, 33, 0))  # rounded for a workgroup, not a subgroup
        yield self._case("steps", h200, (64, 33, 0))
        for _ in range(6):
            unit = {
                "subgroups": int(random.integers(24, 65)),
                "workgroups": int(random.integers(4, 33)),
                "registers": int(random.choice([16384, 32768, 65536])),
                "shared_bytes": 1024 * int(random.integers(32, 129)),
            }
            kernel = (
                int(random.integers(33, 400)),
                int(random.integers(20, 140)),
                int(random.integers(0, 30000)),
            )
            yield self._case("share", unit, kernel)
        yield self._case("share", h200, (64, 16, 0))  # two limits at once, and in each of the next
        for kernel in ((32, 64, 0), (512, 32, 0), (256, 64, 58000)):
            yield self._case("share", h200, kernel)
        # Each limit alone, in its order; then a kernel of which not one workgroup fits.
        for kernel in ((1024, 16, 0), (32, 16, 0), (256, 128, 0), (128, 16, 49152), (1024, 255, 0)):
            yield self._case("share", h200, kernel)

    def _case(self, part: str, unit: dict[str, int], kernel: Sequence[int]) -> Case:
        names = ("invocations", "registers", "shared_bytes")
        return Case(part, (unit, dict(zip(names, kernel, strict=True))))

    def expected(self, case: Case) -> Any:
        unit, kernel = case.args
        step, subgroups = self.params["step"], -(-kernel["invocations"] // 32)
        registers = math.ceil(kernel["registers"] * 32 / step) * step * subgroups
        room = (
            unit["subgroups"] // subgroups,
            unit["workgroups"],
            unit["registers"] // registers,
            unit["shared_bytes"] // max(kernel["shared_bytes"], 1),
        )
        count = min(room)
        return count, count * subgroups / unit["subgroups"], LIMITS[room.index(count)]

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, tuple | list) and len(got) == 3, "expected (workgroups, share, limit)"
        )
        report.equal(got[0], case.expected[0], "workgroups")
        if report.part == "share":
            report.close(got[1], case.expected[1], 1e-6)
            report.equal(got[2], case.expected[2])


# ------------------------------------------------------------------------------------------- 08b-2


def padded(row: Sequence[Any], sizes: Sequence[int]) -> int:
    """Return the multiply-adds of a product whose sides are padded to a row's shape."""
    return math.prod(-(-size // side) * side for size, side in zip(sizes, row[:3], strict=True))


def fitting_rows(table: Sequence[Any], kinds: Sequence[str]) -> list[int]:
    """Return the rows of a table with the right kinds of numbers, for a subgroup."""
    inputs, sums = kinds
    return [
        n
        for n, row in enumerate(table)
        if tuple(row[3:]) == (inputs, inputs, sums, sums, "subgroup")
    ]


def shape_case(part: str, table: Any, sizes: Any, kinds: Any) -> Case:
    """Return a case with the rows that fit, and those of them that waste least."""
    fitting = fitting_rows(table, kinds)
    least = min((padded(table[n], sizes) for n in fitting), default=0)
    return Case(
        part,
        (table, sizes, kinds),
        on=f"{len(table)} rows, sizes {sizes}, {kinds}",
        facts={"fits": fitting, "waste": [n for n in fitting if padded(table[n], sizes) == least]},
    )


@exercise(
    "08b-2",
    hints=(
        "First leave out the rows that do not fit: other kinds of numbers, or another scope.",
        "Round each side up to a multiple of the row's side; what does the unit multiply then?",
        "Of rows that waste the same, which needs fewer instructions?",
    ),
)
class ChooseShape(Function):
    parts = {
        "fits": ("the right kinds of numbers, by a subgroup", 1),
        "waste": ("the least waste", 2),
        "ties": ("of equal waste, fewest instructions", 1),
    }
    follows = {"waste": "fits", "ties": "fits waste"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        fp16, half, int8 = ("float16", "float32"), ("float16", "float16"), ("int8", "int32")
        for kinds in (fp16, half, int8, ("bfloat16", "float32"), ("float64", "float64")):
            yield shape_case("fits", H200_TABLE, (64, 64, 64), kinds)
        yield shape_case("fits", H200_TABLE, (64, 64, 64), ("uint8", "uint32"))
        yield shape_case("fits", MADE_UP, (64, 64, 64), ("bfloat16", "float32"))
        yield shape_case("fits", MADE_UP, (64, 64, 64), int8)  # other rows have mixed kinds
        yield shape_case("fits", MADE_UP, (64, 64, 64), fp16)  # a whole workgroup could do it
        for _ in range(6):
            sizes = tuple(int(size) for size in random.integers(1, 90, 3))
            table = MADE_UP if random.integers(2) else H200_TABLE
            yield shape_case("waste", table, sizes, fp16)
        yield shape_case("waste", MADE_UP, (8, 70, 33), fp16)
        yield shape_case("waste", MADE_UP, (70, 8, 33), fp16)
        yield shape_case("waste", H200_TABLE, (5, 20, 9), fp16)
        yield shape_case("waste", H200_TABLE, (64, 64, 40), fp16)  # 16 does not divide the depth
        yield shape_case("waste", MADE_UP, (9, 9, 16), fp16)  # four small ones, or one large one
        for sizes in ((1, 8, 33), (33, 1, 32)):  # padding along a short side costs more
            yield shape_case("waste", MADE_UP[1:], sizes, fp16)
        for table, sizes in (
            (H200_TABLE, (64, 64, 64)),
            (MADE_UP, (64, 96, 32)),
            (H200_TABLE, (64, 24, 32)),
            (MADE_UP[::-1], (32, 64, 48)),
            (MADE_UP, (64, 96, 64)),
        ):  # of equal waste, the deepest is largest
            yield shape_case("ties", table, sizes, fp16)

    def expected(self, case: Case) -> Any:
        table, sizes, kinds = case.args
        if not (fitting := fitting_rows(table, kinds)):
            return None
        best = min(fitting, key=lambda n: (padded(table[n], sizes), -math.prod(table[n][:3]), n))
        return best, padded(table[best], sizes) - math.prod(sizes)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        """Judge one decision for each part: a wrong tie costs the points of ties only."""
        if case.expected is None or report.part == "ties":
            report.equal(got, case.expected)
            return
        report.expect(
            isinstance(got, tuple | list) and len(got) == 2,
            f"expected (index of the row, wasted), got {words.short(got)}",
        )
        said = {"fits": "has other numbers or another scope", "waste": "does not waste least"}
        report.expect(
            got[0] in case.facts[report.part], f"row {words.short(got[0])} {said[report.part]}"
        )
        if report.part == "waste":
            report.equal(got[1], case.expected[1], "wasted multiply-adds")


# ------------------------------------------------------------------------------------------- 08b-3


@exercise(
    "08b-3",
    hints=(
        "A float32 has 23 bits of mantissa, the lowest ones. How many of them go?",
        "Add something to the bits before you clear those that are dropped, so that the result is "
        "the nearest one.",
        "A tie goes to the even neighbour: what you add depends on the lowest bit that stays.",
    ),
)
class Rounded(Function):
    parts = {"nearest": ("the nearest neighbour", 2), "ties": ("ties go to the even one", 2)}
    follows = {"ties": "nearest"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for bits in (10, 7, *random.permutation([4, 5, 6, 8, 9, 11, 12]).tolist()):
            half = 2.0 ** -(bits + 1)  # in the middle of two neighbours of 1
            ties = [
                sign * (1 + n * half) * 2.0**power
                for n in (1, 3)
                for sign in (1, -1)
                for power in (0, 120, -120)
            ]
            more = [1.5, 0.0, -2.0, 4 - 2.0**-22, 1 + half + 2**-20, 1 + half - 2**-20, 5e-3]
            x = random.uniform(-2, 2, (3, 9)).astype(np.float32)
            x[1] *= 2.0 ** random.integers(-120, 120, 9)  # tiny, and huge
            yield Case("nearest", (x, bits), on=f"bits={bits}")
            yield Case("ties", (np.array([*ties, *more], np.float32), bits), on=f"bits={bits}")

    def expected(self, case: Case) -> Any:
        x, bits = case.args
        mantissa, exponent = np.frexp(x.astype(np.float64))
        wide = np.ldexp(np.rint(mantissa * 2.0 ** (bits + 1)), exponent - bits - 1)
        return wide.astype(np.float32)


# ------------------------------------------------------------------------------------------- 08b-4


def _gpu(name: str) -> dict[str, Any]:
    tflops, gb_s = peaks(GPUS[name])
    return {"gpu": name, "tflops": round(tflops, 1), "gb_s": round(gb_s)}


# By the share of the right number: what a wrong one forgets.
SLIPS = {
    1: ": are there enough digits?",
    1e-3: ": is it in milliseconds?",
    1e6 / 2**20: ": how many bytes are a MiB?",
    4: ": how many bytes has a float?",
    1 / 2: ": how many operations is a float worth?",
}


@exercise(
    "08b-4",
    hints=(
        "How many floats are 973 MiB? How many operations are they worth?",
        "A time is a number of things, divided by how many of them one second takes.",
        "The time of the bytes stays the same when the batch grows; the other one grows with it.",
    ),
    variants=tuple(_gpu(name) for name in GPUS),
)
class Footnote(Value):
    parts = {"times": ("both times at batch 1", 2), "batch": ("where arithmetic takes longer", 1)}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for part in self.parts:
            yield Case(part, on="your answer")

    def expected(self, case: Case) -> Any:
        size = 973 * 2**20
        memory = size / self.params["gb_s"] / 1e6
        compute = 2 * (size // 4) / self.params["tflops"] / 1e9
        return {"memory_ms": memory, "fp32_ms": compute, "batch": int(memory / compute) + 1}

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            type(got) is dict and set(got) == set(case.expected),
            f"expected a dictionary with {', '.join(case.expected)}",
        )
        for name in ("memory_ms", "fp32_ms") if report.part == "times" else ("batch",):
            kinds = int | np.integer if name == "batch" else int | float | np.number
            report.kind(got[name], kinds, f"{'a whole' if name == 'batch' else 'a'} number {name}")
            share = got[name] / case.expected[name]
            slips = (text for at, text in SLIPS.items() if abs(share / at - 1) < 0.01)
            asked = next(slips, "") if name != "batch" else ""
            right = abs(share - 1) < 5e-4
            report.expect(right, f"{name}: {words.short(got[name])} is not it{asked}")


# ------------------------------------------------------------------------------------------- 08b-5

EXACT = 13  # bytes for SMALL: a search over all orders finds none with 12


def natural_orders(tiles: Sequence[tuple[int, int]], side: int) -> dict[str, list[Any]]:
    """Return orders that come to mind first.

    Args:
        tiles: the tiles of y.
        side: side of the squares.
    """

    def hilbert(tile: tuple[int, int]) -> int:
        (x, y), place, size = tile, 0, 32
        while size:
            right, down = int(x & size > 0), int(y & size > 0)
            place += size * size * ((3 * right) ^ down)
            if not down:
                x, y = (63 - y, 63 - x) if right else (y, x)
            size //= 2
        return place

    keys: dict[str, Any] = {
        "rows": lambda t: t,
        "columns": lambda t: t[::-1],
        "snake": lambda t: (t[0], t[1] if t[0] % 2 == 0 else -t[1]),
        "snake of columns": lambda t: (t[1], t[0] if t[1] % 2 == 0 else -t[0]),
        "squares": lambda t: (t[0] // side, t[1] // side, t),
        "Morton": lambda t: sum(
            (t[0] >> n & 1) << 2 * n + 1 | (t[1] >> n & 1) << 2 * n for n in range(6)
        ),
        "Hilbert": hilbert,
    }
    return {name: sorted(tiles, key=key) for name, key in keys.items()}


def snake(tiles: Sequence[tuple[int, int]], a: Any, b: Any, cache: int) -> int:
    """Return the bytes of the better one of two snakes."""
    orders = natural_orders(tiles, 3)
    return min(bytes_loaded(orders[name], a, b, cache) for name in ("snake", "snake of columns"))


def in_bands(tiles: Sequence[tuple[int, int]], a: Any, b: Any, cache: int) -> int:
    """Return the bytes of the best order in bands of equally many strips, in either direction."""
    loads = []
    for turn in (1, -1):
        for wide in range(1, max(len(a), len(b)) + 1):

            def key(tile: tuple[int, int], turn: int = turn, wide: int = wide) -> Any:
                line, place = tile[::turn]
                band = place // wide
                return band, line * (-1) ** band

            loads.append(bytes_loaded(sorted(tiles, key=key), a, b, cache))
    return min(loads)


def lower_bound(tiles: Sequence[tuple[int, int]], a: Any, b: Any, cache: int) -> int:
    """Return bytes that no order can go below, whatever leaves the cache when.

    Each strip is loaded once at least. And count each tile, worth the product of its strips, for
    the one that was loaded later: the other one was in the cache then, among at most cache - s
    bytes, so that a load of s bytes serves tiles worth s (cache - s).
    """
    once = sum(a[i] for i in {i for i, _ in tiles}) + sum(b[j] for j in {j for _, j in tiles})
    return max(once, -(-sum(a[i] * b[j] for i, j in tiles) // (cache - min(*a, *b))))


def draw_work(part: str, random: np.random.Generator) -> tuple[Any, ...]:
    """Draw a grid of tiles, the bytes of its strips and a cache."""
    rows, columns = (int(side) for side in random.integers(12, 21, 2))
    if part == "equal":
        a, b, cache = [1] * rows, [1] * columns, int(random.integers(5, 9))
    else:
        a, b = (random.integers(2, 5, side).tolist() for side in (rows, columns))
        cache = int(random.integers(18, 26))
    return [(i, j) for i in range(rows) for j in range(columns)], a, b, cache


@exercise(
    "08b-5",
    hints=(
        "Follow rows through the cache: which strips have left when the next row needs them?",
        "A band of a few columns, all rows of it, then the next band: its strips of b stay. How "
        "wide may a band be, if a strip of a comes and goes beside it?",
        "You may call bytes_loaded yourself: try many widths and both directions, keep the best. "
        "In the small grid, exchange tiles at random and keep what helps.",
    ),
    extra=True,
)
class OrderOfTiles(Function):
    parts = {"small": ("the small grid", 1), "equal": ("strips of equal size", 2),
             "unequal": ("strips of several sizes", 2)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        yield Case("", ([(0, 0)], [1], [1], 2))
        yield Case("", ([(0, 1), (1, 0)], [2, 1], [1, 2], 4))
        yield Case(
            "small",
            SMALL,
            on="the small grid",
            facts={"bound": EXACT, "full": EXACT, "natural": snake(*SMALL)},
        )
        for part in ("equal", "equal", "unequal", "unequal"):
            work = draw_work(part, random)
            on = f"{len(work[1])} x {len(work[2])} tiles, a cache of {work[3]}"
            yield Case(
                part,
                work,
                on=on,
                facts={
                    "bound": lower_bound(*work),
                    "full": in_bands(*work),
                    "natural": snake(*work),
                },
            )

    def expected(self, case: Case) -> Any:
        return sorted(case.args[0])

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, list | tuple)
            and all(isinstance(tile, list | tuple) and len(tile) == 2 for tile in got),
            f"expected a list of tiles (i, j), got {words.short(got)}",
        )
        report.equal(sorted(map(tuple, got)), case.expected, "each tile once")
        if facts := case.facts:
            report.score(
                bytes_loaded(got, *case.args[1:]),
                facts["bound"],
                facts["natural"],
                "bytes loaded",
                facts["full"] if report.part != "small" else None,
            )


# ------------------------------------------------------------------------------------ predictions


@exercise("08b-p1", hints=("Bytes under way are bytes a second times seconds.",))
class BytesUnderWay(Predict):
    explains = (
        "4,000 GB/s times 600 ns are 2,400 KB. Divided by 132 x 2048 invocations that "
        "is 8.9 bytes, or three floats, for each of them, at full occupancy. At half, five "
        "floats."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"kilobytes": 2400, "floats": 3}


@exercise("08b-p2", hints=("What is zero times anything? Is that true of every float?",))
class WhatLiesBehind(Predict):
    explains = (
        "The padding of b is zero, and zero times a number is zero. But zero times "
        "infinity, or times NaN, is NaN, and the sum keeps it. Both operands need zeros "
        "along the depth."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"right_zeros": True, "right_numbers": True, "right_infinity": False}
