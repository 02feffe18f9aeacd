"""Answers to try the checks of lab 10 with: wrong ones, and a second right one for each."""

from functools import cache
from itertools import combinations

import numpy as np

from vklab_course.author.answers import alternative, equivalent, wrong
from vklab_labs.lab_10.fusing import broken_rule, buffers, is_core, moved, open_runs
from vklab_labs.lab_10.rewriting import compute, graph_of, info_of, infos_of


def _simplifier(neutral={"Mul": 1.0}, outputs=True, typed=True, folds=True, dead=True,
                undo=lambda first, second: [first[i] for i in second] == [*range(len(first))],
                everywhere=True, is_it=lambda c, number: (c == number).all()):  # fmt: skip
    """Return an answer to 10-1, one rule at a time, in which one decision may be wrong."""
    def source_of(node, nodes, constants, infos, asked):
        (made, op, reads, perm), makers = node, {each[0]: each for each in nodes}
        _, maker, inner, first = makers.get(reads[0], ("", "", (), ()))
        if dead and made not in asked and all(made not in each[2] for each in nodes):
            return made
        if outputs and made in asked:
            return ""
        if folds and all(name in constants for name in reads):
            constants[made] = compute(op, [constants[name] for name in reads], perm)
            return made
        if op in neutral and reads[1] in constants and is_it(
                constants[reads[1]], neutral[op]) and (
                not typed or infos[made] == infos[reads[0]]) or op == "Identity":
            return reads[0]
        return inner[0] if op == maker == "Transpose" and undo(first, perm) else ""

    def simplify(graph):
        nodes, constants, infos, at = [*graph["nodes"]], {**graph["constants"]}, infos_of(graph), 0
        while at < len(nodes):
            made = nodes[at][0]
            source = source_of(nodes[at], nodes, constants, infos, graph["outputs"])
            at = 0 if source else at + 1
            if source:
                nodes = [n for n in nodes if n[0] != made]
                readers = [n[0] for n in nodes if made in n[2]][: None if everywhere else 1]
                nodes = [(m, op, tuple(source if r == made and m in readers else r for r in old), p)
                         for m, op, old, p in nodes]  # fmt: skip
        used = {name for node in nodes for name in node[2]}
        return {**graph, "nodes": nodes, "constants": {k: constants[k] for k in constants if
                                                       k in used or not dead}}
    return simplify


alternative("10-1")(_simplifier())
for said, decision in (
    ("no node makes the output", {"outputs": False}),
    ("expected shape (2, 3), got (3,)", {"typed": False}), ("the target has", {"folds": False}),
    ("the target has", {"dead": False}), ("which nobody makes", {"everywhere": False}),
    ("elements differ", {"undo": lambda first, second: True}),
    ("the target has", {"undo": lambda first, second: first == second}),
    ("elements differ", {"neutral": {"Mul": 1.0, "Add": 0.0}}),
    ("elements differ", {"is_it": lambda c, number: c.size and c.min() == number}),
    ("elements differ", {"is_it": lambda c, number: c.size and c.max() == number}),
    ("elements differ", {"is_it": lambda c, number: c.prod() == number}),
    ("elements differ", {"is_it": lambda c, number: np.allclose(c, number, atol=1e-5)}),
):
    wrong("10-1", says=said)(_simplifier(**decision))


@wrong("10-1", says="constant n float64: ")
def folds_to_float32(graph):
    small = {name: array.astype(np.float32) for name, array in graph["constants"].items()}
    return _simplifier()({**graph, "constants": small})


wrong("10-1", says="expected a graph, a dictionary")(lambda graph: graph["nodes"])
wrong("10-1", says="the target has")(lambda graph: graph)


def _verifier(skips=(), same=lambda one, other: one == other, first_made=False, given=True,
              old_constants=False, order=list):  # fmt: skip
    """Return an answer to 10-2 that lists every fault first; one decision may be wrong."""
    def first_fault(before, after):
        faults = [("interface", key) for key in ("inputs", "outputs") if before[key] != after[key]]
        old, nodes = infos_of(before), after["nodes"]
        new = infos_of({**after, "nodes": []})
        new |= infos_of({**before, "nodes": []}) if old_constants else {}
        exists, makers = {*new} if given else set(), [made for made, *_ in nodes]
        for made, op, reads, perm in nodes:
            twice = [("two makers", made)] * (made in exists)
            late = [("order" if name in makers else "undefined", name)
                    for name in reads if name not in new]  # fmt: skip
            faults += twice + late if first_made else late + twice
            try:
                new[made] = info_of(op, [new[name] for name in reads], perm)
                faults += [("type", made)] * (not same(new[made], old.get(made, new[made])))
            except (KeyError, ValueError):
                faults.append(("type", made))
            exists.add(made)
        faults += [("undefined", name) for name in order(after["outputs"])
                   if name not in new]
        return next((fault for fault in faults if fault[0] not in skips), None)
    return first_fault


alternative("10-2")(_verifier())
for rule in ("interface", "undefined", "order", "two makers", "type"):
    wrong("10-2", says=f"expected ('{rule}',")(_verifier(skips=(rule,)))
wrong("10-2", says="('type'")(_verifier(same=lambda one, other: one[1] == other[1]))
wrong("10-2", says="('type'")(_verifier(same=lambda one, other: one[0] == other[0]))
wrong("10-2", says="('two makers'")(_verifier(given=False))
wrong("10-2", says="expected ('undefined'")(_verifier(first_made=True))
wrong("10-2", says="expected ('interface', 'outputs')")(lambda *both: _verifier()(
    *({**graph, "outputs": sorted(graph["outputs"])} for graph in both)))
wrong("10-2", says="expected ('undefined', 'k')")(_verifier(old_constants=True))
wrong("10-2", says="expected ('undefined', 'b')")(_verifier(order=sorted))
wrong("10-2", says="expected None or (rule, value)")(lambda before, after: "order")


@alternative("10-3")
def by_hand(inner, outer):
    pair = [("one", inner, ("in",), ()), ("two", outer, ("one", "in"), ())]
    graph = {"inputs": {"in": ("float32", (3, 2))}, "constants": {}, "outputs": ["two", "one"]}
    three = ("three", "Tanh", ("one",), ())
    return {"inside": {**graph, "nodes": pair},
            "one_read": {**graph, "nodes": [*pair, three], "outputs": ["three", "two"]}}


def _with(inside, second="one_read", **more):
    """Return an answer to 10-3 with another graph for one of the names."""
    return lambda *pair: {second: by_hand(*pair)["one_read"],
                          "inside": graph_of(inside[0].format(*pair), inside[1], **more)}


GOOD = "a {0} x; y {1} a x; "
for said, *inside in (
    ("with the other three tests right, the pass fuses nothing", GOOD, "a"),
    ("right, the pass fuses two nodes, and no output changes", GOOD, "y"),
    ("the pass fuses nothing", GOOD, "a y"), ("has 3 nodes, 2 do", GOOD + "z Neg y", "y a"),
    ("the pass fuses nothing", "a Tanh x; y Add a x", "y a"), ("is made twice", GOOD * 2, "y a"),
    ("the pass fuses nothing", "a {0} x; y {1} x a", "y a"), ("no operator", "y Foo x", "y"),
    ("which it, or a later node, makes", "a {0} y; y {1} a x", "y a"),
):
    wrong("10-3", says=said)(_with(inside))
wrong("10-3", says="has no elements")(_with((GOOD, "y a"), shape=(0, 2)))
wrong("10-3", says="the graph for 'ready'")(_with((GOOD, "y a"), "ready"))
wrong("10-3", says="the other one is missing")(lambda *pair: {"inside": by_hand(*pair)["inside"]})
wrong("10-3", says="two of the names")(lambda *pair: dict.fromkeys(
    ("one_read", "inside", "ready", "whole"), by_hand(*pair)["inside"]))


@alternative("10-4")
def from_what_is_left(work, sizes, outputs, most):
    def first_groups(left):
        found = [()]
        for name in work:
            if name in left:
                found += [(*g, name) for g in found if not {*work[name][1]} & left - {*g} and sum(
                    is_core(work[n][0]) for n in (*g, name)) < 2]  # fmt: skip
        return [g for g in found[1:] if len(buffers(work, outputs, g)) <= most]

    @cache
    def best(left):
        return min(((moved(work, sizes, outputs, [g]) + cost, [[*g], *rest])
                    for g in first_groups(left) for cost, rest in [best(left - {*g})]),
                   default=(0, []), key=lambda pair: pair[0])  # fmt: skip

    return best(frozenset(work))[1]


@wrong("10-4", says="no answer needs less than")
def best_pair(work, sizes, outputs, most):
    def saved(pair):
        return moved(work, sizes, outputs, pair) - moved(work, sizes, outputs, [sum(pair, [])])

    groups = [[name] for name in work]
    while True:
        for pair in sorted(map(list, combinations(groups, 2)), key=saved, reverse=True):
            joined = [g for g in groups if g not in pair] + [sum(pair, [])]
            if saved(pair) > 0 and not broken_rule(work, outputs, most, joined):
                groups = joined
                break
        else:
            return groups


for said, answer in (
    ("the obvious answer needs", lambda w, s, o, m: open_runs(w, o, m)),
    ("is in 0 groups", lambda w, s, o, m: [[n] for n in w][1:]),
    ("a kernel has one at most", lambda w, s, o, m: [[*w]] if w else []),
    ("is empty", lambda w, s, o, m: [[], *([n] for n in w)]),
    ("in a circle", lambda w, s, o, m: [["a", "d"], ["b", "c"]] if [*w] == [*"abcd"] else [
        [n] for n in w]),
    ("expected a list of lists of names", lambda w, s, o, m: [*w]),
):
    wrong("10-4", says=said)(answer)

for cost in (1, -1):
    equivalent("10-4", "best = {frozenset(): (0, [])}", f"best = {{frozenset(): ({cost}, [])}}",
               because="every way to a set begins with the same cost")  # fmt: skip
