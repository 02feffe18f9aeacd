"""The stub sees an argument that an answer has changed, and takes no iterator for a list."""

from __future__ import annotations

import numpy as np
import pytest

from vklab_course.author import trials
from vklab_course.definition import stub
from vklab_course.definition.case import Case
from vklab_course.definition.draw import draw
from vklab_course.definition.exercise import Function
from vklab_course.definition.judge import CHANGED, LocalAnswers, judge


class Total(Function):
    id = "98-2"
    parts = {"sum": ("the sum of a nested list", 2), "raised": ("an empty one", 1)}

    def cases(self, random):
        yield Case("sum", ([[1, 2], [3]],), {"more": {"a": np.arange(3)}})
        yield Case("sum", (), {"rows": [[4]], "more": {}})
        yield Case("raised", ([], {}))

    def expected(self, case):
        rows = case.args[0] if case.args else case.named["rows"]
        if not rows:
            raise ValueError
        return [sum(map(sum, rows)), bool(len(rows) % 2)]


def total(change):
    def answer(rows, more):
        right = [sum(map(sum, rows)), bool(len(rows) % 2)]
        change(rows, more)
        if not rows:
            raise ValueError
        return right

    return judge(Total(), LocalAnswers(answer), draw(Total(), "secret"))


@pytest.mark.parametrize(("change", "name"), [
    (lambda rows, more: rows.append([]), "rows"), (lambda rows, more: rows[0].pop(), "rows"),
    (lambda rows, more: rows[0].sort(reverse=True), "rows"),
    (lambda rows, more: more.get("a", np.zeros(1)).put(0, 9), "more"),
    (lambda rows, more: more.update(b=object()), "more"),
    (lambda rows, more: rows.append(rows) if rows else None, "rows"),
])  # fmt: skip
def test_an_answer_that_changes_its_arguments_is_told_which(change, name):
    verdict = total(change)
    assert verdict.parts[0].message.endswith(f"your function changed its argument {name}")
    assert verdict.messages == (CHANGED,) and "change a copy" in CHANGED


@pytest.mark.parametrize("change", [
    lambda rows, more: None, lambda rows, more: list(rows).append(1),
    lambda rows, more: more.update(a=more.pop("a")) if more else None,
])  # fmt: skip
def test_an_answer_that_leaves_its_arguments_as_they_are_is_right(change):
    assert total(change).status == "correct"


def test_arguments_that_an_answer_does_not_name_are_counted():
    verdict = judge(
        Total(),
        LocalAnswers(lambda *rows, **more: (rows or more["rows"]).append([])),
        draw(Total(), "secret"),
    )
    assert "changed its argument" not in str(verdict)  # the value is wrong: that comes first
    assert stub._by_name(lambda *given: 0, ([1], 2)) == {"number 1": [1], "number 2": 2}
    assert stub._by_name(max, ([1],)) == {"number 1": [1]}


def test_a_stub_that_sees_no_change_is_found_with_every_solution(monkeypatch):
    exercise, cases = Total(), draw(Total(), "secret")

    def solution(rows, more):
        return [sum(map(sum, rows)), bool(len(rows) % 2)] if rows else int("")

    assert not trials._changing(exercise, solution, cases)
    monkeypatch.setattr(stub, "_state", lambda value: b"")
    (problem,) = trials._changing(exercise, solution, cases)
    assert "98-2: the solution may change its arguments in place" in problem


def test_an_iterator_is_refused_and_a_number_stands_for_a_bool():
    def generator(rows, more):
        return (n for n in (sum(map(sum, rows)), bool(len(rows) % 2)))

    def number(rows, more):
        return (np.int64(sum(map(sum, rows))), len(rows) % 2) if rows else int("")

    once = "returned something of type generator, which can be read only once: return a list of it"
    answers = {once: generator, "correct": number}
    for said, answer in answers.items():
        assert said in str(judge(Total(), LocalAnswers(answer), draw(Total(), "secret")))
