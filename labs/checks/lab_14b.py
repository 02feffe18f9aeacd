"""Exercises of lab 14b: an element of Q4_K, its kernel, what fits, perplexity, a mix of formats."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from vklab_course import words
from vklab_course.children.kernel_answers import Kernel
from vklab_course.children.kernel_cases import INSIDE
from vklab_course.counting import shapes
from vklab_course.counting.observe import Observed
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Predict
from vklab_course.definition.report import Report
from vklab_labs.lab_14 import formats_mixes
from vklab_labs.lab_14.blocks_q4k import BLOCK, WORDS, draw_blocks, values_of

# ------------------------------------------------------------------------------------------ 14b-1


@exercise(
    "14b-1",
    hints=(
        "Split the index three times: the block, the group of 32 in it, the place in the group.",
        "Two groups share 32 bytes of codes. Which of the two has the lower half of each byte?",
        "Where do the six bits of the last four groups lie? Four in one byte, two in another.",
        "Turn both scales into float32 before you multiply.",
    ),
    seams=("vklab.apps.quantization.blocks.dequantize", "gguf.quants.dequantize"),
)
class ValueAt(Function):
    parts = {"first": ("groups 0 to 3 of a block", 2), "last": ("groups 4 to 7 of a block", 2),
             "several": ("a row of several blocks", 1)}  # fmt: skip
    follows = {"several": "first last"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for part, groups in (("first", range(4)), ("last", range(4, 8))):
            for group in groups:
                for place in (0, 31, *random.integers(1, 31, 2).tolist()):
                    row = draw_blocks(random, 1)
                    yield self._case(part, row, 32 * group + place)
        for n, count in enumerate((2, 3, 5, 4, 7, 3)):
            row = draw_blocks(random, count)
            yield self._case("several", row, int(256 * (count - 1) - 128 * (n % 2) + 37 * n))
        for special in (np.inf, np.nan):
            row = draw_blocks(random, 3)
            row[BLOCK : BLOCK + 2] = np.array([special], "<f2").view(np.uint8)
            row[BLOCK + 4 : 2 * BLOCK] |= 0x11  # no scale and no code is 0
            yield self._case("several", row, 300)
            yield self._case("several", row, int(random.integers(0, 256)))

    def _case(self, part: str, row: np.ndarray, index: int) -> Case:
        return Case(part, (row, index), on=f"element {index} of {len(row) // BLOCK} blocks")

    def expected(self, case: Case) -> Any:
        row, index = case.args
        return float(values_of(row)[index])

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.kind(got, int | float | np.number, "a float32")
        with np.errstate(over="ignore"):
            mine, right = np.float32(got), np.float32(case.expected)
        same = mine.tobytes() == right.tobytes() or (mine == right == 0)
        apart = f"expected {right!s}, got {mine!s}"
        near = math.isclose(mine, right, rel_tol=1e-2) and not same
        hint = "  (near, but all bits must be equal: is every step float32?)" if near else ""
        report.expect(same or (np.isnan(mine) and np.isnan(right)), apart + hint)


# ------------------------------------------------------------------------------------------ 14b-2


@exercise(
    "14b-2",
    hints=(
        "Who needs which words? 32 lanes, and 32 words of codes in a block: one word each.",
        "A word has eight codes: four low halves of bytes of one group, four high halves of the "
        "next group. Which eight activations do they meet?",
        "All lanes need the first four words of a block. Let four lanes load them into shared "
        "memory. There are two barriers: before the words are used, and before they are replaced.",
        "The guard depends on the workgroup alone, so all its lanes leave together. It stands "
        "before the first load.",
        "At the end each lane has a part of the sum. Add them up in shared memory, as in lab 07. A "
        "subgroup may have fewer than 32 lanes.",
    ),
)
class Q4kMatvec(Kernel):
    parts = {"values": ("y = W x", 2), "inside": INSIDE,
             "shape": ("a row to a workgroup, in shares; one store a row", 1),
             "loads": ("few loads", 2)}  # fmt: skip
    follows = {"shape": "values inside", "loads": "values inside shape"}
    start = 0.375
    is_mapped = False
    guard = "does the guard stand before the first load, and is the row's first word right?"
    SIZES: ClassVar = ((1, 1, 0), (3, 2, 1), (5, 3, 2), (7, 5, 0))
    LEAST, MOST = WORDS + 256, 7 * 256  # loads of a block in a row

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for rows, blocks, more in self.SIZES:
            while True:
                w = draw_blocks(random, rows * blocks)
                x = random.uniform(-2, 2, 256 * blocks).astype(np.float32)
                matrix = values_of(w).astype(np.float64).reshape(rows, -1)
                if abs(matrix @ x).max() > 0.05 * (abs(matrix) @ abs(x)).max():
                    break  # rounding stays far below what is allowed
            on = f"rows={rows}, blocks={blocks}" + (f", {rows + more} workgroups" if more else "")
            room = int(random.integers(3, 40)) if rows == 7 else 0
            yield self.dispatch_case(
                {"w": w.view(np.uint32), "x": x}, rows, (rows + more,),
                {"rows": rows, "blocks": blocks}, on, room=room,
            )  # fmt: skip

    def expected(self, case: Case) -> Any:
        rows, blocks = case.args[2]["rows"], case.args[2]["blocks"]
        matrix = values_of(case.args[0]["w"][: WORDS * rows * blocks].view(np.uint8))
        x = case.args[0]["x"][: 256 * blocks].astype(np.float64)
        return (matrix.astype(np.float64).reshape(rows, -1) @ x).astype(np.float32)

    def _values(self, case: Case, got: Observed, report: Report) -> None:
        values = got.buffers[self.name_in(got, "y")][: len(case.expected)]
        missing = np.flatnonzero(values == np.float32(self.start))
        report.expect(not missing.size, f"nobody wrote element {missing[:1]} of y")
        report.close(values, case.expected, 0, 1e-4 * float(abs(case.expected).max()))

    def _shape(self, case: Case, got: Observed, report: Report) -> None:
        names = {name: self.name_in(got, name) for name in "wxy"}
        rows, blocks = case.args[2]["rows"], case.args[2]["blocks"]
        largest = float(abs(case.expected).max())
        for said in (
            shapes.outside_shape(got),
            shapes.size_shape(got, size=32),
            shapes.work_shape(got, names["y"]),
            shapes.barrier_shape(got),
            shapes.race_shape(got),
            shapes.unset_shape(got),
            shapes.input_shape(got, names["y"]),
            shapes.order_matters(got, [names["y"]], relative=0, absolute=1e-4 * largest),
            shapes.partial_shape(got, names["y"], owner=lambda elements: 32 * elements),
        ):
            report.expect(not said, said)
        writes = got.counts.writes[names["y"]]
        report.expect(writes.sum() == rows, f"{writes.sum()} stores to y; there are {rows} rows")
        loads = sum(got.counts.elements_read.get(names[name], np.zeros(1, int)) for name in "wx")
        report.expect(
            loads.max() <= 64 * blocks,
            f"invocation {loads.argmax()} loads {loads.max()} elements of w and x; at most "
            f"64 for each block, {64 * blocks}, are allowed: do all lanes have a share?",
        )

    def _loads(self, case: Case, got: Observed, report: Report) -> None:
        self._values(case, got, report)
        self._shape(case, got, report)
        reads = (got.counts.reads[self.name_in(got, name)].sum() for name in "wx")
        each = float(sum(reads)) / (case.args[2]["rows"] * case.args[2]["blocks"])
        report.score(each, self.LEAST, self.MOST, "loads for a block of a row")


# ------------------------------------------------------------------------------------------ 14b-3

BLOCKS = {"F16": (1, 2), "Q8_0": (32, 34), "Q4_K": (256, 144), "Q6_K": (256, 210),
          "Q2_K": (256, 84), "Q4_0": (32, 18)}  # fmt: skip


@exercise(
    "14b-3",
    hints=(
        "Bytes of a row first: how many blocks has it? Then the bytes of all rows.",
        "One token in the cache: keys and values, of every layer, for the heads of keys and values.",
        "Whole pages only: round the context up for its bytes, and the longest context down.",
        "For the time, take the rows that are read, and the tokens of the cache without rounding.",
    ),
    variants=tuple({"page": page} for page in (16, 32, 64, 128)),
)
class Fits(Function):
    parts = {"bytes": ("bytes of weights and cache", 2), "tokens": ("the longest context", 1),
             "seconds": ("the least time of a token", 1)}  # fmt: skip
    follows = {"tokens": "bytes", "seconds": "bytes"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for part in self.parts:
            for number in range(8):
                yield self._case(part, random, number)
        matrices, formats, kv, *rest = self._case("bytes", random, 1).args
        odd = [*matrices, (8, 384, "Q4_K", 8)]
        yield Case("bytes", (odd, formats, kv, *rest), on="a row that ends inside a block")
        yield Case("bytes", ([], formats, {**kv, "context": 0}, *rest), on="no matrices, context 0")
        yield Case("tokens", (matrices, formats, kv, 0, 1e9), on="no memory")

    def _case(self, part: str, random: np.random.Generator, number: int) -> Case:
        def whole(low: int, high: int) -> int:
            return int(random.integers(low, high))

        kinds = sorted(random.choice(list(BLOCKS), 3, replace=False).tolist())
        width, page = 256 * whole(2, 9), self.params["page"]
        rows = 64 * whole(20, 60)
        matrices = [(rows, width, kinds[0], 1)]  # an embedding table
        for _ in range(whole(2, 6)):
            rows = 64 * whole(2, 20)
            matrices.append((rows, 256 * whole(2, 12), kinds[whole(0, 3)], rows))
        kv_heads = whole(1, 5)
        kv = {
            "layers": whole(2, 9), "heads": kv_heads * whole(2, 5), "kv_heads": kv_heads,
            "head_size": 32 * whole(1, 5), "element_bytes": whole(1, 3),
            "context": 512 * whole(1, 6) + (page * 3 if number == 0 else whole(1, 512)),
        }  # fmt: skip
        if kv["context"] % page == 0 and number:
            kv["context"] += 1
        weights, token = self._weights(matrices, BLOCKS), self._token(kv)
        room = whole(20, 500) * page * token + whole(1, page * token)
        memory = weights + (room if number < 6 else -whole(1, weights) if number == 6 else 0)
        formats = {kind: BLOCKS[kind] for kind in kinds} | {"Q4_K": BLOCKS["Q4_K"]}
        args = (matrices, formats, kv, memory, float(1e9 * whole(20, 4800)))
        on = f"{len(matrices)} matrices, a context of {kv['context']}, {memory} bytes"
        return Case(part, args, on=on)

    @staticmethod
    def _weights(matrices: Any, formats: Any, read: bool = False) -> int:
        total = 0
        for rows, columns, kind, rows_read in matrices:
            elements, size = formats[kind]
            if columns % elements:
                raise ValueError("a row ends inside a block")
            total += (rows_read if read else rows) * (columns // elements) * size
        return total

    @staticmethod
    def _token(kv: Mapping[str, int]) -> int:
        heads = kv["kv_heads"] * kv["head_size"]
        return 2 * kv["layers"] * heads * kv["element_bytes"]

    def expected(self, case: Case) -> Any:
        matrices, formats, kv, memory, bandwidth = case.args
        weights, token, page = self._weights(matrices, formats), self._token(kv), self.params["page"]
        pages = math.ceil(kv["context"] / page)
        fitting = (memory - weights) // (page * token) if memory > weights else 0
        read = self._weights(matrices, formats, read=True) + kv["context"] * token
        return weights + pages * page * token, page * fitting, read / bandwidth

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, tuple | list) and len(got) == 3,
            f"expected (bytes, tokens, least_seconds), got {words.short(got)}",
        )
        place = list(self.parts).index(report.part)
        if report.part == "seconds":
            report.close(got[2], case.expected[2], 1e-9, 0)
        else:
            report.kind(got[place], int | float | np.number, f"a whole number of {report.part}")
            report.equal(got[place], case.expected[place], report.part)


# ------------------------------------------------------------------------------------------ 14b-4


def judged_losses(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw the losses of a model and of a shorter one on the same tokens, in nats."""
    reference = random.gamma(1.3, 2.6, count)
    moved = random.normal(random.uniform(-0.004, 0.02), random.uniform(0.05, 0.25), count)
    return reference, np.maximum(reference + moved, 1e-4)


@exercise(
    "14b-4",
    hints=(
        "Both models saw the same tokens: subtract first, then take means and deviations.",
        "exp(mean of the differences) is the ratio of both perplexities.",
        "The error of a mean is the deviation over the root of the count.",
        "Three verdicts: the whole interval is below the limit, the whole interval is above, or "
        "neither.",
    ),
    variants=tuple({"width": width} for width in (2, 1.6, 2.6, 3)),
)
class ComparePerplexity(Function):
    parts = {"percent": ("the change in percent", 1), "error": ("its standard error", 1),
             "verdict": ("the verdict", 2)}  # fmt: skip
    follows = {"verdict": "percent error"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for part in ("percent", "error"):
            for count in (2, 60, 400, int(random.integers(1000, 2000))):
                yield self._case(part, *judged_losses(random, count), 1.0)
        same = judged_losses(random, 30)[0]
        yield Case("verdict", (same, same.copy(), 0.0), on="equal losses, 0 percent allowed")
        for side in (1, -1, 1, -1):  # of the interval: its upper end decides "within"
            for nudge in (0.15, -0.15):
                losses = judged_losses(random, int(random.integers(200, 900)))
                percent, error = self.measured(*losses)
                allowed = percent + side * self.params["width"] * error + nudge * error
                yield self._case("verdict", *losses, float(allowed))
        for allowed in (60.0, -40.0):
            yield self._case("verdict", *judged_losses(random, 300), allowed)

    def _case(self, part: str, one: np.ndarray, other: np.ndarray, allowed: float) -> Case:
        return Case(part, (one, other, allowed), on=f"{len(one)} tokens, {allowed:.3f} % allowed")

    @staticmethod
    def measured(reference: np.ndarray, quantised: np.ndarray) -> tuple[float, float]:
        """Return the change in percent and its standard error."""
        apart = [float(b) - float(a) for a, b in zip(reference, quantised, strict=True)]
        mean = math.fsum(apart) / len(apart)
        spread = math.sqrt(math.fsum((d - mean) ** 2 for d in apart) / (len(apart) - 1))
        return 100 * math.expm1(mean), 100 * math.exp(mean) * spread / math.sqrt(len(apart))

    def expected(self, case: Case) -> Any:
        percent, error = self.measured(*case.args[:2])
        wide, allowed = self.params["width"] * error, case.args[2]
        if percent + wide <= allowed:
            return percent, error, "within"
        return percent, error, "above" if percent - wide > allowed else "too few tokens"

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, tuple | list) and len(got) == 3,
            f"expected (percent, error, verdict), got {words.short(got)}",
        )
        place = list(self.parts).index(report.part)
        if report.part == "verdict":
            report.equal(got[2], case.expected[2])
        else:
            report.close(got[place], case.expected[place], 1e-9, 1e-11, report.part)


# ------------------------------------------------------------------------------------------ 14b-5

# By format: bits of a weight.
BITS = {"Q2_K": 2.625, "Q3_K": 3.4375, "Q4_K": 4.5, "Q5_K": 5.5, "Q6_K": 6.5625, "Q8_0": 8.5}


def draw_matrices(random: np.random.Generator) -> tuple[list[dict[str, tuple[int, int]]], int]:
    """Draw matrices by format, (bytes, divergence), and a budget of bytes."""
    matrices = []
    for _ in range(int(random.integers(8, 13))):
        blocks = int(random.choice([128, 256, 512, 768, 1024, 2048]))
        worth = float(random.lognormal(5.5, 1.4))
        steep = random.uniform(0.75, 1.15)
        matrices.append(
            {
                kind: (
                    round(blocks * 32 * bits),
                    1 + round(1000 * worth * 4 ** (-steep * bits) * random.uniform(0.8, 1.25)),
                )
                for kind, bits in BITS.items()
            }
        )
    least, most = (sum(options[k][0] for options in matrices) for k in ("Q2_K", "Q6_K"))
    return matrices, int(least + random.uniform(0.25, 0.75) * (most - least))


def wrong_mixes(matrices: Any, budget: int) -> dict[str, int]:
    """Return the divergence of the answers that come to mind first, by name."""
    by_byte = formats_mixes.by_gain(matrices, budget, lambda gain, more: gain / max(more, 1))
    mixes: dict[str, Any] = {
        "single": formats_mixes.best_single(matrices, budget),
        "gain": formats_mixes.by_gain(matrices, budget, lambda gain, more: gain),
        "by byte": by_byte,
        "exchanges": formats_mixes.exchanged(matrices, budget, by_byte),
    }
    return {name: formats_mixes.cost_of(matrices, mix)[1] for name, mix in mixes.items()}


@exercise(
    "14b-5",
    hints=(
        "Take the matrices one after the other. Which mixes of the first few are worth keeping?",
        "A mix that has more bytes and more divergence than another can be dropped, whatever "
        "follows. Sort by bytes, and keep those that lower the divergence.",
        "Drop mixes beyond the budget at once. Some hundred stay.",
    ),
    extra=True,
)
class ChooseFormats(Function):
    parts = {"better": ("better than one format for all", 2), "best": ("the best mix", 3)}
    follows = {"best": "better"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        one = [{"Q4_K": (144, 9), "Q8_0": (272, 1)}] * 3
        yield Case("best", (one, 560), on="three equal matrices")
        yield Case("", (one, 431), on="a budget below the least")
        for _ in range(4):
            while True:
                matrices, budget = draw_matrices(random)
                found = wrong_mixes(matrices, budget)
                best = formats_mixes.best_mix(matrices, budget)
                least = formats_mixes.cost_of(matrices, best or ())[1]
                if min(found.values()) >= 1.01 * least and (
                    min(found["gain"], found["by byte"]) >= 1.05 * least
                ):
                    break
            facts = {"plain": found["single"], "wrong": min(found.values())}
            yield Case("", (matrices, budget), on=f"{len(matrices)} matrices", facts=facts)

    def expected(self, case: Case) -> Any:
        matrices, budget = case.args
        best = formats_mixes.best_mix(matrices, budget)
        if best is None:
            raise ValueError("no mix fits into the budget")
        return formats_mixes.cost_of(matrices, best)[1]

    def compare(self, case: Case, got: Any, report: Report) -> None:
        matrices, budget = case.args
        report.expect(
            isinstance(got, list | tuple) and len(got) == len(matrices),
            f"expected a list of {len(matrices)} formats, got {words.short(got)}",
        )
        for n, name in enumerate(got):
            known = isinstance(name, str) and name in matrices[n]
            report.expect(known, f"matrix {n} has no format {words.short(name)}")
        size, apart = formats_mixes.cost_of(matrices, got)
        report.expect(size <= budget, f"{size} bytes; the budget is {budget}")
        if not case.facts:
            report.expect(apart == case.expected, f"{apart}; the least is {case.expected}")
        elif report.part == "better":
            plain, wrong = case.facts["plain"], case.facts["wrong"]
            report.score(apart, case.expected, plain, "units of divergence", wrong)
        else:
            report.score(apart, case.expected, case.facts["wrong"], "units of divergence")


# ------------------------------------------------------------------------------------ predictions


@exercise("14b-p1", hints=("The table is read twice for each token: as input, and for the logits.",))
class BetterMix(Predict):
    options: ClassVar[Mapping[str, tuple[str, ...]]] = {"better": ("A", "B")}
    explains = (
        "A: 6,251 millionths of a nat, and B 9,304. The table's rows are the model's input, and all "
        "of them give the logits: an error there reaches every probability directly."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"better": "A"}
