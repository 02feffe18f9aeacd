"""Exercises of lab 05: one layout for several kernels, offsets, constants, caches, few binds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.children.kernel_answers import Kernel
from vklab_course.counting.observe import Observed
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Choice, Predict, Question
from vklab_course.definition.report import Report
from vklab_labs.lab_05.interfaces import Request, requests_of
from vklab_labs.lab_05.ordering import EXAMPLE, Dispatches, Masks, binds_of, broken, draw_dispatches

STORAGE, UNIFORM = "storage", "uniform"


@exercise(
    "05-1",
    hints=(
        "Which of the three rules can fail in the middle of the list, and which only at its end?",
        "Before you write a type into the dictionary: which type has the number already, if any? "
        "One "
        "method of dictionaries stores a value only for a new key, and returns what is stored.",
        "The kernel that reads most decides the range. A range of exactly `most_push` is accepted.",
    ),
    seams=("vklab.shader.reflection.reflect",),
)
class CommonLayout(Function):
    parts = {"slots": ("the slots of all kernels together", 1),
             "range": ("the push-constant range", 1),
             "none": ("None only where no layout serves all kernels", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        add, relu = ({0: STORAGE, 1: STORAGE, 2: STORAGE}, 4), ({0: STORAGE, 3: STORAGE}, 8)
        blur, table = ({0: STORAGE, 1: UNIFORM}, 0), ({4: UNIFORM, 0: STORAGE}, 128)
        for kernels in ([add], [add, relu], [relu, add, table]):
            yield Case(args=(kernels, 128))
        for kernels, most in (
            ([table, relu], 127),
            ([add, relu, table], 127),
            ([add, blur], 64),
            ([relu, add, blur], 256),
            ([({0: UNIFORM}, 4), add, relu], 128),
        ):
            yield Case("none", args=(kernels, most))
        for count in (2, 3, 4, 5):
            kinds = random.choice([STORAGE, UNIFORM], 12).tolist()
            kernels = []
            for _ in range(count):
                some = random.choice(12, random.integers(1, 5), replace=False).tolist()
                kernels.append(({n: kinds[n] for n in some}, 4 * int(random.integers(1, 33))))
            most = max(size for _, size in kernels)
            other = UNIFORM if kinds[some[0]] == STORAGE else STORAGE
            yield Case(args=(kernels, most))
            yield Case(args=(kernels, most + 4 * int(random.integers(1, 9))))
            yield Case("none", args=(kernels, most - 1))
            yield Case("none", args=([({some[0]: other, 12: STORAGE}, 4), *kernels], most))

    def expected(self, case: Case) -> Any:
        kernels, most = case.args
        pairs = sorted({pair for bindings, _ in kernels for pair in bindings.items()})
        size = max(size for _, size in kernels)
        clear = len({number for number, _ in pairs}) == len(pairs) and size <= most
        return (pairs, size) if clear else None

    def compare(self, case: Case, got: Any, report: Report) -> None:
        if case.expected is None:
            why = "two types at one binding, or a range above the limit"
            report.expect(got is None, f"expected None ({why}), got {words.short(got)}")
            return
        report.expect(got is not None, f"expected {words.short(case.expected)}, got None")
        report.expect(
            isinstance(got, tuple | list) and len(got) == 2,
            f"expected two things, (slots, push_bytes), got {words.short(got)}",
        )
        if report.part != "range":
            report.equal(got[0], case.expected[0], "(binding, type), sorted by the binding")
        if report.part != "slots":
            report.equal(got[1], case.expected[1], "bytes that every kernel's block fits into")


def block(members: Sequence[tuple[str, int, int, int | None]], rules: str) -> tuple[Any, int]:
    """Return the offset of each member of a struct, and the bytes of the struct in an array."""
    places, end, widest = {}, 0, 1
    for name, width, components, count in members:
        align = width if rules == "scalar" else width * (1, 2, 4, 4)[components - 1]
        size = width * components
        if count is not None:
            size = -(-size // align) * align * count
        places[name] = -(-end // align) * align
        end, widest = places[name] + size, max(widest, align)
    return places, -(-end // widest) * widest


@exercise(
    "05-2",
    hints=(
        "Three kinds of numbers are rounded up. Which ones, and each to a multiple of what?",
        "A member begins at the free byte, rounded up to its alignment. The next free byte is "
        "behind "
        "its own bytes: for a vector of three that is 12 bytes later, not 16.",
        "In an array the last element is rounded up, too: the next member cannot use the gap "
        "behind "
        "it. The struct is rounded up once, at its end.",
    ),
    seams=("vklab.shader.reflection.reflect",),
)
class Offsets(Function):
    parts = {"std430": ("offsets by the std430 rules", 2),
             "scalar": ("offsets by the scalar rules", 1),
             "size": ("the bytes of one struct in an array of structs", 1)}  # fmt: skip
    follows = {"size": "std430 scalar"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        fixed = [
            [("position", 4, 3, None), ("mass", 4, 1, None), ("speed", 4, 3, None)],
            [("count", 4, 1, None), ("low", 4, 3, None), ("gain", 4, 1, None)],
            [("w", 4, 3, 5), ("b", 4, 1, None)],
            [("w", 4, 3, 1), ("b", 4, 1, None)],
            [("s", 4, 1, 3), ("v", 4, 2, 2), ("t", 8, 2, None), ("u", 2, 3, None)],
            [("h", 1, 3, None), ("g", 1, 2, None)],
            [("h", 2, 1, None), ("i", 2, 1, None), ("g", 1, 3, None), ("b", 1, 2, 3)],
        ]
        drawn = [
            [
                (
                    name,
                    int(random.choice([2, 4, 4, 8])),
                    int(random.integers(1, 5)),
                    int(random.integers(1, 5)) if random.random() < 0.4 else None,
                )
                for name in "abcdef"[: random.integers(2, 7)]
            ]
            for _ in range(8)
        ]
        for members in (*fixed, *drawn):
            for rules in ("std430", "scalar"):
                for part in (rules, "size"):
                    yield Case(part, (members, rules))

    def expected(self, case: Case) -> Any:
        return block(*case.args)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, tuple | list) and len(got) == 2,
            f"expected two things, (offsets, size), got {words.short(got)}",
        )
        if report.part == "size":
            report.equal(got[1], case.expected[1], "the bytes from one struct to the next")
        else:
            report.equal(got[0], case.expected[0], "the first byte of each member")


@exercise(
    "05-3",
    hints=(
        "For three channels, the elements 0, 1, 2, 3, 4 have the channels 0, 1, 2, 0, 1. Which "
        "operator counts like that?",
        "Which of the numbers are constants, which one is pushed, and which one does the device "
        "supply?",
        "An `if` whose condition is a constant costs nothing where it is false: put the load of "
        "the "
        "bias inside.",
    ),
    variants=(
        {"channels": 8, "group": 64},
        {"channels": 12, "group": 32},
        {"channels": 24, "group": 128},
        {"channels": 5, "group": 96},
    ),
)
class BiasRelu(Kernel):
    parts = {"values": ("each y[i] has its value, whatever the constants", 2),
             "inside": ("only elements that exist are read and written", 1),
             "shape": ("each invocation does its own share of the work", 1),
             "special": ("WORKGROUP and HAS_BIAS do what their names say", 1)}  # fmt: skip
    is_mapped = False

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        channels, group = self.params["channels"], self.params["group"]
        odd = int(random.integers(3, 40)) * 2 + 1
        settings = (
            ({}, 2 * group + 1),
            ({"CHANNELS": 3}, group),
            ({"CHANNELS": odd, "WORKGROUP": 16}, 16 * 9 + 5),
            ({"CHANNELS": odd, "HAS_BIAS": False, "WORKGROUP": 48}, 48 * 3 - 7),
        )
        for constants, count in settings:
            x = random.uniform(-9, 9, count).astype(np.float32)
            given = {"CHANNELS": channels, "HAS_BIAS": True, "WORKGROUP": group} | constants
            bias = random.uniform(-2, 2, given["CHANNELS"]).astype(np.float32)
            groups = -(-count // given["WORKGROUP"]) + 1
            told = ", ".join(f"{name}={value}" for name, value in constants.items())
            yield self.dispatch_case(
                {"x": x, "bias": bias},
                count,
                (groups,),
                {"count": count},
                f"count={count}, {told or 'the default constants'}",
                room=7 * bool(constants),
                constants=constants,
            )

    def expected(self, case: Case) -> Any:
        arrays, _, push, constants = case.args
        x, bias = arrays["x"][: push["count"]], arrays["bias"]
        if constants.get("HAS_BIAS", True):
            x = x + bias[np.arange(push["count"]) % constants.get("CHANNELS", len(bias))]
        return np.maximum(x, np.float32(0))

    def _special(self, case: Case, got: Observed, report: Report) -> None:
        self._values(case, got, report)
        _, groups, _, constants = case.args
        size = got.counts.by_invocation["turns"].size // groups[0]
        asked = constants.get("WORKGROUP", self.params["group"])
        report.equal(size, asked, "invocations in a workgroup")
        loads = int(got.counts.reads[self.name_in(got, "bias")].sum())
        report.expect(
            constants.get("HAS_BIAS", True) or not loads, f"the bias was loaded {loads} times"
        )


ANSWERS = ("memory, reused", "memory, made", "disk, reused", "disk, made", "compiler, reused",
           "compiler, made")  # fmt: skip


def from_caches(starts: Sequence[Sequence[Request]]) -> dict[str, str]:
    """Return where each SPIR-V module comes from, and whether its pipeline is made."""
    disk: set[Any] = set()
    answers = {}
    for start in starts:
        memory: set[Any] = set()
        pipelines: set[Any] = set()
        for name, text, defines, constants, _ in start:
            module = text, tuple(sorted(defines))
            origin = "memory" if module in memory else "disk" if module in disk else "compiler"
            pipeline = text.partition(" //")[0], module[1], constants
            answers[name] = f"{origin}, {'reused' if pipeline in pipelines else 'made'}"
            memory.add(module)
            disk.add(module)
            pipelines.add(pipeline)
    return answers


def reasons_of(starts: Sequence[Sequence[Request]]) -> dict[str, tuple[str, str]]:
    """Return the fact and the reason of each request: which request was the same before."""
    compiled: dict[Any, tuple[int, str]] = {}
    why = {}
    for number, start in enumerate(starts):
        pipelines: dict[Any, str] = {}
        for name, text, defines, constants, _ in start:
            module = text, tuple(sorted(defines))
            pipeline = text.partition(" //")[0], module[1], constants
            since, same = compiled.get(module, (-1, ""))
            if not same:
                origin, found = (
                    "the compiler",
                    "no earlier request had this text with these defines",
                )
            elif since == number:
                origin = "memory"
                found = f"request {same} of this start had the same text and the same defines"
            else:
                origin = "the disk"
                found = f"request {same} had the same text and defines, in the start before"
            twin = pipelines.get(pipeline)
            verb = "reused" if twin else "made"
            shared = f"request {twin}" if twin else "no earlier request"
            shared += " of this start had the same SPIR-V words with the same constants"
            why[name] = (
                f"{found[0].upper()}{found[1:]}. {shared[0].upper()}{shared[1:]}.",
                f"The SPIR-V comes from {origin}: {found}. The pipeline is {verb}: {shared}.",
            )
            compiled[module] = number, name
            pipelines.setdefault(pipeline, name)
    return why


@exercise(
    "05-4",
    hints=(
        "Two questions for each request. First: has this text with these defines been compiled "
        "before, "
        "and has the program started again since?",
        "Second: has this start already made a pipeline of the same SPIR-V words with the same "
        "constants? Push constants are part of neither key.",
        "A comment is part of the text, and not of the words that the compiler makes from it.",
    ),
    variants=tuple(
        {"trace": trace.replace("; ", "\n").replace(" | ", "\n|\n")}
        for trace in (
            "A R=2 S=1 G=32 push=7; B R=2 S=1 G=64 push=7; C R=2 S=1 G=32 push=9; D R=3 S=1 G=32 "
            "push=7 | "
            "E R=3 S=1 G=32 push=7; F tidy R=3 S=1 G=32 push=7; G S=1 R=2 G=32 push=8; H R=2 S=1 "
            "push=8",
            "A R=5 S=1 G=64 push=1; B R=5 S=1 G=64 push=2; C S=1 R=5 G=32 push=2; D R=5 S=1 "
            "push=2 | E tidy"
            " R=5 S=1 G=64 push=2; F R=5 S=1 G=64 push=3; G tidy R=5 S=1 G=32 push=3; H R=6 S=1 "
            "push=3",
            "A R=4 S=2 G=16 push=3; B tidy R=4 S=2 G=16 push=3; C R=4 S=2 push=3; D R=8 S=2 G=16 "
            "push=5 | "
            "E S=2 R=8 G=16 push=6; F R=8 S=2 G=32 push=6; G R=8 S=3 push=6; H tidy R=4 S=2 G=16 "
            "push=6",
            "A R=1 S=1 push=4; B R=1 S=1 G=64 push=4; C R=1 S=1 push=5; D R=9 S=1 G=64 push=5 | E "
            "tidy R=9 "
            "S=1 G=64 push=4; F R=9 S=1 G=64 push=4; G S=1 R=9 G=64 push=5; H R=1 S=1 G=16 push=5",
        )
    ),
)
class CacheHits(Choice):
    parts = {"all": ("every request", 4)}

    def questions(self) -> Mapping[str, Question]:
        starts = requests_of(self.params["trace"])
        why = reasons_of(starts)
        return {
            name: Question(answer, ANSWERS, *why[name])
            for name, answer in from_caches(starts).items()
        }


def longest(done: int, after: int, pipeline: str) -> int:
    """Rate a run by its dispatches: longest run first."""
    return (after & ~done).bit_count()


def lowest(done: int, after: int, pipeline: str) -> int:
    """Rate a run by its first dispatch: lowest number first."""
    return -((after & ~done) & -(after & ~done))


def fewest_binds(dispatches: Dispatches) -> int:
    """Return the fewest binds of any order, by breadth-first search over down-sets.

    Each step is a whole run, because a run that stops early gains nothing.
    """
    masks = Masks(dispatches)
    level, seen, count = {0}, {0}, 0
    while masks.full not in level:
        level = {after for done in level for after in masks.runs(done).values()} - seen
        seen |= level
        count += 1
    return count


def natural_binds(dispatches: Dispatches) -> dict[str, int]:
    """Return the binds of natural answers by name."""
    masks = Masks(dispatches)
    length: dict[int, int] = {}  # of the longest path from a dispatch on
    for bit in sorted(masks.before, reverse=True):
        length[bit] = 1 + max((length[b] for b, e in masks.before.items() if e & bit), default=0)
    rules: dict[str, Callable[[int, int, str], Any]] = {
        "longest run first": longest,
        "lowest number first": lowest,
        "finish a pipeline": lambda done, after, p: (
            all(after & b for b in masks.of[p]),
            longest(done, after, p),
        ),
        "longest path first": lambda done, after, p: max(
            length[b] for b in masks.of[p] if after & ~done & b
        ),
        "two runs ahead": lambda done, after, p: max(
            (more.bit_count() for more in masks.runs(after).values()), default=99
        ),
    }
    return {
        "as given": binds_of(dispatches, list(dispatches)),
        "longest run last": Masks(dispatches, backwards=True).binds(longest),
        **{name: masks.binds(rule) for name, rule in rules.items()},
    }


def _hard(part: str, random: np.random.Generator, count: int, kinds: int) -> Case:
    """Draw until the obvious rules need two binds too many, and no rule or chance the fewest."""
    while True:
        dispatches = draw_dispatches(random, count, kinds)
        masks, best = Masks(dispatches), fewest_binds(dispatches)
        obvious = min(masks.binds(longest), masks.binds(lowest))
        if (
            obvious > best + 1
            and min(natural_binds(dispatches).values()) > best
            and all(masks.binds(lambda *run: random.random()) > best for _ in range(40))
        ):
            return _ordering(part, dispatches, obvious)


def _ordering(part: str, dispatches: Dispatches, natural: int = 0) -> Case:
    on = f"{len(dispatches)} dispatches" if len(dispatches) > 3 else str(dispatches)
    return Case(part, (dispatches,), on=on, facts={"natural": natural})


@exercise(
    "05-5",
    seconds=30.0,
    hints=(
        "Draw the order of your rule for the picture. Where does it bind a pipeline for one "
        "dispatch, "
        "and again soon after? What could it have done first?",
        "The longest run now may leave two short runs for later. Compare whole orders, not single "
        "steps.",
        "Two orders that have done the same dispatches have the same choices from there on. How "
        "many "
        "of them do you have to keep?",
    ),
    extra=True,
)
class FewBinds(Function):
    parts = {"valid": ("every dispatch once, after those it waits for", 1),
             "picture": ("binds for the eight dispatches of the picture", 1),
             "first": ("binds for 16 drawn dispatches", 1),
             "second": ("binds for 20 drawn dispatches", 1),
             "third": ("binds for 24 drawn dispatches", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        yield _ordering("valid", {"d0": ("conv", ())})
        yield _ordering("valid", {})
        yield _ordering("valid", {"d1": ("relu", ("d0",)), "d0": ("conv", ())})
        for _ in range(3):
            drawn = list(draw_dispatches(random, 9, 4).items())
            yield _ordering("valid", {drawn[n][0]: drawn[n][1] for n in random.permutation(9)})
        yield _ordering("picture", EXAMPLE, 7)
        for part, count, kinds in (("first", 16, 5), ("second", 20, 6), ("third", 24, 6)):
            yield _hard(part, random, count, kinds)

    def expected(self, case: Case) -> Any:
        return fewest_binds(case.args[0])

    def compare(self, case: Case, got: Any, report: Report) -> None:
        dispatches = case.args[0]
        report.expect(
            isinstance(got, list | tuple) and all(isinstance(n, str) for n in got),
            f"expected a list of names, got {words.short(got)}",
        )
        report.expect(not broken(dispatches, got), broken(dispatches, got))
        if report.part != "valid":
            report.score(binds_of(dispatches, got), case.expected, case.facts["natural"], "binds")


@exercise("05-p1", hints=("A prediction has no hints.",))
class Gain(Predict):
    explains = (
        "low takes bytes 0 to 11, count 12 to 15, gain 16 to 19. The struct is aligned as "
        "low is, to 16, so the next one begins at 32: 12 bytes of each are a gap."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"gain": 16, "struct": 32}


@exercise("05-p2", hints=("A prediction has no hints.",))
class PipelineKey(Predict):
    explains = (
        "Push constants and workgroups belong to the dispatch, not to the pipeline. A "
        "constant that is named belongs to the key, whatever its value: the runtime makes "
        "two equal pipelines there. A comment changes the first key, so the compiler runs; "
        "the words are the same, so the pipeline is shared."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"push": True, "workgroups": True, "default_named": False, "comment": True}


@exercise("05-p3", hints=("A prediction has no hints.",))
class Lights(Predict):
    explains = (
        "Only light 0. The kernel looks for the power of light n at byte 32 n + 12, the "
        "host has put it at 28 n + 12. For light 1 that is byte 44 against byte 40."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"light_0": True, "light_1": False, "light_2": False, "light_3": False}
