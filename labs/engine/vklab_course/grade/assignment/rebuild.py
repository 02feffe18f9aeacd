"""Notebook that is graded: the released cells, with the answers of a submission in their places.

Answers (`exercise`) and the `own` cell are taken by id; everything else comes from the release. Of
demos only imports and the statements whose names an answer reads are kept. Outputs are never taken.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from vklab_course import slices
from vklab_course.grade.assignment.manifest import LabFacts
from vklab_course.grade.assignment.submission import BadSubmission, Cell, Notebook

__all__ = ["COLLECTED", "Rebuilt", "answers_in", "changed", "check_lab", "names_read", "rebuild"]

COLLECTED = ("exercise", "own")
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


@dataclass(frozen=True)
class Rebuilt:
    """A notebook ready to be graded, why an exercise has no answer, and notes.

    Attributes:
        missing: the reason by exercise.
        untouched: exercises whose cell is still the release's.
    """

    notebook: Any
    missing: dict[str, str]
    untouched: frozenset[str]
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the notebook as JSON text."""
        return str(nbformat.writes(self.notebook, version=4)) + "\n"


def names_read(text: str) -> set[str]:
    """Return the global names that an answer reads; none if it is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return slices.globals_read(text)
    except UNREADABLE:
        return set()


def check_lab(notebook: Notebook, lab: LabFacts) -> None:
    """Raise BadSubmission if a notebook is of another lab or of another version of this one."""
    ids = notebook.by_id()
    shared = [e.id for e in lab.exercises if _cell_of(e.id, notebook, ids)]
    if notebook.lab and notebook.lab != lab.number:
        raise BadSubmission(
            f"it is lab {notebook.lab}, and this batch grades lab {lab.number} ({lab.title})"
        )
    if notebook.version and notebook.version != lab.version:
        raise BadSubmission(
            f"it was made from version {notebook.version} of lab {lab.number}, and the release has "
            f"version {lab.version}; run `vklab course update` and hand in again, or grade it with "
            "the release that it was made from"
        )
    if not shared:
        raise BadSubmission(f"it has no exercise cell of lab {lab.number} ({lab.title})")


def _cell_of(exercise: str, notebook: Notebook, ids: dict[str, list[Cell]]) -> bool:
    return any(
        cell.exercise == exercise and cell.role == "exercise"
        for cells in ids.values()
        for cell in cells
    )


def rebuild(released: Any, submission: Notebook) -> Rebuilt:
    """Return the notebook to grade.

    Args:
        released: the student notebook of the release.
        submission: the notebook that was handed in.
    """
    given = submission.by_id()
    cells: list[tuple[Any, str]] = []
    missing: dict[str, str] = {}
    untouched = set()
    notes: list[str] = []
    for cell in released.cells:
        about = cell.metadata.get("vklab", {})
        role, exercise = about.get("role", ""), about.get("id", "")
        if role not in COLLECTED:
            if cell.cell_type == "code":
                cells.append((cell, cell.source))
            continue
        text, problem = _collected(cell, given.get(cell.id, []))
        if problem and role == "exercise":
            missing[exercise] = problem
        elif problem:
            notes.append(problem)
        elif text.strip() == cell.source.strip():
            untouched.add(exercise)
        if not problem:
            cells.append((cell, text))
    return Rebuilt(
        _notebook(released, _sliced(cells)), missing, frozenset(untouched), tuple(notes[:20])
    )


def changed(released: Any, submission: Notebook) -> list[str]:
    """Return the lab's cells that answers need and that a submission changes, which is ignored.

    A demo that no answer needs may be edited freely, and is not among them.

    Args:
        released: the student notebook of the release.
        submission: the notebook that was handed in.
    """
    given = submission.by_id()
    kept = []
    for roles in (COLLECTED, (*COLLECTED, "demo", "text", "check")):
        cells = []
        for cell in (cell for cell in released.cells if cell.cell_type == "code"):
            role = cell.metadata.get("vklab", {}).get("role", "")
            one = given.get(cell.id, [])[:1] if role in roles else []
            cells.append((cell, _readable(one[0].text if one else cell.source)))
        kept.append({cell.id: text.strip() for cell, text in _sliced(cells)})
    return [name for name, text in kept[0].items() if kept[1].get(name) != text]


def _readable(text: str) -> str:
    """Return a cell's text, or "" if it is no Python."""
    try:
        ast.parse(text)
    except UNREADABLE:
        return ""
    return text


def answers_in(notebook: Any) -> dict[str, str]:
    """Return the text of each answer of a rebuilt notebook, by exercise."""
    return {
        str(cell.metadata["vklab"]["id"]): str(cell.source)
        for cell in notebook.cells
        if cell.metadata.get("vklab", {}).get("role") == "exercise"
    }


def _collected(cell: Any, given: Sequence[Cell]) -> tuple[str, str]:
    """Return the text of an answer, and the problem why there is none."""
    texts = {one.text for one in given}
    if not given:
        return "", f"the cell {cell.id} is not in the notebook: it was deleted or has lost its id"
    if len(texts) > 1:
        return "", (
            f"{len(given)} different cells have the id {cell.id}, so which one is the "
            "answer? Keep one"
        )
    if given[0].kind != cell.cell_type:
        return "", (
            f"the cell {cell.id} is a {given[0].kind or 'nameless'} cell; it must be a "
            f"{cell.cell_type} cell"
        )
    return given[0].text, ""


def _sliced(cells: Sequence[tuple[Any, str]]) -> list[tuple[Any, str]]:
    """Return the cells with the statements that the answers and checks need, in order."""
    needed: set[str] = set()
    kept: list[tuple[Any, str]] = []
    for cell, text in reversed(cells):
        about = cell.metadata.get("vklab", {})
        if about.get("role") in (*COLLECTED, "check"):
            needed |= names_read(text) if cell.cell_type == "code" else set()
            kept.append((cell, text))
            continue
        body = ast.parse(text).body
        statements = slices.needed_statements(body, needed, bool(about.get("define")))
        if statements:
            kept.append((cell, "\n".join(ast.unparse(node) for node in statements)))
    return kept[::-1]


def _about(cell: Any) -> dict[str, Any]:
    """Return a cell's metadata; what is kept of a demo is `given`, since demos are not run."""
    role = cell.metadata.get("vklab", {}).get("role")
    return dict(cell.metadata) if role in (*COLLECTED, "check") else {"vklab": {"role": "given"}}


def _notebook(released: Any, cells: Sequence[tuple[Any, str]]) -> Any:
    make = {"code": new_code_cell, "markdown": new_markdown_cell}
    made = [make[cell.cell_type](text, id=cell.id, metadata=_about(cell)) for cell, text in cells]
    notebook = new_notebook(cells=made, metadata=released.metadata)
    notebook.nbformat_minor = 5
    return notebook
