"""attempt: run what a student's answer makes possible, and go on where it is not there yet."""

from __future__ import annotations

import sys
from html import escape
from types import TracebackType
from typing import Any

from vklab.course import words
from vklab.course.verdict import NOTE

__all__ = ["Note", "attempt"]


class Note:
    """A sentence in the place of a picture that cannot be drawn yet."""

    def __init__(self, identifier: str, status: str, text: str) -> None:
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

    An unsolved stub, or an error of the answer, becomes a note; the notebook goes on.
    """

    def __init__(self, identifier: str) -> None:
        self.id = identifier

    def __enter__(self) -> attempt:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        said = words.short_message(error)
        unsolved = isinstance(error, NotImplementedError) or "#error Lab" in said
        if unsolved:
            text = f"exercise {self.id} is not solved yet: this cell shows your answer once it is"
        else:
            text = f"exercise {self.id}: your answer raised {words.error_text(error)}"
        note = Note(self.id, "not_attempted" if unsolved else "error", text)
        shell = sys.modules.get("IPython")
        if shell is None:
            print(note)
        else:
            shell.display.display(note)
        return True
