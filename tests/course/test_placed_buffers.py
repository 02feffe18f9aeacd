"""The scored exercise of lab 03: its optimum is exact, and no greedy rule reaches it."""

from __future__ import annotations

import itertools

import numpy as np
from scored import drawn_cases

from vklab.course.author import trials
from vklab.course.author.answers import answers_of
from vklab.course.author.lab import find_lab
from vklab.course.definition.judge import LocalAnswers, judge
from vklab.course.labs import placing
from vklab.course.places import PROJECT

drawn = drawn_cases("03-4")


def fewest(buffers, heaps):
    """Return the fewest MiB over the bus by trying every placement of the first buffers."""
    room, costs = placing.rooms(heaps), []
    for placed in itertools.product(placing.HEAPS, repeat=len(buffers)):
        load = dict.fromkeys(heaps, 0)
        for (size, _, _), heap in zip(buffers.values(), placed, strict=True):
            load[heap] += size
        if all(load[heap] <= room[heap] for heap in heaps):
            costs.append(sum(map(placing.moved, buffers.values(), placed)))
    return min(costs)


def test_no_greedy_rule_reaches_the_optimum_and_the_bound_lies_below(drawn):
    _, module, cases = drawn
    scored = [case for case in cases if case.part != "valid"]
    for case in scored:
        rules, bound = placing.greedy(*case.args), placing.linear_bound(*case.args)
        print(f"bound {bound:.1f}, fewest {case.expected}, greedy {rules}")
        assert bound <= case.expected + 1e-6 and case.expected < min(rules.values())
        few = dict(list(case.args[0].items())[:7])
        exact = module.least(few, case.args[1])
        assert exact == fewest(few, case.args[1])
        assert placing.linear_bound(few, case.args[1]) <= exact + 1e-6
    assert len(scored) == 5


def most_saved_first(buffers, heaps):
    """Place the buffer first that loses most in host memory."""
    left, placed = placing.rooms(heaps), {}
    for name in sorted(buffers, key=lambda each: min(
            placing.moved(buffers[each], heap) for heap in heaps) - buffers[each][2]):  # fmt: skip
        able = [heap for heap in heaps if left[heap] >= buffers[name][0]]
        placed[name] = min(able, key=lambda heap, name=name: placing.moved(buffers[name], heap))
        left[placed[name]] -= buffers[name][0]
    return placed


def local_search(buffers, heaps):
    """Improve a greedy placement: move one buffer or two at a time as long as that helps."""
    room, placed = placing.rooms(heaps), most_saved_first(buffers, heaps)

    def cost(choice):
        loads = {heap: sum(buffers[name][0] for name in choice if choice[name] == heap)
                 for heap in heaps}  # fmt: skip
        fits = all(loads[heap] <= room[heap] for heap in heaps)
        return sum(placing.moved(buffers[n], h) for n, h in choice.items()) if fits else 10**9

    while True:
        tried = [{**placed, one: there, two: here}
                 for one, two in itertools.combinations(buffers, 2)
                 for there, here in itertools.product(heaps, repeat=2)]  # fmt: skip
        best = min(tried, key=cost, default=placed)
        if cost(best) >= cost(placed):
            return placed
        placed = best


def test_obvious_answers_earn_nothing_better_ones_a_share_and_both_solutions_all(drawn):
    exercise, _, cases = drawn
    lab = find_lab("03", PROJECT / "labs")
    answers = answers_of(lab)

    def points(answer):
        verdict = judge(exercise, LocalAnswers(answer), cases)
        print(getattr(answer, "__name__", ""), [round(part.earned, 2) for part in verdict.parts])
        return verdict.points

    listed = [each[1] for each in answers.wrong if each[0] == "03-4" and "MiB over" in each[2]]
    assert len(listed) == 4 and all(1 <= points(answer) < 4 for answer in listed)
    assert points(lambda buffers, heaps: dict.fromkeys(buffers, "host")) == 1
    greedy, searched = points(most_saved_first), points(local_search)
    assert 1 <= greedy <= searched and greedy < 3
    right = [each[1] for each in answers.alternative if each[0] == "03-4"]
    assert all(points(each) == 5 for each in [*right, trials.answer_of(lab, "03-4")])


def test_how_often_a_greedy_rule_is_the_best_there_is(drawn):
    _, module, _ = drawn
    lists = module.lists(np.random.default_rng(0))
    each = [next(lists) for _ in range(60)]
    best = sum(module.least(*one) == min(placing.greedy(*one).values()) for one in each)
    print(f"the best of {len(placing.greedy(*each[0]))} rules is optimal in {best} of 60 lists")
    assert 10 < best < 50


def test_the_picture_of_the_lab_is_the_first_greedy_rule():
    source = find_lab("03", PROJECT / "labs").path.read_text("utf-8")
    end = source.index("figures.draw_placed(BUFFERS, HEAPS, GIVEN")
    text = source[source.index("BUFFERS = {") : end]
    names: dict = {}
    exec(text, names)
    total = sum(placing.moved(names["BUFFERS"][name], heap)
                for name, heap in names["GIVEN_ORDER"].items())  # fmt: skip
    rules = placing.greedy(names["BUFFERS"], names["HEAPS"])
    assert total == rules["in the given order"] == min(rules.values())
