"""Lab 10: the bound of its scored exercise is exact; rules are verified before they run."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest

from support.course.scored import drawn_cases
from vklab_course.author.answers import answers_of
from vklab_course.author.lab import find_lab
from vklab_course.definition.draw import draw
from vklab_course.definition.exercise import find
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.places import PROJECT
from vklab_labs.lab_10 import (
    faulty_fusion,
    fusing,
    fusing_graphs,
    graph_problems,
    pass_models,
    rewriting,
    rules,
)

drawn = drawn_cases("10-4", seconds=2)


def earned(cases, tries):
    """Return the points of each natural answer: one for validity, and its share of each part."""
    points = {}
    for case in cases:
        if case.part != "valid":
            obvious, least = case.facts["natural"], case.expected
            for name, found in fusing.natural(fusing.Masks(*case.args), tries):
                assert found >= least, (case.part, name)
                share = max(0, obvious - found) / (obvious - least)
                points[name] = points.get(name, 1) + (1 + (case.part == "large")) * share
    return points


def test_no_natural_answer_earns_most_points(drawn):
    _, _, cases = drawn
    scored = [case for case in cases if case.part != "valid"]
    for case in scored:
        found = dict(fusing.natural(fusing.Masks(*case.args), 2, case.part == "first"))
        print(case.part, "bound", case.expected, found)
        assert min(found.values()) > case.expected
        assert found["one node each"] > found["runs from the top"] >= case.facts["natural"]
        assert case.facts["natural"] == min(
            found["runs from the top"], found["merge the best pair"]
        )
    assert len(scored) == 3
    points = earned(cases, 30)  # 300 random orders
    print(points)
    for name in ("cut random orders", "move single nodes", "best pairs, random ties"):
        assert points[name] <= 4.1, name


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_a_thousand_random_orders_earn_four_points_at_most(monkeypatch, seed):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    points = earned(draw(find("10-4"), f"seed {seed}"), 100)
    print(points)
    for name in ("cut random orders", "move single nodes", "best pairs, random ties"):
        assert points[name] <= 4.1, name


def test_half_way_answers_earn_a_share(drawn):
    exercise, _, cases = drawn
    lab = find_lab("10", PROJECT / "labs")
    second = next(each[1] for each in answers_of(lab).alternative if each[0] == "10-4")
    best = judge(exercise, LocalAnswers(second), cases)  # another search reaches the bound, too
    assert [part.earned for part in best.parts] == [1, 1, 2, 1]
    for wrong in (each for each in answers_of(lab).wrong if each[0] == "10-4"):
        verdict = judge(exercise, LocalAnswers(wrong[1]), cases)
        print(verdict.points, wrong[2])
        assert verdict.points < 4


def partitions(names):
    """Yield every way to put names into groups."""
    if not names:
        yield []
        return
    for groups in partitions(names[1:]):
        yield [[names[0]], *groups]
        for place, group in enumerate(groups):
            yield [*groups[:place], [names[0], *group], *groups[place + 1 :]]


def test_the_bound_is_what_all_partitions_give(monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    module = sys.modules[type(find("10-4")).__module__]
    random, tried = np.random.default_rng(5), 0
    for rows, columns, most in [(2, 4, 4), (4, 2, 5), (2, 3, 3), (3, 2, 4), (7, 1, 3), (2, 4, 5)]:
        work, sizes, outputs, _ = fusing_graphs.net_work(random, rows, columns)
        masks = fusing.Masks(work, sizes, outputs, most)
        valid = (
            groups
            for groups in partitions(list(work))
            if not fusing.broken_rule(work, outputs, most, groups)
        )
        least = min(fusing.moved(work, sizes, outputs, groups) for groups in valid)
        for known in (least, least + 1, 2 * least):
            assert least == module.least_bytes(masks, known)
        assert least == module.least_bytes(masks)
        tried += least < fusing.moved(work, sizes, outputs, [[name] for name in work])
    assert tried > 4


def test_next_groups_are_those_that_keep_the_limits_and_wait_for_nothing():
    work, sizes, outputs, most = fusing.EXAMPLE
    masks = fusing.Masks(work, sizes, outputs, most)
    for done in ((), ("a",), ("a", "e"), ("a", "b", "c"), tuple(work)):
        left = [name for name in work if name not in done]
        right = [
            group
            for count in range(1, len(left) + 1)
            for group in map(list, itertools.combinations(left, count))
            if masks.cost(sum(1 << masks.names.index(name) for name in group)) is not None
            and {read for name in group for read in work[name][1]} & {*left} <= {*group}
        ]
        assert sorted(fusing.next_groups(work, outputs, most, done)) == sorted(right)


def test_groups_that_wait_for_each_other_are_refused():
    work = {
        "a": ("Relu", ("x",)),
        "b": ("Relu", ("a",)),
        "c": ("Tanh", ("x",)),
        "d": ("Relu", ("c",)),
    }
    for groups, words in (
        ([["a", "d"], ["b", "c"]], "in a circle"),
        ([[*"abcd"], []], "is empty"),
        ([["a", "b"], ["c"]], "d is in"),
        ([[*"abcde"]], "e is in"),
    ):
        assert words in fusing.broken_rule(work, ("b", "d"), 8, groups)
    assert fusing.broken_rule(work, ("b", "d"), 8, [["a", "b"], ["c", "d"]]) == ""


BROKEN = {
    "loses an output": ("lost the output|is neither", lambda nodes: nodes[:-1]),
    "reads what nobody makes": ("which no node makes", lambda nodes: nodes[1:]),
    "order": ("stands before", lambda nodes: nodes[::-1]),
    "two makers": ("already defined", lambda nodes: [*nodes, nodes[0]]),
    "type": ("changed", lambda nodes: [("a", "Transpose", ("x",), (2, 0, 1)), *nodes[1:]]),
    "operator": ("broke the graph", lambda nodes: [("a", "Nonsense", ("x",), ()), *nodes[1:]]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_never_leaves_as_pass(name):
    words, change = BROKEN[name]
    plain = rewriting.graph_of("a Transpose x 120; b Neg a; y Relu b", shape=(2, 3, 4))
    graph = pass_models.imported(rewriting.model(plain))
    with pytest.raises(AssertionError, match=words):
        rewriting.as_pass(lambda g: {**g, "nodes": change(g["nodes"])})(graph)
    assert rewriting.as_pass(lambda g: g)(graph) is graph


def test_merged_products_keep_values():
    random = np.random.default_rng(0)
    for a, b, merges in (((4, 9), (9, 5), True), ((4, 2), (2, 8), False), ((4, 2), (2, 4), False)):
        weights = {"A": random.normal(size=a), "B": random.normal(size=b)}
        graph = rewriting.graph_of("a MatMul x A; y MatMul a B", shape=(3, 4), **weights)
        after = rules.merge_products(graph)
        assert (len(after["nodes"]) == 1) == merges
        feed = rewriting.feed_of(graph, 0)
        np.testing.assert_allclose(
            rewriting.run(after, feed)["y"], rewriting.run(graph, feed)["y"], rtol=1e-4, atol=1e-5
        )


def test_undefined_orders_are_all_found():
    plain = rewriting.graph_of("a Relu x; b Neg a; y Tanh b")
    for order in itertools.permutations(plain["nodes"]):
        if order != tuple(plain["nodes"]):
            with pytest.raises(KeyError):
                rewriting.run({**plain, "nodes": order}, rewriting.feed_of(plain, 0))


PAIR = ("Tanh", "Sub")


def checks(monkeypatch):
    """Return the lab's definitions."""
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    return sys.modules[type(find("10-3")).__module__]


def drawn_pairs(random):
    """Return a drawn graph of at most six nodes in which pairs of nodes could be fused."""
    known, nodes, draw = ["x", "k"], [], lambda names: str(random.choice(names))
    for made in "abcdef"[: int(random.integers(2, 7))]:
        if random.random() < 0.5:
            nodes.append((made, str(random.choice(["Tanh", "Neg"])), (draw(known),), ()))
        else:
            nodes.append((made, "Sub", (draw(known[-2:]), draw(known)), ()))
        known.append(made)
    outputs = [name for name in known[2:] if random.random() < 0.2] or [known[-1]]
    empty = rewriting.graph_of("", shape=(2, 2), k=[[0.5, 2]])
    return {**empty, "nodes": nodes, "outputs": outputs}


def test_the_right_tests_change_no_output(monkeypatch):
    module, random, fused = checks(monkeypatch), np.random.default_rng(3), 0
    right = faulty_fusion.tests_of(module.RIGHT)
    for _ in range(200):
        graph = drawn_pairs(random)
        assert graph_problems.witness_problem(graph) == ""
        assert faulty_fusion.difference(graph, PAIR, right) == ""
        after = faulty_fusion.fuse_pairs(graph, PAIR, right)
        fused += len(after["nodes"]) < len(graph["nodes"])
    assert fused > 8


@pytest.mark.slow
def test_each_wrong_test_changes_outputs_of_drawn_graphs(monkeypatch):
    module, random = checks(monkeypatch), np.random.default_rng(4)
    found = dict.fromkeys(module.FAULTS, 0)
    for graph in (drawn_pairs(random) for _ in range(800)):
        for text, (name, *_) in module.FAULTS.items():
            wrong = faulty_fusion.tests_of({**module.RIGHT, name: text})
            found[text] += bool(faulty_fusion.difference(graph, PAIR, wrong))
    print(found)
    assert min(found.values()) > 0


@pytest.mark.slow
def test_no_smaller_witness_exists(monkeypatch):
    module = checks(monkeypatch)
    constants = {"k": [2.0], "m": [[2.0]], "n": [3.0, 4.0]}
    given, found = ["x", *constants], dict.fromkeys(module.FAULTS, 9)
    tests = {
        text: faulty_fusion.tests_of({**module.RIGHT, name: text})
        for text, (name, *_) in module.FAULTS.items()
    }

    def nodes_of(made, known):
        for op, one in itertools.product(("Tanh", "Neg"), known):
            yield made, op, (one,), ()
        yield from ((made, "Transpose", (one,), (1, 0)) for one in known)
        yield from ((made, "Sub", two, ()) for two in itertools.product(known, known))

    for first, second in itertools.product(nodes_of("a", given), nodes_of("b", [*given, "a"])):
        for nodes, outputs in (
            ([first], ["a"]),
            ([first, second], ["b"]),
            ([first, second], ["a", "b"]),
            ([first, second], ["b", "a"]),
        ):
            graph = {
                **rewriting.graph_of("", shape=(2, 2), **constants),
                "nodes": nodes,
                "outputs": outputs,
            }
            if second[2][0] == "a" and not graph_problems.witness_problem(graph):
                for text, may_fuse in tests.items():
                    if faulty_fusion.difference(graph, PAIR, may_fuse):
                        found[text] = min(found[text], len(nodes))
    print(found)
    for text, (_, least, *_) in module.FAULTS.items():
        assert found[text] == (least if least < 3 else 9), text


MALFORMED = {
    "expected a graph, a dictionary": lambda graph: graph["nodes"],
    "expected 1 to 12 nodes, got 0": lambda graph: {**graph, "nodes": []},
    "expected 1 to 12 nodes, got 13": lambda graph: {**graph, "nodes": graph["nodes"] * 6 + [1]},
    "expected no more than": lambda graph: {**graph, "infos": {"a": ("float32", (9,))}},
    "names are texts": lambda graph: {**graph, "nodes": [(1, "Neg", ("x",), ())]},
    "expected a node (made": lambda graph: {**graph, "nodes": ["a Neg x"]},
    "there is no operator 'Foo'": lambda graph: changed(graph, op="Foo"),
    "there is no operator 'Tanh>Sub'": lambda graph: changed(graph, op="Tanh>Sub"),
    "there is no operator ['Neg']": lambda graph: changed(graph, op=["Neg"]),
    "'b': Neg reads 1 value": lambda graph: changed(graph, reads=("a", "x")),
    "'b': Add reads 2 values": lambda graph: changed(graph, op="Add"),
    "and has no perm": lambda graph: changed(graph, perm=(1, 0)),
    "the shapes of its operands do not fit": lambda graph: changed(
        graph, op="Transpose", perm=(0, 0)
    ),
    "'b' reads 'q', which nobody makes": lambda graph: changed(graph, reads=("q",)),
    "'b' reads 'b', which it, or a later node, makes": lambda graph: changed(graph, reads=("b",)),
    "'b' reads 'a', which it, or a later": lambda graph: {**graph, "nodes": graph["nodes"][::-1]},
    "'a' is made twice": lambda graph: changed(graph, made="a"),
    "'x' is made twice": lambda graph: changed(graph, made="x"),
    "different names, got []": lambda graph: {**graph, "outputs": []},
    "different names, got ['b', 'b']": lambda graph: {**graph, "outputs": ["b", "b"]},
    "different names, got 'b'": lambda graph: {**graph, "outputs": "b"},
    "no node makes the output 'x'": lambda graph: {**graph, "outputs": ["x"]},
    "'x' has no elements": lambda graph: {**graph, "inputs": {"x": ("float32", (0, 2))}},
    "'x' has shape": lambda graph: {**graph, "inputs": {"x": ("float32", (9, 9))}},
    "shape (-1)": lambda graph: {**graph, "inputs": {"x": ("float32", (-1,))}},
    "float32 numbers": lambda graph: {**graph, "inputs": {"x": ("int32", (2, 2))}},
    "'k' does not consist of finite": lambda graph: with_k(graph, np.float32([np.nan])),
    "the constant 'k' is no array": lambda graph: with_k(graph, 1.0),
    "'x' is an input and a constant": lambda graph: {**graph, "constants": {"x": np.ones(1)}},
    "in the form that graph_of gives it": lambda graph: {**graph, "inputs": ["x"]},
}


def changed(graph, **parts):
    """Return the graph with another second node."""
    node = {"made": "b", "op": "Neg", "reads": ("a",), "perm": (), **parts}
    return {**graph, "nodes": [graph["nodes"][0], tuple(node.values())]}


def with_k(graph, value):
    """Return the graph with a constant k."""
    return {**graph, "constants": {"k": value}}


@pytest.mark.parametrize("says", MALFORMED)
def test_a_malformed_witness_is_named(says):
    graph = rewriting.graph_of("a Tanh x; b Neg a", "b", (2, 2))
    assert graph_problems.witness_problem(graph) == ""
    assert says in graph_problems.witness_problem(MALFORMED[says](graph))
