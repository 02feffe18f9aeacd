"""Exercises of lab 08: traffic of tiles, a shared tile, a block of registers, and whose counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from vklab_course.children.kernel_answers import Kernel
from vklab_course.children.kernel_cases import INSIDE
from vklab_course.counting import shapes
from vklab_course.counting.observe import Observed
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Choice, Predict, Question
from vklab_course.definition.report import Report
from vklab_labs.lab_08.tile_piece import GEMM


@exercise(
    "08-1",
    hints=(
        "How many tiles of y lie side by side, and how many below each other? Round up.",
        "A row of tiles needs all of b, a column of tiles all of a. Who reads b how often?",
        "The multiply-adds of the product do not depend on the tile; each counts as two.",
    ),
    variants=(
        {"bytes": 4, "kind": "a float of 4 bytes"},
        {"bytes": 2, "kind": "a half, a float of 2 bytes"},
        {"bytes": 8, "kind": "a double, a float of 8 bytes"},
        {"bytes": 1, "kind": "a whole number of 1 byte"},
    ),
)
class TiledTraffic(Function):
    parts = {"whole": ("sides that the tile divides", 1),
             "edges": ("tiles that reach over the edge load only what exists", 2),
             "intensity": ("operations per byte", 1)}  # fmt: skip
    follows = {"edges": "whole", "intensity": "whole edges"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for tile in (1, 16, 64):
            yield Case("whole", (128, 128, 128, tile, tile))
        yield Case("whole", (64, 96, 40, 32, 8))
        for _ in range(4):
            tile = tuple(int(side) for side in random.integers(3, 17, 2))
            sides = tuple(int(side) for side in random.integers(18, 90, 3))
            yield Case("edges", (*sides, *tile))
        yield Case("edges", (5, 100, 7, 16, 16))
        for _ in range(3):
            sides = tuple(int(side) for side in random.integers(18, 90, 3))
            tile = int(random.integers(2, 9)), int(random.integers(9, 17))
            yield Case("intensity", (*sides, *tile))

    def expected(self, case: Case) -> Any:
        rows, columns, depth, high, wide = case.args
        from_a = sum(rows * depth for _ in range(0, columns, wide))
        from_b = sum(columns * depth for _ in range(0, rows, high))
        moved = (from_a + from_b) * self.params["bytes"]
        return moved, 2 * rows * columns * depth / moved

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, tuple | list | np.ndarray) and len(got) == 2,
            "expected two numbers (bytes, operations per byte)",
        )
        if report.part == "intensity":
            report.close(got[1], case.expected[1], 1e-9)
        else:
            report.equal(got[0], case.expected[0])


def whole_numbers(count: int, random: np.random.Generator) -> np.ndarray:
    """Return whole numbers without 0: products and sums are exact in float32.

    Their sums are not exact in half precision, nor is every 97th number; the others are at most 40.
    """
    numbers = random.integers(1, 41, count) * random.choice([-1, 1], count)
    numbers[::97] = 2049
    return numbers.astype(np.float32)


class Product(Kernel):
    """A product of two matrices; the sizes are push constants."""

    is_mapped = False
    guard = "which invocations have an element?"
    start = 0.5  # no product of whole numbers
    SIDES: ClassVar[tuple[tuple[int, int, int], ...]] = ()

    def tile(self) -> tuple[int, int]:
        """Return rows and columns of y of one workgroup."""
        raise NotImplementedError

    def operands(self, case: Case) -> tuple[np.ndarray, np.ndarray]:
        """Return both operands as rows x depth and depth x columns, without what follows them."""
        raise NotImplementedError

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        drawn = *(int(side) for side in random.integers(17, 40, 2)), int(random.integers(70, 90))
        for number, (rows, columns, depth) in enumerate((*self.SIDES, drawn)):
            a, b = whole_numbers(rows * depth, random), whole_numbers(depth * columns, random)
            high, wide = self.tile()
            grid = (-(-columns // wide), -(-rows // high))
            yield self.dispatch_case(
                {"a": a, "b": b},
                rows * columns,
                grid,
                {"rows": rows, "columns": columns, "depth": depth},
                f"rows={rows}, columns={columns}, depth={depth}",
                room=7 if number == 1 else 0,
            )

    def matrix(self, case: Case) -> tuple[int, int]:
        return case.args[2]["rows"], case.args[2]["columns"]

    def expected(self, case: Case) -> Any:
        one, other = self.operands(case)
        with np.errstate(invalid="ignore"):  # zero times infinity is meant
            return (one @ other).reshape(-1)

    def part_of(self, case: Case, name: str, rows: int, columns: int) -> np.ndarray:
        return np.asarray(case.args[0][name][: rows * columns]).reshape(rows, columns)

    def _loads(self, case: Case, got: Observed, report: Report) -> None:
        """Judge who loads what; the limits are those of `most`."""
        counts, output = got.counts, self.name_in(got, self.output)
        for said in (
            shapes.outside_shape(got),
            shapes.work_shape(got, output, elements_per_invocation=self.each),
            shapes.barrier_shape(got),
            shapes.race_shape(got),
            shapes.order_matters(got, [output]),
            shapes.input_shape(got, output),
        ):
            report.expect(not said, said)
        for name, (by_element, by_invocation) in self.most(case).items():
            reads = counts.reads.get(self.name_in(got, name), np.zeros(1, int))
            own = counts.elements_read.get(self.name_in(got, name), np.zeros(1, int))
            report.expect(
                own.max() <= by_invocation,
                f"invocation {int(own.argmax())} loads "
                f"{int(own.max())} elements of {name}; {by_invocation} are its share",
            )
            report.expect(
                reads.max() <= by_element,
                f"element {int(reads.argmax())} of {name} is "
                f"loaded {int(reads.max())} times; {by_element} are enough",
            )

    def most(self, case: Case) -> Mapping[str, tuple[int, int]]:
        """Return by operand: most loads of one element, and most loads of one invocation."""
        raise NotImplementedError


@exercise(
    "08-2",
    hints=(
        "Draw one tile of y. Which rows of a and which rows of b does it need in one step?",
        "For a good load, x counts along the row of an operand. For b this is not the column that "
        "you compute: give the tile of b its elements first, and think afterwards.",
        "Whoever has no element of y still loads for the others, and waits at each barrier. Let "
        "the tiles hold 0 where a matrix has ended.",
        "Two barriers a step: one before the tile is used, one before it is overwritten.",
    ),
    variants=({"tile": 8}, {"tile": 4}, {"tile": 12}, {"tile": 16}),
    builds=GEMM,
)
class SharedTile(Product):
    parts = {"values": ("y = a times b transposed", 1), "inside": INSIDE,
             "loads": ("each element loaded once by a workgroup, in equal shares; barriers", 2),
             "side": ("neighbours load side by side", 1)}  # fmt: skip
    SIDES = ((24, 24, 24), (13, 21, 30))

    def tile(self) -> tuple[int, int]:
        return self.params["tile"], self.params["tile"]

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for number, case in enumerate(super().cases(random)):
            if number == 1:  # an old value in a tile shows: 0 times infinity is NaN
                arrays, push = case.args[0], case.args[2]
                old = (push["depth"] - 1) // self.params["tile"] * self.params["tile"] - 1
                arrays["a"][2 * push["depth"] + old] = arrays["b"][5 * push["depth"] + old] = np.inf
                arrays["a"][3 * push["depth"] + old] = arrays["b"][7 * push["depth"] + old] = 0
            yield case

    def operands(self, case: Case) -> tuple[np.ndarray, np.ndarray]:
        push = case.args[2]
        b = self.part_of(case, "b", push["columns"], push["depth"])
        return self.part_of(case, "a", push["rows"], push["depth"]), b.T

    def most(self, case: Case) -> Mapping[str, tuple[int, int]]:
        steps = -(-case.args[2]["depth"] // self.params["tile"])
        return {"a": (case.args[1][0], steps), "b": (case.args[1][1], steps)}

    def _loads(self, case: Case, got: Observed, report: Report) -> None:
        report.expect(
            got.counts.local[:2] == self.tile(),
            "a workgroup has "
            f"{' x '.join(map(str, got.counts.local[:2]))} invocations; asked were "
            f"{' x '.join(map(str, self.tile()))}",
        )
        super()._loads(case, got, report)

    def _side(self, case: Case, got: Observed, report: Report) -> None:
        if self.matrix(case) != (24, 24):
            return
        tile, most = self.params["tile"], self.params["tile"] / 8 + 1
        for name in ("a", "b"):
            sectors = got.counts.sectors_a_load(self.name_in(got, name), neighbours=tile)
            report.expect(
                0 < sectors <= most,
                f"{tile} neighbours along x touch {sectors:.3g} "
                f"sectors in one load of {name}, on average; {-(-tile // 8)} are enough",
            )


@exercise(
    "08-3",
    hints=(
        "Which rows of y belong to an invocation, and which columns? What is the first of each?",
        "In one step of k an invocation needs a few elements of a and a few of b, and each of the "
        "first meets each of the second.",
        "Load the few elements of both operands into local arrays, and only then multiply.",
        "At the edge an invocation may have fewer rows or columns: ask before each load.",
    ),
    variants=(
        {"high": 4, "wide": 2},
        {"high": 2, "wide": 4},
        {"high": 3, "wide": 2},
        {"high": 4, "wide": 4},
    ),
)
class RegisterBlock(Product):
    parts = {"values": ("y = a transposed times b", 1), "inside": INSIDE,
             "loads": ("each element that an invocation needs is loaded once", 2)}  # fmt: skip
    SIDES = ((37, 19, 11), (1, 33, 6))

    @property
    def each(self) -> int:
        return self.params["high"] * self.params["wide"]

    def tile(self) -> tuple[int, int]:
        return 8 * self.params["high"], 8 * self.params["wide"]

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for number, case in enumerate(super().cases(random)):
            if number == 0:  # whoever leaves out zeros shows: 0 times infinity is NaN
                arrays, push = case.args[0], case.args[2]
                for k, zero in ((2, "a"), (5, "b")):
                    other = "b" if zero == "a" else "a"
                    sides = {"a": push["rows"], "b": push["columns"]}
                    arrays[zero][k * sides[zero] + 3] = 0
                    arrays[other][k * sides[other] + 4] = np.inf
            yield case

    def operands(self, case: Case) -> tuple[np.ndarray, np.ndarray]:
        push = case.args[2]
        a = self.part_of(case, "a", push["depth"], push["rows"])
        return a.T, self.part_of(case, "b", push["depth"], push["columns"])

    def most(self, case: Case) -> Mapping[str, tuple[int, int]]:
        depth, (across, down) = case.args[2]["depth"], case.args[1]
        return {
            "a": (8 * across, self.params["high"] * depth),
            "b": (8 * down, self.params["wide"] * depth),
        }


# ------------------------------------------------------------------------------------------- 08-4

# By rung: loads, sectors in one load of a and of b by 32 neighbours, shared loads, barriers that
# an invocation passes; n is the side of the matrices, a multiple of 64.
COUNTS = {
    "naive": lambda n: (2 * n**3, 32, 1, 0, 0),
    "coalesced": lambda n: (2 * n**3, 1, 4, 0, 0),
    "shared": lambda n: (n**3 // 8, 4, 4, 2 * n**3, n // 8),
    "registers": lambda n: (n**3 // 32, 4, 4, n**3 // 2, n // 8),
    "vectors": lambda n: (n**3 // 128, 16, 16, n**3 // 8, n // 8),
    "buffered": lambda n: (n**3 // 128, 16, 16, n**3 // 8, n // 16 + 1),
}
# By rung: the fact that decides its row, and the reason of the right answer.
WHY = {
    "naive": (
        "32 neighbours load from 32 sectors of a: each of them is in another row.",
        "Neighbours go down a column, so each of them loads another row of a. All later kernels "
        "go along a row.",
    ),
    "coalesced": (
        "There are two loads for each multiplication, and 32 neighbours load one sector of a.",
        "Neighbours go along a row: they load the same element of a, and 32 elements of b that lie "
        "side by side. There is no tile yet.",
    ),
    "shared": (
        "The loads are a sixteenth of two for each multiplication, and each multiplication reads "
        "two values from the tile.",
        "In a tile of 16 x 16 each loaded value serves 16 multiplications. Each multiplication "
        "still has two shared loads.",
    ),
    "registers": (
        "The loads are a 64th of two for each multiplication, and each value that is read from the "
        "tile serves four.",
        "The tile is 64 x 64, and an invocation keeps 4 x 4 sums. So a load serves 64 "
        "multiplications, and a shared load serves four.",
    ),
    "vectors": (
        "16 sectors for 32 neighbours: each load brings four floats. There are two barriers for "
        "each step of 16.",
        "A load of four floats counts as one, so the loads are a quarter of those of `registers`. "
        "With one buffer, each step needs two barriers.",
    ),
    "buffered": (
        "16 sectors for 32 neighbours: each load brings four floats. There is one barrier for each "
        "step of 16, and one more.",
        "With two buffers one barrier for each step is enough. All other counts are those of "
        "`vectors`.",
    ),
}
ORDERS = {128: "shared naive buffered coalesced vectors registers",
          64: "coalesced vectors registers shared buffered naive",
          192: "buffered registers naive vectors shared coalesced",
          256: "registers coalesced shared buffered naive vectors"}  # fmt: skip


def row_of(rung: str, side: int) -> str:
    """Return a row of the table of counts, as the text shows it."""
    return " | ".join(f"{count:,}" for count in COUNTS[rung](side))


VARIANTS = tuple(
    {"side": side}
    | {
        f"row_{letter}": row_of(rung, side)
        for letter, rung in zip("abcdef", order.split(), strict=True)
    }
    for side, order in ORDERS.items()
)


@exercise(
    "08-4",
    hints=(
        "Which counts stay the same when only the order of the loads changes?",
        "A barrier stands only where memory is shared. Two rows differ in their barriers only: "
        "which change of section 4 is that?",
        "How many multiplications does one load serve in each kernel?",
    ),
    variants=VARIANTS,
)
class WhoseCounts(Choice):
    def questions(self) -> Mapping[str, Question]:
        side = self.params["side"]
        rows = {row_of(rung, side): Question(rung, tuple(COUNTS), *WHY[rung]) for rung in COUNTS}
        return {letter: rows[self.params[f"row_{letter.lower()}"]] for letter in "ABCDEF"}


# ------------------------------------------------------------------------------------ predictions


@exercise("08-p1", hints=("How many elements of a does a sum of 128 products need? Of b?",))
class LoadsOfNaive(Predict):
    explains = (
        "Each invocation loads 128 elements of a and 128 of b. An element of a serves the "
        "128 elements of one row of y, each of which loads it again. All loads together "
        "ask for 16.8 MB, and both matrices have 0.13 MB."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"of_invocation": 256, "of_element": 128}


@exercise("08-p2", hints=("Write down the indices of a and b for two neighbours.",))
class SectorsOfNeighbours(Predict):
    explains = (
        "Down a column, each neighbour has a row of its own: 32 sectors of a, and all want "
        "the same element of b. Along a row, all want the same element of a, and 32 "
        "floats of b lie side by side in 4 sectors. (Each row begins with a sector, as 8 "
        "divides its length.)"
    )

    def answers(self) -> Mapping[str, Any]:
        return {"naive_a": 32, "naive_b": 1, "coalesced_a": 1, "coalesced_b": 4}


@exercise("08-p3", hints=("Which invocations leave early, and what would they have loaded?",))
class LeavesEarly(Predict):
    explains = (
        "For 48 every invocation has an element, and nobody leaves. For 40 the last tile "
        "has 8 rows and 8 columns: the others leave before they load, but their part "
        "of the tile is needed, and they never reach the barrier."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"right_48": True, "right_40": False}
