"""Exercises of lab 07b: a histogram, transactions on banks, a tile without padding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.children.kernel_answers import Kernel
from vklab_course.counting import shapes
from vklab_course.counting.observe import Observed
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Predict
from vklab_course.definition.report import Report
from vklab_labs.lab_07 import banks

EACH = 16  # elements of an invocation of the histogram
LOCAL = 64


@exercise(
    "07b-1",
    hints=(
        "Three steps, and all invocations of the workgroup do each: clear the shared bins, count "
        "into "
        "them, add them to y. What has to stand between two steps?",
        "Two invocations may meet at a bin of the workgroup, and two workgroups at a bin of y. So "
        "an "
        "atomic addition is needed in both places.",
        "Are there more bins than invocations? Then an invocation clears and adds every 64th bin, "
        "in "
        "a loop.",
    ),
    variants=({"bins": 64}, {"bins": 32}, {"bins": 128}, {"bins": 96}),
)
class Histogram(Kernel):
    parts = {"values": ("every element is counted once", 1),
             "private": ("a workgroup counts in shared memory and adds each bin to y once", 2),
             "races": ("no update can be lost, in any order", 2)}  # fmt: skip
    dtype, start = np.uint32, 0
    seconds = 60.0

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        bins, block = self.params["bins"], LOCAL * EACH
        for count, kind in (
            (block, "evenly spread"),
            (3 * block + 5, "all in the last bin"),
            (2 * block - 63, "evenly spread"),
            (int(random.integers(block, 4 * block)), "half of them in one bin"),
        ):
            x = random.integers(0, bins, count).astype(np.uint32)
            if kind == "all in the last bin":
                x[:] = bins - 1
            if kind == "half of them in one bin":
                x[random.random(count) < 0.5] = random.integers(0, bins)
            # The element behind the last one is in a bin, too: it must not be counted.
            yield self.dispatch_case(
                {"x": x},
                bins,
                (-(-count // block) + count % 2,),
                {"count": count},
                f"count={count}, {kind}",
                room=0 if count == block else 7,
            )

    def expected(self, case: Case) -> Any:
        arrays, _, push = case.args
        bins = np.bincount(arrays["x"][: push["count"]], minlength=self.params["bins"])
        return bins.astype(np.uint32)

    def _values(self, case: Case, got: Observed, report: Report) -> None:
        report.expect(not shapes.outside_shape(got), shapes.outside_shape(got))
        said = shapes.room_shape(got, case.facts["room"])
        report.expect(not said, said)
        values = got.buffers[self.name_in(got, "y")][: self.params["bins"]].astype(np.int64)
        counted, wanted = int(values.sum()), int(case.expected.sum(dtype=np.int64))
        report.expect(counted == wanted, f"y counts {counted} elements, x has {wanted}")
        report.equal(values, case.expected.astype(np.int64))

    def _private(self, case: Case, got: Observed, report: Report) -> None:
        self._values(case, got, report)
        counts, y, x = got.counts, self.name_in(got, "y"), self.name_in(got, "x")
        report.expect(
            np.prod(counts.local) == LOCAL,
            f"a workgroup has {counts.local} invocations; asked were {LOCAL}",
        )
        groups, most = int(np.prod(counts.grid)), self.params["bins"]
        added = int(counts.elements_written[y].sum())
        report.expect(
            added <= most * groups,
            f"y was changed {added} times by {groups} groups; each has {most} bins to add",
        )
        read = counts.elements_read[x]
        report.expect(
            read.max() <= EACH and counts.reads[x].max() <= 1,
            f"an invocation read {read.max()} elements of x, asked were {EACH} at most, "
            "and each element once",
        )
        writes = counts.elements_written[y].reshape(groups, -1)
        report.expect(
            writes.max() <= -(-most // LOCAL),
            "one invocation added "
            f"{writes.max()} bins to y; the 64 of a workgroup share the {most} bins",
        )

        by, own = counts.by_invocation, EACH + 4 * -(-most // LOCAL)
        report.expect(
            by["shared_stores"].max() <= own,
            "one invocation made "
            f"{by['shared_stores'].max()} changes to shared memory; if all 64 share the "
            f"work, {own} are enough",
        )
        report.expect(by["barriers"].max() <= 4, f"{by['barriers'].max()} barriers; two are enough")

    def _races(self, case: Case, got: Observed, report: Report) -> None:
        counts, y = got.counts, self.name_in(got, "y")
        plain = int(counts.elements_written[y].sum()) - int(counts.elements_atomic[y].sum())
        report.expect(
            not plain,
            f"{plain} additions to y are not atomic: another workgroup may "
            "add to the same bin between the load and the store",
        )
        loaded = int(counts.elements_read[y].sum()) - int(counts.elements_atomic[y].sum())
        report.expect(
            loaded <= 0,
            f"y is loaded {loaded} times without an addition: what is "
            "loaded may be out of date when it is stored",
        )
        for said in (
            shapes.race_shape(got),
            shapes.barrier_shape(got),
            shapes.unset_shape(got),
            shapes.order_matters(got, [y]),
        ):
            report.expect(not said, said)
        self._values(case, got, report)


# ------------------------------------------------------------------------------- transactions


@exercise(
    "07b-2",
    hints=(
        "Sort the words into banks first: the bank is the remainder of a division.",
        "Two lanes that need the same word need it once. Which collection keeps a value once?",
        "An access without any active lane needs no transaction: what is the largest number of an "
        "empty list?",
    ),
    variants=({"banks": 32}, {"banks": 16}, {"banks": 64}, {"banks": 8}),
)
class Transactions(Function):
    parts = {"conflicts": ("different words of one bank take turns", 2),
             "broadcast": ("a word that several lanes need is fetched once", 1),
             "inactive": ("lanes that do not take part need nothing", 1)}  # fmt: skip
    follows = {"broadcast": "conflicts", "inactive": "conflicts broadcast"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        n = self.params["banks"]
        for stride in (1, 2, 3, n // 2, n, n + 1, 2 * n):
            at = [lane * stride for lane in range(32)]
            yield Case("conflicts", (at,), on=f"words {stride} apart")
        for _ in range(4):
            drawn = random.choice(8 * n, 32, replace=False).tolist()
            yield Case("conflicts", (drawn,), on=f"words {words.short(drawn)}")
        for at in (
            [5] * 32,
            [0] * 16 + [n] * 16,
            [lane // 2 * n for lane in range(32)],
            random.integers(0, 3 * n, 32).tolist(),
        ):
            yield Case("broadcast", (at,), on=f"words {words.short(at)}")
        for share in (0.1, 0.5, 0.8):
            full = random.integers(0, 4 * n, 32).tolist()
            at = [word if random.random() < share else None for word in full]
            yield Case("inactive", (at,), on=f"words {words.short(at)}")
        yield Case("inactive", ([None] * 32,), on="no active lane")
        yield Case("inactive", ([],), on="no lane at all")
        yield Case("broadcast", ([0, n, n],))  # a subgroup need not have 32 lanes
        many = [*range(32), *range(0, 32 * n, n)]
        on = f"64 lanes, words {words.short(many)}"
        yield Case("conflicts", (many,), on=on, mixed=True)
        yield Case("inactive", ([None] * 31 + [0],), on="one active lane, word 0")

    def expected(self, case: Case) -> Any:
        pairs = {(word % self.params["banks"], word) for word in case.args[0] if word is not None}
        per_bank = np.bincount([bank for bank, _ in pairs] or [0])
        return int(per_bank.max()) if pairs else 0


# ------------------------------------------------------------------------------- a tile


def random_maps(random: np.random.Generator, accesses: np.ndarray, tries: int) -> list[int]:
    """Return the transactions of tables that XOR the column with a random mask for each row bit."""
    found, row = [], np.arange(32)
    for _ in range(tries):
        masks = random.integers(0, 32, 5)
        turn = np.bitwise_xor.reduce(np.where(row[:, None] >> np.arange(5) & 1, masks, 0), axis=1)
        if np.unique(turn).size == 32:
            found.append(banks.total(banks.lined_up(np.arange(32) ^ turn[:, None]), accesses))
    return found


def draw_families(random: np.random.Generator) -> tuple[banks.Family, ...]:
    """Draw families that one table serves without a conflict, and no obvious table does."""
    shapes_of = [(2, 16), (4, 8), (8, 4), (16, 2)]
    while True:
        chosen = random.choice(4, int(random.integers(2, 4)), replace=False)
        bits = tuple(random.permutation(5).tolist())
        families: tuple[banks.Family, ...] = (
            ("block", 1, 32),
            ("block", 32, 1),
            ("xor", *bits),
            *(("block", *shapes_of[n]) for n in sorted(chosen)),
        )
        accesses = banks.accesses_of(families)
        if min(banks.obvious(accesses).values()) < 1.2 * len(accesses):
            continue
        found = random_maps(random, accesses, 100)
        if sum(cost == len(accesses) for cost in found) >= 4:
            return families


@exercise(
    "07b-3",
    hints=(
        "Let each row of the tile keep its own 32 words, and exchange them inside the row. Then "
        "every "
        "row costs one transaction, and the answer is a permutation in any case.",
        "XOR the column with a number that depends on the row: no row and no column has a "
        "conflict if "
        "the 32 numbers are different. A block has 4 neighbouring columns, which differ in two "
        "bits, "
        "and 8 rows: so the numbers of these rows have to differ in the other three bits.",
        "A rule with few unknowns: give each of the five bits of the row a mask of five bits, and "
        "XOR "
        "the column with the masks of the bits that are set. Five masks make 33 million tables.",
        "Draw masks at random, count with `banks.total`, and keep the best. Stop when each access "
        "takes one transaction. Some hundred tries are enough for the random lists, some thousand "
        "for "
        "the picture.",
    ),
    extra=True,
)
class Arrange(Function):
    parts = {"valid": ("each element has a word of its own", 1),
             "picture": ("the list of the picture", 1), "first": ("the first random list", 1),
             "second": ("the second random list", 1),
             "third": ("the third random list", 1)}  # fmt: skip
    seconds = 30.0

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        some = banks.accesses_of([("block", 1, 32)])
        yield Case("valid", (some[:4],), on="four rows")
        yield Case("valid", (banks.accesses_of([("wrapped", 3)]),), on="32 diagonals of slope 3")
        drawn = {part: draw_families(random) for part in ("first", "second", "third")}
        for part, families in {"picture": banks.PICTURE, **drawn}.items():
            accesses = banks.accesses_of(families)
            yield Case(
                part,
                (accesses,),
                on=self.parts[part][0],
                facts={"natural": min(banks.obvious(accesses).values())},
            )

    def expected(self, case: Case) -> Any:
        return len(case.args[0])

    def compare(self, case: Case, got: Any, report: Report) -> None:
        table = np.asarray(got) if isinstance(got, list | tuple | np.ndarray) else np.zeros(0)
        table = table.reshape(-1) if table.shape == (32, 32) else table
        report.expect(
            table.shape == (1024,) and table.dtype.kind in "iu",
            f"expected 1024 whole numbers, got {words.short(got)}",
        )
        table = table.astype(np.int64)
        twice = np.flatnonzero(np.bincount(np.clip(table, 0, 1024), minlength=1025)[:1024] > 1)
        for element in np.flatnonzero((table < 0) | (table > 1023))[:1]:
            report.expect(
                False, f"element {element} has word {table[element]}; words are 0 to 1023"
            )
        report.expect(not twice.size, f"word {twice[:1]} belongs to several elements")
        if report.part == "valid":
            return
        full = 240 if report.part == "picture" else None
        report.score(
            banks.total(table, case.args[0]),
            case.expected,
            case.facts["natural"],
            "transactions",
            full=full,
        )


# ------------------------------------------------------------------------------- predictions


@exercise("07b-p1", hints=("What do all eight invocations load?",))
class LostUpdates(Predict):
    explains = (
        "All eight load 0 and store 1: seven updates are lost. An atomic addition does the "
        "three steps as one, so the invocations take turns, and the bin holds 8."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"plain": 1, "atomic": 8}


@exercise("07b-p2", hints=("Write down the banks of lanes 0, 1 and 2: 32 lanes, 32 banks.",))
class Strides(Predict):
    explains = (
        "Words s apart: lane n is in bank s n mod 32. With s = 2 two lanes share each of "
        "16 banks, with 32 all lanes share bank 0, and with 33 every lane has a bank of "
        "its own, as with any odd number."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"stride_1": 1, "stride_2": 2, "stride_32": 32, "stride_33": 1}
