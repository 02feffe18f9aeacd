"""Cases of an exercise: what an answer is asked, and what comes back. Plain data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from vklab_course.definition.codec import Raised, encode, register

__all__ = ["UNSET", "Case", "Folder", "Got", "Unset"]


@register
@dataclass(frozen=True)
class Unset:
    """Stands for an expected result that has not been computed."""


UNSET = Unset()


@register
@dataclass(frozen=True)
class Folder:
    """A folder among a case's files, as an argument: the answer gets its path as text."""

    path: str = ""


@register
@dataclass(frozen=True)
class Case:
    """One question to an answer.

    Attributes:
        part: key of the part that the case belongs to; "" for every part.
        args: positional arguments of the answer.
        named: its keyword arguments.
        on: the input in words a student recognises; default: the arguments themselves.
        files: texts or bytes by relative path, in a folder made for the call.
        steps: calls on what the answer returns: (method, arguments), for answers with a state.
        drain: number of items to take from an iterator that the answer returns; 0 takes no
            iterator.
        expected: result of the oracle; a `Raised` where the oracle raises.
        facts: what only the comparison needs; never sent to an answer.
        mixed: whether mistakes in other parts fail this case, too. A part that fails only on such
            cases follows from one that fails on a case of its own.
    """

    part: str = ""
    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    on: str = ""
    files: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[Any, ...] = ()
    drain: int = 0
    expected: Any = UNSET
    facts: Mapping[str, Any] = field(default_factory=dict)
    mixed: bool = False

    @cached_property
    def question(self) -> bytes:
        """Return what is sent to the answer, encoded once: no oracle, no facts, no part."""
        return encode(
            {
                "args": self.args,
                "named": dict(self.named),
                "files": dict(self.files),
                "steps": self.steps,
                "drain": self.drain,
            }
        )


@dataclass(frozen=True)
class Got:
    """Outcome of one case.

    Attributes:
        how: returned, raised, not_attempted, timeout, too_much_output, cannot_travel, or not_run
            after an earlier case that ended the batch.
        value: the result, or the `Raised`.
        message: the reason, where there is no result.
        changed: the name of an argument that the answer has changed, or "".
        printed: what the answer printed, its first characters.
    """

    how: str
    value: Any = None
    message: str = ""
    changed: str = ""
    printed: str = ""

    @property
    def raised(self) -> Raised | None:
        """Return the exception that the answer raised, if it did."""
        return self.value if self.how == "raised" else None
