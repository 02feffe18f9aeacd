"""Hand in a lab: rehearse grading on the public cases, name what would be lost, write the file."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from vklab_course import places, words
from vklab_course.definition import draw
from vklab_course.definition.exercise import chosen_variants, exercises_of, is_lab, number_of
from vklab_course.grade import jobs as running
from vklab_course.grade.assignment import manifest
from vklab_course.grade.assignment import rebuild as rebuilding
from vklab_course.grade.assignment.manifest import LabFacts
from vklab_course.grade.assignment.submission import BadSubmission, read_notebook
from vklab_course.grade.jobs import Job, Judge, Outcome
from vklab_course.grade.results import records
from vklab_course.grade.results.folder import write_atomic
from vklab_course.grade.results.schema import ExerciseResult, GradeError
from vklab_course.student.rehearsal import rehearse

__all__ = ["Handed", "is_untouched", "lab_facts", "submit", "warnings_of"]

REHEARSAL_S = 600.0
ABSOLUTE = re.compile(r"""["'](/(?:home|Users|root|mnt|tmp)/[^"']*|[A-Za-z]:\\\\?[^"']*)["']""")


@dataclass(frozen=True)
class Handed:
    """One file to hand in: its path, the results on public cases, and warnings.

    `interrupted` says why the run stopped before its last exercise, or "". `not_graded` are the
    extra exercises that have no marks.
    """

    path: Path
    lab: str
    exercises: dict[str, ExerciseResult]
    warnings: tuple[str, ...]
    interrupted: str = ""
    not_graded: tuple[str, ...] = ()

    @property
    def points(self) -> float:
        """Return the points on the public cases."""
        return sum(result.points for result in self.exercises.values())


def lab_facts(number: str) -> tuple[LabFacts, Any]:
    """Return a lab of the folder of labs, and its student notebook.

    In a release the release says which exercises are graded; elsewhere extra ones are not.
    """
    root = places.labs_folder()
    labs = sorted(path for path in root.glob("*.ipynb") if number_of(path.stem))
    path = next((path for path in labs if is_lab(number, path.stem)), None)
    if path is None:
        stems = [path.stem for path in labs]
        near = words.near(number, [*stems, *(stem.partition("_")[2] for stem in stems)])
        raise GradeError(
            f"there is no lab {number!r} in {root}; there is {', '.join(stems) or 'none'}.{near}"
        )
    notebook = nbformat.read(path, as_version=4)
    known = exercises_of(number_of(path.stem))
    facts = manifest.released_lab(root, path.stem) or manifest.lab_facts(
        path.stem, notebook, known, extra=False
    )
    return facts, notebook


def submit(number: str, mine: Path, out: Path, judge: Judge = rehearse, name: str = "") -> Handed:
    """Rehearse a notebook and write the file to hand in.

    Args:
        number: the lab, "04".
        mine: the student's notebook.
        out: folder of the file to hand in.
        judge: grades one job; runs in a process of its own.
        name: name of the file; default the lab's.

    Raises GradeError if the notebook cannot be graded.
    """
    facts, released = lab_facts(number)
    data = _data(mine)
    try:
        notebook = read_notebook(data)
        unversioned = dataclasses.replace(notebook, version="")
        rebuilding.check_lab(
            notebook if released.metadata["vklab"].get("version") else unversioned, facts
        )
    except BadSubmission as error:
        raise GradeError(f"{mine}: {error}") from None
    rebuilt = rebuilding.rebuild(released, notebook)
    exercises = tuple(e.id for e in facts.exercises if e.kind != "text")
    job = Job(
        facts.name,
        facts.name,
        rebuilt.text(),
        exercises,
        chosen_variants(),
        draw.PUBLIC,
        str(places.labs_folder()),
        unsafe=True,
    )
    ((_, outcome),) = running.run_jobs([job], judge, wall_s=REHEARSAL_S, again=False)
    if outcome.get("broken"):
        raise GradeError(f"{mine}: {outcome['broken']}")
    results = _results(facts, rebuilt.missing, outcome)
    path = out / f"{name or facts.name}.ipynb"
    write_atomic(path, _handed(data))
    told = (*warnings_of(released, data), *rebuilt.notes)
    why = str(outcome.get("interrupted", ""))
    return Handed(path, facts.name, results, told, why, facts.not_graded)


def is_untouched(number: str, mine: Path) -> bool:
    """Tell whether each cell of a notebook that is collected has the lab's own text.

    Raises GradeError if the notebook cannot be read.
    """
    _, released = lab_facts(number)
    try:
        cells = read_notebook(_data(mine)).by_id()
    except BadSubmission as error:
        raise GradeError(f"{mine}: {error}") from None
    return all(
        one.text.strip() == cell.source.strip()
        for cell in released.cells
        if cell.metadata.get("vklab", {}).get("role") in rebuilding.COLLECTED
        for one in cells.get(cell.id, [])
    )


def _data(mine: Path) -> bytes:
    try:
        return mine.read_bytes()
    except OSError as error:
        beside = [path.name for path in mine.parent.glob("*.ipynb")]
        raise GradeError(
            f"{mine} cannot be read: {error.strerror or error}.{words.near(mine.name, beside)}"
        ) from error


def _results(
    facts: LabFacts, missing: dict[str, str], outcome: Outcome
) -> dict[str, ExerciseResult]:
    results = records.results_of(outcome, {e.id: e.points for e in facts.exercises})
    for e in facts.exercises:
        if e.id in missing:
            results[e.id] = ExerciseResult(status="missing", of=e.points, messages=(missing[e.id],))
        elif e.kind == "text":
            results[e.id] = ExerciseResult(status="needs_hand_marking", of=e.points)
    return results


def _handed(data: bytes) -> str:
    """Return the notebook without outputs, as it is handed in."""
    notebook = nbformat.reads(data.decode("utf-8-sig"), as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return str(nbformat.writes(notebook, version=4)) + "\n"


def warnings_of(released: Any, data: bytes) -> list[str]:
    """Return what will not be collected, and what graded answers will miss."""
    notebook = read_notebook(data)
    mine, given = notebook.by_id(), {cell.id: cell for cell in released.cells}
    warnings = [
        f"you changed the cell {name} of the lab, which your answers need; the grader uses "
        "the lab's own text"
        for name in rebuilding.changed(released, notebook)
    ]
    defined = _defined_by_the_lab(given, mine)
    for identifier, cell in given.items():
        about = cell.metadata.get("vklab", {})
        if about.get("role") not in rebuilding.COLLECTED or cell.cell_type != "code":
            continue
        for one in mine.get(identifier, [])[:1]:
            lost = rebuilding.names_read(one.text) - defined - set(dir(builtins)) - {"__name__"}
            elsewhere = {name for name in lost if _binds(name, given, mine)}
            where = about.get("id", identifier)
            if elsewhere:
                warnings.append(
                    f"{where} uses {_list(elsewhere)}, defined by a cell that is not "
                    "collected: define it in the exercise cell or in the own cell"
                )
            if lost - elsewhere and about.get("role") == "exercise":
                warnings.append(f"{where} uses {_list(lost - elsewhere)}, which nothing defines")
            path = ABSOLUTE.search(one.text)
            if path:
                warnings.append(f"{where} names {path[1]!r}, which exists on your machine only")
    return warnings


def _list(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _names(text: str) -> set[str]:
    """Return the names that a cell binds at its left margin."""
    try:
        tree = ast.parse(text)
    except rebuilding.UNREADABLE:
        return set()
    bound = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            bound.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(a.asname or a.name).partition(".")[0] for a in node.names}
    return bound


def _defined_by_the_lab(given: dict[str, Any], mine: dict[str, list[Any]]) -> set[str]:
    """Return the names that exist in grading: of the lab's cells and of collected ones."""
    names: set[str] = set()
    for identifier, cell in given.items():
        if cell.cell_type != "code":
            continue
        collected = cell.metadata.get("vklab", {}).get("role") in rebuilding.COLLECTED
        texts = [one.text for one in mine.get(identifier, [])] if collected else [cell.source]
        names |= set().union(*map(_names, texts)) if texts else set()
    return names


def _binds(name: str, given: dict[str, Any], mine: dict[str, list[Any]]) -> bool:
    """Tell whether a cell that is not collected binds a name."""
    return any(
        name in _names(cell.text)
        for cells in mine.values()
        for cell in cells
        if cell.kind == "code"
    )
