"""Manifest of a release: its labs, their versions, exercises and variants, and a hash of each file.

Grading reads a release through this file and refuses one that was changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import nbformat

from vklab_course.definition.exercise import Exercise, number_of
from vklab_course.grade.results import schema
from vklab_course.grade.results.schema import GradeError, Record, digest

__all__ = ["NAME", "ExerciseFacts", "LabFacts", "Manifest", "Release", "lab_facts",
           "lab_version", "open_release", "released_lab"]  # fmt: skip

NAME = "manifest.json"


class ExerciseFacts(Record):
    """One exercise of a release: its title, points and kind."""

    id: str
    title: str = ""
    points: float
    kind: str = "function"


class LabFacts(Record):
    """One lab of a release: its version is the hash of its cells.

    `exercises` are those that are graded; `not_graded` are the extra ones of a release without
    `--grade-extra`.
    """

    name: str
    title: str
    minutes: int
    version: str
    exercises: tuple[ExerciseFacts, ...]
    not_graded: tuple[str, ...] = ()

    @property
    def number(self) -> str:
        """Return the lab's number: two digits, and a letter where it has several notebooks."""
        return number_of(self.name)

    @property
    def points(self) -> float:
        """Return the sum of the points of its exercises."""
        return sum(exercise.points for exercise in self.exercises)


class Manifest(Record):
    """Everything that a release says of itself."""

    format: Literal[1] = 1
    id: str
    vklab: str
    variants: dict[str, int] = {}
    labs: tuple[LabFacts, ...]
    files: dict[str, str]


def lab_facts(name: str, notebook: Any, known: Mapping[str, Exercise], extra: bool) -> LabFacts:
    """Return the facts of a lab from its student notebook and its definitions.

    Args:
        name: the lab's name.
        notebook: the student notebook; it says its version, or its cells do.
        known: the exercises by id.
        extra: whether extra exercises are graded.
    """
    about = notebook.metadata.get("vklab", {})
    return LabFacts(
        name=name,
        title=str(about.get("title", name)),
        minutes=int(about.get("minutes", 0)),
        version=about.get("version") or lab_version(notebook.cells),
        exercises=tuple(
            ExerciseFacts(id=key, title=e.title, points=float(e.points), kind=e.takes)
            for key, e in known.items()
            if extra or not e.extra
        ),
        not_graded=tuple(key for key, e in known.items() if e.extra and not extra),
    )


def released_lab(labs: Path, name: str) -> LabFacts | None:
    """Return what the manifest beside a folder of labs says of a lab, or None without one."""
    path = labs.parent / NAME
    if not path.is_file():
        return None
    manifest: Manifest = schema.parse(Manifest, path.read_bytes(), str(path))
    return next((lab for lab in manifest.labs if lab.name == name), None)


def lab_version(cells: list[Any]) -> str:
    """Return the version of a lab: a hash of its cells' ids, kinds and texts."""
    core = [[cell["id"], cell["cell_type"], cell["source"]] for cell in cells]
    return digest(core)[:16]


@dataclass(frozen=True)
class Release:
    """A release on disk, checked against its manifest."""

    folder: Path
    manifest: Manifest

    @property
    def labs_folder(self) -> Path:
        """Return the folder to give to the LABS switch."""
        return self.folder / "labs"

    def lab(self, number: str) -> LabFacts:
        """Return a lab by number or name. Raises GradeError with the labs that there are."""
        for lab in self.manifest.labs:
            if number in (lab.number, lab.name) or number.zfill(2) == lab.number:
                return lab
        names = ", ".join(lab.name for lab in self.manifest.labs)
        raise GradeError(f"the release {self.folder} has no lab {number!r}; it has {names}")

    def notebook(self, lab: LabFacts) -> Any:
        """Return the student notebook of a lab."""
        return nbformat.read(self.labs_folder / f"{lab.name}.ipynb", as_version=4)

    def variant(self, lab: LabFacts) -> dict[str, int]:
        """Return the variant of each exercise of a lab."""
        ids = (*(exercise.id for exercise in lab.exercises), *lab.not_graded)
        return {key: self.manifest.variants.get(key, 0) for key in ids}


def open_release(folder: Path) -> Release:
    """Read a release. Raises GradeError if it is none, or if a file differs from its hash."""
    path = folder / NAME
    if not path.is_file():
        raise GradeError(
            f"{folder} is no release: it has no {NAME}; make one with `vklab course release FOLDER`"
        )
    manifest: Manifest = schema.parse(Manifest, path.read_bytes(), str(path))
    for name, wanted in manifest.files.items():
        inside = folder / name
        if not inside.resolve().is_relative_to(folder.resolve()) or not inside.is_file():
            raise GradeError(f"the release {folder} lacks {name}; copy it again as a whole")
        if hashlib.sha256(inside.read_bytes()).hexdigest() != wanted:
            raise GradeError(
                f"{inside} was changed after the release was made; use the copy that "
                "you made it from, or make a new release"
            )
    return Release(folder, manifest)
