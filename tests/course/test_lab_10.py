"""Lab 10: the bound of its scored exercise is exact; rules are verified before they run."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest
from scored import drawn_cases

from vklab.course.author.answers import answers_of
from vklab.course.author.lab import find_lab
from vklab.course.definition.exercise import find
from vklab.course.definition.judge import LocalAnswers, judge
from vklab.course.labs import fusing, pass_models, rewriting, rules
from vklab.course.places import PROJECT

drawn = drawn_cases("10-4", seconds=3)


def test_no_natural_answer_reaches_the_bound(drawn):
    _, module, cases = drawn
    scored = [case for case in cases if case.part != "valid"]
    for case in scored:
        found = fusing.natural(fusing.Masks(*case.args), 1)
        print(case.part, "bound", case.expected, found)
        assert min(found.values()) > case.expected
        assert found["one node each"] > found["runs from the top"]
    assert len(scored) == 4


def test_a_thousand_random_merges_do_not_solve_the_first_graph(drawn):
    _, module, cases = drawn
    case = next(case for case in cases if case.part == "first")
    found = fusing.natural(fusing.Masks(*case.args), 1000)
    print("bound", case.expected, found)
    assert min(found.values()) > case.expected


def test_half_way_answers_earn_a_share(drawn):
    exercise, _, cases = drawn
    lab = find_lab("10", PROJECT / "labs")
    second = next(each[1] for each in answers_of(lab).alternative if each[0] == "10-4")
    assert [part.earned for part in judge(exercise, LocalAnswers(second), cases).parts] == [1] * 5
    for wrong in (each for each in answers_of(lab).wrong if each[0] == "10-4"):
        verdict = judge(exercise, LocalAnswers(wrong[1]), cases)
        print(verdict.points, wrong[2])
        assert verdict.points < 5


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
    for _ in range(12):
        work, sizes, outputs, most = fusing.irregular_work(random, 7)
        masks = fusing.Masks(work, sizes, outputs, most)
        if any(masks.cost(1 << n) is None for n in range(7)):
            continue
        valid = (groups for groups in partitions(list(work))
                 if not fusing.broken_rule(work, outputs, most, groups))  # fmt: skip
        least = min(fusing.moved(work, sizes, outputs, groups) for groups in valid)
        assert least == module.least_bytes(masks)
        tried += 1
    assert tried > 5


def test_groups_that_wait_for_each_other_are_refused():
    work = {"a": ("Relu", ("x",)), "b": ("Relu", ("a",)), "c": ("Tanh", ("x",)),
            "d": ("Relu", ("c",))}  # fmt: skip
    for groups, words in (([["a", "d"], ["b", "c"]], "in a circle"), ([[*"abcd"], []], "is empty"),
                          ([["a", "b"], ["c"]], "d is in"), ([[*"abcde"]], "e is in")):
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
        np.testing.assert_allclose(rewriting.run(after, feed)["y"], rewriting.run(graph, feed)["y"],
                                   rtol=1e-4, atol=1e-5)  # fmt: skip


def test_undefined_orders_are_all_found():
    plain = rewriting.graph_of("a Relu x; b Neg a; y Tanh b")
    for order in itertools.permutations(plain["nodes"]):
        if order != tuple(plain["nodes"]):
            with pytest.raises(KeyError):
                rewriting.run({**plain, "nodes": order}, rewriting.feed_of(plain, 0))
