"""Manifest of a release: its labs, their versions, exercises and variants, and a hash of each file.

Grading reads a release through this file and refuses one that was changed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import nbformat

from vklab_course.definition.exercise import number_of
from vklab_course.grade.results import schema
from vklab_course.grade.results.schema import GradeError, Record, digest

__all__ = ["NAME", "ExerciseFacts", "LabFacts", "Manifest", "Release", "lab_version",
           "open_release"]  # fmt: skip

NAME = "manifest.json"


class ExerciseFacts(Record):
    """One exercise of a release: its title, points and kind."""

    id: str
    title: str = ""
    points: float
    kind: str = "function"


class LabFacts(Record):
    """One lab of a release: its version is the hash of its cells."""

    name: str
    title: str
    minutes: int
    version: str
    exercises: tuple[ExerciseFacts, ...]

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
        return {e.id: self.manifest.variants.get(e.id, 0) for e in lab.exercises}


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
