"""Exercises of lab 11: lifetimes, offsets, in-place writes, a planted bug, moves under a cap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, exercise
from vklab_course.definition.kinds import Choice, Predict, Question
from vklab_course.definition.report import Report
from vklab_labs.lab_11 import evictions, offload, packing
from vklab_labs.lab_11 import memory_plans as figures
from vklab_labs.lab_11.lifetimes import LIFETIMES
from vklab_labs.lab_11.offload import Values, farthest_first, gap, live_bytes, moved_bytes
from vklab_labs.lab_11.packing import Node
from vklab_labs.shared.recorded_graphs import NAMES, recorded

VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
ELEMENTWISE = ("Add", "Mul", "Div", "Relu", "Sigmoid", "Erf")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def roots_of(nodes: Sequence[Node]) -> dict[str, str]:
    """Return for each value the value whose bytes it shows."""
    roots: dict[str, str] = {}
    for op, reads, writes in nodes:
        for name in writes:
            roots[name] = roots.get(reads[0], reads[0]) if op in VIEWS else name
    return roots


def all_lifetimes(nodes: Sequence[Node], outputs: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return the lifetime of each written value that is no view."""
    written = [name for _, _, writes in nodes for name in writes]
    if len(written) > len(set(written)):
        raise ValueError("a value is written twice")
    steps = {name: n for n, (_, _, writes) in enumerate(nodes) for name in writes}
    if any(steps.get(name, -1) >= n for n, (_, reads, _) in enumerate(nodes) for name in reads):
        raise ValueError("a value is read before it is written")
    roots = roots_of(nodes)
    uses = [(roots[name], len(nodes)) for name in outputs if name in roots]
    uses += [
        (roots[name], n)
        for n, (op, reads, _) in enumerate(nodes)
        if op not in VIEWS
        for name in reads
        if name in roots
    ]
    return {
        name: (steps[name], max([steps[name], *(n for root, n in uses if root == name)]))
        for name in written
        if roots[name] == name
    }


def _window(random: np.random.Generator, name: str, count: int) -> tuple[Any, Any, dict[str, int]]:
    """Return nodes of a recorded network with new names, its outputs, and all sizes in bytes."""
    graph = recorded(name).shuffled(random).renamed(random).part(random, count)
    nodes, sizes = packing.plain(graph)
    return nodes, list(graph.outputs), sizes


@exercise(
    "11-1",
    hints=(
        "For each name that a node reads, `shows` tells whose lifetime grows.",
        "A view of a view: look up the name of the first input before you store it.",
        "A value is in `lives` from its own step on; an input is in none of the dictionaries.",
    ),
    seams=("vklab.plan.arenas.arrange", "vklab.plan.arenas._lifetimes"),
    builds=LIFETIMES,
)
class FindLifetimes(Function):
    parts = {"steps": ("first and last step, outputs alive to the end", 2),
             "views": ("a view lengthens the lifetime of the value that it shows", 2),
             "orders": ("an order that cannot run is refused", 1)}  # fmt: skip
    follows = {"views": "steps"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        a, b, c = ("Conv", ("x",), ("a",)), ("Relu", ("a",), ("b",)), ("Add", ("a", "b"), ("c",))
        flat, wide = ("Flatten", ("a",), ("f",)), ("Reshape", ("f",), ("g",))
        last, split = ("Gemm", ("g", "x"), ("h",)), ("Split", ("a", "a"), ("p", "q"))
        for nodes, outputs in (
            ([a, b, c], ["c"]),
            ([a, b], ["x"]),
            ([a, b, c], ["a", "c"]),
            ([], []),
            ([a, split, b], ["q"]),
        ):
            yield Case("steps", (nodes, outputs))
        view, shape = ("Squeeze", ("x",), ("y",)), ("Unsqueeze", ("a", "b"), ("r",))
        for nodes, outputs in (
            ([a, flat, b, wide, last], ["h"]),
            ([a, flat, b], ["f"]),
            ([view, ("Relu", ("y",), ("z",)), a], ["y", "a"]),
            ([a, flat, wide, b, c], ["b"]),
            ([a, b, flat], ["b"]),
            ([a, b, shape, ("Relu", ("r",), ("z",))], ["z"]),
            ([b, ("Reshape", ("x", "b"), ("y",))], ["y"]),
        ):
            yield Case("views", (nodes, outputs))
        loop = [("Add", ("x", "d"), ("c",)), ("Relu", ("c",), ("d",))]
        relu, again = ("Relu", ("a",), ("f",)), ("Reshape", ("b",), ("a",))
        for nodes in (
            [b, a, c],
            loop,
            [a, b, ("Add", ("a", "b"), ("a",))],
            [flat, wide, a],
            [("Relu", ("s",), ("s",))],
            [a, ("Split", ("x",), ("p", "a"))],
            [a, last, flat, wide],
            [a, b, again],
            [a, flat, relu],
            [shape, a, b],
            [("Unsqueeze", ("x", "a"), ("y",)), a],
        ):
            yield Case("orders", (nodes, ["c"]), on=f"nodes={words.short(nodes)}")
        for name in NAMES:
            nodes, outputs, _ = _window(random, name, 9)
            part = "steps" if name in ("resnet50", "unet") else "views"
            yield Case(part, (nodes, outputs), mixed=True)
            for order in (nodes, nodes[::-1]):
                on = f"nodes={words.short(order)}"
                yield Case("orders", (order, outputs), on=on, mixed=True)

    def expected(self, case: Case) -> Any:
        return all_lifetimes(*case.args)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.kind(got, dict, "a dictionary of (first, last) by value")
        for name, (first, last) in case.expected.items():
            report.expect(name in got, f"the value {name} is missing")
            report.equal(got[name], (first, last), f"the lifetime of {name}")
        for name in got:
            report.expect(name in case.expected, f"{words.short(name)} has no bytes of its own")


@exercise(
    "11-2",
    hints=(
        "Draw the taken ranges on a line, in the order in which they begin. Which gap is the first "
        "one that is large enough?",
        "Walk through the sorted ranges with one number: the lowest offset that may still be free. "
        "A range that lies inside an earlier one must not pull this number back.",
    ),
    variants=({"align": 256}, {"align": 64}, {"align": 16}, {"align": 128}),
    seams=("vklab.plan.memory.assign_offsets", "vklab.vulkan.memory.FreeRanges.take"),
    builds=packing.LOWEST,
)
class LowestOffset(Function):
    parts = {"gaps": ("the lowest gap that is large enough", 2),
             "aligned": ("offsets are multiples of the alignment", 1),
             "mixed": ("ranges in any order that share bytes; a size of 0", 2)}  # fmt: skip
    follows = {"aligned": "gaps", "mixed": "gaps aligned"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        unit = self.params["align"]
        units = [(2 * unit, 4 * unit), (5 * unit, 7 * unit), (9 * unit, 11 * unit)]
        for taken in (units, [(0, 2 * unit), *units]):
            yield from (Case("gaps", (size * unit, taken)) for size in (1, 2, 3))
        yield Case("gaps", (unit, []))
        for taken in (
            [(0, 1)],
            [(0, unit + 1)],
            [(0, unit - 1), (2 * unit, 2 * unit + 1)],
            [(0, 10), (unit, unit + 10)],
        ):
            yield from (Case("aligned", (size, taken)) for size in (1, unit - 3, unit, unit + 1))
        yield Case("aligned", (5, [(0, 9)]), {"alignment": 8})
        yield Case("aligned", (33, [(0, 8), (40, 48)]), {"alignment": 32})
        yield Case("mixed", (unit, [(0, 6 * unit), (unit, 2 * unit)]))
        yield Case("mixed", (unit, [(3 * unit, 4 * unit), (0, unit), (0, 3 * unit)]))
        yield Case("mixed", (10, [(5, unit)]))
        yield Case("mixed", (unit + 5, [(unit + 10, 2 * unit)]))
        for taken in ([(0, unit)], [(0, 1), (unit, 2 * unit)], [(1, unit)]):
            yield from (Case("mixed", (size, taken)) for size in (0, 1))
        for part in ("gaps", "aligned", *["mixed"] * 6):
            starts = random.integers(0, 20, 7) * unit
            ends = starts + random.integers(1, 5 * unit, 7)
            taken = list(zip(starts.tolist(), ends.tolist(), strict=True))
            size = int(random.integers(1, 4 * unit))
            yield Case(part, (size, taken), mixed=part != "mixed")

    def expected(self, case: Case) -> Any:
        (size, taken), offset = case.args, 0
        while any(first < offset + max(size, 1) and offset < end for first, end in taken):
            offset += case.named.get("alignment", self.params["align"])
        return offset

    def compare(self, case: Case, got: Any, report: Report) -> None:
        (size, taken), right = case.args, case.expected
        unit = case.named.get("alignment", self.params["align"])
        report.expect(_is_number(got), f"expected an offset, got {words.short(got)}")
        report.expect(got >= 0 and not got % unit, f"{got} is no multiple of {unit} from 0 on")
        for first, end in taken:
            shared = min(end, got + max(size, 1)) - max(first, got)
            report.expect(
                shared <= 0,
                f"bytes {got} to {got + max(size, 1) - 1} share {shared} "
                f"bytes with the taken range {(first, end)}",
            )
        report.expect(got <= right, f"offset {got} is free, and so is a lower one: {right}")


@exercise(
    "11-3",
    hints=(
        "Four questions for each operand: the operator, who owns the bytes, who reads them later, "
        "how many bytes. The lifetimes answer two of them.",
    ),
    seams=("vklab.plan.tuning.in_place.owners",),
)
class TakeOver(Function):
    parts = {"readers": ("never under a reader that has still to run, nor over an output", 2),
             "bytes": ("equal sizes, element by element, and bytes that belong to the plan", 2),
             "graphs": ("parts of recorded networks", 1)}  # fmt: skip
    follows = {"graphs": "readers bytes"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        def ask(part: str, text: str, outputs: str, sizes: Mapping[str, int] = {}) -> Case:
            new = dict(zip("abcdex", random.permutation([*"kmnpqrstuv"]).tolist(), strict=False))
            lines = [line.split(":") for line in text.split()]
            nodes = [
                (op, tuple(map(new.__getitem__, reads)), (new[write],))
                for op, reads, write in lines
            ]
            names = sorted({name for _, *both in lines for name in "".join(both)})
            return Case(
                part,
                (
                    nodes,
                    {new[name]: sizes.get(name, 64) for name in names},
                    all_lifetimes(nodes, [new[name] for name in outputs]),
                ),
            )

        for outputs in ("d", "ad", "cd", "bd"):
            yield ask("readers", "Conv:x:a Relu:a:b Relu:b:c Add:ac:d", outputs)
            yield ask("readers", "Conv:x:a Mul:aa:b Add:bx:c Add:cb:d", outputs)
            yield ask("readers", "Conv:x:a Relu:a:b Transpose:b:c Sigmoid:c:d", outputs)
        for sizes in ({}, {"a": 4}, {"b": 32, "c": 32}, {"a": 128}, {"x": 32}, {"c": 8}):
            yield ask("bytes", "Relu:x:a Add:ax:b Softmax:b:c Relu:c:d MatMul:ad:e", "e", sizes)
            yield ask("bytes", "Conv:x:a Conv:x:b Add:ab:c Div:cx:d Erf:d:e", "e", sizes)
        yield ask("bytes", "Conv:x:a MaxPool:a:b Gemm:bx:c Concat:c:d LayerNormalization:d:e", "e")
        yield ask("bytes", "", "")
        for name in NAMES:
            nodes, outputs, sizes = _window(random, name, 12)
            roots = {name: name for name in sizes} | roots_of(nodes)
            lives = all_lifetimes(nodes, outputs)
            nodes = [
                (op, () if op in VIEWS else tuple(map(roots.__getitem__, reads)), writes)
                for op, reads, writes in nodes
            ]
            yield Case("graphs", (nodes, sizes, lives), on=f"part of {name}")

    def expected(self, case: Case) -> Any:
        nodes, sizes, lives = case.args
        return {
            writes[0]: name
            for step, (op, reads, writes) in enumerate(nodes)
            for name in reads
            if op in ELEMENTWISE
            and name in lives
            and lives[name][1] == step
            and sizes[name] == sizes[writes[0]]
        }

    def compare(self, case: Case, got: Any, report: Report) -> None:
        nodes, sizes, lives = case.args
        report.kind(got, dict, "a dictionary from result to operand")
        steps = {writes[0]: n for n, (_, _, writes) in enumerate(nodes)}
        for result, operand in got.items():
            report.expect(result in steps, f"no node writes {words.short(result)}")
            step = steps[result]
            op, reads, _ = nodes[step]
            report.expect(
                operand in reads,
                f"{op}, which writes {result}, does not read {words.short(operand)}",
            )
            doing = f"{result} = {op}({', '.join(reads)}) must not overwrite {operand}"
            report.expect(op in ELEMENTWISE, f"{doing}: {op} does not work element by element")
            report.expect(operand in lives, f"{doing}: its bytes belong to the caller")
            last = lives[operand][1]
            reader = "the caller reads it" if last == len(nodes) else f"step {last} reads it"
            report.expect(last <= step, f"{doing} in step {step}: {reader} later")
            report.expect(
                sizes[operand] == sizes[result],
                f"{doing}: it has {sizes[operand]} bytes, the result {sizes[result]}",
            )
        for result, operand in case.expected.items():
            report.expect(result in got, f"{result} may overwrite {operand}, and does not")


def lost(text: str) -> tuple[int, str]:
    """Return the one step of a plan that overwrites a value too early, and that value."""
    plan = figures.slots_of(text)
    roots = roots_of([(op, reads, (result,)) for op, reads, result, _ in plan])
    place = {result: slot for _, _, result, slot in plan}
    holds: dict[int, tuple[int, str]] = {}
    found = set()
    for step, (op, reads, result, slot) in enumerate([*plan, ("end", (plan[-1][2],), "", -1)]):
        for name in {roots[name] for name in reads if name in roots and op not in VIEWS}:
            if holds[place[name]][1] != name:
                found.add((holds[place[name]][0], name))
        if slot >= 0:
            holds[slot] = (step, result)
    (only,) = found
    return only


PLANS = (  # result, operator, operands, slot; no slot for a view
    "a Conv x 0; b Conv a 1; c Reshape b -; d Relu a 2; e Mul ab 1;\n"
    "f Relu d 3; g Mul ef 3; h Add ce 1; i Add dh 2; j Mul gi 3",
    "a Conv x 0; b Conv a 1; c Reshape a -; d Add ab 1; e Relu d 2;\n"
    "f Relu d 1; g Mul ce 0; h Mul cg 0; i Conv h 2; j Add fi 1",
    "a Conv x 0; b Sigmoid a 1; c Mul ab 1; d Add ac 1; e Relu a 0;\n"
    "f Conv d 2; g Reshape f -; h Add dg 2; i Add eh 0; j Add gi 2",
    "a Conv x 0; b Sigmoid a 1; c Mul ab 0; d Reshape b -; e Relu b 2;\n"
    "f Mul cd 0; g Relu b 1; h Add dg 1; i Mul eh 2; j Mul fi 0",
)


@exercise(
    "11-4",
    hints=(
        "Follow one column down: whose bytes does it hold after each step?",
        "For each step, are the values that it reads still there? A view has no box of its own.",
    ),
    variants=[{"plan": plan} for plan in PLANS],
)
class OverwrittenTooEarly(Choice):
    def questions(self) -> Mapping[str, Question]:
        plan = figures.slots_of(self.params["plan"])
        step, value = lost(self.params["plan"])
        made_by, view = next(
            (op, name) for op, reads, name, _ in plan if op in VIEWS and value in reads
        )
        later = next(n for n, each in enumerate(plan) if n > step and view in each[1])
        return {
            "step": Question(
                str(step),
                tuple("0123456789"),
                f"Step {later} reads the view `{view}`. Which step was the last to write into the "
                "slot where its bytes lie?",
                f"Step {step} writes `{plan[step][2]}` into slot {plan[step][3]}, and step {later} "
                f"still reads `{view}` from there.",
            ),
            "value": Question(
                value,
                tuple("abcdefghij"),
                f"`{view}` has no bytes of its own: they are those of the value that its {made_by} "
                "reads.",
                f"`{view}` is a view of `{value}`. Nobody reads `{value}` by its own name any "
                "more, but its bytes are still needed.",
            ),
        }


def fewest_moved(values: Values, cap: int, coarse: bool = False, limit: float = np.inf) -> float:
    """Return the fewest bytes below the limit; coarse: the fewest without copies in the state."""
    count, bits = len(values), {name: 1 << n for n, name in enumerate(values)}
    size = cache(lambda mask: sum(values[name][0] for name, bit in bits.items() if mask & bit))
    reached: dict[int, float] = {0: 0}  # values away, and `count` bits higher those with copies
    for step, whole in enumerate(live_bytes(values)):
        used = sum(bits[name] for name, (_, uses) in values.items() if step in uses)
        later = sum(bits[name] for name, (_, uses) in values.items() if uses[-1] > step)
        leaves, after = {0: 0}, dict[int, float]()
        for name, (most, uses) in values.items():
            if step - 1 in uses[:-1] and step not in uses:
                leaves |= {leave | bits[name]: saved + most for leave, saved in leaves.items()}
        for before, cost in reached.items():
            away, copied = before % (1 << count) & ~used, before >> count
            known, needed = copied & later, whole - cap - size(away)
            for leave, saved in leaves.items():
                if saved >= needed:
                    total = cost + 2 * saved - size(leave & copied)
                    state = away | leave | (known | leave) << count
                    if total < limit and total < after.get(state, np.inf):
                        after[state] = total
        ways = sorted(after, key=after.__getitem__, reverse=True) if coarse else ()
        reached = {w: after[w] for w in {w % (1 << count): w for w in ways}.values()} or after
    return min(reached.values(), default=np.inf)


def draw_values(random: np.random.Generator, exact: bool) -> tuple[Values, int]:
    """Draw until no natural answer is near the fewest bytes; exact: nor a coarse search on them."""
    while True:
        values = offload.drawn_values(random, 48)
        least = max(live_bytes(values, offload.gaps_of(values)))
        cap = least + int((max(live_bytes(values)) - least) * random.uniform(0.1, 0.35))
        obvious = moved_bytes(values, farthest_first(values, cap))
        bound = fewest_moved(values, cap, limit=obvious / 1.12)
        near = bound + (obvious - bound) / 6
        if (
            bound < np.inf
            and (not exact or fewest_moved(values, cap, True, bound + 1) > bound)
            and min(evictions.rules(values, cap).values()) > near
            and evictions.best_random(values, cap, 300) > near
        ):
            return values, cap


@exercise(
    "11-5",
    hints=(
        "Begin with farthest_first(values, cap). Which of its moves can you take back, because the "
        "rest still fits? Then try other rules, and keep the best result.",
        "Two ways that have the same values away after a step, and the same values copied to the "
        "host, differ only in the bytes that they have moved. Keep the cheaper one.",
        "Go through the steps. A state is (values that are away, values that have a copy and are "
        "used again). In each step, which sets of values that were just used may leave?",
    ),
    seams=("vklab.plan.memory.assign_offsets",),
    extra=True,
)
class MovesUnderCap(Function):
    parts = {"valid": ("moves of values that are idle, never above the cap", 1),
             "first": ("drawn values", 2), "second": ("other drawn values", 2)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        small: Values = {"a": (4, (0, 1, 4)), "b": (3, (1, 2)), "c": (5, (2, 3)), "d": (2, (3, 4))}
        for cap in (8, 12, 9):
            yield Case("valid", (small, cap))
        yield Case("valid", ({}, 0))
        for part in ("first", "second"):
            values, cap = draw_values(random, exact=part == "second")
            yield Case(
                part,
                (values, cap),
                on=f"the values of part {part!r}, cap {cap}",
                facts={"natural": moved_bytes(values, farthest_first(values, cap))},
            )

    def expected(self, case: Case) -> Any:
        return fewest_moved(*case.args)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        values, cap = case.args
        report.expect(
            isinstance(got, list | tuple)
            and all(
                isinstance(m, list | tuple)
                and len(m) == 2
                and isinstance(m[0], str)
                and _is_number(m[1])
                for m in got
            ),
            f"expected a list of (name, step), got {words.short(got)}",
        )
        moves = [(name, int(step)) for name, step in got]
        for name, step in moves:
            report.expect(
                name in values and step in values[name][1][:-1],
                f"{(name, step)} is no move: the step is a use of the value, and not its last one",
            )
            report.expect(
                gap(values, (name, step)), f"{(name, step)}: {name} is used again in the next step"
            )
            report.expect(moves.count((name, step)) == 1, f"{(name, step)} is listed twice")
        for step, live in enumerate(live_bytes(values, moves)):
            report.expect(live <= cap, f"{live} bytes are live in step {step}; the cap is {cap}")
        if report.part != "valid":
            report.score(
                moved_bytes(values, moves), case.expected, case.facts["natural"], "bytes moved"
            )


@exercise("11-p1", hints=("Which of the three repeats the same small block many times?",))
class SavesMost(Predict):
    options = {"network": ("unet", "resnet50", "bert_base")}
    explains = (
        "BERT is twelve equal layers, and all use the same bytes in turn. U-Net keeps "
        "results of its first half for the second, so many bytes are live at once."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"network": "bert_base"}


@exercise("11-p2", hints=("In which order would you load a car boot?",))
class ReachesBound(Predict):
    explains = (
        "By size reaches the largest live set on all five. By birth is larger on two: a "
        "value that is born early and lives long lies in the middle, and a large value "
        "fits neither below nor above it."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"by_birth": False, "by_size": True}


@exercise("11-p3", hints=("Which of them needs a byte more than was reserved?",))
class AtTheBound(Predict):
    explains = (
        "The arena is laid out for batch 8, so a batch of 8 fits exactly: the bound itself "
        "is allowed. One above needs bytes that nobody reserved."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"batch_7": True, "batch_8": True, "batch_9": False}
