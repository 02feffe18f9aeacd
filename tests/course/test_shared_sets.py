"""The scored exercise of lab 04c: its bound is exact, and no obvious answer reaches it."""

from __future__ import annotations

from support.course.scored import drawn_cases
from vklab_course.author import trials
from vklab_course.author.lab import find_lab
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.places import PROJECT

drawn = drawn_cases("04c-2")


def all_partitions(kernels, limit):
    """Yield (descriptors, lists of kernels) of every valid answer."""

    def place(left, sets):
        if not left:
            yield sum(len(buffers) for buffers, _ in sets), [names for _, names in sets]
            return
        name, new = left[0], set(kernels[left[0]])
        yield from place(left[1:], [*sets, (new, [name])])
        for n, (buffers, names) in enumerate(sets):
            if len(buffers | new) <= limit:
                yield from place(
                    left[1:], [*sets[:n], (buffers | new, [*names, name]), *sets[n + 1 :]]
                )

    yield from place(list(kernels), [])


def test_no_obvious_answer_reaches_the_exact_bound(drawn):
    _, module, cases = drawn
    scored = [case for case in cases if case.part != "valid"]
    for case in scored:
        costs = module.obvious(*case.args)
        print("limit", case.args[1], "bound", case.expected, "obvious:", costs)
        assert case.expected == min(cost for cost, _ in all_partitions(*case.args))
        assert len(costs) == 6 and min(costs.values()) > case.expected
        if case.part != "picture":
            assert min(costs.values()) >= case.expected + 2
    assert len(scored) == 4 and [case.args[1] for case in scored[:3]] == [4, 4, 4]


def test_the_score_lies_between_first_fit_and_the_bound(drawn):
    exercise, _, cases = drawn
    lab = find_lab("04c", PROJECT / "labs")
    fewest = judge(exercise, LocalAnswers(trials.answer_of(lab, "04c-2")), cases)
    alone = judge(exercise, LocalAnswers(lambda kernels, limit: [[k] for k in kernels]), cases)
    print(fewest, alone, sep="\n")
    assert [part.earned for part in fewest.parts] == [1, 1, 1, 1, 1]
    assert [part.earned for part in alone.parts] == [1, 0, 0, 0, 0]
