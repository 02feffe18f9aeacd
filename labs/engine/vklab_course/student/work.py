"""Student's copies of the labs after they were made: updated on request, and how far they are.

A backup of each copy from before its update lies in `work/.lab/before/`. Visited by lab 00.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from vklab.errors import VklabError
from vklab_course import words
from vklab_course.author.build import write_notebook
from vklab_course.author.gates import verdicts_of
from vklab_course.student import merge, paths
from vklab_course.student.copies import HIDDEN, copy_file, copy_labs

__all__ = ["Progress", "Updated", "WorkError", "progress", "require", "update"]


# A valid answer may be better (partial), a text is for a person to read (recorded), and an exercise
# may need what this machine lacks (skipped): none of them holds up the next lab.
DONE = ("correct", "partial", "recorded", "skipped")


class WorkError(VklabError):
    """A folder that is not the one with a student's copies."""


@dataclass(frozen=True)
class Updated:
    """Outcome of an update of one copy: new, unchanged, updated, or not touched, with details."""

    name: str
    status: str
    detail: str = ""


@dataclass(frozen=True)
class Progress:
    """Solved exercises and points of one copy, from its saved verdicts, and its minutes."""

    name: str
    solved: int
    exercises: int
    points: float
    of: float
    statuses: dict[str, str]
    extra: list[str]
    minutes: int

    @property
    def is_done(self) -> bool:
        """Return whether every exercise, extra ones apart, has an answer that may stay."""
        return not self.minutes_left

    @property
    def minutes_left(self) -> int:
        """Return the share of the minutes of the exercises that are not done, extra ones apart."""
        required = [status for key, status in self.statuses.items() if key not in self.extra]
        left = sum(status not in DONE for status in required)
        return math.ceil(self.minutes * left / (len(required) or 1))


def require(labs: Path, work: Path, or_empty: bool) -> None:
    """Raise WorkError unless a folder that was named has a copy of a lab, or may be empty and is.

    Args:
        labs: the labs.
        work: the folder.
        or_empty: whether an empty folder will do.
    """
    if not work.is_dir():
        beside = [path.name for path in work.absolute().parent.glob("*") if path.is_dir()]
        raise WorkError(
            f"there is no folder {work}.{words.near(work.name, beside)} `vklab lab` "
            "makes the folder work/ with copies of the labs"
        )
    mine = {path.name for path in work.iterdir()}
    copies = {HIDDEN, *(path.name for path in labs.glob("*.ipynb"))}
    if (mine or not or_empty) and not mine & copies:
        inside = [str(path.parent) for path in work.glob(f"*/{HIDDEN}")]
        there = f"; copies are in {', '.join(inside[:3])}" if inside else ""
        raise WorkError(
            f"nothing in the folder {work} is a copy of a lab{there}; name the folder "
            f"of your copies{', or an empty one' if or_empty else ''}"
        )


def update(labs: Path, work: Path) -> list[Updated]:
    """Merge changed labs into the student's copies; copy new labs."""
    new = copy_labs(labs, work)
    outcomes = []
    for path in sorted(labs.glob("*.ipynb")):
        if path.name in new:
            outcomes.append(Updated(path.name, "new"))
        else:
            outcomes.append(_update(path, work / path.name, work / HIDDEN / path.name))
    return outcomes


def _update(lab_path: Path, mine_path: Path, base_path: Path) -> Updated:
    name = lab_path.name
    if base_path.is_file() and base_path.read_bytes() == lab_path.read_bytes():
        return Updated(name, "unchanged")
    lab = nbformat.read(lab_path, as_version=4)
    try:
        mine = nbformat.read(mine_path, as_version=4)
    except Exception as error:  # never overwrite a student's file, readable or not
        return Updated(name, "not touched", f"it cannot be read as a notebook: {error}")
    known = {cell.id for cell in lab.cells}
    if not any(cell.get("id") in known for cell in mine.cells):
        return Updated(
            name,
            "not touched",
            "its cells have lost their ids (an old editor?); "
            "rename it, and run this again for a fresh copy",
        )
    base = _base(base_path)
    merged = merge.merge(base, mine, lab)
    backup = _backup(mine_path)
    write_notebook(merged, mine_path)
    copy_file(lab_path, base_path)
    return Updated(name, "updated", f"backup: {backup.relative_to(mine_path.parent)}")


def _base(path: Path) -> Any:
    try:
        return nbformat.read(path, as_version=4)
    except Exception:  # lost or damaged: then every cell counts as the student's own
        return nbformat.v4.new_notebook()


def _backup(path: Path) -> Path:
    folder = path.parent / HIDDEN / "before"
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while (folder / f"{path.stem}-{number}.ipynb").exists():
        number += 1
    target = folder / f"{path.stem}-{number}.ipynb"
    shutil.copyfile(path, target)
    return target


def progress(path: paths.CoursePath, work: Path) -> list[Progress]:
    """Return the progress in each lab of a path; without a saved copy nothing is solved."""
    return [_progress(stop, work / f"{stop.lab.name}.ipynb") for stop in path.stops]


def _progress(stop: paths.Stop, copy: Path) -> Progress:
    cells = stop.exercises
    points = {key: float(cell.meta.get("points", 0)) for key, cell in cells.items()}
    shown = {k: v for k, v in _verdicts(copy).items() if k in points}
    statuses = {key: str(shown.get(key, {}).get("status", "not_attempted")) for key in points}
    earned = sum(
        min(float(v.get("points", 0)), points[k]) for k, v in shown.items() if "points" in v
    )
    return Progress(
        name=stop.lab.name,
        solved=sum(status == "correct" for status in statuses.values()),
        exercises=len(points),
        points=earned,
        of=sum(points.values()),
        statuses=statuses,
        extra=[key for key, cell in cells.items() if cell.meta.get("extra")],
        minutes=stop.minutes,
    )


def _verdicts(path: Path) -> dict[str, dict[str, Any]]:
    try:
        return verdicts_of(nbformat.read(path, as_version=4))
    except Exception:  # no copy yet, or a partly written one
        return {}
