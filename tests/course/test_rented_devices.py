"""The scored exercise of lab 02b: its bound is exact, and no obvious answer reaches it.

Nor does the best of several greedy passes. `pytest -s` prints what each of them needs.
"""

from __future__ import annotations

import itertools
import math
import random

from support.course.scored import drawn_cases
from vklab_course.author import trials
from vklab_course.author.lab import find_lab
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.places import PROJECT

drawn = drawn_cases("02b-2", seconds=2)


def price_of(devices, choice):
    return sum(devices[name][0] for name in set(choice.values()))


def all_choices(devices, programs):
    """Yield every valid choice."""
    for names in itertools.product(*(suited for _, suited in programs.values())):
        load = dict.fromkeys(names, 0)
        for name, (mib, _) in zip(names, programs.values(), strict=True):
            load[name] += mib
        if all(mib <= devices[name][1] for name, mib in load.items()):
            yield dict(zip(programs, names, strict=True))


def greedy(devices, programs, names, order, rank):
    """Place the programs in an order, each on the device of the least rank; None if one fails."""
    left, choice = {name: devices[name][1] for name in names}, {}
    for program in order:
        mib, suited = programs[program]
        fits = [name for name in suited if left.get(name, -1) >= mib]
        if not fits:
            return None
        best = choice[program] = min(fits, key=lambda name: rank(name, left, choice))
        left[best] -= mib
    return choice


def obvious(devices, programs):
    """Return the cheaper of two greedy passes: a device in use, else the cheapest that fits."""
    orders = (programs, sorted(programs, key=lambda name: -programs[name][0]))
    found = [
        greedy(
            devices,
            programs,
            devices,
            order,
            lambda name, left, choice: (name not in choice.values(), devices[name][0]),
        )
        for order in orders
    ]
    return min(filter(None, found), key=lambda choice: price_of(devices, choice), default={})


def best_of_passes(module, devices, programs):
    """Return what the first set by price holds that one of twelve passes fills."""
    for _, names in module.sets_of(devices, programs):
        for order, sign in itertools.product(module.orders_of(programs), (0, 1, -1)):
            choice = greedy(
                devices,
                programs,
                names,
                order,
                lambda name, left, _, sign=sign: (sign * left[name], name),
            )
            if choice is not None:
                return choice
    raise AssertionError("no pass fills any set")


def test_no_natural_answer_reaches_the_bound(drawn):
    exercise, module, cases = drawn
    for case in (case for case in cases if case.part != "valid"):
        devices, programs = case.args
        names, shuffle = list(programs), random.Random(1)
        orders = [shuffle.sample(names, len(names)) for _ in range(100)]
        passes = price_of(devices, best_of_passes(module, devices, programs))
        natural = module.obvious(devices, programs)
        print(
            f"{case.part}: bound {case.expected}, obvious {natural}, best of 12 passes {passes}, "
            f"of 300 with drawn orders {module.in_passes(devices, programs, orders)}"
        )
        assert min(*natural.values(), passes) > case.expected
        assert passes == module.in_passes(devices, programs, module.orders_of(programs))
    assert len({case.part for case in cases}) == 5


def test_the_bound_is_exact(drawn):
    _, _, cases = drawn
    solution = trials.answer_of(find_lab("02b", PROJECT / "labs"), "02b-2")
    tried = 0
    for devices, programs, bound in ((*case.args, case.expected) for case in cases):
        assert price_of(devices, solution(devices, programs)) == bound
        if math.prod(len(suited) for _, suited in programs.values()) < 20_000:
            choices = all_choices(devices, programs)
            assert bound == min(price_of(devices, choice) for choice in choices)
            tried += 1
    assert tried >= 4


def test_the_score_lies_between_the_obvious_answer_and_the_bound(drawn):
    exercise, module, cases = drawn
    solution = trials.answer_of(find_lab("02b", PROJECT / "labs"), "02b-2")
    earned = {}
    for title, answer in (
        ("cheapest", solution),
        ("obvious", obvious),
        ("best of 12 passes", lambda *lists: best_of_passes(module, *lists)),
    ):
        verdict = judge(exercise, LocalAnswers(answer), cases)
        print(title, verdict.points, [round(part.earned, 2) for part in verdict.parts])
        earned[title] = [part.earned for part in verdict.parts]
    assert earned["cheapest"] == [1, 1, 1, 1, 1] and earned["obvious"] == [1, 0, 0, 0, 0]
    assert max(earned["best of 12 passes"][1:]) <= 0.6


def test_an_answer_that_does_not_end_keeps_the_points_of_the_lists_before(drawn):
    exercise, _, cases = drawn
    solution = trials.answer_of(find_lab("02b", PROJECT / "labs"), "02b-2")

    def hangs(devices, programs):
        while len(programs) > 9:
            pass
        return solution(devices, programs)

    verdict = judge(exercise, LocalAnswers(hangs, seconds=1), cases)
    assert [part.earned for part in verdict.parts] == [1, 1, 1, 1, 0]
    assert "did not end in time" in verdict.parts[-1].message
