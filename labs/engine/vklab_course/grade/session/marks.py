"""Marks of one exercise: the verdict of the judge, with what became of the kernel.

Nothing here comes from the notebook except decoded answers; the judge's verdict is the only source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vklab_course.definition import stub
from vklab_course.definition.case import Case, Got
from vklab_course.definition.codec import CodecError, decode
from vklab_course.definition.exercise import Exercise
from vklab_course.definition.judge import Answers, judge
from vklab_course.definition.verdict import Verdict
from vklab_course.grade.session.kernel import KernelEnded
from vklab_course.limits import limited

__all__ = ["MESSAGES", "PartsAnswers", "RemoteAnswers", "Transport", "entry", "marked", "plain"]

Transport = Callable[[bytes], bytes]
MESSAGES, MESSAGE_BYTES = 20, 1 << 17
# Time of one check, after the answer's results have come back: they may be of any length.
CHECK_S = 30.0
STATUS = {"correct": "passed", "not_attempted": "not_attempted", "skipped": "skipped"}


class RemoteAnswers:
    """An answer in a graded kernel, asked through a transport of bytes.

    Attributes:
        late: a call did not end in time.
        memory: an answer raised MemoryError.
        missing: reason why there is no answer, or "".
    """

    def __init__(self, transport: Transport, seconds: float, takes: str = "") -> None:
        """Store how to reach the answer.

        Args:
            transport: sends a request into the kernel, returns its reply.
            seconds: time limit of the batch, inside the kernel.
            takes: `value` to get the answer itself; default: as the exercise says.
        """
        self.transport, self.seconds, self.takes = transport, seconds, takes
        self.late = self.memory = False
        self.missing = ""

    def ask(self, exercise: Exercise, cases: Sequence[Case]) -> tuple[list[Got], str]:
        """Return what comes back for each case, and what the answer printed."""
        request = stub.request_for(
            cases, self.takes or exercise.takes, self.seconds, exercise.seams
        )
        content = decode(self.transport(request))
        if type(content) is not dict:
            raise CodecError("the reply is no dictionary")
        if "not_attempted" in content:
            return [Got("not_attempted", message=str(content["not_attempted"])[:1000])], ""
        if "no_answer" in content:
            self.missing = str(content["no_answer"])[:1000]
            return [Got("refused", message=f"there is no answer: {self.missing}")], ""
        if type(content.get("reply")) is not bytes:
            raise CodecError("the reply has no results")
        results, printed = stub.results_of(content["reply"], len(cases))
        self.late = any(got.how == "timeout" for got in results)
        self.memory = any(got.raised and got.raised.kind == "MemoryError" for got in results)
        return results, printed


class PartsAnswers:
    """An answer that is asked part by part, after one of them has ended its kernel.

    Attributes:
        late: a part did not end in time.
        memory: a part raised MemoryError.
        ended: status of the last part that ended its kernel, or "".
    """

    def __init__(self, fresh: Callable[[], RemoteAnswers]) -> None:
        self.fresh = fresh
        self.late = self.memory = False
        self.missing = self.ended = ""

    def ask(self, exercise: Exercise, cases: Sequence[Case]) -> tuple[list[Got], str]:
        """Return what comes back for each case, and what the answer printed."""
        results, said = [Got("not_run")] * len(cases), ""
        for part in dict.fromkeys(case.part for case in cases):
            numbers = [n for n, case in enumerate(cases) if case.part == part]
            try:
                answers = self.fresh()
                got, said = answers.ask(exercise, [cases[n] for n in numbers])
                self.late, self.memory = self.late or answers.late, self.memory or answers.memory
                self.missing = self.missing or answers.missing
            except KernelEnded as ended:
                self.ended = ended.status
                got = [Got("not_run", message=f"your answer {ended}")] * len(numbers)
            except (CodecError, ValueError, RecursionError) as error:
                got = [Got("not_run", message=f"what came back cannot be read: {error}")]
                got *= len(numbers)
            for number, one in zip(numbers, got, strict=True):
                results[number] = one
        return results, said


class _Known:
    """Results that have come back: what judges them needs no kernel, and has a limit of its own."""

    def __init__(self, exercise: Exercise, answers: Answers, cases: Sequence[Case]) -> None:
        self.results: tuple[list[Got], str] = [], ""
        self.problem: CodecError | None = None
        try:
            self.results = answers.ask(exercise, cases)
        except CodecError as error:
            self.problem = error

    def ask(self, exercise: Exercise, cases: Sequence[Case]) -> tuple[list[Got], str]:
        """Return the results. Raises CodecError if they could not be read."""
        if self.problem is not None:
            raise self.problem
        return self.results


def marked(exercise: Exercise, answers: Answers, cases: Sequence[Case]) -> dict[str, Any]:
    """Return the entry of an exercise in the results: judged outside the sandbox.

    Args:
        exercise: the exercise in its variant.
        answers: how to reach the answer.
        cases: fresh cases with the oracle's results.

    Raises LimitReached if the check does not end within CHECK_S.
    """
    known = _Known(exercise, answers, cases)
    with limited(CHECK_S):
        verdict = judge(exercise, known, cases)
    status = STATUS.get(verdict.status) or ("partial" if verdict.points > 0 else "failed")
    for name, reason in (("missing", "error"), ("late", "timeout"), ("memory", "out_of_memory")):
        if status == "failed" and getattr(answers, name, None):
            status = reason
    if status == "failed":
        status = getattr(answers, "ended", "") or status
    return plain(verdict, status)


def plain(verdict: Verdict, status: str) -> dict[str, Any]:
    """Return a verdict as plain data, with its messages cut to what an exercise may say."""
    left = MESSAGE_BYTES
    parts = []
    for part in verdict.parts:
        said = part.message[: max(0, left)]
        left -= len(said.encode("utf-8", "replace"))
        parts.append(
            {
                "name": part.name,
                "points": part.points,
                "passed": part.passed,
                "message": said,
                "earned": float(part.earned),
            }
        )
    messages = [text[: max(0, left // MESSAGES)] for text in verdict.messages[:MESSAGES]]
    points = float(verdict.points) if status in ("passed", "partial") else 0.0
    return {
        "status": status,
        "points": points,
        "of": float(verdict.of),
        "parts": parts,
        "messages": messages,
    }


def entry(exercise: Exercise, status: str, message: str) -> dict[str, Any]:
    """Return the entry of an exercise without a verdict.

    Args:
        exercise: the exercise.
        status: error, timeout, out_of_memory, missing, skipped, needs_hand_marking ...
        message: the reason, for the student.
    """
    return {
        "status": status,
        "points": 0.0,
        "of": float(exercise.points),
        "parts": [],
        "messages": [message[:4000]] if message else [],
    }
