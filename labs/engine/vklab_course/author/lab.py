"""Source of a lab: py:percent with fixed cell ids, one metadata namespace and regions.

Reads the source; `build` decides what is made from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jupytext
import nbformat

from vklab.errors import VklabError
from vklab_course.definition.exercise import LAB, PLACE, exercises_of, is_lab, number_of
from vklab_course.places import labs_folder

__all__ = ["Cell", "Lab", "LabError", "ROLES", "all_labs", "find_lab", "read_lab", "read_notebook"]

ROLES = ("exercise", "check", "own", "demo", "text")


class LabError(VklabError):
    """A violation of a rule by a lab's source; the message names the cell."""


@dataclass(frozen=True)
class Cell:
    """One cell of a source: its id, kind (code or markdown), text and metadata."""

    id: str
    kind: str
    text: str
    meta: dict[str, Any]
    tags: tuple[str, ...] = ()

    @property
    def role(self) -> str:
        """Return the cell's role: exercise, check, own, demo or text."""
        return str(self.meta.get("role", "demo" if self.kind == "code" else "text"))

    @property
    def exercise(self) -> str:
        """Return the id of the cell's exercise, or ""."""
        return str(self.meta.get("id", ""))


@dataclass(frozen=True)
class Lab:
    """One lab: its file, what its header says, and its cells.

    Attributes:
        path: the source, or a notebook.
        title: the title.
        minutes: how long it takes, an estimate.
        cells: the cells.
        variants: the variant of each exercise.
        before: numbers of the labs that it needs.
        know: what else it needs to be known.
    """

    path: Path
    title: str
    minutes: int
    cells: tuple[Cell, ...]
    variants: Mapping[str, int] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    know: tuple[str, ...] = ()

    def rendered(self, cell: Cell) -> str:
        """Return a cell's text with the parameters of its exercise's variant.

        Raises LabError if a parameter's place is left empty: the student would read `[[limit]]`.
        """
        if "[[" not in cell.text:
            return cell.text
        known = exercises_of(self.number, self.variants)
        own = known.get(cell.exercise)
        text = own.render(cell.text) if own else cell.text
        parameters = {name for each in known.values() for one in each.variants for name in one}
        empty = [name for name in PLACE.findall(text) if own or name in parameters]
        if empty:
            raise LabError(
                f"{self.path.name}, cell {cell.id}: [[{empty[0]}]] is not filled; write "
                "the id of the exercise that has this parameter into the cell's "
                "metadata"
            )
        return text

    @property
    def name(self) -> str:
        """Return the lab's number and slug, the name of its files."""
        return self.path.stem

    @property
    def number(self) -> str:
        """Return the lab's number: two digits, and a letter where it has several notebooks."""
        return number_of(self.name)

    def named(self, role: str) -> dict[str, Cell]:
        """Return the cells of a role by exercise. Raises LabError if an exercise has two."""
        cells: dict[str, Cell] = {}
        for cell in self.cells:
            if cell.role == role and cell.exercise:
                if cell.exercise in cells:
                    raise LabError(
                        f"{self.path.name}: two {role} cells of {cell.exercise}: "
                        f"{cells[cell.exercise].id} and {cell.id}"
                    )
                cells[cell.exercise] = cell
        return cells


def all_labs(root: Path | None = None) -> list[Path]:
    """Return the sources of all labs, by number."""
    paths = ((root or labs_folder()) / "source").glob("*.py")
    return sorted(path for path in paths if number_of(path.stem))


def find_lab(number: str, root: Path | None = None) -> Lab:
    """Return a lab by its number or name. Raises LabError with the labs that exist."""
    paths = all_labs(root)
    for path in paths:
        if is_lab(number, path.stem):
            return read_lab(path)
    names = ", ".join(path.stem for path in paths) or "none"
    where = (root or labs_folder()) / "source"
    raise LabError(f"there is no lab {number!r} in {where}; there is {names}")


def read_lab(path: Path) -> Lab:
    """Read a lab's source. Raises LabError for a cell without an id or with a repeated one."""
    if not re.fullmatch(LAB + "_[a-z0-9_]+", path.stem):
        raise LabError(f"{path.name}: rename the source to NN_slug.py")
    notebook = jupytext.read(path, fmt="py:percent")
    facts = notebook.metadata.get("vklab", {})
    seen = set()
    for number, cell in enumerate(notebook.cells, 1):
        identifier = str(cell.metadata.get("id", ""))
        start = cell.source.strip().splitlines()[:1]
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", identifier):
            raise LabError(f'{path.name}: cell {number} ({start}) has no id; write # %% id="..."')
        if identifier in seen:
            raise LabError(f"{path.name}: two cells have the id {identifier!r}")
        seen.add(identifier)
    if not facts.get("title") or not facts.get("minutes"):
        raise LabError(
            f"{path.name}: the header names no title and minutes "
            "(jupyter: vklab: {title: ..., minutes: ...})"
        )
    for name in ("before", "know"):
        listed = facts.get(name, [])
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            raise LabError(f'{path.name}: {name} is a list of texts in quotes, ["00", "04b"]')
    return _lab(path, facts, notebook.cells)


def read_notebook(path: Path) -> Lab:
    """Read the notebook of a lab."""
    notebook = nbformat.read(path, as_version=4)
    return _lab(path, notebook.metadata.get("vklab", {}), notebook.cells)


def _lab(path: Path, facts: Mapping[str, Any], cells: Iterable[Any]) -> Lab:
    read = [
        Cell(
            str(cell.metadata.get("id") or cell.get("id", "")),
            cell.cell_type,
            cell.source,
            dict(cell.metadata.get("vklab", {})),
            tuple(cell.metadata.get("tags", ())),
        )
        for cell in cells
    ]
    return Lab(
        path,
        str(facts.get("title", path.stem)),
        int(facts.get("minutes", 0)),
        tuple(read),
        before=tuple(facts.get("before", ())),
        know=tuple(facts.get("know", ())),
    )
