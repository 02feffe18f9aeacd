"""The scored exercise of lab 03: its optimum is exact, and better orders earn a share."""

from __future__ import annotations

import itertools

from support.course.scored import drawn_cases
from vklab_course.author import trials
from vklab_course.author.answers import answers_of
from vklab_course.author.lab import find_lab
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.places import PROJECT
from vklab_labs.lab_03 import placing

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


def test_the_optimum_is_exact_and_a_better_order_earns_a_share_of_each_list(drawn):
    _, module, cases = drawn
    scored = [case for case in cases if case.part != "valid"]
    for case in scored:
        rules, obvious = placing.greedy(*case.args), case.facts["obvious"]
        share = (obvious - min(rules.values())) / (obvious - case.expected)
        print(f"fewest {case.expected}, share {share:.2f}, greedy {rules}")
        assert 0.25 <= share <= 0.75
        few = dict(list(case.args[0].items())[:7])
        assert module.fewest(few, case.args[1]).min() == fewest(few, case.args[1])
    assert len(scored) == 4


def most_saved_first(buffers, heaps):
    """Place the buffer first that loses most in host memory."""
    left, placed = placing.rooms(heaps), {}
    for name in sorted(
        buffers,
        key=lambda each: (
            min(placing.moved(buffers[each], heap) for heap in heaps) - buffers[each][2]
        ),
    ):
        able = [heap for heap in heaps if left[heap] >= buffers[name][0]]
        placed[name] = min(able, key=lambda heap, name=name: placing.moved(buffers[name], heap))
        left[placed[name]] -= buffers[name][0]
    return placed


def local_search(buffers, heaps):
    """Improve a greedy placement: move one buffer or two at a time as long as that helps."""
    room, placed = placing.rooms(heaps), most_saved_first(buffers, heaps)

    def cost(choice):
        loads = {
            heap: sum(buffers[name][0] for name in choice if choice[name] == heap) for heap in heaps
        }
        fits = all(loads[heap] <= room[heap] for heap in heaps)
        return sum(placing.moved(buffers[n], h) for n, h in choice.items()) if fits else 10**9

    while True:
        tried = [
            {**placed, one: there, two: here}
            for one, two in itertools.combinations(buffers, 2)
            for there, here in itertools.product(heaps, repeat=2)
        ]
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
    assert 1.3 < greedy < searched
    right = [each[1] for each in answers.alternative if each[0] == "03-4"]
    assert all(points(each) == 5 for each in [*right, trials.answer_of(lab, "03-4")])


def test_the_picture_of_the_lab_is_the_first_greedy_rule():
    source = find_lab("03", PROJECT / "labs").path.read_text("utf-8")
    end = source.index("figures.draw_placed(BUFFERS, HEAPS, GIVEN")
    text = source[source.index("BUFFERS = {") : end]
    names: dict = {}
    exec(text, names)
    total = sum(
        placing.moved(names["BUFFERS"][name], heap) for name, heap in names["GIVEN_ORDER"].items()
    )
    rules = placing.greedy(names["BUFFERS"], names["HEAPS"])
    assert total == rules["in the given order"] == min(rules[each] for each in placing.OBVIOUS)
