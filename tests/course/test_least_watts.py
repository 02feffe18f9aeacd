"""The scored exercise of lab 01b: its bound is exact, and no obvious answer reaches it."""

from __future__ import annotations

from support.course.scored import drawn_cases
from vklab_course.author import trials
from vklab_course.author.answers import answers_of
from vklab_course.author.lab import find_lab
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.places import PROJECT

drawn = drawn_cases("01b-4")


def partitions(names):
    """Yield every way to split names into groups."""
    if not names:
        yield []
        return
    for smaller in partitions(names[1:]):
        yield [[names[0]], *smaller]
        for place, group in enumerate(smaller):
            yield [*smaller[:place], [names[0], *group], *smaller[place + 1 :]]


def test_no_obvious_answer_reaches_the_exact_bound(drawn):
    _, module, cases = drawn
    scored = [case for case in cases if case.part != "valid"]
    for case in scored:
        boards, models = case.args
        watts = module.obvious(boards, models)
        print("bound", case.expected, "obvious:", watts)
        price = module.prices(boards, models)
        assert case.expected == min(
            sum(price(group) for group in groups) for groups in partitions(list(models))
        )
        assert min(watts.values()) > case.expected
    assert len(scored) == 4


def test_the_score_lies_between_the_obvious_answers_and_the_bound(drawn):
    exercise, _, cases = drawn
    lab = find_lab("01b", PROJECT / "labs")
    best = judge(exercise, LocalAnswers(trials.answer_of(lab, "01b-4")), cases)
    assert [part.earned for part in best.parts] == [1, 1, 1, 1, 1]
    for key, answer, says, _ in answers_of(lab).wrong:
        if key == "01b-4" and "obvious" in says:
            verdict = judge(exercise, LocalAnswers(answer), cases)
            print(answer.__name__, [round(part.earned, 2) for part in verdict.parts])
            assert verdict.parts[0].earned == 1 and verdict.points < 5
