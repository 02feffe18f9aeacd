"""Exercises of lab 06: hazards, fewest barriers, masks, a staging ring, groups under a cap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Choice, Predict, Question
from vklab_course.definition.report import Report
from vklab_labs.lab_06.commands import BARRIERS
from vklab_labs.shared.grouping import CAP, WORK, Work, kept_bytes, ready

Command = tuple[str, tuple[tuple[str, int, int], ...], tuple[tuple[str, int, int], ...]]
Hazard = tuple[int, int, str]
KINDS = (("RAW", 2, 1), ("WAR", 1, 2), ("WAW", 2, 2))  # what the earlier, the later command does


def _bytes_of(spans: Iterable[tuple[str, int, int]]) -> set[tuple[str, int]]:
    return {(arena, byte) for arena, first, end in spans for byte in range(first, end)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def all_hazards(commands: Sequence[Command], barriers: Iterable[int] = ()) -> list[Hazard]:
    """Return the hazards that no barrier orders, byte by byte."""
    touched = [(name, _bytes_of(reads), _bytes_of(writes)) for name, reads, writes in commands]
    return [
        (i, j, kind)
        for i, j in combinations(range(len(commands)), 2)
        if not {*barriers} & {*range(i + 1, j + 1)}
        for kind, first, second in KINDS
        if touched[i][first] & touched[j][second]
    ]


def _commands(random: np.random.Generator, count: int, step: int = 3) -> list[Command]:
    def spans(most: int) -> tuple[tuple[str, int, int], ...]:
        starts = [int(random.integers(0, 6)) * step for _ in range(int(random.integers(0, most)))]
        return tuple(
            (str(random.choice(["x", "y"])), at, at + step * int(random.integers(1, 4)))
            for at in starts
        )

    return [(f"kernel {n}", spans(3), spans(3)) for n in range(count)]


@exercise(
    "06-1",
    hints=(
        "Two accesses share a byte in one arena if each begins before the other ends.",
        "A barrier with number p stands before command p. Which pairs (earlier, later) does it "
        "separate? Try p = earlier, p = later, and the numbers beside them.",
    ),
    seams=("vklab.plan.barriers.find_barriers", "vklab.plan.memory.Slot.overlaps"),
    builds=BARRIERS,
)
class FindHazards(Function):
    parts = {
        "bytes": ("spans that share a byte, and spans that only touch", 1),
        "kinds": ("RAW, WAR and WAW, also several for one pair", 2),
        "barriers": ("a barrier orders what is before it and what is after it", 2),
    }

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        def one(name: str, read: int = 0, write: int = 0, arena: str = "x") -> Command:
            span = ((arena, 4, 8),)
            return name, span * read, span * write

        write, read, both = one("write", 0, 1), one("read", 1), one("in place", 1, 1)
        for first, end in ((8, 12), (7, 12), (0, 4), (0, 5), (5, 6), (0, 16), (4, 8)):
            yield Case("bytes", ([write, ("read", (("x", first, end),), ())],))
        around = "read around", (("x", 0, 4), ("x", 8, 12)), ()
        yield Case("bytes", ([write, one("read y", 1, 0, "y"), around, read],))
        for listed in (
            [write, read],
            [read, write],
            [write, write],
            [read, read],
            [both, both],
            [write, read, write, read],
            [read, both],
            [both, read, write],
        ):
            yield Case("kinds", (listed,))
        for barriers in ([], [0], [1], [2], [3], [4], [1, 3], [4, 0, 2], [2, 2]):
            commands = [write, both, read, write]
            yield Case("barriers", (commands,), {"barriers": barriers}, mixed=True)
        for part in self.parts:
            for count in (4, 6, 7):
                drawn = random.choice(count, 1 + count // 3, replace=False)
                numbers = drawn.tolist() if part == "barriers" else []
                drawn_list = _commands(random, count)
                yield Case(part, (drawn_list,), {"barriers": numbers}, mixed=True)

    def expected(self, case: Case) -> Any:
        return all_hazards(*case.args, **case.named)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, list | tuple | set)
            and all(isinstance(h, list | tuple) and len(h) == 3 for h in got),
            f"expected a list of (earlier, later, kind), got {words.short(got)}",
        )
        found, right = [tuple(h) for h in got], [tuple(h) for h in case.expected]
        for hazard in right:
            report.expect(hazard in found, f"the hazard {hazard} is missing")
        for hazard in found:
            report.expect(hazard in right, f"{words.short(hazard)} is no hazard here")
        report.expect(len(found) == len(right), "a hazard is listed twice")


@exercise(
    "06-2",
    hints=(
        "Look at the hazards in the order in which their gaps end.",
        "Has this hazard a barrier already? Compare its earlier command with the last barrier.",
        "The hazard that made you place a barrier belongs into the proof.",
    ),
    seams=("vklab.plan.barriers.find_barriers",),
    builds=BARRIERS,
)
class FewestBarriers(Function):
    parts = {
        "barriers": ("every hazard has a barrier, with as few barriers as possible", 3),
        "proof": ("as many hazards as barriers, of which no two can share one", 2),
    }
    follows = {"proof": "barriers"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for text in ("01", "03 24 36", "02 24", "04 35 12", "23 01", "05 01 45", "03 14 25 36", ""):
            yield Case("", ([(int(gap[0]), int(gap[1]), "RAW") for gap in text.split()],))
        # The place in the middle serves most gaps, and then each side needs a place of its own.
        trap = [(0, 2), (1, 3), (1, 3), (2, 4), (2, 4), (3, 5)]
        for blocks in (1, 2, 9):
            made = [(i + 6 * n, j + 6 * n, "RAW") for n in range(blocks) for i, j in trap]
            yield Case("", ([made[n] for n in random.permutation(len(made))],))
        for count in (6, 8, 9, 12):
            found = all_hazards(_commands(random, count, 2))
            yield Case("", ([found[n] for n in random.permutation(len(found))],))
        for count in (4, 6, 8, 10, 12):  # short gaps, in any order
            drawn = zip(*random.integers((0, 1), (20, 6), (count, 2)).T.tolist(), strict=True)
            yield Case("", ([(first, first + length, "RAW") for first, length in drawn],))

    def expected(self, case: Case) -> Any:
        least, before = 0, -1
        for first, later, _ in sorted(case.args[0], key=lambda hazard: hazard[1]):
            if first >= before:
                least, before = least + 1, later
        return least

    def compare(self, case: Case, got: Any, report: Report) -> None:
        (hazards,), least = case.args, case.expected
        report.expect(
            isinstance(got, list | tuple)
            and len(got) == 2
            and all(isinstance(each, list | tuple) for each in got),
            f"expected two lists (barriers, proof), got {words.short(got)}",
        )
        barriers, proof = got
        if report.part == "barriers":
            report.expect(
                all(map(_is_number, barriers)),
                f"expected numbers of commands, got {words.short(barriers)}",
            )
            for first, later, kind in hazards:
                report.expect(
                    set(barriers) & set(range(first + 1, later + 1)),
                    f"no barrier of "
                    f"{words.short(barriers)} is in the gap of {(first, later, kind)}",
                )
            report.expect(
                len(barriers) <= least,
                f"you used {len(barriers)} barriers; the fewest possible are {least}",
            )
            return
        known = [(first, later) for first, later, _ in hazards]
        pairs = [tuple(pair) if isinstance(pair, list | tuple) else pair for pair in proof]
        for pair in pairs:
            report.expect(
                pair in known,
                f"{words.short(pair)} in the proof is no (earlier, later) of a hazard",
            )
        for one, other in combinations(sorted(pairs), 2):
            report.expect(
                one[1] <= other[0],
                f"{one} and {other} can share the barrier "
                f"{min(one[1], other[1])}, so they do not prove two",
            )
        report.expect(len(pairs) == least, f"the proof needs {least} gaps, and has {len(pairs)}")


OPTIONS = ("right", "source stage", "source access", "target stage", "target access", "not needed")
K, T, H = "compute_shader", "transfer", "host"
# What happens, and the barrier between: stage / access -> stage / access.
ROWS = (
    ("kernel writes x; kernel reads x", K, "shader_write", K, "shader_read"),
    ("kernel writes x; kernel reads x", K, "shader_read", K, "shader_read"),
    ("kernel writes x; kernel reads x", K, "shader_write", K, "shader_write"),
    ("kernel reads x; copy writes x", K, "0", T, "0"),
    ("kernel reads x; copy writes x", T, "0", T, "0"),
    ("kernel reads x; copy writes x", K, "0", K, "0"),
    ("kernel writes x; then a fence; the host reads x", K, "shader_write", H, "0"),
    ("kernel writes x; then a fence; the host reads x", K, "0", H, "host_read"),
    ("host writes x; then vkQueueSubmit; kernel reads x", H, "host_write", K, "shader_read"),
    ("kernel reads w; kernel reads w", K, "shader_read", K, "shader_read"),
    ("kernel writes x; copy reads y (no byte of x)", K, "shader_write", T, "transfer_read"),
)
# Only `questions` may use these: a release ships what the variants use.
VERDICTS = (
    "right",
    "source access",
    "target access",
    "right",
    "source stage",
    "target stage",
    "target access",
    "source access",
    "not needed",
    "not needed",
    "not needed",
)

# By row: the fact that decides it, and the reason of the right answer.
WHY = (
    (
        "The write must be named before the barrier, and the read behind it.",
        "`shader_write` of a kernel comes first, `shader_read` of a kernel comes after it. The "
        "barrier names exactly these.",
    ),
    (
        "The first kernel writes x. A barrier passes on only the writes that it names.",
        "The source side names a read, so the write is not passed on. It must be `shader_write`.",
    ),
    (
        "The second kernel reads x. The write becomes visible only to the accesses that the "
        "barrier names.",
        "The target side names writes, so the read may still see old bytes. It must be "
        "`shader_read`.",
    ),
    (
        "The read must be over before the copy writes. A read leaves no bytes that others have to "
        "see.",
        "The stages order the kernel before the copy. A write after a read needs no accesses.",
    ),
    (
        "The read that must be over is that of a kernel, and the write is that of a copy.",
        "The barrier waits for copies, and not for the kernel. The source stage must be "
        "`compute_shader`.",
    ),
    (
        "The read that must be over is that of a kernel, and the write is that of a copy.",
        "The barrier holds back kernels, and not the copy. The target stage must be `transfer`.",
    ),
    (
        "A fence makes the write available, and not yet visible to the host's reads.",
        "The target side names no access. It must be `host_read`, also if the host has waited for "
        "a fence.",
    ),
    (
        "The kernel writes x. A barrier passes on only the writes that it names.",
        "The source side names no access, so the write is not passed on. It must be "
        "`shader_write`.",
    ),
    (
        "`vkQueueSubmit` makes visible what the host wrote before it.",
        "The submission itself already does what this barrier would do.",
    ),
    (
        "Both kernels only read w.",
        "Without a write there is no hazard: two reads may run in any order.",
    ),
    (
        "The two commands have no byte in common.",
        "A hazard needs bytes that both commands touch. Here there are none.",
    ),
)


def _rows(*numbers: int) -> dict[str, str]:
    shown = [f"{does} | `{a}` / `{b}` | `{c}` / `{d}`" for does, a, b, c, d in ROWS]
    return {letter: shown[number] for letter, number in zip("abcd", numbers, strict=True)}


@exercise(
    "06-3",
    hints=(
        "For each row: which kind of hazard is it, or is it none?",
        "A write that must be seen names its access on the source side, and the access that has to "
        "see it on the target side. A read that must be over needs only the stages.",
    ),
    variants=(_rows(1, 3, 6, 9), _rows(2, 8, 0, 4), _rows(7, 10, 5, 0), _rows(4, 7, 3, 8)),
)
class Masks(Choice):
    parts = {"all": ("every row", 3)}

    def questions(self) -> Mapping[str, Question]:
        rows = {
            _rows(n, n, n, n)["a"]: Question(verdict, OPTIONS, *why)
            for n, (verdict, why) in enumerate(zip(VERDICTS, WHY, strict=True))
        }
        return {letter.upper(): rows[shown] for letter, shown in self.params.items()}


@exercise(
    "06-4",
    hints=(
        "Draw the last example on paper: which earlier pieces lie in bytes 0 to 3?",
        "Two places share a byte if each begins before the other ends.",
        "Several earlier pieces may share bytes with the new one. Their copies end in order: which "
        "of their values is reached last?",
    ),
    variants=({"step": 1}, {"step": 10}, {"step": 2}, {"step": 5}, {"step": 100}),
)
class RingPlan(Function):
    parts = {"places": ("the place of each piece", 1),
             "waits": ("late enough to be safe, and no later", 2),
             "laps": ("many pieces, sizes of all kinds", 1)}  # fmt: skip
    follows = {"laps": "places waits"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for sizes, ring in (
            ([4, 4, 4], 8),
            ([3, 3, 3], 8),
            ([8, 8], 8),
            ([5], 8),
            ([6, 2, 1], 8),
            ([2, 2, 2, 2, 6], 8),
            ([], 8),
        ):
            yield Case("places", (sizes, ring))
            yield Case("waits", (sizes, ring))
        for part, count, most in (
            ("places", 6, 10),
            ("waits", 8, 10),
            ("waits", 9, 10),
            ("laps", 25, 10),
            ("laps", 60, 3),
            ("laps", 60, 1),
        ):
            sizes = [int(n) for n in random.integers(1, most + 1, count)]
            yield Case(part, (sizes, int(random.integers(12, 25))))

    def expected(self, case: Case) -> Any:
        sizes, ring = case.args
        owner, free, plan = [0] * ring, 0, []  # the value to wait for before each byte is written
        for number, size in enumerate(sizes, 1):
            free = free if free + size <= ring else 0
            plan.append((free, max(owner[free : free + size])))
            owner[free : free + size] = [number * self.params["step"]] * size
            free += size
        return plan

    def compare(self, case: Case, got: Any, report: Report) -> None:
        sizes, right, waited = case.args[0], case.expected, 0
        report.expect(
            isinstance(got, list | tuple)
            and len(got) == len(sizes)
            and all(isinstance(each, list | tuple) and len(each) == 2 for each in got),
            f"expected {len(sizes)} pairs (offset, value), got {words.short(got)}",
        )
        for number, ((at, value), (place, last)) in enumerate(zip(got, right, strict=True)):
            report.equal(at, place, f"the offset of piece {number}")
            if report.part == "places":
                continue
            report.expect(
                _is_number(value) and value >= 0, f"{words.short(value)} is no value to wait for"
            )
            waited = max(waited, value)
            report.expect(
                waited >= last,
                f"piece {number} overwrites bytes that an earlier copy "
                f"may still read: waiting for {value} is not enough",
            )
            report.expect(
                value <= last,
                f"piece {number} waits for {value}, and a smaller value "
                "is enough: host and device could work at the same time",
            )


def fewest_groups(work: Work, cap: int, fill: bool = False) -> float:
    """Return the fewest groups, by a search over the sets of commands that may be done.

    With `fill`, a group ends only when no ready command fits: what list scheduling does,
    whatever command it prefers.
    """
    reached, count = {frozenset[str]()}, 0
    while reached and frozenset(work) not in reached:
        after = set()
        for done in reached:
            able = ready(work, done)
            states = [(done, cap - kept_bytes(work, done))]  # every set of them that fits
            for n in able:
                states += [
                    (state | {n}, left - work[n][0]) for state, left in states if left >= work[n][0]
                ]
            after |= {
                state
                for state, left in states
                if state != done
                and not (fill and any(n not in state and work[n][0] <= left for n in able))
            }
        reached, count = after, count + 1
    return count if reached else np.inf


def in_order(work: Work, cap: int) -> int:
    """Keep the order; begin a group where a command reads the open one or has no room."""
    done, opened, count = set[str](), dict[str, int](), 1
    for name, (size, reads) in work.items():
        if opened.keys() & {*reads} or kept_bytes(work, done) + sum(opened.values()) + size > cap:
            done, opened, count = {*done, *opened}, {}, count + 1
        opened[name] = size
    return count


def draw_work(random: np.random.Generator) -> tuple[Work, int]:
    """Draw until filling every group beats the given order, and holding back beats filling."""
    while True:
        work: dict[str, tuple[int, tuple[str, ...]]] = {}
        for name in "abcdefghij":
            reads = random.permutation(list(work))[: int(random.integers(0, 3))]
            work[name] = int(random.integers(1, 9)), tuple(sorted(map(str, reads)))
        # The cap is what one command after the other needs, or a little more.
        cap = int(random.integers(0, 4)) + max(
            kept_bytes(work, list(work)[:n]) + work[name][0] for n, name in enumerate(work)
        )
        order = in_order(work, cap)
        filled = fewest_groups(work, cap, fill=True) if order > 5 else order
        if filled < order and fewest_groups(work, cap) < filled:
            return work, cap


@exercise(
    "06-5",
    hints=(
        "Take ready commands while they fit, then close the group. If nothing fits at all, return "
        "the order as given. Does another order of the ready commands give fewer groups?",
        "Filling every group is not always best: a result that nobody reads soon keeps its bytes. "
        "Two ways that have the same commands done differ only in their numbers of groups.",
        "There are at most 1,024 sets of done commands for ten commands. From all sets that k "
        "groups can reach, which can k + 1 groups reach? Remember one way to each set.",
    ),
    seams=("vklab.plan.tuning.layers.grouped",),
)
class GroupsUnderCap(Function):
    parts = {"valid": ("inputs first, every command once, never above the cap", 1),
             "picture": ("the commands of the picture", 1), "first": ("a drawn list", 1),
             "second": ("another drawn list", 1), "third": ("a third drawn list", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for part in ("picture", "first", "second", "third"):
            work, cap = (WORK, CAP) if part == "picture" else draw_work(random)
            yield Case(
                part,
                (work, cap),
                on=f"the list of part {part!r}",
                facts={"natural": in_order(work, cap)},
            )
        yield Case("valid", ({"a": (4, ())}, 4))
        yield Case("valid", ({"a": (4, ()), "b": (2, ()), "c": (2, ("a", "b"))}, 8))
        # Last, because list scheduling gets stuck here, and what follows an endless call is lost.
        yield Case("valid", ({"a": (4, ()), "b": (2, ("a",)), "c": (2, ())}, 6))

    def expected(self, case: Case) -> Any:
        return fewest_groups(*case.args)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        work, cap = case.args
        report.expect(
            isinstance(got, list | tuple)
            and all(
                isinstance(group, list | tuple | set) and all(type(n) is str for n in group)
                for group in got
            ),
            f"expected a list of lists of names, got {words.short(got)}",
        )
        times = Counter(name for group in got for name in group)
        for name in {**work, **times}:
            report.expect(
                times[name] == (name in work),
                f"{name} is in {times[name]} groups of "
                f"{words.short(got)}, expected {int(name in work)}",
            )
        done: set[str] = set()
        for number, group in enumerate(got):
            report.expect(group, f"group {number} of {words.short(got)} is empty")
            for name in group:
                late = [read for read in work[name][1] if read not in done]
                report.expect(
                    not late,
                    f"{name} of group {number} reads {', '.join(late)}, which "
                    "no earlier group has written",
                )
            live = kept_bytes(work, done) + sum(work[name][0] for name in group)
            report.expect(
                live <= cap,
                f"{live} bytes are live in group {number} of {words.short(got)}; the cap is {cap}",
            )
            done |= set(group)
        if report.part != "valid":
            report.score(len(got), case.expected, case.facts["natural"], "groups")


@exercise("06-p1", hints=("Which of the three needs bytes to move from one cache to another?",))
class NeedsMemory(Predict):
    explains = (
        "A read after a write must see the new bytes, and of two writes the later one must "
        "win in memory: both need available and visible. A write after a read only has to "
        "wait until the read is over: no bytes move, so an execution dependency is enough."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"RAW": True, "WAR": False, "WAW": True}


@exercise("06-p4", hints=("Which copy must be over before piece 2 is written to slot 0?",))
class RightPieces(Predict):
    explains = (
        "Piece k reuses the slot of piece k - slots, whose copy sets the timeline to "
        "k - slots + 1. The function waits for one copy less: only the last two pieces, "
        "which nobody overwrites, are right. A fast device is never that far behind."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"right_pieces": 2}
