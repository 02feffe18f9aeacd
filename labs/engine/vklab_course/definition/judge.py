"""Judge: ask an answer on cases, compare what comes back, and return the verdict.

The notebook and the grader call the same function; they differ in how an answer is reached and in
the cases.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from vklab_course import seam, words
from vklab_course.definition import calls, stub
from vklab_course.definition.case import Case, Got
from vklab_course.definition.codec import CodecError, Raised
from vklab_course.definition.exercise import Exercise
from vklab_course.definition.report import Differs, Report
from vklab_course.definition.verdict import FOLLOWS, NEEDS, Part, Verdict

__all__ = ["Answers", "LocalAnswers", "judge"]

# Of a student's own output SHOWN characters appear; of messages at most MESSAGES, each CHARACTERS.
SHOWN, MESSAGES, CHARACTERS = 300, 20, 4000
EXPECTED = re.compile(r"expected (.+?)(?:[,;] got .*)?$", re.S)  # of a message
# Of a message: a kind of value in words, such as "a list of names", without a value of the case.
KIND = re.compile(r"expected [^'\"\d\[{]+?(?<!to be raised)(?=, got |$)")
CHANGED = (
    "the results are right, but whoever calls your function goes on with the arguments: "
    "change a copy, `list(x)`, `dict(x)` or `x.copy()`, and in nested data the copy of "
    "what you change"
)


class Answers(Protocol):
    """An answer that can be asked: in this process, in a graded kernel, or on a device."""

    def ask(self, exercise: Exercise, cases: Sequence[Case]) -> tuple[list[Got], str]:
        """Return what comes back for each case, and what the answer printed."""


class LocalAnswers:
    """An answer of this process; it is reached through the stub all the same."""

    def __init__(self, answer: Any, seconds: float | None = None) -> None:
        self.answer, self.seconds = answer, seconds

    def ask(self, exercise: Exercise, cases: Sequence[Case]) -> tuple[list[Got], str]:
        """Return what comes back for each case, and what the answer printed."""
        seconds = exercise.seconds if self.seconds is None else self.seconds
        request = stub.request_for(cases, exercise.takes, seconds, exercise.seams)
        return stub.results_of(stub.reply_to(request, self.answer), len(cases))


def judge(exercise: Exercise, answers: Answers, cases: Sequence[Case]) -> Verdict:
    """Return the verdict on an answer.

    Args:
        exercise: the exercise in its variant.
        answers: how to reach the answer.
        cases: the cases with the oracle's results.
    """
    try:
        results, printed = answers.ask(exercise, cases)
    except CodecError as error:
        return _stopped(exercise, "incorrect", f"what came back cannot be read: {error}")
    for got in results:
        if got.how == "not_attempted":
            return _stopped(exercise, "not_attempted", got.message)
        if got.how == "refused" or (got.raised and got.raised.message == seam.REFUSAL):
            return _stopped(exercise, "incorrect", got.message or seam.REFUSAL)
    notes: list[str] = []
    parts = _parts(exercise, list(zip(cases, results, strict=True)), notes)
    failed = next((part.case for part in parts if part.case >= 0), -1)
    if said := printed if failed < 0 else results[failed].printed:
        notes.append(f"your answer printed:\n{_cut(said, SHOWN).rstrip()}")
    return Verdict(
        exercise.id,
        exercise.title,
        _status(parts),
        round(sum(part.earned for part in parts), 2),
        exercise.points,
        tuple(parts),
        tuple(_cut(note, CHARACTERS) for note in notes[:MESSAGES]),
    )


def _status(parts: Sequence[Part]) -> str:
    """Return correct, incorrect, or partial: valid, and only scores or rows could be better."""
    missed = [part for part in parts if not part.passed]
    if parts and not missed:
        return "correct"
    valid = all(part.share >= 0 for part in missed) and any(part.earned for part in parts)
    return "partial" if valid else "incorrect"


def _stopped(exercise: Exercise, status: str, message: str) -> Verdict:
    said = (_cut(message, CHARACTERS),) if message else ()
    return Verdict(exercise.id, exercise.title, status, 0, exercise.points, (), said)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n... ({len(text)} characters)"


def _parts(exercise: Exercise, pairs: Sequence[tuple[Case, Got]], notes: list[str]) -> list[Part]:
    """Return the parts: one mistake has one message, and other parts say where it stands."""
    parts = {key: _part(exercise, key, pairs, notes) for key in exercise.parts}
    failed = {key: part for key, part in parts.items() if part.case >= 0}
    causes = {key: _cause(part, *pairs[part.case]) for key, part in failed.items()}
    own = [key for key, part in failed.items() if not pairs[part.case][0].mixed]
    for key, part in failed.items():
        first = next(name for name in causes if causes[name] == causes[key])
        if first == key and own and key not in own:
            first = own[0]
        needed = exercise.follows.get(key, exercise.basis).split()
        others = (name for name in own if name in needed and causes[name] != causes[key])
        needs = next(others, key)
        error = _wrongly_raised(*pairs[part.case])
        same = sum(_wrongly_raised(*pair) == error for pair in pairs)
        if (first, needs) != (key, key):
            text, name = (NEEDS, needs) if first == key else (FOLLOWS, first)
            parts[key] = Part(part.name, part.points, False, text.format(failed[name].name))
        elif error and same > 1:
            said = f"{part.message}; the same error in {same} of {len(pairs)} cases"
            parts[key] = replace(part, message=said)
    return list(parts.values())


def _cause(part: Part, case: Case, got: Got) -> str:
    """Return by what a part fails, whatever the case is: an error, a wrong kind, a sentence."""
    said = part.message.removeprefix(f"on {calls.in_words(case)}: ")
    kind = KIND.match(said)
    nothing = got.how == "returned" and got.value is None and case.expected is not None
    return _wrongly_raised(case, got) or ("None" if nothing else kind[0] if kind else said)


def _wrongly_raised(case: Case, got: Got) -> str:
    """Return the text of an error that the answer raised and should not have raised, or ""."""
    raises = case.expected.kind if isinstance(case.expected, Raised) else ""
    return got.raised.text if got.raised and raises not in got.raised.kinds else ""


def _part(
    exercise: Exercise, key: str, pairs: Sequence[tuple[Case, Got]], notes: list[str]
) -> Part:
    """Return one part: passed, or with the message of its first difference."""
    title, points = exercise.parts[key]
    report = Report(key, notes)
    asked = [n for n, (case, _) in enumerate(pairs) if case.part in ("", key)]
    asked.sort(key=lambda n: (pairs[n][1].how == "not_run", pairs[n][0].mixed))
    for number in asked:
        case, got = pairs[number]
        try:
            report.on(calls.in_words(case))
            _compare(exercise, case, got, report)
            if got.changed:
                report.note(CHANGED)
                report.expect(False, f"your function changed its argument {got.changed}")
        except Differs as difference:
            number = -1 if got.how == "not_run" else number  # the case says nothing
            return Part(title, points, False, _cut(str(difference), CHARACTERS), case=number)
    if not asked:
        return Part(title, points, False, "no case asks for this part")
    if report.scored:
        return Part(title, points, report.share >= 1, report.scored, report.share)
    return Part(title, points, True)


def _compare(exercise: Exercise, case: Case, got: Got, report: Report) -> None:
    raises = case.expected if isinstance(case.expected, Raised) else None
    if got.how == "timeout":
        report.expect(
            False,
            f"your function did not end in time ({got.message}): does each loop "
            "stop? does it try more possibilities than it needs?",
        )
    elif got.how == "raised" and got.raised is not None:
        wanted = raises.kind if raises else _wanted(exercise, case, report.part)
        said = f"; expected {wanted}" if wanted else ""
        report.expect(not _wrongly_raised(case, got), f"raised {got.raised.text}{said}")
    elif got.how != "returned":
        report.expect(False, got.message or "not asked, because an earlier call did not end")
    elif raises:
        report.expect(False, f"expected {raises.kind} to be raised, got {words.short(got.value)}")
    else:
        try:
            exercise.compare(case, got.value, report)
        except Differs:
            raise
        except Exception as error:
            # A comparison that a strange result breaks: the result is wrong, and is shown.
            report.expect(
                False,
                f"expected another kind of result, got {words.short(got.value)} "
                f"({type(error).__name__})",
            )


def _wanted(exercise: Exercise, case: Case, part: str) -> str:
    """Return what a part expects on a case: the oracle's result, where that is an answer.

    Else, as where the oracle only counts, what the message on an answer of None says; or "".
    """
    for answer in (case.expected, None):
        try:
            exercise.compare(case, answer, Report(part))
            return words.short(answer)
        except Differs as difference:
            found = EXPECTED.match(str(difference))
        except Exception:
            found = None  # a comparison that this value breaks
    return found[1] if found else ""
