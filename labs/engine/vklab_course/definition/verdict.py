"""Verdict of a check: correct, partly correct, incorrect, ..., with the reason of each part.

Draws itself as HTML that is readable without colours, and on light and dark pages; its plain text
is the same on every machine. Visited by lab 00.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

__all__ = ["FOLLOWS", "NEEDS", "MIME", "NOTE", "STATUSES", "Part", "Verdict", "points_text"]

MIME = "application/vnd.vklab.verdict+json"
# A sentence of `attempt` in place of an answer.
NOTE = "application/vnd.vklab.note+json"
# status -> (mark, colour of the Okabe-Ito palette, words)
STATUSES = {
    "correct": ("✔", "#009E73", "correct"),
    # A valid answer of a scored exercise that could be better.
    "partial": ("◐", "#E69F00", "partly correct"),
    "incorrect": ("✘", "#D55E00", "incorrect"),
    "not_attempted": ("○", "#56B4E9", "not attempted"),
    "skipped": ("–", "#999999", "skipped"),
    "recorded": ("✎", "#56B4E9", "recorded"),
}
# Messages of a part that fails as another one does, and of one that needs another one.
FOLLOWS = "this may follow from {!r}: mend that first"
NEEDS = "look at {!r} first: this part needs it"
PART_MARKS = {"ok": "✔", "part": "◐", "no": "✘"}


def points_text(points: float, of: float) -> str:
    """Return points as text, `2 of 4 points`, with a decimal point only if one is needed."""
    return f"{points:g} of {of:g} point{'' if of == 1 else 's'}"


@dataclass(frozen=True)
class Part:
    """One weighted part of a check: passed, or with a message on the expected value.

    Attributes:
        name: the part in words.
        points: its points.
        passed: whether all of them are earned.
        message: what was expected on which input.
        share: share of the points that is earned; between 0 and 1 for a score.
        case: the number of the case that the message is on, from 0; -1 for none.
    """

    name: str
    points: float
    passed: bool
    message: str = ""
    share: float = -1.0
    case: int = -1

    @property
    def earned(self) -> float:
        """Return the points that the part gives, two digits at most."""
        share = float(self.passed) if self.share < 0 else self.share
        return round(self.points * share, 2)

    @property
    def word(self) -> str:
        """Return `ok`, `part` for a score that could be better, or `no`."""
        return "ok" if self.passed else "part" if self.earned else "no"

    @property
    def worth(self) -> str:
        """Return the part's points as text: `4`, or `2.5 of 4` for a part of a score."""
        return f"{self.earned:g} of {self.points:g}" if self.word == "part" else f"{self.points:g}"


@dataclass(frozen=True)
class Verdict:
    """Result of `check`: a status, points, the parts, and further messages."""

    id: str
    title: str
    status: str
    points: float
    of: float
    parts: tuple[Part, ...] = ()
    messages: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """Return the verdict in one line."""
        words = f"{self.id} {self.title}".strip() + f": {STATUSES[self.status][2]}"
        counted = self.status in ("correct", "partial", "incorrect")
        return words + (f", {points_text(self.points, self.of)}" if counted else "")

    def summary(self) -> dict[str, Any]:
        """Return the verdict ready for JSON; notebooks store it for `vklab course progress`."""
        parts = [
            {
                "name": p.name,
                "points": p.points,
                "passed": p.passed,
                "message": p.message,
                "earned": p.earned,
            }
            for p in self.parts
        ]
        return {
            "id": self.id,
            "status": self.status,
            "points": self.points,
            "of": self.of,
            "parts": parts,
            "messages": list(self.messages),
        }

    def __str__(self) -> str:
        lines = [self.headline]
        for part in self.parts:
            lines.append(f"  {part.word}  {part.name} ({part.worth})")
            lines += [f"      {line}" for line in part.message.splitlines()]
        lines += [f"  {line}" for message in self.messages for line in message.splitlines()]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        mark, colour, _ = STATUSES[self.status]
        rows = "".join(_part_html(part) for part in self.parts)
        notes = "".join(
            f'<div style="margin:.3em 0;white-space:pre-wrap">{escape(message)}</div>'
            for message in self.messages
        )
        listed = f'<ul style="list-style:none;margin:.3em 0;padding:0">{rows}</ul>' if rows else ""
        return (
            f'<div role="status" style="border-left:.4em solid {colour};padding:.2em .9em;'
            f'margin:.4em 0"><strong><span aria-hidden="true">{mark} </span>'
            f"{escape(self.headline)}</strong>{listed}{notes}</div>"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/plain": str(self), "text/html": self._repr_html_(), MIME: self.summary()}


def _part_html(part: Part) -> str:
    message = (
        f'<div style="margin-left:1.6em;white-space:pre-wrap">{escape(part.message)}</div>'
        if part.message
        else ""
    )
    return (
        f'<li style="margin:.15em 0"><span role="img" aria-label="{part.word}">'
        f"{PART_MARKS[part.word]}</span> {escape(part.name)} <small>({part.worth})</small>"
        f"{message}</li>"
    )
