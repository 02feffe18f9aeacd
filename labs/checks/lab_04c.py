"""Exercises of lab 04c: the interface of a kernel, and descriptor sets for several kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Predict
from vklab_course.definition.report import Report

STORAGE_BUFFER = 7  # Vulkan's enum values, so that a check needs no driver
KINDS = {6: "UNIFORM_BUFFER", 7: "STORAGE_BUFFER", 8: "UNIFORM_BUFFER_DYNAMIC",
         9: "STORAGE_BUFFER_DYNAMIC"}  # fmt: skip


@exercise(
    "04c-1",
    hints=(
        "Look at the three `layout(set = 0, binding = ...)` lines of vector_add.comp, and at its "
        "push_constant line: which of their numbers does your function get?",
        "The names of the buffers are not in the slots: only the numbers, which are the values of "
        "the "
        "dictionary, and two things that are the same for every slot of this exercise.",
        "The range begins at byte 0; its length depends only on how many members there are. An "
        "empty "
        "tuple counts as false.",
    ),
)
class KernelInterface(Function):
    parts = {"numbers": ("one slot for each buffer, by its binding number", 1),
             "types": ("each slot is one storage buffer", 1),
             "range": ("the range covers the struct, and no more", 1)}  # fmt: skip
    follows = {"types": "numbers"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        yield Case(args=({"a": 0, "b": 1, "y": 2}, ("uint",)), on="vector_add")
        yield Case(args=({"x": 3}, ()), on="one buffer at binding 3, no push constants")
        yield Case(args=({"x": 1, "y": 0}, ("int", "float", "int")))
        for count in (2, 4, 5):
            numbers = random.choice(12, count, replace=False).tolist()
            members = random.choice(["uint", "int", "float"], random.integers(1, 7)).tolist()
            buffers = {name: int(n) for name, n in zip("pqrst", numbers, strict=False)}
            yield Case(args=(buffers, tuple(members)))

    def expected(self, case: Case) -> Any:
        buffers, members = case.args
        slots = [(number, STORAGE_BUFFER, 1) for number in sorted(buffers.values())]
        return slots, ((0, 4 * len(members)) if members else None)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        given = "None (is a return missing?)" if got is None else words.short(got)
        two = isinstance(got, tuple | list) and len(got) == 2
        report.expect(
            two,
            f"expected two things, (slots, push_range), got {given}"
            if report.part == "numbers"
            else "the result has another shape: see above",
        )
        slots, pushed = got
        if report.part == "range":
            self._ints(pushed, "the range", report)
            report.equal(pushed, case.expected[1], "the first byte, and the bytes of the struct")
            return
        report.expect(
            isinstance(slots, list | tuple)
            and all(isinstance(slot, tuple | list) and len(slot) == 3 for slot in slots),
            "slots: expected a list of (binding, descriptor type, descriptor count), "
            f"got {words.short(slots)}",
        )
        for slot in slots:
            self._ints(slot[1:] if report.part == "types" else slot[:1], "a slot", report)
        if report.part == "types":
            for number, kind, count in slots:
                told = KINDS.get(kind, "?") if isinstance(kind, int) else "?"
                report.equal(
                    kind,
                    STORAGE_BUFFER,
                    f"binding {number} is a {told} in your slot, a `buffer` block in the kernel",
                )
                report.equal(count, 1, f"buffers of binding {number}")
            report.equal(len(slots), len(case.expected[0]), "slots, one for each buffer")
            return
        report.equal(
            sorted(slot[0] for slot in slots),
            [slot[0] for slot in case.expected[0]],
            "a slot for each binding that the kernel names",
        )

    def _ints(self, numbers: Any, what: str, report: Report) -> None:
        for number in numbers if isinstance(numbers, tuple | list) else ():
            report.expect(not isinstance(number, float), f"{what} has ints, got the float {number}")


# --------------------------------------------------------------------------------- descriptor sets

Kernels = Mapping[str, tuple[str, ...]]  # the buffers of each kernel
Buffers = frozenset[str]
# Eight kernels of an attention layer, in the order of their names.
PICTURE: Kernels = {"add": ("x", "y"), "exp": ("s", "m", "e"), "largest": ("s", "m"),
                    "mask": ("s", "c"), "mix": ("p", "v", "o"), "project": ("o", "w", "y"),
                    "scores": ("q", "k", "s"), "sum": ("e", "z")}  # fmt: skip


def fewest(kernels: Kernels, limit: int) -> int:
    """Return the fewest descriptors of sets that serve all kernels, found exactly."""
    names = sorted({name for buffers in kernels.values() for name in buffers})
    masks = [sum(1 << names.index(name) for name in buffers) for buffers in kernels.values()]
    count = 1 << len(masks)
    union = [0] * count  # the buffers of each choice of kernels
    for some in range(1, count):
        union[some] = union[some & (some - 1)] | masks[(some & -some).bit_length() - 1]
    least = [0] * count
    for some in range(1, count):
        first = some & -some
        others = part = some ^ first
        costs = []
        while True:  # every set for the first of these kernels, with the best sets for the rest
            together = union[first | part].bit_count()
            if together <= limit:
                costs.append(together + least[others ^ part])
            if not part:
                break
            part = (part - 1) & others
        least[some] = min(costs)
    return least[-1]


def obvious(kernels: Kernels, limit: int) -> dict[str, int]:
    """Return the descriptors of the obvious answers by name."""
    given = [frozenset(buffers) for buffers in kernels.values()]
    large = sorted(given, key=lambda buffers: -len(buffers))
    answers = {
        "one set a kernel": given,
        "first fit, in the given order": _one_by_one(given, limit, lambda *_: 0),
        "first fit, the largest first": _one_by_one(large, limit, lambda *_: 0),
        "most shared, in the given order": _one_by_one(given, limit, _added),
        "most shared, the largest first": _one_by_one(large, limit, _added),
        "merging the two that share most": _merged(given, limit),
    }
    return {name: sum(map(len, sets)) for name, sets in answers.items()}


def _added(new: Buffers, one: Buffers) -> int:
    return len(new - one)


def _one_by_one(
    kernels: list[Buffers], limit: int, rank: Callable[[Buffers, Buffers], int]
) -> list[Buffers]:
    """Put each kernel into the set of the lowest rank that has room, else into a new one."""
    sets: list[Buffers] = []
    for new in kernels:
        places = [(rank(new, one), n) for n, one in enumerate(sets) if len(one | new) <= limit]
        if places:
            sets[min(places)[1]] |= new
        else:
            sets.append(new)
    return sets


def _merged(kernels: list[Buffers], limit: int) -> list[Buffers]:
    """Merge the two sets that share most buffers, as long as two fit into one."""
    sets = list(kernels)
    while True:
        pairs = [
            (-len(sets[i] & sets[j]), i, j)
            for i, j in combinations(range(len(sets)), 2)
            if len(sets[i] | sets[j]) <= limit
        ]
        if not pairs:
            return sets
        _, i, j = min(pairs)
        sets[i] |= sets.pop(j)


def _hard(part: str, random: np.random.Generator, limit: int) -> Case:
    """Draw until each obvious answer writes two descriptors too many, and first fit four."""
    while True:
        names = list("abcdefghij"[: random.integers(8, 11)])
        kernels = {}
        for n in range(int(random.integers(8, 10))):
            count = random.choice([2, 3] if limit == 4 else [2, 3, 4])
            kernels[f"k{n}"] = tuple(random.choice(names, count, replace=False).tolist())
        natural = obvious(kernels, limit)
        first = natural["first fit, in the given order"]
        if first < min(natural.values()) + 2:
            continue
        least = fewest(kernels, limit)
        # An answer that ignores `limit` and takes 4 is not the best one either.
        if (
            min(natural.values()) >= least + 2
            and first >= least + 4
            and (limit == 4 or fewest(kernels, 4) > least)
        ):
            return _sharing(part, kernels, limit)


def _sharing(part: str, kernels: Kernels, limit: int) -> Case:
    natural = obvious(kernels, limit)["first fit, in the given order"]
    on = f"kernels={dict(kernels)}, limit={limit}"
    return Case(
        part,
        (dict(kernels), limit),
        facts={"natural": natural},
        on="the eight kernels of the picture" if part == "picture" else on,
    )


@exercise(
    "04c-2",
    hints=(
        "Begin with an answer that is valid: a list for each kernel. Which two kernels of the "
        "picture "
        "could share a list, and how many descriptors does that save?",
        "A better greedy answer: go through the kernels with many buffers first, and put each "
        "where it "
        "adds the fewest new buffers. That earns a part of the points.",
        "Greedy answers decide at once. For each kernel there are a few choices: each list that "
        "has "
        "room, or a new list. The best answer looks at what follows from each choice.",
        "Let a function take the kernels that are left and the sets so far. It tries each choice "
        "for "
        "the next kernel, asks itself about the rest, and returns the cheapest result.",
    ),
    extra=True,
)
class ShareSets(Function):
    parts = {
        "valid": ("every kernel has a set with its buffers, and no set is too large", 1),
        "picture": ("the descriptors of the picture's eight kernels", 1),
        "first": ("the descriptors of a random program", 1),
        "second": ("the descriptors of another random program", 1),
        "third": ("the descriptors of a third random program, with a larger limit", 1),
    }

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        yield _sharing("valid", {"scale": ("x", "t"), "add": ("t", "b", "y")}, 4)
        yield _sharing("valid", {"scale": ("x", "t"), "add": ("t", "b", "y")}, 3)
        yield _sharing("valid", {"p": ("a", "b", "c", "d"), "q": ("d", "a"), "r": ("e",)}, 4)
        yield _sharing("valid", {}, 4)
        yield _sharing("picture", PICTURE, 4)
        for part, limit in (("first", 4), ("second", 4), ("third", int(random.integers(5, 7)))):
            hard = _hard(part, random, limit)
            yield from (hard, replace(hard, part="valid"))

    def expected(self, case: Case) -> Any:
        return fewest(*case.args)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        kernels, limit = case.args
        report.expect(
            isinstance(got, list | tuple)
            and all(
                isinstance(one, list | tuple) and all(isinstance(name, str) for name in one)
                for one in got
            ),
            "expected a list of lists with names of kernels, got "
            + ("None (is a return missing?)" if got is None else words.short(got)),
        )
        listed = sorted(name for one in got for name in one)
        report.equal(listed, sorted(kernels), "the kernels of all lists; each is in one of them")
        sets = [sorted({buffer for name in one for buffer in kernels[name]}) for one in got]
        for one, buffers in zip(got, sets, strict=True):
            report.expect(
                len(buffers) <= limit,
                f"the set of {words.short(list(one))} has "
                f"{len(buffers)} buffers, {', '.join(buffers)}; the limit is {limit}",
            )
        if report.part != "valid":
            report.score(sum(map(len, sets)), case.expected, case.facts["natural"], "descriptors")


# ------------------------------------------------------------------------------------ predictions


@exercise(
    "04c-p1", hints=("Which call gets the kernel and the layout? What would it have to compare?",)
)
class TwoSlots(Predict):
    options = {"calls": ("an error", "no error")}
    explains = (
        "Each structure on its own is valid. Together they break a rule of "
        "vkCreateComputePipelines, but Vulkan does not ask drivers to check its rules. "
        "What follows is undefined: a driver may return no error, as lavapipe does. Then "
        "the kernel may read zeros or other memory, or the process may crash. "
        "Validation layers (a library between program and driver that checks every "
        "call) report it."
    )

    def answers(self) -> dict[str, Any]:
        return {"calls": "no error"}


@exercise("04c-p2", hints=("Which of these objects contain something of the first kernel's code?",))
class SecondKernel(Predict):
    options = dict.fromkeys(
        ("shader_module", "pipeline", "descriptor_set", "memory"), ("a new one", "the same")
    )
    explains = (
        "Shader module and pipeline contain the code of the first kernel. (A module may "
        "hold several kernels that were compiled together; a pipeline has one.) A "
        "descriptor set only says which buffer belongs to which binding: it fits every "
        "kernel with the same layout. Memory belongs to its buffer."
    )

    def answers(self) -> dict[str, Any]:
        return {
            "shader_module": "a new one",
            "pipeline": "a new one",
            "descriptor_set": "the same",
            "memory": "the same",
        }
