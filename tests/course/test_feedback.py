"""Feedback on a wrong answer: one mistake, one heading; the case as a call; nothing else."""

from __future__ import annotations

from graphlib import TopologicalSorter

import numpy as np
import pytest

from vklab_course import check, given
from vklab_course.author import trials
from vklab_course.author.lab import find_lab
from vklab_course.check import check_answer
from vklab_course.definition import calls
from vklab_course.definition.case import Case
from vklab_course.definition.codec import decode, encode
from vklab_course.definition.draw import draw, public_cases
from vklab_course.definition.exercise import Function, exercises_of, find
from vklab_course.places import PROJECT


class Halves(Function):
    """Halves of a number, and of a list that has two; -1 is refused."""

    id = "98-7"
    parts = {"number": ("half of a number", 1), "pair": ("halves of a pair", 2),
             "many": ("halves of a list", 1)}  # fmt: skip
    follows = {"pair": "number"}

    def cases(self, random):
        yield Case("number", (4,))
        yield Case("number", (7,), {"whole": True})
        yield Case("number", (-1,), on="a negative number")
        yield Case("pair", ([4, 6],))
        yield Case("many", ([7, 1, 2],), {"whole": True}, mixed=True)
        yield Case("many", (list(range(300)),), mixed=True)

    def expected(self, case):
        values, whole = case.args[0], case.named.get("whole", False)
        if values == -1:
            raise ValueError
        listed = values if isinstance(values, list) else [values]
        halves = [value // 2 if whole else value / 2 for value in listed]
        return halves if isinstance(values, list) else halves[0]


def halves(change):
    """Return the verdict on a right answer that `change` may replace: (values, whole) -> result."""

    def answer(values, whole=False):
        print("asked", len(values) if isinstance(values, list) else values)
        right = Halves().expected(Case("", (values,), {"whole": whole}))
        return change(values, whole, right)

    return check_answer(Halves(), answer, cases=draw(Halves(), "s"))


def lines(verdict):
    return [line.strip() for line in str(verdict).splitlines()]


# ------------------------------------------------------------------------------------ one heading


def test_an_error_is_told_once_with_the_expected_value_and_how_often_it_came():
    def fails(values, whole, right):
        raise KeyError("x")

    verdict = halves(fails)
    first, *others = verdict.parts
    assert first.message.startswith("halves(4)\nraised KeyError: 'x'")
    assert first.message.endswith("; expected 2; the same error in 5 of 6 cases")
    follows = "this may follow from 'half of a number': mend that first"
    assert [part.message for part in others] == [follows] * 2
    assert verdict.points == 0 and str(verdict).count("raised") == 1


def test_an_error_of_another_kind_is_told_which_one_is_expected():
    def answer(values, whole=False):
        if values == -1:
            raise KeyError("no")
        return Halves().expected(Case("", (values,), {"whole": whole}))

    verdict = check_answer(Halves(), answer, cases=draw(Halves(), "s"))
    said = verdict.parts[0].message
    assert said.startswith("on a negative number: raised KeyError: 'no'")
    assert "; expected ValueError\n" in said and "the same error" not in said
    assert said.endswith("\nto repeat it in a cell: halves(-1)")
    assert verdict.points == 3


def test_a_part_that_fails_on_mixed_cases_only_follows_from_another_one():
    verdict = halves(lambda values, whole, right: right if not whole else [0])
    assert [part.passed for part in verdict.parts] == [False, True, False]
    assert verdict.parts[0].message == "halves(7, whole=True)\nexpected 3, got [0]"
    assert verdict.parts[2].message.startswith("this may follow from 'half of a number'")


def test_a_part_alone_tells_its_mixed_case():
    verdict = halves(lambda values, whole, right: right[:2] if isinstance(values, list) else right)
    assert [part.passed for part in verdict.parts] == [True, True, False]
    assert verdict.parts[2].message.startswith("halves([7, 1, 2], whole=True)\nexpected [3, 0, 1]")


def test_a_part_follows_from_the_one_that_it_needs():
    verdict = halves(lambda values, whole, right: 9)
    assert verdict.parts[1].message == "look at 'half of a number' first: this part needs it"
    only = halves(lambda values, whole, right: [2, 2] if values == [4, 6] else right)
    assert only.parts[1].message == "halves([4, 6])\nexpected [2, 3], got [2, 2]"


def test_the_same_fault_on_another_case_is_no_second_heading():
    nothing, text = (halves(lambda values, whole, right, got=got: got) for got in (None, "text"))
    assert nothing.parts[1].message.startswith("this may follow from 'half of a number'")
    assert text.parts[1].message.startswith("look at 'half of a number' first")
    assert [[p.case for p in v.parts] for v in (nothing, text)] == [[0, -1, -1]] * 2


def test_feedback_changes_neither_points_nor_status():
    for change in (lambda v, w, r: 9, lambda v, w, r: r if not w else [0], lambda v, w, r: r):

        def answer(values, whole=False, change=change):
            right = Halves().expected(Case("", (values,), {"whole": whole}))
            return change(values, whole, right)

        explained, plain = (
            check_answer(Halves(), answer, cases=draw(Halves(), "s"), explain=explain)
            for explain in (True, False)
        )
        assert (explained.points, explained.status) == (plain.points, plain.status)
        assert [p.earned for p in explained.parts] == [p.earned for p in plain.parts]


# ------------------------------------------------------------------------------- what was printed


def test_only_what_was_printed_on_the_failing_case_is_shown():
    verdict = halves(lambda values, whole, right: right if values != [4, 6] else [])
    assert verdict.messages == ("your answer printed:\nasked 2",)
    assert halves(lambda values, whole, right: right).messages[0].count("asked") == 6


def test_nothing_is_shown_where_the_failing_case_printed_nothing():
    def answer(values, whole=False):
        if values == 4:
            return 0
        print("more")
        return 1

    assert not check_answer(Halves(), answer, cases=draw(Halves(), "s")).messages


# --------------------------------------------------------------------------- the case as a call


@pytest.mark.parametrize(("value", "text"), [
    ((1, [2.5, None], {"a": (True,)}), "f((1, [2.5, None], {'a': (True,)}))"),
    (np.float32([[0.1, 1]]), "f(np.array([[0.1, 1.0]], np.float32))"),
    (np.zeros((0, 3), np.uint8), "f(np.zeros((0, 3), np.uint8))"),
    (float("-inf"), "f(float('-inf'))"), (np.array(True), "f(np.array(True, np.bool))"),
    ({"b", "a"}, "f({'a', 'b'})"), (set(), "f(set())"), (frozenset("a"), "f(frozenset({'a'}))"),
    (b"\0", "f(b'\\x00')"), ([(1,)], "f([(1,)])"), (1 << 70, "f(1180591620717411303424)"),
    (-0.0, "f(-0.0)"), (np.int64(3), "f(3)"),
])  # fmt: skip
def test_a_case_is_written_as_code(value, text):
    call = calls.call_text("f", "98-7", Case("", (value,)), 1)
    assert call == text
    got = eval(call, {"f": lambda one: one, "np": np})
    plain = value.item() if isinstance(value, np.generic) else value
    assert encode(got) == encode(plain)


def test_a_long_or_strange_case_takes_its_arguments_from_given():
    for value in (list(range(300)), object(), 3j, np.zeros(3, "datetime64[s]")):
        call = calls.call_text("f", "98-7", Case("", (value,)), 4)
        assert call == "from vklab_course import given; f(*given('98-7', 4))"
    for case in (Case("", (object(),), {"a": 1}), Case("", (1,), steps=(("add", (2,)),))):
        assert calls.call_text("f", "98-7", case, 1) == ""


def test_given_has_the_arguments_of_a_case_with_its_files(monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    folder, name = given("09-2", 1)
    locate = trials.answer_of(find_lab("09", PROJECT / "labs"), "09-2")
    assert locate(folder, name)[0] == "model.onnx" and given("09-4", 1) == ([2, 6], [3, 4], 0)
    for identifier, number in (("09-2", 0), ("09-2", 99), ("09-1", 1), ("99-1", 1)):
        with pytest.raises(LookupError):
            given(identifier, number)


def numbers():
    return [path.stem.removeprefix("lab_") for path in (PROJECT / "labs/checks").glob("lab_*.py")]


@pytest.mark.full
@pytest.mark.parametrize("number", sorted(numbers()))
def test_every_call_runs_in_its_notebook_with_the_arguments_of_its_case(number, monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    lab = find_lab(number, PROJECT / "labs")
    for key, exercise in exercises_of(number).items():
        if exercise.takes != "function":
            continue
        names, cases = trials.answer_of(lab, key).__globals__, public_cases(exercise)
        asked: list[object] = []
        loaded = 0
        own = {exercise.title: lambda *args, asked=asked, **named: asked.append((args, named))}
        for position, case in enumerate(cases, 1):
            call = calls.call_text(exercise.title, key, case, position)
            if not call or ("given(" in call and loaded):
                continue  # drawn again for each call of `given`: once an exercise
            loaded += "given(" in call
            exec(call, {**names, **own})
            if not case.files:
                question = decode(case.question)
                assert encode(asked[-1]) == encode((tuple(question["args"]), question["named"]))


# ------------------------------------------------------------------------- by exercise


@pytest.mark.parametrize("number", sorted(numbers()))
def test_parts_need_parts_that_there_are_and_no_two_each_other(number, monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    for key, exercise in exercises_of(number).items():
        needed = {part: names.split() for part, names in exercise.follows.items()}
        every = {*needed, *(name for names in needed.values() for name in names)}
        assert every <= set(exercise.parts), key
        list(TopologicalSorter(needed).static_order())  # raises for a circle


def right(identifier):
    number = identifier.partition("-")[0]
    return trials.answer_of(find_lab(number, PROJECT / "labs"), identifier)


def no_write_after_write(answer):
    return lambda commands, barriers=(): [h for h in answer(commands, barriers) if h[2] != "WAW"]


def first_fit(answer):
    def sub_allocate(free, size, alignment):
        for one in free:
            try:
                offset, left = answer([one], size, alignment)
            except MemoryError:
                continue
            return offset, sorted(left + [each for each in free if each != one])
        raise MemoryError

    return sub_allocate


def a_step_more(answer):
    return lambda nodes, outputs: {
        name: (first, last + 1) for name, (first, last) in answer(nodes, outputs).items()
    }


@pytest.mark.parametrize(("identifier", "mistake", "points", "heading"), [
    ("06-1", no_write_after_write, 0, "RAW, WAR and WAW"),
    ("03-3", first_fit, 1, "the smallest free range"),
    ("11-1", a_step_more, 0, "first and last step"),
    ("09-4", lambda answer: lambda shape, target, zero: answer(shape, target, 0), 3, "no elements"),
])  # fmt: skip
def test_one_mistake_has_one_heading(identifier, mistake, points, heading, monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))
    verdict = check(identifier, mistake(right(identifier)))
    told = [part for part in verdict.parts if part.case >= 0]
    assert len(told) == 1 and told[0].name.startswith(heading), str(verdict)
    assert verdict.points == points, str(verdict)


def test_a_call_that_does_not_end_is_the_one_that_is_shown(monkeypatch):
    monkeypatch.setenv("VKLAB_LABS", str(PROJECT / "labs"))

    def hangs(nodes, outputs):
        while len(nodes) > 4:
            pass
        return right_one(nodes, outputs)

    right_one = right("11-1")
    verdict = check_answer(find("11-1"), hangs, seconds=2)
    ended = [part.message for part in verdict.parts if "did not end in time" in part.message]
    assert len(ended) == 1 and ended[0].startswith("find_lifetimes([("), str(verdict)
    others = [part.message for part in verdict.parts if "did not end in time" not in part.message]
    assert all(said.endswith("not asked, because an earlier call did not end") for said in others)
