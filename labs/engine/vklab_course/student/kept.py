"""Answers that are kept: one file of Python for each exercise, in `work/mine/`.

The first line says which exercise in which variant the text answers. A file that no longer agrees
with its first line or with the lab is judged again before it is used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vklab.errors import VklabError
from vklab_course.definition.exercise import Exercise, home_of, number_of
from vklab_course.places import labs_folder
from vklab_course.student.copies import HIDDEN

__all__ = ["FOLDER", "Kept", "KeptError", "Judge", "current", "lab_path", "made", "path_of",
           "read", "stored", "work_folder", "write"]  # fmt: skip

FOLDER = "mine"
MARK = "# vklab: "
MOST_BYTES = 1 << 20
# Judges a text in a fresh process: the exercise's id, the answer's name and the text -> "" if the
# answer is correct, else the reason.
Judge = Callable[[str, str, str], str]


class KeptError(VklabError):
    """A kept answer that cannot be used, and why."""


@dataclass(frozen=True)
class Kept:
    """One answer as text, and what it was judged for.

    Attributes:
        id: the exercise, "09-3".
        name: what the text calls the answer.
        builds: the name of the piece.
        variant: number of the variant.
        params: parameters of the variant, which the text has in it.
        lab: file name of the lab.
        version: digest of the lab's file.
        text: the statements.
    """

    id: str
    name: str
    builds: str
    variant: int
    params: dict[str, Any]
    lab: str
    version: str
    text: str = field(repr=False)

    @property
    def digest(self) -> str:
        """Return a digest of everything, which tells whether a person has changed the file."""
        whole = json.dumps(asdict(self), sort_keys=True, default=str)
        return hashlib.sha256(whole.encode()).hexdigest()[:16]

    def value(self) -> Any:
        """Run the text and return the answer. Raises KeptError if it has none."""
        space: dict[str, Any] = {"__name__": f"mine_{self.id}"}
        try:
            exec(compile(self.text, f"{FOLDER}/{self.id}.py", "exec"), space)
        except Exception as error:
            raise KeptError(f"its text stops with {type(error).__name__}: {error}") from error
        if self.name not in space:
            raise KeptError(f"its text defines no {self.name}")
        return space[self.name]


def work_folder() -> Path | None:
    """Return the current folder if it is one of a student's copies, else None.

    Solutions, tests and the grader run elsewhere: nothing of theirs is kept.
    """
    here = Path.cwd()
    return here if (here / HIDDEN).is_dir() else None


def lab_path(identifier: str) -> Path:
    """Return the student notebook, as it was shipped, of an exercise's lab."""
    found = sorted(labs_folder().glob(f"{home_of(identifier)}_*.ipynb"))
    if not found:
        raise KeptError(f"there is no lab {home_of(identifier)} in {labs_folder()}")
    return found[0]


def made(exercise: Exercise, name: str, text: str) -> Kept:
    """Return a kept answer for the exercise as it is today.

    Args:
        exercise: the exercise in its variant.
        name: what the text calls the answer.
        text: the statements.
    """
    lab = lab_path(exercise.id)
    return Kept(
        exercise.id,
        name,
        exercise.builds.name if exercise.builds else "",
        exercise.variant,
        json.loads(json.dumps(exercise.params, default=str)),
        lab.name,
        hashlib.sha256(lab.read_bytes()).hexdigest()[:16],
        text,
    )


def path_of(work: Path, identifier: str) -> Path:
    """Return the file of a kept answer."""
    return work / FOLDER / f"{identifier}.py"


def stored(work: Path) -> list[str]:
    """Return the ids of the files of kept answers, in the order of the labs."""
    return sorted(path.stem for path in (work / FOLDER).glob("*.py") if number_of(path.stem))


def write(work: Path, kept: Kept) -> None:
    """Write a kept answer whole or not at all."""
    about = {name: value for name, value in asdict(kept).items() if name != "text"}
    first = MARK + json.dumps({**about, "digest": kept.digest}, sort_keys=True)
    path = path_of(work, kept.id)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(f"{first}\n{kept.text}", encoding="utf-8", newline="\n")
    partial.replace(path)


def read(work: Path, exercise: Exercise) -> tuple[Kept, bool]:
    """Return a kept answer, and whether it is exactly what was judged correct for this exercise.

    Args:
        work: folder of the student's copies.
        exercise: the exercise in its variant.

    Raises KeptError if there is none, or it cannot be read.
    """
    path = path_of(work, exercise.id)
    try:
        data = path.read_bytes() if path.stat().st_size <= MOST_BYTES else b""
        whole = data.decode("utf-8")
    except FileNotFoundError:
        raise KeptError("no answer is kept") from None
    except (OSError, UnicodeDecodeError) as error:
        raise KeptError(f"{path} cannot be read: {error}") from None
    if not data:
        raise KeptError(f"{path} is empty, or has more than {MOST_BYTES} bytes")
    first, _, text = whole.partition("\n")
    about = _about(first, path)
    now = made(exercise, str(about.get("name", exercise.title)), text)
    return now, about.get("digest") == now.digest


def _about(first: str, path: Path) -> dict[str, Any]:
    try:
        found = json.loads(first.removeprefix(MARK)) if first.startswith(MARK) else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise KeptError(f"{path} does not begin with the line that vklab writes; remove the file")
    return found


def current(work: Path, exercise: Exercise, judge: Judge) -> Kept:
    """Return a kept answer that is correct today; one that was changed is judged again.

    The digest differs if the text was edited, if the lab has a new version, or if the text is that
    of another variant.

    Args:
        work: folder of the student's copies.
        exercise: the exercise in its variant.
        judge: judges a text.

    Raises KeptError with the reason why there is none.
    """
    kept, same = read(work, exercise)
    if same:
        return kept
    reason = judge(kept.id, kept.name, kept.text)
    if reason:
        raise KeptError(
            f"{path_of(work, exercise.id)} has changed since it was kept, or the lab has, and is "
            f"not correct now: {reason}"
        )
    write(work, kept)
    return kept
