"""Exercises of lab 01b: roofs from spec sheets, printed values, fastest times, least watts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Choice, Predict, Question
from vklab_course.definition.report import Report
from vklab_labs.shared.gpus import SHEETS, Sheet


@exercise(
    "01b-1",
    hints=(
        "A multiply-add counts as two operations, and a MHz is a million clocks: which power of "
        "ten is left for TFLOP/s?",
        "The bus has bits, the bandwidth has bytes. The share of the bandwidth is a share of the "
        "bandwidth only.",
        "The ridge is operations in a second divided by bytes in a second: bring both to the same "
        "power of ten.",
    ),
    variants=(
        {"percent": 80, "ridge": 23.46},
        {"percent": 85, "ridge": 22.08},
        {"percent": 75, "ridge": 25.03},
        {"percent": 90, "ridge": 20.86},
        {"percent": 70, "ridge": 26.82},
    ),
)
class Roofline(Function):
    parts = {"peak": ("the operations in a second", 1), "bandwidth": ("the bytes in a second", 1),
             "dies": ("one die, two dies, too many", 1), "ridge": ("the ridge", 1)}  # fmt: skip
    follows = {"dies": "peak bandwidth", "ridge": "peak bandwidth dies"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        some = [str(name) for name in random.choice(list(SHEETS), 4, replace=False)]
        for part in ("peak", "bandwidth", "ridge"):
            for name in ("MI100", "RX 7900 XTX", *some):
                yield self._case(part, name, SHEETS[name])
            units, lanes, mhz, bits, rate = map(
                int, random.integers((2, 2, 500, 1, 2), (200, 200, 3000, 64, 24))
            )
            made = Sheet("?", units, lanes, mhz, bits * 64, rate, 2, 3)
            yield self._case(part, "a made-up sheet", made)
            for name in ("RX 7900 XTX", "MI300X", "M1"):
                yield self._case(part, name, SHEETS[name], 1, True)
        for name in ("MI250X", "Max 1550"):
            for dies in (1, 2):
                yield self._case("dies", name, SHEETS[name], dies)
        yield self._case("dies", "a made-up sheet", replace(made, issue=3), 3, True)
        for sheet, dies in ((SHEETS["MI250X"], 3), (SHEETS["MI100"], 2), (made, 4)):
            yield self._case("dies", f"a sheet with {sheet.dies}", sheet, dies)

    def _case(self, part: str, name: str, sheet: Sheet, dies: int = 1, dual: bool = False) -> Case:
        more = {"dies": dies} if dies > 1 else {}
        more |= {"dual": True} if dual else {}
        return Case(part, (sheet,), more, f"{name}, dies={dies}" + (", dual" if dual else ""))

    def expected(self, case: Case) -> Any:
        (sheet,), dies = case.args, case.named.get("dies", 1)
        if dies > sheet.dies:
            raise ValueError("too many dies")
        pairs = sheet.issue if case.named.get("dual") else 1
        flops = 2e6 * sheet.clock_mhz * sheet.units * sheet.lanes * pairs * dies
        bytes_s = 1e7 * sheet.gbit_per_pin * sheet.bus_bits * dies / 8 * self.params["percent"]
        return flops / 1e12, bytes_s / 1e9, flops / bytes_s

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, tuple | list) and len(got) == 3,
            f"expected three numbers (TFLOP/s, GB/s, FLOP/byte), got {words.short(got)}",
        )
        names = {"peak": "TFLOP/s", "bandwidth": "GB/s", "ridge": "the ridge in FLOP/byte"}
        for place, (part, name) in enumerate(names.items()):
            if report.part in (part, "dies"):
                report.close(got[place], case.expected[place], 1e-9, 0, name)


# -------------------------------------------------------------------------------- printed values

PRINTED = (
    "MI100: FP32 11.5 TFLOPS (FP64 23.1)",
    "MI210: FP32 45.3 TFLOPS",
    "MI250X, compared with an A100: memory bandwidth 1,638 GB/s",
    "MI300X: FP32 163.4 TFLOPS",
    "RX 7900 XTX: FP32 61.4 TFLOPS",
    "RX 6900 XT: FP32 23.0 TFLOPS",
    "Data Center Max (here `Max 1550`): compute units 128 stacks",
    "Data Center Max (here `Max 1550`): FP32 52.0 TFLOPS",
    "M2 Ultra: FP32 27.2 TFLOPS",
    "Arc A770: FP32 17.2 TFLOPS",
)
MEANINGS = ("swapped", "twice", "one die", "twice", "twice", "vector", "other unit", "vector",
            "vector", "vector")  # fmt: skip

# By row: the fact that decides it, and the reason of the right answer.
WHY = (
    (
        "roofline gives 23.1 TFLOP/s. On these chips fp64 is never faster than fp32.",
        "The MI100 has 23.1 TFLOP/s in fp32, and half of that, 11.5, in fp64. The two values have "
        "changed places.",
    ),
    (
        "roofline gives 22.6 TFLOP/s for one multiply-add of a lane in a clock.",
        "45.3 is 2 times 22.6. A kernel needs matrix units for it, or two multiply-adds of a lane "
        "in a clock.",
    ),
    (
        "The package has 2 dies, with 4096 wires of 3.2 Gbit/s each.",
        "1,638 GB/s is the bandwidth of one die: 4096 times 3.2 Gbit/s, divided by 8. The package "
        "has 3,277.",
    ),
    (
        "roofline gives 81.7 TFLOP/s for one multiply-add of a lane in a clock.",
        "163.4 is 2 times 81.7. A kernel needs matrix units for it, or two multiply-adds of a lane "
        "in a clock.",
    ),
    (
        "roofline gives 30.7 TFLOP/s for one multiply-add of a lane in a clock.",
        "61.4 is 2 times 30.7. A kernel reaches it only with dual issue, where the compiler finds "
        "pairs.",
    ),
    (
        "roofline gives 23.0 TFLOP/s for one multiply-add of a lane in a clock.",
        "Units, lanes, clock and the 2 of a multiply-add give 23.0: the fp32 vector peak.",
    ),
    (
        "The package has 2 stacks, with 64 cores each.",
        "128 is the number of cores, 2 times 64. The number is right, and the word beside it is "
        "not.",
    ),
    (
        "roofline gives 52.4 TFLOP/s for both stacks, and one multiply-add of a lane in a clock.",
        "52.0 is the vector peak of both stacks, up to rounding.",
    ),
    (
        "roofline gives 27.2 TFLOP/s for the whole package.",
        "Units, lanes, clock and the 2 of a multiply-add give 27.2 for the whole package: the fp32 "
        "vector peak.",
    ),
    (
        "roofline gives 17.2 TFLOP/s for one multiply-add of a lane in a clock.",
        "Units, lanes, clock and the 2 of a multiply-add give 17.2: the fp32 vector peak.",
    ),
)


def _rows(*numbers: int) -> dict[str, str]:
    return {letter: PRINTED[number] for letter, number in zip("abcdef", numbers, strict=True)}


@exercise(
    "01b-2",
    hints=(
        "Compute the vector peak of the whole package first, with dies=sheet.dies. Equal up to "
        "rounding? If not: larger or smaller, and by which factor?",
        "A factor of two has several causes: two dies, two starts in a clock, matrix units, or "
        "another kind of number. What do sheet.dies, sheet.issue and MATRIX_PEAKS say?",
        "Compare both numbers of a row, if it has two: which of them can be the larger one?",
    ),
    variants=(
        _rows(0, 5, 2, 1, 4, 6),
        _rows(3, 0, 2, 7, 1, 6),
        _rows(8, 4, 2, 6, 0, 1),
        _rows(1, 2, 9, 0, 6, 3),
    ),
)
class Meaning(Choice):
    parts = {"all": ("every value", 3)}

    def questions(self) -> Mapping[str, Question]:
        options = tuple(sorted(set(MEANINGS)))
        rows = {
            printed: Question(right, options, *why)
            for printed, right, why in zip(PRINTED, MEANINGS, WHY, strict=True)
        }
        return {letter.upper(): rows[row] for letter, row in self.params.items()}


# --------------------------------------------------------------------------------- fastest times


@exercise(
    "01b-3",
    hints=(
        "10^9 parameters times 2 operations times tokens, divided by 10^12 operations in a second: "
        "how many thousandths of a second?",
        "Users add operations. Do they add weights?",
        "max gives the time; an if gives the word.",
    ),
)
class FastestMs(Function):
    parts = {"prompt": ("long prompts", 1), "token": ("single tokens", 1),
             "users": ("several users, and the limit between", 1)}  # fmt: skip
    follows = {"token": "prompt", "users": "prompt token"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        def draw() -> tuple[float, float, float, float]:
            billions = float(random.integers(10, 700)) / 10
            return (
                billions,
                float(random.integers(3, 17)) / 8 * billions,
                float(random.integers(200, 4000)) / 10,
                float(random.integers(60, 3000)),
            )

        for billions, gigabytes, tflops, gb_s in (draw() for _ in range(5)):
            limit = int(500 * gigabytes * tflops / (gb_s * billions)) + 1  # tokens at the ridge
            for part, tokens, users in (
                ("prompt", limit * int(random.integers(2, 30)), 1),
                ("token", 1, 1),
                ("token", max(1, limit // int(random.integers(2, 9))), 1),
                ("users", 1, limit * int(random.integers(2, 5))),
                ("users", 1, limit - 1),
                ("users", limit, 1),
                ("users", max(1, limit // 9), 3),
                ("users", limit, int(random.integers(2, 6))),
            ):
                if tokens:
                    yield self._case(part, billions, tokens, gigabytes, tflops, gb_s, users)
        yield self._case("prompt", 7.0, 512, 4.0, 32.0, 400.0, 1)
        yield self._case("users", 1.0, 50, 1.0, 10.0, 100.0, 1)  # both take 10 ms
        yield self._case("users", 1.0, 50, 1.0, 10.0, 99.999, 1)  # memory takes 0.0001 ms more
        yield self._case("token", 8.0, 1, 8.0, 1.0, 1000.0, 1)

    def _case(self, part: str, *given: float) -> Case:
        *args, users = given
        named = {"users": users} if users > 1 else {}
        return Case(
            part,
            tuple(args),
            named,
            f"fastest_ms{tuple(args)}" + (f", users={users}" if named else ""),
        )

    def expected(self, case: Case) -> Any:
        billions, tokens, gigabytes, tflops, gb_s = case.args
        times = {
            "arithmetic": 2 * billions * tokens * case.named.get("users", 1) / tflops,
            "memory": 1000 * gigabytes / gb_s,
        }
        limit = max(times, key=lambda name: times[name])
        return times[limit], limit

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, tuple | list) and len(got) == 2,
            f"expected (milliseconds, limit), got {words.short(got)}",
        )
        report.close(got[0], case.expected[0], 1e-9, 0, "milliseconds")
        report.equal(got[1], case.expected[1], "the limit")


# ----------------------------------------------------------------------------------- least watts

Boards = Mapping[str, tuple[int, int, int]]
Models = Mapping[str, tuple[int, int, tuple[str, ...]]]
SHOP: Boards = {
    name: (sheet.watts, sheet.memory_gb, int(sheet.bus_bits * sheet.gbit_per_pin / 8))
    for name, sheet in SHEETS.items()
    if sheet.watts and sheet.dies == 1
}
NONE = 10**9
FEW = ("Arc A770", "RX 7900 XTX", "MI210", "RTX 4090", "A100")
PICTURE: Models = {
    "chat": (20, 400, FEW[1:]), "code": (28, 425, FEW[3:]), "speech": (32, 525, FEW),
    "draw": (31, 225, FEW), "read": (5, 775, FEW[1:3]), "search": (14, 650, FEW),
}  # fmt: skip


def prices(boards: Boards, models: Models) -> Callable[..., int]:
    """Return a function: the least watts of a board that holds some models, of all or of one."""

    @functools.cache
    def price(on: frozenset[str], only: str = "") -> int:
        gb, gb_s = (sum(models[name][i] for name in on) for i in (0, 1))
        return min(
            (
                watts
                for board, (watts, has_gb, has_gb_s) in boards.items()
                if only in ("", board)
                and gb <= has_gb
                and gb_s <= has_gb_s
                and all(board in models[name][2] for name in on)
            ),
            default=NONE,
        )

    return lambda on, only="": price(frozenset(on), only)


def least(boards: Boards, models: Models, most: int = 7) -> int:
    """Return the least watts that serve all models, found exactly over sets of at most `most`."""
    names, every, price = list(models), range(1, 1 << len(models)), prices(boards, models)
    cost = {some: price(n for i, n in enumerate(names) if some >> i & 1) for some in every}
    best = [0] + [NONE] * len(every)
    for done in every:
        low, some = done & -done, done
        while some:
            if some & low and cost[some] < NONE and some.bit_count() <= most:
                best[done] = min(best[done], best[done ^ some] + cost[some])
            some = (some - 1) & done
    return best[-1]


def obvious(boards: Boards, models: Models) -> dict[str, int]:
    """Return the watts of the obvious answers by name.

    Most go through the models in some order, and buy the board with the least watts, or the least
    for a GB, where there is no room. In the end each board becomes the least that still does.
    """
    price = prices(boards, models)
    orders = {
        "in the given order": list(models),
        "most GB first": sorted(models, key=lambda name: -models[name][0]),
        "most GB/s first": sorted(models, key=lambda name: -models[name][1]),
        "fewest boards first": sorted(models, key=lambda name: len(models[name][2])),
    }
    watts = {"a board for each model": sum(price([name]) for name in models), "join pairs": NONE}
    for title, order in orders.items():
        for gb in (0, 1):
            on: list[tuple[str, list[str]]] = []
            for name in order:
                place = next(
                    (some for board, some in on if price([*some, name], board) < NONE), None
                )
                if place is None:
                    able = [board for board in boards if price([name], board) < NONE]
                    place = []
                    on.append((min(able, key=lambda b: boards[b][0] / boards[b][1] ** gb), place))
                place.append(name)
            watts[title + ", watts a GB" * gb] = sum(price(some) for _, some in on)
        for step in (1, -1):
            watts["join pairs"] = min(watts["join pairs"], _join_pairs(price, order[::step]))
    left, paid = orders["most GB first"], 0
    while left:
        held: dict[str, list[str]] = {board: [] for board in boards}
        for board, some in held.items():
            for name in left:
                some += [name] * (price([*some, name], board) < NONE)
        most = max(boards, key=lambda board: len(held[board]) / boards[board][0])
        left, paid = [name for name in left if name not in held[most]], paid + boards[most][0]
    return watts | {"most models for a watt": paid}


def _join_pairs(price: Callable[..., int], order: Sequence[str]) -> int:
    """Begin with a board for each model; join the two that save most watts, while two do."""
    joined = [[name] for name in order]
    while True:
        saved = {
            (i, j): price(joined[i]) + price(joined[j]) - price(joined[i] + joined[j])
            for j in range(len(joined))
            for i in range(j)
        }
        i, j = max(saved, key=lambda pair: saved[pair], default=(0, 0))
        if saved.get((i, j), 0) <= 0:
            return sum(map(price, joined))
        joined[i] += joined.pop(j)


def _hard(part: str, random: np.random.Generator) -> Case:
    """Draw until every obvious answer needs at least 4 % more than the least watts.

    The models of the third list are small, and four on a board are too few.
    """
    size, offers = (64, 0.75) if part != "third" else (16, 0.85)
    while True:
        some = random.choice(list(SHOP), int(random.integers(5, 8)), replace=False)
        boards = {str(name): SHOP[str(name)] for name in some}
        models = {
            name: (
                int(random.integers(3, size)),
                int(random.integers(5, 5 * size // 2)) * 10,
                tuple(board for board in boards if random.random() < offers),
            )
            for name in ("m1", "m2", "m3", "m4", "m5", "m6", "m7")
        }
        price = prices(boards, models)
        if any(price([name]) == NONE for name in models):
            continue
        best = least(boards, models)
        if best * 1.04 > min(obvious(boards, models).values()):
            continue
        if part != "third" or best < least(boards, models, 4):
            return _buying(part, boards, models)


def _buying(part: str, boards: Boards, models: Models) -> Case:
    on = {
        "valid": f"boards={dict(boards)}, models={dict(models)}",
        "picture": "the boards and models of the picture",
    }.get(part, f"the {part} drawn list")
    return Case(
        part,
        (dict(boards), dict(models)),
        on=on,
        facts={"natural": min(obvious(boards, models).values(), default=0)},
    )


@exercise(
    "01b-4",
    hints=(
        "Which board holds a given group of models with the least watts? Write that first, it is "
        "useful in every plan.",
        "The first model stands on some board, with some group. When you have chosen the group, "
        "the rest of the models is a smaller problem of the same kind.",
        "Let an inner function return (watts, list of boards) for the models that are left; for no "
        "models that is nothing at all.",
        "With less work: start from any valid answer, and move one model to another board, or swap "
        "two models, as long as it saves watts. It earns a part of the points.",
    ),
    seconds=30,
    extra=True,
)
class LeastWatts(Function):
    parts = {"valid": ("every model stands on a board that holds it", 1),
             "picture": ("the watts for the picture's six models", 1),
             "first": ("the watts for a drawn list", 1),
             "second": ("the watts for another drawn list", 1),
             "third": ("the watts for a third drawn list", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        yield _buying("valid", {"A": (9, 8, 8), "B": (5, 4, 9)}, {"x": (4, 9, ("A", "B"))})
        yield _buying("valid", {"A": (9, 8, 8)}, {})
        both = ("A", "B")
        yield _buying(
            "valid",
            {"A": (9, 8, 8), "B": (5, 4, 9)},
            {"x": (8, 1, both), "y": (1, 9, both), "z": (4, 4, both), "u": (4, 4, ("A",))},
        )
        yield _buying("picture", {name: SHOP[name] for name in FEW}, PICTURE)
        hard = [_hard(part, random) for part in ("first", "second", "third")]
        yield from (_buying("valid", *hard[0].args), *hard)

    def expected(self, case: Case) -> Any:
        return least(*case.args)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        boards, models = case.args
        report.expect(
            isinstance(got, list | tuple),
            "expected a list of (board, models), got "
            + ("None (is a return missing?)" if got is None else words.short(got)),
        )
        for pair in got:
            report.expect(
                isinstance(pair, list | tuple)
                and len(pair) == 2
                and isinstance(pair[0], str)
                and isinstance(pair[1], list | tuple | set)
                and all(isinstance(name, str) for name in pair[1]),
                f"expected (board, list of models), got {words.short(pair)}",
            )
            report.expect(pair[0] in boards, f"the shop has no {pair[0]!r}")
        placed = sorted(name for _, on in got for name in on)
        report.equal(placed, sorted(models), "the models that have a board, each once")
        for board, on in got:
            report.expect(on, f"no model stands on one {board}: do not buy it")
            needs = [0, 0]
            for name in on:
                *each, suited = models[name]
                report.expect(board in suited, f"{name} does not run on {board!r}")
                needs = [need + more for need, more in zip(needs, each, strict=True)]
            for unit, need, limit in zip(("GB", "GB/s"), needs, boards[board][1:], strict=True):
                report.expect(
                    need <= limit, f"{', '.join(on)} need {need} {unit}, {board} has {limit}"
                )
        if report.part != "valid":
            report.score(
                sum(boards[board][0] for board, _ in got), case.expected, case.facts["natural"], "W"
            )


# ------------------------------------------------------------------------------------- predictions


@exercise("01b-p1", hints=("Left or right of the ridge?",))
class FasterAddition(Predict):
    explains = (
        "960 / 512 = 1.9. The addition does 1/12 operation per byte, far left of any "
        "ridge: only the bandwidth counts, and the 61.4 TFLOP/s are never seen."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"addition": 1.9}


@exercise("01b-p2", hints=("2 times 6.7 times 512 is 6861; divide by the peak.",))
class Impossible(Predict):
    explains = (
        "At best: M2 Ultra 252 ms, A100 22 ms in fp16 and 11 ms in int8, Max 1550 26 ms. "
        "So 45 ms on the M2 Ultra are impossible, 15 ms on the A100 are impossible in fp16 "
        "and possible in int8, and 35 ms on the Max 1550 are possible."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"m2_ultra": True, "a100_fp16": True, "a100_int8": False, "max_1550": False}


@exercise("01b-p3", hints=("How many devices does a program see, and with which memory?",))
class FitsOneDevice(Predict):
    explains = (
        "An MI250X has 128 GB on its sheet, and a program sees two devices of 64 GB. So "
        "the function says that 100 GB fit on one device. (It promises too much for an M2 "
        "Ultra as well: the system and other programs share its 192 GB.)"
    )

    def answers(self) -> Mapping[str, Any]:
        return {"gb_40": True, "gb_60": True, "gb_100": False}
