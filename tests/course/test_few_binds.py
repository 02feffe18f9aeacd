"""The scored exercise of lab 05: its bound is exact, and no natural answer reaches it."""

from __future__ import annotations

from support.course.scored import drawn_cases
from vklab_course.author import trials
from vklab_course.author.answers import answers_of
from vklab_course.author.lab import find_lab
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.places import PROJECT
from vklab_labs.lab_05.ordering import binds_of, broken
from vklab_labs.lab_05.pipelines import draw_order

drawn = drawn_cases("05-5")


def fewest(dispatches, done=frozenset(), bound="", known=None):
    """Return the fewest binds from a set on, one dispatch at a time: slower, and without runs."""
    known = {} if known is None else known
    if len(done) == len(dispatches):
        return 0
    if (done, bound) not in known:
        ready = [
            (name, pipeline)
            for name, (pipeline, earlier) in dispatches.items()
            if name not in done and done.issuperset(earlier)
        ]
        known[done, bound] = min(
            (pipeline != bound) + fewest(dispatches, done | {name}, pipeline, known)
            for name, pipeline in ready
        )
    return known[done, bound]


def test_no_natural_answer_reaches_the_exact_bound(drawn):
    _, module, cases = drawn
    scored = [case for case in cases if case.part in ("first", "second", "third")]
    for case in scored:
        binds = module.natural_binds(case.args[0])
        print("bound", case.expected, "natural:", binds)
        assert min(binds.values()) > case.expected
        obvious = min(binds["longest run first"], binds["lowest number first"])
        assert case.facts["natural"] == obvious > case.expected + 1
    small = next(case for case in cases if case.part == "picture")
    assert small.facts["natural"] == module.natural_binds(small.args[0])["lowest number first"] == 7
    for case in (small, scored[0]):
        assert case.expected == fewest(case.args[0])
    assert len(scored) == 3


def test_the_score_lies_between_the_obvious_order_and_the_bound(drawn):
    exercise, _, cases = drawn
    lab = find_lab("05", PROJECT / "labs")
    best = judge(exercise, LocalAnswers(trials.answer_of(lab, "05-5")), cases)
    greedy = next(each[1] for each in answers_of(lab).wrong if each[2].startswith("8 binds"))
    worst = judge(exercise, LocalAnswers(greedy), cases)
    print(best, worst, sep="\n")
    assert [part.earned for part in best.parts] == [1, 1, 1, 1, 1]
    assert [part.earned for part in worst.parts] == [1, 0, 0, 0, 0]


def test_an_order_is_counted_by_the_changes_of_its_pipeline():
    dispatches = {"a": ("conv", ()), "b": ("relu", ()), "c": ("conv", ("a",))}
    assert [binds_of(dispatches, order) for order in ("", "a", "abc", "acb")] == [0, 1, 3, 2]
    assert [bool(broken(dispatches, order)) for order in ("abc", "acb", "ab", "cab")] == [
        False,
        False,
        True,
        True,
    ]
    html = draw_order(dispatches, {"good": "acb", "bad": "cab"}, "caption")._repr_html_()
    assert "2 binds" in html and html.count("not valid") == 1
