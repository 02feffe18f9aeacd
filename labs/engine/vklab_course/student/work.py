"""Student's copies of the labs after they were made: updated on request, and how far they are.

A backup of each copy from before its update lies in `work/.lab/before/`. Visited by lab 00.
"""

from __future__ import annotations

import math
import shutil
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from vklab.errors import VklabError
from vklab_course import words
from vklab_course.author.build import write_notebook
from vklab_course.author.gates import verdicts_of
from vklab_course.student import merge, moves, paths
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
    """Merge changed labs into the student's copies; copy new labs; carry answers that moved."""
    base = work / HIDDEN
    new = copy_labs(labs, work)
    known = {path.name for path in labs.glob("*.ipynb")}
    retired = {path.name for path in base.glob("*.ipynb") if (work / path.name).is_file()} - known
    same = {name for name in known - {*new} if _is_same(labs / name, base / name)}
    if not known - same and not retired:
        return [Updated(name, "unchanged") for name in sorted(same)]
    opened = [_opened(name, labs, work) for name in sorted(known | retired)]
    before = {copy.name: copy.merged for copy, _ in opened if copy.merged is not None}
    texts = {name: nbformat.writes(merged) for name, merged in before.items()}
    moves.carry([copy for copy, _ in opened])
    outcomes = []
    # A copy that an answer came to is written before the one that it left.
    for copy, problem in sorted(opened, key=lambda one: "came from" not in " ".join(one[0].said)):
        name = copy.name
        if copy.merged is None:
            outcomes += [Updated(name, "unchanged")] if name in same else []
            outcomes += [Updated(name, "not touched", problem)] if name in known - same else []
            continue
        carried = nbformat.writes(copy.merged) != texts[name]
        detail = list(copy.said)
        if carried or name in known - same - {*new}:
            if name not in new:
                detail.append(f"backup: {_backup(work / name).relative_to(work)}")
            write_notebook(copy.merged, work / name)
            if name in known:
                copy_file(labs / name, base / name)
        status = "new" if name in new else "updated" if detail else "unchanged"
        if name in known or carried:
            outcomes.append(Updated(name, status, "; ".join(detail)))
    return sorted(outcomes, key=lambda one: one.name)


def _is_same(lab: Path, base: Path) -> bool:
    return base.is_file() and base.read_bytes() == lab.read_bytes()


def _opened(name: str, labs: Path, work: Path) -> tuple[moves.Copy, str]:
    """Return a copy merged with today's lab, or why it must not be touched."""
    path = labs / name
    lab = nbformat.read(path, as_version=4) if path.is_file() else None
    try:
        mine = nbformat.read(work / name, as_version=4)
    except Exception as error:  # never overwrite a student's file, readable or not
        return moves.Copy(name, lab), f"it cannot be read as a notebook: {error}"
    base = _base(work / HIDDEN / name)
    given = {cell.id for cell in (lab or base).cells}
    if not any(cell.get("id") in given for cell in mine.cells):
        return moves.Copy(name, lab), (
            "its cells have lost their ids (an old editor?); "
            "rename it, and run this again for a fresh copy"
        )
    merged = merge.merge(base, mine, lab) if lab else deepcopy(mine)
    return moves.Copy(name, lab, base, mine, merged), ""


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
