"""Schema of a mark: what one submission got, and under which conditions.

One record is one JSON file of a results folder. Every file is validated when it is read, so that a
damaged or foreign file is reported by name and never becomes a mark.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from vklab.errors import VklabError

__all__ = ["FORMAT", "STATUSES", "ExerciseResult", "GradeError", "PartResult", "Record", "Run",
           "Status", "Submission", "SubmissionResult", "digest", "parse"]  # fmt: skip

FORMAT = 1
Status = Literal[
    "passed",
    "partial",
    "failed",
    "error",
    "timeout",
    "out_of_memory",
    "tampered",
    "missing",
    "not_attempted",
    "skipped",
    "needs_hand_marking",
]
STATUSES: tuple[str, ...] = Status.__args__  # type: ignore[attr-defined]
# As in the definition of an exercise: at most 20 messages; a message is a few lines.
MESSAGES, MESSAGE_CHARACTERS = 20, 20_000
Text = Annotated[str, Field(max_length=MESSAGE_CHARACTERS)]
Points = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class GradeError(VklabError):
    """A failure of grading that is not a student's: the message says what to do."""


class Record(BaseModel):
    """A record with fixed fields: an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PartResult(Record):
    """One weighted part of an exercise."""

    name: Text
    points: Points
    passed: bool
    message: Text = ""
    earned: Points | None = None


class ExerciseResult(Record):
    """Result of one exercise: a status, points, parts and messages."""

    status: Status
    points: Points = 0.0
    of: Points = 0.0
    parts: Annotated[tuple[PartResult, ...], Field(max_length=100)] = ()
    messages: Annotated[tuple[Text, ...], Field(max_length=MESSAGES)] = ()
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    marked_by: Literal["check", "hand"] = "check"

    @model_validator(mode="after")
    def _plausible(self) -> ExerciseResult:
        if self.points > self.of + 1e-9:
            raise ValueError(f"{self.points:g} of {self.of:g} points")
        if self.status == "passed" and abs(self.points - self.of) > 1e-9:
            raise ValueError(f"passed with {self.points:g} of {self.of:g} points")
        return self


class Submission(Record):
    """Identity of one submission: the student, the attempt, the file and its hash."""

    student: str
    name: str = ""
    lms: Literal["plain", "canvas", "moodle"] = "plain"
    lms_id: str = ""
    file: str = ""
    attempt: int = 1
    hash: str = ""


class SubmissionResult(Record):
    """Marks of one submission for one lab, with the conditions under which they were given.

    `job` is the hash of everything that decides the marks: a restart continues by it. `broken` says
    why nothing was graded. `interrupted` says why the session ended before its last exercise: what
    was judged before counts, and every other exercise has the status of that end.
    """

    format: Literal[1] = 1
    submission: Submission
    lab: str
    lab_version: str = ""
    variant: dict[str, int] = {}
    seed_fingerprint: str = ""
    environment: dict[str, Any] = {}
    sandbox: dict[str, Any] = {}
    exercises: dict[str, ExerciseResult] = {}
    notes: Annotated[tuple[Text, ...], Field(max_length=MESSAGES)] = ()
    broken: Text = ""
    interrupted: Text = ""
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    job: str = ""

    @property
    def points(self) -> float:
        """Return the sum of the points; skipped exercises count as not set."""
        return sum(e.points for e in self.exercises.values() if e.status != "skipped")

    @property
    def of(self) -> float:
        """Return the sum of the points that could be earned."""
        return sum(e.of for e in self.exercises.values() if e.status != "skipped")

    @property
    def unsafe(self) -> bool:
        """Tell whether the submission ran without a sandbox."""
        return bool(self.sandbox.get("unsafe"))

    @property
    def state(self) -> str:
        """Return not graded, marks missing, interrupted or graded."""
        if self.broken:
            return "not graded"
        if self.unmarked:
            return "marks missing"
        return "interrupted" if self.interrupted else "graded"

    @property
    def cause(self) -> str:
        """Return why the submission was not graded, or not to its end; "" if it was."""
        return self.broken or (
            f"the session was interrupted: {self.interrupted}" if self.interrupted else ""
        )

    @property
    def unmarked(self) -> list[str]:
        """Return the exercises that wait for marks by hand."""
        return [k for k, e in self.exercises.items() if e.status == "needs_hand_marking"]


class Run(Record):
    """Facts of a results folder: the release that was graded, the seed's fingerprint, the lab."""

    format: Literal[1] = 1
    release: str
    labs: dict[str, str]
    seed_fingerprint: str
    unsafe: bool = False
    self_test: dict[str, Any] = {}
    started: str = ""


def digest(*things: Any) -> str:
    """Return the SHA-256 of plain data or bytes, in 64 hexadecimal digits."""
    sha = hashlib.sha256()
    for thing in things:
        data = (
            thing
            if isinstance(thing, bytes)
            else json.dumps(thing, sort_keys=True, ensure_ascii=True).encode()
        )
        sha.update(len(data).to_bytes(8, "big") + data)
    return sha.hexdigest()


def parse(kind: type[Record], text: str | bytes, where: str) -> Any:
    """Return a record from JSON text. Raises GradeError with the file and the first problem.

    Args:
        kind: the class of the record.
        text: the JSON text.
        where: name of the file, for the message.
    """
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(step) for step in first["loc"]) or "the file"
        raise GradeError(
            f"{where}: {field}: {first['msg']}; move the file away, and grade again"
        ) from None
