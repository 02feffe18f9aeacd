"""Paths through the course: `paths.toml` beside the labs, read and closed.

A path is closed: what a lab needs of a lab outside of the path stands in an insert, a short page.
Hours are sums of the labs' minutes. Visited by lab 00.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from vklab.errors import VklabError
from vklab_course import words
from vklab_course.author.lab import Cell, Lab, read_notebook
from vklab_course.author.layout import Section, minutes_without, sections
from vklab_course.definition.exercise import number_of

__all__ = ["EVERYTHING", "NAME", "Course", "CoursePath", "Insert", "PathError", "Stop", "hours"]

NAME = "paths.toml"
EVERYTHING = "everything"  # the path with every lab of the folder


class PathError(VklabError):
    """A path that is unknown, or that names something that is not there."""


@dataclass(frozen=True)
class Insert:
    """One short page, for labs of a path that has not the labs in whose place it stands."""

    page: str
    title: str
    instead_of: list[str]
    for_labs: list[str]


@dataclass(frozen=True)
class Stop:
    """One lab of a path, the sections that the path leaves out, and pages to read before it."""

    lab: Lab
    left_out: tuple[Section, ...] = ()
    inserts: tuple[Insert, ...] = ()

    @property
    def minutes(self) -> int:
        """Return the minutes of the lab without the sections that are left out."""
        return minutes_without(self.lab, self.left_out)

    @property
    def exercises(self) -> dict[str, Cell]:
        """Return the cell of each exercise in the sections that are not left out."""
        left_out = {cell.id for section in self.left_out for cell in section.cells}
        cells = self.lab.named("exercise")
        return {key: cell for key, cell in cells.items() if cell.id not in left_out}


@dataclass(frozen=True)
class CoursePath:
    """One path: its name, whom it is for, and its labs in order."""

    name: str
    title: str
    for_whom: str
    stops: tuple[Stop, ...]

    @property
    def minutes(self) -> int:
        """Return the sum of the minutes of its labs."""
        return sum(stop.minutes for stop in self.stops)

    def gaps(self) -> list[str]:
        """Return a sentence for each lab that another one needs and that nothing stands for."""
        seen: set[str] = set()
        pages: list[Insert] = []
        found = []
        for stop in self.stops:
            pages += stop.inserts
            number = stop.lab.number
            given = {n for page in pages if number in page.for_labs for n in page.instead_of}
            found += [
                f"the path {self.name!r}: lab {number} needs lab {need}, which is not before it, "
                f"and no insert stands for it"
                for need in stop.lab.before
                if need not in seen | given
            ]
            seen.add(number)
        return found


@dataclass(frozen=True)
class _Entry:
    """One table [path.NAME] of the file."""

    title: str
    for_whom: str
    labs: list[str]
    leave_out: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Course:
    """Labs of a folder, and the paths through them.

    Raises PathError if the file with the paths cannot be used.
    """

    folder: Path

    @cached_property
    def labs(self) -> dict[str, Lab]:
        """Return the labs that are there, by number."""
        read = {}
        for path in sorted(self.folder.glob("[0-9]*.ipynb")):
            try:
                read[number_of(path.stem)] = read_notebook(path)
            except Exception as error:  # of nbformat, for what is no notebook
                raise PathError(
                    f"{path} cannot be read as a notebook ({error or type(error).__name__}); "
                    "get the folder of the labs again"
                ) from error
        return read

    @cached_property
    def _file(self) -> dict[str, Any]:
        path = self.folder / NAME
        try:
            read = tomllib.loads(path.read_text("utf-8")) if path.is_file() else {}
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise PathError(f"{path} cannot be read: {error}") from error
        for kind in ("path", "insert"):
            if not isinstance(read.setdefault(kind, {}), dict):
                raise PathError(f"{path}: write a table [{kind}.NAME], not {kind} = ...")
        return read

    @property
    def names(self) -> list[str]:
        """Return the names of all paths."""
        return [*self._file["path"], EVERYTHING]

    @cached_property
    def inserts(self) -> list[Insert]:
        """Return the pages that stand for labs."""
        return [self._made(Insert, name, entry) for name, entry in self._file["insert"].items()]

    def _made(self, kind: Any, name: str, entry: Mapping[str, Any]) -> Any:
        try:
            return kind(**entry)
        except TypeError as error:
            reason = str(error).rpartition("() ")[2]
            raise PathError(f"{self.folder / NAME}: {name}: {reason}") from error

    def whole(self) -> list[CoursePath]:
        """Return the paths all of whose labs are there."""
        entries = {n: self._made(_Entry, n, entry) for n, entry in self._file["path"].items()}
        names = [n for n, entry in entries.items() if self.labs.keys() >= set(entry.labs)]
        return [self.path(name) for name in (*names, EVERYTHING)]

    def path(self, name: str) -> CoursePath:
        """Return a path by its name.

        Raises PathError with the names of all paths, or with the lab that a path has lost.
        """
        if name == EVERYTHING:
            return self._everything()
        if name not in self.names:
            known = ", ".join(self.names)
            near = words.near(name, self.names)
            raise PathError(f"there is no path {name!r}; there is {known}.{near}")
        entry = self._made(_Entry, name, self._file["path"][name])
        for number in entry.labs:
            if number not in self.labs:
                raise PathError(
                    f"the path {name!r} has lab {number}, which is not in {self.folder}; "
                    f"choose another path, or take the lab out of {NAME}"
                )
        return CoursePath(name, entry.title, entry.for_whom, self._stops(entry))

    def _everything(self) -> CoursePath:
        """Return the path with every lab: those in the file's order first, others by number."""
        numbers = [n for n in self._file.get("order", ()) if n in self.labs]
        numbers += [n for n in self.labs if n not in numbers]
        entry = _Entry("Everything", "those who have a semester", numbers)
        return CoursePath(EVERYTHING, entry.title, entry.for_whom, self._stops(entry))

    def _stops(self, entry: _Entry) -> tuple[Stop, ...]:
        known = {n: sections(self.labs[n]) for n in entry.labs}
        for cell in entry.leave_out:
            if not any(cell in found for found in known.values()):
                raise PathError(
                    f"the path {entry.title!r} leaves out the section {cell!r}, and none of its "
                    "labs has a cell of this id with the heading of a section"
                )
        stops, read = [], list[Insert]()
        for place, number in enumerate(entry.labs):
            needs = set(self.labs[number].before) - set(entry.labs[:place])
            fit = [p for p in self.inserts if number in p.for_labs and needs & {*p.instead_of}]
            pages = [page for page in fit if page not in read]
            read += pages
            left = tuple(s for cell, s in known[number].items() if cell in entry.leave_out)
            stops.append(Stop(self.labs[number], left, tuple(pages)))
        return tuple(stops)


def hours(minutes: float) -> str:
    """Return minutes as a text in hours, with one decimal."""
    return f"{minutes / 60:.1f} h"
