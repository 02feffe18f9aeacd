"""Exercises of lab 09b: the first part of a plan, a tree of plans, keys, two modes, live bytes."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, Value, exercise
from vklab_course.definition.kinds import Predict
from vklab_course.definition.report import Report
from vklab_labs.lab_09 import drawn_orders, drawn_plans
from vklab_labs.lab_09.drawn_plans import KEYS, draw_nodes, fault_of, nodes_of, request_text
from vklab_labs.lab_09.growing_plans import FACTS, MODELS
from vklab_labs.lab_09.live_bytes import END, SMALL_PEAK, broken, live_bytes, must_be_live
from vklab_labs.shared.grouping import Work


@exercise(
    "09b-1",
    hints=(
        "Keep two sets: values whose shape is known, and values that are known themselves. What is "
        "in them before the first node?",
        "For each node, collect what it lacks: an input without a shape, or the input that its "
        "operator needs as a value. If it lacks something, it waits.",
        "Among the things a node lacks are outputs of waiting nodes. They are not what the plan "
        "waits for: keep the outputs of waiting nodes in a third set.",
    ),
    seams=("vklab.plan.partition.next_chunk",),
)
class FirstPart(Function):
    parts = {"known": ("shape arithmetic and constants stop nothing", 1),
             "planned": ("the nodes that can be planned", 2),
             "missing": ("the values that must be known", 2)}  # fmt: skip
    follows = {"planned": "known", "missing": "known planned"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        constants, mark = ("c", "w"), str(random.integers(100))
        facts = {**FACTS, "AsShape": ("shape", 1), "OfData": ("data", 1), "ByFirst": ("value", 0)}
        for _, (given, nodes) in MODELS.items():
            for part in ("planned", "missing"):
                yield Case(part, (list(nodes), given, ("first", "minus_one", "one", "w"), FACTS))
        for text in (
            "s=Shape(x); g=Gather(s,c); t=Concat(g,c); y=Reshape(x,t); z=Relu(y)",
            "y=Reshape(x,c); k=Gather(c,c); v,i=TopK(y,k)",
            "n=NonZero(c); m=Reshape(x,n); u=Unique(w); r=Relu(u)",
            "n=NonZero(x); r=Relu(x); s=Shape(n); t=Shape(r); y=Reshape(r,t)",
            "v,i=TopK(x,c); r=Relu(i); k,j=TopK(c,c); y=Tile(x,j)",
            "a=Add(x,c); y=Reshape(x,a); r=Relu(a)",
        ):
            yield Case("known", (nodes_of(text, mark), ("x", "x2"), constants, FACTS))
        for text in (
            "y=Reshape(x,to); z=Reshape(x,to); r=Relu(y)",
            "n=NonZero(x); y=Reshape(x,n); r=Relu(n)",
            "n=NonZero(x); r=Relu(n); y=Reshape(x,n)",
            "n=NonZero(x); r=Relu(x); y=Reshape(n,r); z=Add(y,r)",
            "n=NonZero(x); m=NonZero(x2); a=Add(n,m); b=Add(a,m); q=Add(x,x2)",
            "n=NonZero(x); r=Relu(n); u=Unique(x2); a=Add(r,u); m=Relu(x2)",
            "n=NonZero(x); r=Relu(n); y=Reshape(r,to); z=Tile(x,x2); e=Expand(y,c)",
            "f=ConstantOfShape(to); m=Compress(x); r=Relu(m); z=Expand(x2,x)",
            "v,i=TopK(x,to); r=Relu(i); t=Shape(v); f=ConstantOfShape(t)",
            "p=ByFirst(c,x); q=ByFirst(x,c)",
        ):
            for part in ("planned", "missing"):
                for op in ("Relu", "AsShape", "OfData", "ByFirst"):
                    nodes = nodes_of(text.replace("Relu", op).replace("Add", op), mark)
                    yield Case(part, (nodes, ("x", "x2", "to"), constants, facts))
        yield Case("planned", ([], ("x",), constants, FACTS))
        for part in ("planned", "missing"):
            for count in (8, 10, 12, 14, 16):
                yield Case(part, (draw_nodes(random, count), ("x", "x2", "to"), constants, FACTS))

    def expected(self, case: Case) -> Any:
        nodes, given, constants, facts = case.args
        state = dict.fromkeys(given, 1) | dict.fromkeys(constants, 2)  # 0 late, 1 shape, 2 value
        planned, wants, size_unknown = [], {}, set()
        for name, op, reads, makes in nodes:
            kind, number = facts.get(op, ("", 0))
            needs = [2 if kind == "value" and n == number else 1 for n, _ in enumerate(reads)]
            short = [(v, need) for v, need in zip(reads, needs, strict=True) if state[v] < need]
            for value in makes:
                state[value] = 0
            if short:
                for value, need in short:
                    if state[value] or value in size_unknown:
                        wants[value] = max(need, wants.get(value, 0))
                continue
            planned.append(name)
            known = 2 if kind == "shape" or min(state[v] for v in reads) == 2 else 1
            if kind == "data" and known < 2:
                known, _ = 0, size_unknown.update(makes)
            state.update(dict.fromkeys(makes, known))
        return planned, {value: ("", "shape", "value")[need] for value, need in wants.items()}

    def compare(self, case: Case, got: Any, report: Report) -> None:
        nodes, given, constants, _ = case.args
        lines = "; ".join(
            f"{name}: {','.join(makes)} = {op}({','.join(reads)})"
            for name, op, reads, makes in nodes
        )
        report.on(f"given {', '.join(given)}; constants {', '.join(constants)}; nodes {lines or 0}")
        report.expect(
            isinstance(got, list | tuple)
            and len(got) == 2
            and isinstance(got[0], list | tuple)
            and isinstance(got[1], Mapping),
            f"expected (a list of names, a dictionary), got {words.short(got)}",
        )
        (planned, missing), (right, needed) = got, case.expected
        if report.part != "missing":
            report.expect(len(planned) == len({*planned}), "a node is listed twice")
            for name in right:
                report.expect(name in planned, f"{name} can be planned, and is not in your list")
            for name in planned:
                report.expect(name in right, f"{words.short(name)} cannot be planned here")
            report.expect(list(planned) == right, "keep the order of the nodes")
        if report.part != "planned":
            report.equal(missing, needed)


@exercise(
    "09b-2",
    hints=(
        "A cache can be a dictionary from keys to the caches of the next stage.",
        "The key holds shape and dtype of every array, and the bytes of those in needs[stage]. "
        "`array.tobytes()` returns them.",
    ),
    variants=({"step": 4}, {"step": 8}, {"step": 16}, {"step": 32}, {"step": 5}),
    seams=("vklab.runtime.plan_cache.PlanCache.key", "vklab.runtime.plan_cache.PlanCache.find"),
)
class NewPlans(Function):
    parts = {"key": ("what belongs to the key", 2), "tree": ("a cache for each entry", 2)}
    follows = {"tree": "key"}

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for part, *args, text in drawn_plans.draw_requests(random, self.params["step"]):
            yield Case(part, tuple(args), on=text, mixed=text == "drawn requests")

    def expected(self, case: Case) -> Any:
        requests, needs = case.args
        seen = set[tuple[str, ...]]()  # paths of keys
        counts = []
        for request in requests:
            before, path = len(seen), ()
            for stage, asked in zip(request, needs, strict=True):
                path += (
                    str(
                        [
                            (
                                -(-len(array) // self.params["step"]),
                                array.shape[1:],
                                array.dtype,
                                array.tolist() if name in asked else 0,
                            )
                            for name, array in stage.items()
                        ]
                    ),
                )
                seen.add(path)
            counts.append(len(seen) - before)
        return counts

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.kind(got, list | tuple, "a list with a number for each request")
        report.equal(len(got), len(case.args[0]), "one number for each request")
        for number, (mine, right) in enumerate(zip(got, case.expected, strict=True)):
            report.equal(mine, right, f"requests[{number}]: {request_text(case.args[0][number])}")


# Only `expected` may use these: shapes of x and values of to, one pair for each key.
COLLISIONS = (((6, 6), (6, 6), [2, 2, 9], [1, 6, 6]), ((2, 6), (3, 4), [12], [12]),
              ((2, 6), (2, 6), [2, 6], [2, 3, 2]), ((2, 6), (2, 6), [3, 4], [4, 3]),
              ((1, 11), (1, 11), [11, 1], [1, 11]))  # fmt: skip


@exercise(
    "09b-3",
    hints=(
        "What does the right key hold that this one lost? Look for two requests that differ only "
        "in that.",
        "Both requests must be valid: the product of `to` is the number of elements of x. Write "
        "down the vectors `to` for 12 elements and their short keys. Then try 36, and 11.",
    ),
    variants=tuple({"key": key} for key in KEYS),
    seams=("vklab.runtime.plan_cache.PlanCache.key",),
)
class Collision(Value):
    parts = {
        "valid": ("two requests that the model can run, and that need two plans", 1),
        "same": ("the shorter key is the same for both", 2),
    }

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        for part in self.parts:
            yield Case(part, on="your pair")

    def expected(self, case: Case) -> Any:
        one, other, first, second = COLLISIONS[[*KEYS].index(self.params["key"])]
        return (
            f'[{{"x": np.zeros({one}, np.float32), "to": np.array({first})}},\n'
            f'        {{"x": np.zeros({other}, np.float32), "to": np.array({second})}}]'
        )

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            isinstance(got, list | tuple)
            and len(got) == 2
            and all(
                isinstance(each, Mapping)
                and each.keys() == {"x", "to"}
                and all(isinstance(array, np.ndarray) for array in each.values())
                for each in got
            ),
            "expected two dictionaries, each with the arrays x and to",
        )
        for each in got:
            fault = fault_of(each["x"], each["to"])
            report.expect(not fault, fault)
        full = [(each["x"].shape, each["to"].tolist()) for each in got]
        report.expect(full[0] != full[1], "both requests need the same plan")
        if report.part == "same":
            short = [KEYS[self.params["key"]](each["x"], each["to"]) for each in got]
            report.expect(
                short[0] == short[1],
                f"the shorter keys differ: {words.short(short[0])} and {words.short(short[1])}",
            )


def least_peak(work: Work, most: int = 3000) -> int:
    """Return the smallest peak of all orders: a search over the sets of nodes that may be done.

    The set with the smallest peak so far is continued first. 0 after `most` sets.
    """
    names = list(work)
    number = {name: n for n, name in enumerate(names)}
    reads = [sum(1 << number[read] for read in work[name][1]) for name in names]
    readers = [
        sum(1 << j for j, mask in enumerate(reads) if mask >> n & 1) for n in range(len(names))
    ]
    heap, seen = [(0, 0, 0, 0)], set[int]()
    while heap and len(seen) < most:
        peak, _, done, kept = heapq.heappop(heap)
        if done + 1 == 1 << len(names):
            return peak
        if done in seen:
            continue
        seen.add(done)
        for n, name in enumerate(names):
            if not done >> n & 1 and not reads[n] & ~done:
                after, live = done | 1 << n, kept + work[name][0]
                ended = sum(
                    work[names[m]][0]
                    for m in {n, *(number[r] for r in work[name][1])}
                    if not readers[m] & ~after
                )
                rank = -after.bit_count()
                heapq.heappush(heap, (max(peak, live), rank, after, live - ended))
    return 0


def is_easy(work: Work, given: int, bound: int, tries: int) -> bool:
    """Tell whether all orders are alike, or a natural one closes more than 0.85 of the gap."""
    return given <= 1.1 * bound or given - min(
        drawn_orders.natural_orders(work, tries).values()
    ) > 0.85 * (given - bound)


def draw_work(random: np.random.Generator, part: str) -> tuple[Work, int]:
    """Draw a graph that is not easy; return it and the peak of its order as given."""
    while True:
        if part == "inception":
            drawn = drawn_orders.window(random, "inception_v1", 24, 49)
        elif part == "beside":
            other = str(random.choice(["shufflenet_v2", "unet", "bert_base", "resnet50"]))
            drawn = drawn_orders.beside(
                drawn_orders.window(random, "inception_v1", 12, 21),
                drawn_orders.window(random, other, 8, 14),
            )
        else:
            drawn = drawn_orders.wiring(random, 18 if part == "small" else 30)
        work = {name: drawn[name] for name in drawn_orders.random_order(drawn, random)}
        given = max(live_bytes(work, list(work)))
        # The cheap test first: below the best peak, a bound shows smaller shares than it should.
        if not is_easy(work, given, max(must_be_live(work).values()), 0):
            bound = least_peak(work)
            if bound and not any(is_easy(work, given, bound, tries) for tries in (0, 200)):
                return work, given


@exercise(
    "09b-4",
    hints=(
        "Begin with several orders: the one as given, and some hundred of random_order. Return the "
        "one with the smallest peak.",
        "A rule looks one step ahead. Two orders that have run the same nodes keep the same bytes "
        "from there on: they differ only in their peaks so far. Which of the two do you drop?",
        "Keep a heap of (peak so far, nodes done), and always continue the smallest peak. The "
        "first complete order that comes out is the best. How many sets of done nodes are there?",
    ),
    seams=("vklab.graph.onnx_import.topological_order", "vklab.graph.graph.topological_order"),
    builds=SMALL_PEAK,
)
class SmallPeakOrder(Function):
    parts = {"valid": ("every node once, after what it reads", 1),
             "inception": ("a part of Inception", 1), "beside": ("two networks side by side", 1),
             "small": ("an irregular graph", 1), "large": ("a larger one", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        yield Case("valid", ({END: (0, ())},))
        yield Case(
            "valid", ({"a": (4, ()), "b": (0, ("a",)), "c": (0, ("a", "b")), END: (0, ("c",))},)
        )
        yield Case("valid", (drawn_orders.wiring(random, 9),))
        for part in ("inception", "beside", "small", "large"):
            work, given = draw_work(random, part)
            yield Case(part, (work,), on=f"a graph of {len(work)} nodes", facts={"natural": given})

    def expected(self, case: Case) -> Any:
        return least_peak(case.args[0])

    def compare(self, case: Case, got: Any, report: Report) -> None:
        work = case.args[0]
        fault = broken(work, got)
        report.expect(not fault, fault)
        if report.part != "valid":
            peaks = max(live_bytes(work, got)), case.expected, case.facts["natural"]
            unit = (1024, "KiB") if case.expected > 1 << 16 else (1, "bytes")
            report.score(*(peak / unit[0] for peak in peaks), f"{unit[1]} at the peak")


@exercise(
    "09b-p1",
    hints=(
        "Which shapes does each node read, and is one of them a number that the network computes?",
    ),
)
class WhereItStops(Predict):
    options = {
        name: (*(node for node, *_ in nodes), "none")
        for name, (_, nodes) in MODELS.items()
        if name != "asked"
    }
    right = {"flatten": "none", "top": "topk", "select": "turn"}
    explains = (
        "In flatten the new shape follows from the shape of x: no node stops. In top k "
        "is computed from the data, so topk waits. In select nonzero itself runs, into "
        "a buffer of the largest size. Its reader turn waits: its input has no known size."
    )


@exercise("09b-p2", hints=("Which of the two caches has seen this key?",))
class NewEntries(Predict):
    right = {"second": 0, "third": 2, "fourth": 1}
    explains = (
        "The second request has known keys in both caches. The third has a new shape of x: "
        "a new entry in the root, and its cache is empty, so a second one. The fourth has "
        "the first shape of x, but zeros: NonZero returns another size."
    )


@exercise("09b-p3", hints=("Must anything be known about operators that come later?",))
class WhoCan(Predict):
    options = dict.fromkeys(("python_if", "fuse", "nonzero", "free"), ("eager", "ahead", "both"))
    right = {"python_if": "eager", "fuse": "ahead", "nonzero": "both", "free": "both"}
    explains = (
        "A branch of Python needs Python between two operators. Fusing Relu into the Conv "
        "before it needs to know, when Conv starts, that Relu follows. NonZero runs in "
        "both: a plan is extended when the size is known. Memory can be freed in both: "
        "Python counts references, a plan knows the last reader."
    )
