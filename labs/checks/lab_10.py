"""Exercises of lab 10: a rewrite, a verifier, a planted bug, groups."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from vklab_course import words
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Function, Value, exercise
from vklab_course.definition.kinds import Predict
from vklab_course.definition.report import Report
from vklab_labs.lab_10 import faulty_fusion, fusing, fusing_graphs, rules
from vklab_labs.lab_10 import rewriting as plain
from vklab_labs.lab_10.graph_problems import problem_of, witness_problem
from vklab_labs.lab_10.rewriting import PlainGraph, graph_of, infos_of


def simplified(graph: PlainGraph, neutral: tuple[str, float]) -> PlainGraph:
    """Return the target graph of exercise 1, by applying one rule at a time until none applies."""
    nodes, constants, infos, at = graph["nodes"], {**graph["constants"]}, infos_of(graph), 0
    while at < len(nodes):
        made, op, reads, perm = nodes[at]
        before = {node[0]: node for node in nodes}.get(reads[0], ("", "", ("",), ()))
        source = ""
        if made not in graph["outputs"]:
            if all(name in constants for name in reads):
                constants[made] = plain.compute(op, [constants[name] for name in reads], perm)
                source = made
            elif op == "Identity" or (
                op == neutral[0]
                and reads[1] in constants
                and (constants[reads[1]] == neutral[1]).all()
                and infos[made] == infos[reads[0]]
            ):
                source = reads[0]
            elif op == before[1] == "Transpose" and [before[3][i] for i in perm] == [
                *range(len(perm))
            ]:
                source = before[2][0]
        at = 0 if source else at + 1
        nodes = (
            [
                (m, o, tuple(source if name == made else name for name in r), p)
                for m, o, r, p in nodes
                if m != made
            ]
            if source
            else nodes
        )
    return rules.drop_dead({**graph, "nodes": nodes, "constants": constants})


@exercise(
    "10-1",
    hints=(
        "Three questions, one for each rule. Where one is true, say what stands for the value.",
        "A folded value goes into `constants`; for the other two rules fill `instead`.",
        "For the Transposes, look up the operand in `turned`: it need not be there.",
    ),
    seams=(
        "vklab.graph.passes.drop_no_ops.drop_no_ops",
        "vklab.graph.passes.fold_constants.fold_constants",
        "vklab.graph.passes.drop_dead_nodes.drop_dead_nodes",
        "vklab.graph.passes.move_transposes.move_transposes",
    ),
    variants=(
        {"op": "Mul", "number": "1.0"},
        {"op": "Div", "number": "1.0"},
        {"op": "Pow", "number": "1.0"},
        {"op": "Sub", "number": "0.0"},
    ),
    builds=plain.FIRST_PASS,
)
class Simplify(Function):
    parts = {"fold": ("constants are folded", 1), "same": ("Identity and no-ops go", 1),
             "turn": ("Transposes that undo each other go", 1),
             "drawn": ("drawn graphs, all rules together", 2)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        op, number = self.params["op"], float(self.params["number"])
        to_n = "Sub" if number == 0 else "Div"
        n, big = [number], [[number] * 3] * 2
        chain, weight = f"a Identity x; b {op} a n; y Relu b", random.normal(size=(2, 2, 2))
        for part, text, outputs in (
            ("fold", "a Add k k; b Mul a k; y Add x b", "y"),
            ("fold", "a Add k z; y Mul x a", "y"),
            ("fold", "a Add k k; y Add x a; b Mul k k", "b y"),
            ("fold", "a Neg x; y Add k k", "y"),
            ("fold", "a Neg k; b Tanh a; c Relu x; y Add c b; d Add b b", "y"),
            ("fold", "a Transpose w 120; y Add x a", "y"),
            ("same", chain, "y"),
            ("same", f"a Neg x; b {op} a n; y Relu b", "y b"),
            ("same", f"a {op} n x; b Identity a; y Neg b", "y"),
            ("same", f"a {op} x k; b Identity a; y Neg b", "y"),
            ("same", "a Identity x; b Identity a; y Identity b", "y"),
            ("same", f"a {op} x n; b Relu a; c Neg a; y Add b c", "y"),
            ("same", "b Add x z; c Identity b; y Div k c", "y"),  # 0.5 / (-0 + 0) is not -inf
            ("same", f"a {to_n} k k; b {op} x a; y Neg b", "y"),
            ("same", "d Identity x; y Relu d; c Neg d; e Neg c", "y"),
            ("turn", "a Transpose x 120; b Transpose a 201; y Relu b", "y"),
            ("turn", "a Transpose x 120; b Transpose a 201; c Relu a; y Add b c", "y"),
            ("turn", "a Transpose x 120; b Transpose a 210; c Transpose a 021; y Add b c", "y"),
            ("turn", "a Transpose x 120; b Transpose a 120; c Transpose b 201; y Add c b", "y"),
            ("turn", "a Transpose x 021; b Transpose a 021; c Transpose b 120; y Relu c", "y a"),
            ("turn", "a Transpose x 120; b Identity a; c Transpose b 201; y Transpose c 120", "y"),
            (
                "turn",
                "a Transpose x 120; b Transpose a 201; c Transpose b 120; "
                "d Transpose c 201; y Neg d",
                "y",
            ),
        ):
            yield Case(
                part,
                (graph_of(text, outputs, k=[0.5], n=n, z=[0.0], w=weight),),
                on=f"the graph {text!r} with the outputs {outputs!r}, constants k, n, z, w: "
                f"k = 0.5, {n=}, z = 0",
            )
        for shape, array in (
            ((3,), big),
            ((1, 3), big),
            ((0, 3), n),
            ((), n),
            ((3,), [n]),
            ((2, 3), big),
            ((2, 3), [[number, number, 0.5]]),
            ((3,), [number, 0.5, number]),
            ((2,), [number + 1e-6] * 2),
            ((2,), [number - 1, number + 1]),
            ((2,), [number, number + 1]),
            ((2,), [number, number - 1]),
            ((2,), [2.0, 0.5]),
        ):
            yield Case(
                "same",
                (graph_of(chain, shape=shape, n=array),),
                on=f"the graph {chain!r}, x of shape {shape}, the constant n = {array}",
            )
        whole = graph_of(f"a {op} n x; y Neg a", n=np.full((2, 2, 2), number))
        yield Case("same", (whole,), on="the first operand is the constant, with the shape of x")
        for text in ("a Add n n; y Add x a", "a Add n n; b Neg a; y Neg b"):
            wide = {**graph_of(text), "constants": {"n": np.array([0.1])}}
            yield Case("fold", (wide,), on=f"the graph {text!r}, the constant n float64")
        wide = {**graph_of(chain), "constants": {"n": np.array([number])}}
        yield Case("same", (wide,), on="x is float32, the constant float64")
        for count in (6, 8, 10, 12, 14, 16, 18, 20):
            while True:
                graph = plain.draw_graph(random, count, (op, number), (2, 2, 2))
                if len(simplified(graph, (op, number))["nodes"]) < len(graph["nodes"]) - 3:
                    break
            on = f"a drawn graph of {len(graph['nodes'])} nodes"
            yield Case("drawn", (graph,), on=on, mixed=True)

    def expected(self, case: Case) -> Any:
        target = simplified(case.args[0], (self.params["op"], float(self.params["number"])))
        return [node[0] for node in target["nodes"]], sorted(target["constants"])

    def compare(self, case: Case, got: Any, report: Report) -> None:
        (nodes, constants), (graph,) = case.expected, case.args
        report.expect(not (problem := problem_of(got)), problem)
        for key in ("inputs", "outputs"):
            report.equal(got[key], graph[key], f"the {key} of a graph stay as they are")
        feed = plain.feed_of(graph, len(got["nodes"]))
        values = plain.run(got, feed)
        for name, right in plain.run(graph, feed).items():
            report.close(values[name], right, 0, 0, f"the value of output {name}")
        left = [
            f"{made} = {op}({', '.join(reads)})"
            for made, op, reads, _ in got["nodes"]
            if made not in nodes
        ]
        report.expect(
            len(got["nodes"]) <= len(nodes),
            f"{len(got['nodes'])} nodes are left, the "
            f"target has {len(nodes)}; look at {'; '.join(left[:2])}",
        )
        more = sorted({*got["constants"]} - {*constants})
        report.expect(
            len(got["constants"]) <= len(constants),
            f"no node reads the constant {', '.join(more[:1])}",
        )


def first_fault(before: PlainGraph, after: PlainGraph) -> tuple[str, str] | None:
    """Return the oracle's answer to exercise 2."""
    for key in ("inputs", "outputs"):
        if list(after[key]) != list(before[key]) or after[key] != before[key]:
            return "interface", key
    old, made_by = infos_of(before), {node[0] for node in after["nodes"]}
    infos = infos_of({**after, "nodes": []})
    for made, op, reads, perm in after["nodes"]:
        for name in reads:
            if name not in infos:
                return ("order" if name in made_by else "undefined"), name
        if made in infos:
            return "two makers", made
        try:
            infos[made] = plain.info_of(op, [infos[name] for name in reads], perm)
        except ValueError:
            return "type", made
        if infos[made] != old.get(made, infos[made]):
            return "type", made
    lost = [name for name in after["outputs"] if name not in infos]
    return ("undefined", lost[0]) if lost else None


@exercise(
    "10-2",
    hints=(
        "A name that is not known yet: does any node make it? It tells two of the rules apart.",
        "Each node that breaks no rule adds the type of its value to `known`.",
        "A value that the graph had before keeps its type. Other values may have any.",
    ),
    seams=("vklab.graph.graph.topological_order",),
)
class FirstFault(Function):
    parts = {"walk": ("undefined values, two makers, order", 2),
             "type": ("a changed dtype or shape", 1),
             "whole": ("the interface; and of several faults the first", 2)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        good = graph_of("a Relu x; b Transpose a 120; y Neg b", k=[0.5], shape=(2, 3, 4))
        for part, text, outputs in (
            ("", "b Transpose x 120; y Neg b", "y"),
            ("", "c Transpose x 120; y Neg c", "y"),
            ("walk", "b Transpose a 120; y Neg b", "y"),
            ("walk", "a Relu x", "y"),
            ("walk", "b Transpose a 120; a Relu x; y Neg b", "y"),
            ("walk", "y Neg y", "y"),
            ("walk", "a Relu b; b Neg a; y Neg x", "y"),
            ("walk", "a Relu x; x Neg a", "y"),
            ("walk", "a Relu x; b Transpose a 120; y Neg b; a Neg x", "y"),
            ("walk", "k Relu x; b Transpose x 120; y Neg b", "y"),
            ("type", "b Transpose x 210; y Neg b", "y"),
            ("type", "y Neg x", "y"),
            ("type", "t Transpose x 210; b Add x t; y Neg b", "y"),
            ("type", "y Foo x", "y"),
            ("type", "c Tanh x; b Relu c; y Transpose b 120", "y"),
            ("whole", "a Relu x", "a"),
            ("whole", "a Relu x", "y a"),
            ("whole", "a Relu z", "a"),
            ("whole", "t Transpose x 210; b Add x t; y Neg q", "y"),
            ("whole", "e Neg x; e Neg q; y Neg x", "y"),
            ("whole", "", "y"),
        ):
            yield Case(
                part,
                (good, graph_of(text, outputs, k=[0.5], shape=(2, 3, 4))),
                on=f"'a Relu x; b Transpose a 120; y Neg b' before, {text!r} with the "
                f"outputs {outputs!r} after",
            )
        two = graph_of("a Add x k; b Neg a", "a b x", k=[0.5])
        double = {"x": ("float64", (2, 2, 2))}
        for part, change in (
            ("whole", {"outputs": ["b", "a", "x"]}),
            ("whole", {"inputs": double}),
            ("whole", {"inputs": double, "outputs": ["b"]}),
            ("whole", {"nodes": []}),
            ("walk", {"constants": {}}),
            ("walk", {"constants": {}, "nodes": two["nodes"][::-1]}),
            ("walk", {"nodes": [("a", "Add", ("q", "p"), ())]}),
            ("walk", {"nodes": [("a", "Add", ("x", "q"), ())]}),
            ("type", {"constants": {"k": np.array([0.5])}}),
            ("", {"nodes": two["nodes"]}),
        ):
            yield Case(
                part,
                (two, {**two, **change}),
                on=f"'a Add x k; b Neg a' with the outputs 'a b x' before, changed {change}",
            )
        late = graph_of("a Neg x; b Neg x", "b a")
        yield Case(
            "whole",
            (late, {**late, "nodes": []}),
            on="'a Neg x; b Neg x' with the outputs 'b a' before, no node after",
        )
        for part, faults in (
            ("walk", ("lost", "moved", "twice", "lost", "moved", "new")),
            ("type", ("turned", "float64", "turned", "float64", "new")),
            (
                "whole",
                ("inputs", "outputs", "lost twice", "moved turned", "turned float64", "twice lost"),
            ),
        ):
            for names in faults:
                graph = after = plain.draw_graph(random, 7, ("Mul", 1.0), (2, 3, 4))
                for name in names.split():
                    after = plain.damaged(random, after, name)
                on = f"a drawn graph ({len(after['nodes'])} nodes)"
                yield Case(part, (graph, after), on=on, mixed=True)

    def expected(self, case: Case) -> Any:
        return first_fault(*case.args)

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            got is None or (isinstance(got, list | tuple) and len(got) == 2),
            f"expected None or (rule, value), got {words.short(got)}",
        )
        nodes = "; ".join(
            f"{made} = {op}({', '.join(reads)})" for made, op, reads, _ in case.args[1]["nodes"][:8]
        )
        report.equal(got, case.expected, f"the nodes after: {nodes or 'none'}")


RIGHT = {"one_read": "[name for node in nodes for name in node[2]].count(value) == 1",
         "inside": 'value not in graph["outputs"]',
         "ready": "all(name in known for name in others)",
         "whole": "infos[value] == infos[then[0]]"}  # fmt: skip
PAIR, LATE = "a {inner} x; y {outer} a x", "a {inner} x; b Neg x; y {outer} a b"
SMALL = "a {inner} k; y {outer} a x"
# Of each wrong test: its name, the fewest nodes of a witness, and arguments of graph_of.
FAULTS = {
    "[n for node in nodes[: nodes.index(then) + 1] for n in node[2]].count(value) == 1":
        ("one_read", 3, PAIR + "; z Neg a", ', "y z"'),
    "[n for node in nodes[nodes.index(then) :] for n in node[2]].count(value) == 1":
        ("one_read", 3, "a {inner} x; z Neg a; y {outer} a x", ', "z y"'),
    "[value in node[2] for node in nodes].count(True) == 1":
        ("one_read", 2, "a {inner} x; y {outer} a a", ""),
    'value != graph["outputs"][0]': ("inside", 2, PAIR, ', "y a"'),
    'value != graph["outputs"][-1]': ("inside", 2, PAIR, ', "a y"'),
    'graph["outputs"] != [value]': ("inside", 2, PAIR, ', "y a"'),
    "all(name in infos for name in others)": ("ready", 3, LATE, ""),
    "nodes.index(first) < nodes.index(then)": ("ready", 3, LATE, ""),
    "infos[value][0] == infos[then[0]][0]": ("whole", 2, SMALL, ", k=[1.0]"),
    "len(infos[value][1]) == len(infos[then[0]][1])": ("whole", 2, SMALL, ", k=[[[1.0]]]"),
    "infos[value][1][-1:] == infos[then[0]][1][-1:]": ("whole", 2, SMALL, ", k=[1.0, 1.0]"),
}  # fmt: skip


def _wrong(*numbers: int) -> dict[str, str]:
    return RIGHT | {FAULTS[text][0]: text for text in (list(FAULTS)[n] for n in numbers)}


@exercise(
    "10-3",
    hints=(
        "Say each of the four questions in your own words. For which graph does its test answer "
        "another one?",
        "Where does a test not look? At nodes before or behind, at other outputs, at an axis?",
        "Begin with the two nodes that are fused. What must be added: one more reader, one more "
        "output, a node between the two, or a first operand with fewer elements?",
    ),
    variants=[_wrong(*pair) for pair in ((0, 3), (4, 6), (2, 10), (7, 8), (1, 7), (5, 9))],
)
class Witnesses(Value):
    takes = "function"
    parts = {"one": ("a witness of one wrong test", 2), "both": ("witnesses of both", 2),
             "small": ("no node too many", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        pairs = [*itertools.product(("Neg", "Tanh", "Relu"), ("Add", "Sub", "Mul"))]
        for pair in random.permutation(pairs)[:4].tolist():
            yield Case("", tuple(pair), facts={"right": RIGHT})

    def expected(self, case: Case) -> Any:
        wrong = [FAULTS[text] for text in self.params.values() if text in FAULTS]
        return (
            {name: least for name, least, *_ in wrong}
            if case.args
            else "\n        ".join(
                f'"{name}": graph_of(f"{text}"{more}),' for name, _, text, more in wrong
            )
        )

    def compare(self, case: Case, got: Any, report: Report) -> None:
        report.expect(
            type(got) is dict and 1 <= len(got) <= 2 and {*got} <= {*self.params},
            f"expected a dictionary with two of the names {', '.join(self.params)}, and "
            f"their witnesses, got {words.short(got)}",
        )
        problems = [self._problem(name, graph, case) for name, graph in got.items()]
        report.expect(not all(problems), problems[0])
        if report.part != "one":
            report.expect(not any(problems), max(problems))
            report.expect(len(got) == 2, f"{[*got][0]!r} has its witness; the other one is missing")
        for name, graph in got.items() if report.part == "small" else ():
            least, count = case.expected.get(name, 0), len(graph["nodes"])
            report.expect(count <= least, f"the witness of {name!r} has {count} nodes, {least} do")

    def _problem(self, name: str, graph: Any, case: Case) -> str:
        problem = witness_problem(graph)
        if not problem:
            may_fuse = faulty_fusion.tests_of({**case.facts["right"], name: self.params[name]})
            if faulty_fusion.difference(graph, case.args, may_fuse):
                return ""
            after = faulty_fusion.fuse_pairs(graph, case.args, may_fuse)
            problem = "with the other three tests right, the pass fuses " + (
                "two nodes, and no output changes"
                if after["nodes"] != graph["nodes"]
                else "nothing, so nothing goes wrong"
            )
        return f"the graph for {name!r}: {problem}"


def least_bytes(masks: fusing.Masks, known: float = math.inf) -> float:
    """Return the fewest bytes, at most `known`: a search over sets of nodes that may be done."""
    count, whole = len(masks.work), (1 << len(masks.work)) - 1
    best, reached = {0: 0}, [[0], *(list[int]() for _ in range(count))]
    for done in (done for level in reached for done in level):
        made = done | -1 << count  # inputs are there from the start
        rest = sum(
            masks.bytes[n]
            for n, readers in enumerate(masks.readers)
            if (readers & whole & ~done if made >> n & 1 else readers >> len(masks.names))
        )
        if best[done] + rest >= known:  # what is still to be read, and outputs still to be written
            continue
        groups = [(0, 0)]  # and what they read from outside
        for n, reads in enumerate(masks.reads):
            if not done >> n & 1:
                core = masks.cores if masks.cores >> n & 1 else 0
                groups += [
                    (group | 1 << n, outer | reads & made)
                    for group, outer in groups
                    if not reads & ~made & ~group
                    and not group & core
                    and (outer | reads & made).bit_count() <= masks.most
                ]
        for group, _ in groups[1:]:
            cost, after = masks.cost(group), done | group
            if cost is not None and best[done] + cost < best.get(after, math.inf):
                if after not in best:
                    reached[after.bit_count()].append(after)
                best[after] = best[done] + cost
    return min(known, best.get(whole, math.inf))


@exercise(
    "10-4",
    hints=(
        "An order of kernels is a way from the empty set of done nodes to the set of all nodes. "
        "`next_groups` gives the next steps from a set.",
        "Two ways to have the same nodes done differ only in their bytes. Remember the cheapest "
        "way to each set, with its groups: a dictionary by frozenset.",
        "Take the sets by their number of nodes: then the cheapest way to each is known.",
    ),
    seams=("vklab.plan.fusion.fuse",),
    extra=True,
)
class Fuse(Function):
    parts = {"valid": ("every node once, and every group can be a kernel", 1),
             "first": ("a drawn graph of 24 nodes", 1), "large": ("a drawn graph of 30 nodes", 2),
             "bert": ("30 nodes of BERT, shuffled", 1)}  # fmt: skip

    def cases(self, random: np.random.Generator) -> Iterable[Case]:
        small, large = (partial(fusing_graphs.net_work, random, rows, 6) for rows in (4, 5))
        for part, *options in (
            ("first", small, 0.75, True),
            ("large", large, 0.6),
            ("bert", partial(fusing_graphs.bert_work, random, 30), 0.9),
        ):
            drawn, facts = fusing_graphs.draw_work(least_bytes, *options)
            yield Case(part, drawn, on="this graph", facts=facts)
        add, circle = (
            ("Add", ("x", "y")),
            {
                "a": ("Relu", ("x",)),
                "b": ("Relu", ("a",)),
                "c": ("Tanh", ("x",)),
                "d": ("Relu", ("c",)),
            },
        )
        pair = {"a": add, "b": ("Softmax", ("a",)), "c": ("Softmax", ("b",))}
        fork = {"a": add, "b": ("Add", ("a", "z")), "c": ("Mul", ("b", "w")), "d": ("Neg", ("a",))}
        for work, outputs, most in (
            (pair, ("c",), 8),
            (fork, ("c", "d"), 4),
            ({}, (), 4),
            (circle, ("b", "d"), 4),
            (fork, ("a", "c", "d"), 3),
        ):
            sizes = dict.fromkeys((*work, *"xyzw"), 4)
            yield Case("valid", (work, sizes, outputs, most))

    def expected(self, case: Case) -> Any:
        return case.facts["least"] if case.facts else least_bytes(fusing.Masks(*case.args))

    def compare(self, case: Case, got: Any, report: Report) -> None:
        work, sizes, outputs, most = case.args
        report.expect(
            isinstance(got, list | tuple)
            and all(
                isinstance(group, list | tuple | set) and all(type(name) is str for name in group)
                for group in got
            ),
            f"expected a list of lists of names, got {words.short(got)}",
        )
        broken = fusing.broken_rule(work, outputs, most, [list(group) for group in got])
        report.expect(not broken, f"{broken}, in {words.short(got)}")
        if report.part != "valid":
            report.score(
                fusing.moved(work, sizes, outputs, got),
                case.expected,
                case.facts["natural"],
                "bytes",
            )


@exercise("10-p1", hints=("What is -0 + 0? What is 1 / 0, and what is 1 / -0?",))
class NoOps(Predict):
    explains = (
        "-0 + 0 is 0, and 1 / 0 is not 1 / -0: so x + 0 changes a bit, and stays. The "
        "other three give back every bit of x, -0 and infinity included."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"mul": True, "add": False, "sub": True, "div": True}


@exercise("10-p2", hints=("A pass cannot see what a later pass will do. The last round counts.",))
class Rounds(Predict):
    explains = (
        "Without the Identity, c reads what a reads: the second pass makes one of both. In "
        "the other order it comes too early, and works in the second round. A last round "
        "must see that nothing changes."
    )

    def answers(self) -> Mapping[str, Any]:
        return {"no_ops_first": 2, "merge_first": 3}
