"""attempt: run a block that uses a student's answer, and continue if the answer is missing."""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Callable
from html import escape
from types import TracebackType
from typing import Any

from vklab_course import limits, words
from vklab_course.definition.exercise import LAB, exercises_of, home_of
from vklab_course.definition.verdict import NOTE

__all__ = ["Note", "attempt"]


class Note:
    """A sentence in place of a picture that cannot be drawn yet."""

    def __init__(self, identifier: str, status: str, text: str) -> None:
        """Store the note.

        Args:
            identifier: the exercise, "03-1".
            status: not_attempted or error.
            text: the sentence for the student.
        """
        self.id, self.status, self.text = identifier, status, text

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        style = "border-left:.4em solid #999999;padding:.2em .9em;margin:.4em 0"
        return {
            "text/plain": self.text,
            "text/html": f'<div role="status" style="{style}">{escape(self.text)}</div>',
            NOTE: {"id": self.id, "status": self.status},
        }


class attempt:
    """Run a block that uses the answer to an exercise: `with attempt("03-1"): ...`.

    An unsolved stub, an error of the answer, or a Python loop of more than `seconds` becomes a
    note; the notebook continues.
    """

    def __init__(self, identifier: str, seconds: float = 30.0) -> None:
        self.id, self.seconds = identifier, seconds
        self._stop: Callable[[], None] | None = None

    def __enter__(self) -> attempt:
        in_main = threading.current_thread() is threading.main_thread()
        by_signal = in_main and hasattr(signal, "setitimer")
        # The block's output is shown as usual: only the deadline of `limits.limited` is used.
        self._stop = (limits._by_signal if by_signal else limits._by_thread)(self.seconds)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if self._stop is not None:
            self._stop()
        if error is None or not isinstance(error, Exception | limits.OutOfTime):
            return False
        said = words.short_message(error)
        unsolved = (
            isinstance(error, NotImplementedError)
            or "#error Lab" in said
            or _is_left_open(error, said, self.id)
        )
        text = (
            _waits(self.id, said)
            if unsolved
            else _not_run(self.id, error)
            or f"exercise {self.id}: {_words(error, said, _title(self.id))}"
        )
        note = Note(self.id, "not_attempted" if unsolved else "error", text)
        shell = sys.modules.get("IPython")
        if shell is None:
            print(note)
        else:
            shell.display.display(note)
        return True


def _is_left_open(error: BaseException, said: str, identifier: str) -> bool:
    """Tell whether a cell met the dots that stand where the answer belongs."""
    return "'ellipsis'" in said and not _in_answer(error.__traceback__, _title(identifier))


def _waits(identifier: str, said: str) -> str:
    """Return the note for an unsolved stub, which may be that of another exercise."""
    stub = re.search(rf"Lab ({LAB}), exercise (\d+)", said)
    if "'ellipsis'" in said:
        return (
            f"exercise {identifier}: write your answer in place of the dots; then this cell "
            "shows it"
        )
    if said and not stub:
        return f"exercise {identifier}: {said}"
    met = f"{stub[1]}-{stub[2]}" if stub else identifier
    if met != identifier:
        return f"exercise {met} is not solved yet, and this cell of {identifier} uses its answer"
    return (
        f"exercise {met} is not solved yet: replace its stub, and this cell shows your answer, "
        "right or wrong"
    )


def _not_run(identifier: str, error: BaseException) -> str:
    """Return the note for an answer that is not defined, because its cell has not run."""
    if not isinstance(error, NameError):
        return ""
    known = exercises_of(home_of(identifier)).values()
    own = [each for each in known if each.title == error.name]
    return f"run the cell of exercise {own[0].id} first: it defines {error.name}" if own else ""


def _title(identifier: str) -> str:
    """Return the name of an exercise's answer; "" for an exercise that does not exist."""
    known = exercises_of(home_of(identifier)).get(identifier)
    return known.title if known else ""


def _words(error: BaseException, said: str, title: str) -> str:
    """Return the note for an error, and name the answer only if the error is in it."""
    if isinstance(error, limits.OutOfTime):
        return (
            f"your answer was {said}, so this cell was stopped. Look for a loop in it that "
            "never ends. Is this computer busy with other programs? Then run the cell again"
        )
    if _in_answer(error.__traceback__, title):
        return f"your answer raised {words.error_text(error)}"
    if "NoneType" in said:
        return "this cell cannot use your answer: got None (is a return missing?)"
    return f"this cell cannot use your answer: {type(error).__name__}: {said}"


def _in_answer(trace: TracebackType | None, title: str) -> bool:
    """Tell whether the answer raised the error, and not the cell or a helper of the lab.

    An answer that is no plain function: whether any function of the notebook raised it.
    """
    if trace is None:
        return False
    cell, later = trace.tb_frame, trace.tb_next
    answer = getattr(cell.f_globals.get(title), "__code__", None)
    while later is not None:
        frame = later.tb_frame
        if frame.f_globals is cell.f_globals and answer in (None, frame.f_code):
            return True
        later = later.tb_next
    return False
