"""The scored exercise of lab 02: its bound is exact, and no natural answer reaches it.

`pytest -s` prints the bytes of each natural answer.
"""

from __future__ import annotations

import itertools

from support.course.scored import drawn_cases
from vklab_course.author import trials
from vklab_course.author.lab import find_lab
from vklab_course.definition.judge import LocalAnswers, judge
from vklab_course.places import PROJECT
from vklab_labs.shared.machines import ten_devices

drawn = drawn_cases("02-4", seconds=3)


def fewest(sizes, values):
    """Return the bytes of the best list, by trying all lists."""
    lists = (
        some for count in range(1, len(sizes) + 1) for some in itertools.combinations(sizes, count)
    )
    rows = {some: list(zip(*(values[name] for name in some), strict=True)) for some in lists}
    return min(
        sum(sizes[name] for name in some) for some, row in rows.items() if len(set(row)) == len(row)
    )


def naturals(module, sizes, values):
    return module.natural_bytes(sizes, module.pairs_told(values))


def test_no_natural_answer_reaches_the_exact_bound(drawn):
    _, module, cases = drawn
    for case in cases:
        assert case.expected == fewest(*case.args)
    scored = [case for case in cases if case.part != "valid"]
    for case in scored:
        natural = naturals(module, *case.args)
        print(f"{case.part}: bound {case.expected}, {natural}")
        plain = [size for title, size in natural.items() if "thinned" not in title]
        assert len(plain) == 5 and min(natural.values()) > case.expected
        assert case.facts["natural"] == min(plain) >= case.expected + 2
    assert len(scored) == 3


def test_the_devices_of_the_notebook_are_hard_too(drawn):
    _, module, _ = drawn
    sizes, values = ten_devices()
    natural = naturals(module, sizes, values)
    print("bound", fewest(sizes, values), natural)
    assert fewest(sizes, values) == 10 < min(natural.values())


def test_the_score_lies_between_the_natural_answers_and_the_bound(drawn):
    exercise, _, cases = drawn
    solution = trials.answer_of(find_lab("02", PROJECT / "labs"), "02-4")

    def thinned(sizes, values):
        """Leave out the dearest fields that are not needed, from all fields or from the cheap."""
        chosen = sorted(sizes, key=sizes.get)
        for name in chosen[::-1]:
            fewer = [other for other in chosen if other != name]
            rows = list(zip(*(values[name] for name in fewer), strict=True))
            chosen = fewer if rows and len(set(rows)) == len(rows) else chosen
        return chosen

    earned = {}
    for answer in (solution, thinned, lambda sizes, values: list(sizes)):
        verdict = judge(exercise, LocalAnswers(answer), cases)
        print(answer.__name__, [round(part.earned, 2) for part in verdict.parts])
        earned[answer.__name__] = [part.earned for part in verdict.parts]
    assert earned["tell_apart"] == [1, 1, 1, 1] and earned["<lambda>"] == [1, 0, 0, 0]
    assert earned["thinned"][0] == 1 and max(earned["thinned"][1:]) < 1
