"""Gates of a lab that execute no notebook: each is a function of a lab that returns problems.

`vklab course lint` prints the problems. The gates of answers and mutants are in `trials`; those of
executed notebooks are in the tests.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat

from vklab_course.author import build, leaks, regions
from vklab_course.author.answers import taught_in
from vklab_course.author.lab import ROLES, Cell, Lab
from vklab_course.author.layout import layout_problems
from vklab_course.definition import verdict
from vklab_course.definition.exercise import LAB, exercises_of

__all__ = [
    "LEAK_CHARACTERS", "TAGS", "format_problems", "leak_problems", "output_problems",
    "rebuild_problems", "said_problems", "skeleton_problems", "source_problems",
    "static_problems", "verdicts_of",
]  # fmt: skip

TAGS = {"nbval-ignore-output", "nbval-check-output", "nbval-skip", "raises-exception",
        "hide-input", "hide-output", "hide-cell"}  # fmt: skip
# Shorter lines (`return total`) occur by chance.
LEAK_CHARACTERS = 25
STUB = re.compile(
    r'^\s*(raise NotImplementedError\("Lab |#error Lab |# Lab ' + LAB + r", exercise )|\b\w+=\.\.\."
)
# The columns that fit beside JupyterLab's side bar on a laptop's screen.
COLUMNS = 100
# `extra` marks what is optional, as the cells of an extra exercise are: not in the minutes.
KNOWN = {"role", "id", "points", "needs", "lines", "define", "says", "extra"}
ADDRESS = re.compile(r"\bat 0x[0-9a-f]{6,}|<[\w.]+ object at")


def static_problems(lab: Lab) -> list[str]:
    """Return the problems of every gate of this module, for a lab and its built notebooks."""
    root = lab.path.parent.parent
    student, solution = root / f"{lab.name}.ipynb", root / "solutions" / f"{lab.name}.ipynb"
    problems = source_problems(lab) + layout_problems(lab)
    problems += rebuild_problems(lab, student, solution)
    if not student.is_file() or not solution.is_file():
        return problems
    problems += format_problems(lab, student) + output_problems(lab, solution)
    problems += skeleton_problems(lab, student, solution)
    cells = nbformat.read(student, as_version=4).cells
    given = [(f"{student.name}, cell {cell.id}", cell.source) for cell in cells]
    known = exercises_of(lab.number).values()
    given += [(f"a hint of {exercise.id}", hint) for exercise in known for hint in exercise.hints]
    return problems + leak_problems(lab, given) + leaks.problems(lab, given, taught_in(lab))


def source_problems(lab: Lab) -> list[str]:
    """Check a source: roles, tags, ids of exercises, regions, points, code that parses."""
    problems = [p for cell in lab.cells for p in _cell_problems(lab, cell)]
    exercises, checks = lab.named("exercise"), lab.named("check")
    known = exercises_of(lab.number)
    for missing in sorted(exercises.keys() ^ checks.keys()):
        problems.append(f"{missing}: write one exercise cell and one check cell")
    for missing in sorted(exercises.keys() ^ known.keys()):
        where = "the source" if missing in known else f"checks/lab_{lab.number}.py"
        problems.append(f"{missing}: not in {where}")
    for key in exercises.keys() & known.keys():
        points = exercises[key].meta.get("points")
        if points != known[key].points:
            problems.append(
                f"{key}: {points} points in the source, {known[key].points} in the check"
            )
    for key, cell in checks.items():
        if not re.search(rf"""\bcheck\(\s*["']{key}["']\s*,""", cell.text):
            problems.append(f"{cell.id}: does not call check({key!r}, ...)")
    first = next((cell.text for cell in lab.cells if cell.kind == "markdown"), "")
    if not first.startswith("# "):
        problems.append("the first text does not start with a title (`# ...`)")
    return [f"{lab.name}: {problem}" for problem in problems]


def _lines_of_all_variants(lab: Lab, cell: Cell) -> dict[str, None]:
    """Return each line that some student of a class reads in this cell, once."""
    own = exercises_of(lab.number).get(cell.exercise)
    texts = [cell.text]
    for number in range(len(own.variants) if own and "[[" in cell.text else 0):
        texts.append(replace(lab, variants={cell.exercise: number}).rendered(cell))
    return dict.fromkeys(line for text in texts for line in text.splitlines())


def _cell_problems(lab: Lab, cell: Cell) -> list[str]:
    problems = []
    if cell.role not in ROLES:
        problems.append(f"role {cell.role!r} is none of {', '.join(ROLES)}")
    unknown = sorted(set(cell.meta) - KNOWN)
    if unknown:
        problems.append(f"metadata {', '.join(unknown)} is not known")
    problems += [f"tag {tag!r} is not allowed" for tag in cell.tags if tag not in TAGS]
    if cell.id.endswith("-setup") and "hide-input" not in cell.tags:
        problems.append('not folded: give the set-up cell tags=["hide-input"]')
    lines = regions.lines_of(lab, cell)
    if cell.role == "exercise" and not any(line.region == "solution" for line in lines):
        problems.append("an exercise without a solution region")
    if cell.role != "exercise" and any(line.region == "solution" for line in lines):
        problems.append("a solution outside of an exercise cell")
    if cell.role in ("exercise", "check") and not re.fullmatch(LAB + r"-[1-9]\d?", cell.exercise):
        problems.append(f"exercise id {cell.exercise!r}: write {lab.number}-1, {lab.number}-2 ...")
    if "says" in cell.meta and (cell.kind != "markdown" or not cell.meta["says"]):
        problems.append("says: list what a text names of the output beside it, in a text cell")
    if cell.kind == "markdown":
        problems += _image_problems(cell.text)
    else:
        wide = [line for line in _lines_of_all_variants(lab, cell) if len(line) > COLUMNS]
        problems += [f"{len(line)} columns: {line[:40]}..." for line in wide]
        for name, text in (
            ("unsolved", regions.unsolved(lab, cell)),
            ("solved", regions.solved(lab, cell)),
        ):
            problems += _parse_problems(name, text)
    return [f"cell {cell.id}: {problem}" for problem in problems]


def _parse_problems(name: str, text: str) -> list[str]:
    try:
        ast.parse(text)
    except SyntaxError as error:
        return [f"the {name} code does not parse: line {error.lineno}: {error.msg}"]
    return []


def _image_problems(text: str) -> list[str]:
    images = [m.group() for m in re.finditer(r"!\[\s*\]\([^)]*\)", text)]
    images += [
        m.group()[:60]
        for m in re.finditer(r"<img\b[^>]*>", text)
        if not re.search(r"\balt=[\"'][^\"']", m.group())
    ]
    return [f"an image without alt text: {image}" for image in images]


def rebuild_problems(lab: Lab, student: Path, solution: Path) -> list[str]:
    """Check that the notebooks on disk have the cells of a fresh build.

    Args:
        lab: the lab.
        student: path of the student notebook.
        solution: path of the solution notebook.
    """
    problems = []
    for path, built in (
        (student, build.student_notebook(lab)),
        (solution, build.solution_notebook(lab)),
    ):
        if not path.is_file():
            problems.append(
                f"{lab.name}: {path} does not exist; run vklab course build {lab.number}"
            )
            continue
        there = nbformat.read(path, as_version=4)
        if there.metadata.get("vklab") != built.metadata["vklab"]:
            problems.append(
                f"{lab.name}: {path.parent.name}/{path.name} has another header than its source; "
                f"run vklab course build {lab.number}"
            )
        if [_core(cell) for cell in there.cells] != [_core(cell) for cell in built.cells]:
            changed = [
                a.id for a, b in zip(there.cells, built.cells, strict=False) if _core(a) != _core(b)
            ][:3]
            problems.append(
                f"{lab.name}: {path.parent.name}/{path.name} is not what its source "
                f"gives (cells {', '.join(changed) or 'missing'}); "
                f"run vklab course build {lab.number}"
            )
    return problems


def _core(cell: Any) -> tuple[Any, ...]:
    return cell.id, cell.cell_type, cell.source, json.dumps(cell.metadata, sort_keys=True)


def format_problems(lab: Lab, student: Path) -> list[str]:
    """Check that a student notebook is valid 4.5, without outputs or execution counts."""
    notebook = nbformat.read(student, as_version=4)
    problems = []
    if (notebook.nbformat, notebook.nbformat_minor) != (4, 5):
        problems.append("not nbformat 4.5")
    try:
        nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        problems.append(f"not valid: {error.message}")
    ids = [cell.id for cell in notebook.cells]
    if len(set(ids)) != len(ids):
        problems.append("ids are not unique")
    for cell in notebook.cells:
        if cell.cell_type == "code" and (cell.outputs or cell.execution_count is not None):
            problems.append(f"cell {cell.id} has outputs")
    return [f"{lab.name}: {problem}" for problem in problems]


def output_problems(lab: Lab, solution: Path) -> list[str]:
    """Check a solution's outputs: every exercise correct, alt text, no memory addresses."""
    notebook = nbformat.read(solution, as_version=4)
    problems = []
    verdicts = verdicts_of(notebook)
    for key in lab.named("exercise"):
        status = verdicts.get(key, {}).get("status", "not shown")
        if status not in ("correct", "recorded", "skipped"):
            problems.append(f"exercise {key} of the solution is {status}")
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        compared = build.IGNORE not in cell.metadata.get("tags", ())
        for output in cell.outputs:
            problems += [f"cell {cell.id}: {p}" for p in _output_problems(output, compared)]
    return [f"{lab.name}: {problem}" for problem in problems] + said_problems(lab, notebook)


def said_problems(lab: Lab, notebook: Any) -> list[str]:
    """Check that the output beside a text has what the text names: its metadata `says`.

    Args:
        lab: the lab.
        notebook: an executed notebook of it; beside a text are the code cells before and after it.
    """
    problems, cells = [], notebook.cells
    said = {cell.id: cell.meta.get("says", ()) for cell in lab.cells}
    for number, cell in enumerate(cells):
        code = [
            [c for c in part if c.cell_type == "code"] for part in (cells[:number], cells[number:])
        ]
        beside = "".join(_printed(c) for c in (*code[0][-1:], *code[1][:1]))
        problems += [
            f"{lab.name}: cell {cell.id} names {text!r}, which is not in the output beside it"
            for text in said.get(cell.id, ())
            if text not in beside
        ]
    return problems


def _printed(cell: Any) -> str:
    return "".join(
        str(o.get("text", "")) + str(o.get("data", {}).get("text/plain", "")) for o in cell.outputs
    )


def _output_problems(output: Any, compared: bool) -> list[str]:
    if output.output_type == "error":
        return [f"raises {output.ename}: {output.evalue}"]
    data = output.get("data", {"text/plain": output.get("text", "")})
    problems = []
    if verdict.NOTE in data:
        problems.append(f"a note stands in place of an answer: {data['text/plain']}")
    if any(kind in data for kind in ("image/png", "image/jpeg")):
        problems.append("an image without alt text: give the figure to picture(...)")
    if "<img" in str(data.get("text/html", "")):
        problems += _image_problems(str(data["text/html"]))
    if compared and ADDRESS.search(str(data)):
        problems.append("a memory address is printed, which differs in every run")
    return problems


def verdicts_of(notebook: Any) -> dict[str, dict[str, Any]]:
    """Return the last verdict of each exercise in a notebook's outputs."""
    verdicts: dict[str, dict[str, Any]] = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            shown = output.get("data", {}).get(verdict.MIME)
            if isinstance(shown, dict) and isinstance(shown.get("id"), str):
                verdicts[shown["id"]] = shown
    return verdicts


def skeleton_problems(lab: Lab, student: Path, solution: Path) -> list[str]:
    """Check that a solution only replaces stubs: all other lines of the notebooks are equal.

    Args:
        lab: the lab.
        student: path of the student notebook.
        solution: path of the solution notebook.
    """
    given = {
        c.id: build.deeper(c.cell_type, c.source)
        for c in nbformat.read(student, as_version=4).cells
    }
    done = {c.id: c.source for c in nbformat.read(solution, as_version=4).cells}
    problems = []
    for key in given.keys() | done.keys():
        before, after = given.get(key, "").splitlines(), done.get(key, "").splitlines()
        matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
        for kind, start, end, _, _ in matcher.get_opcodes():
            removed = [line for line in before[start:end] if not STUB.search(line)]
            if kind != "equal" and (removed or start == end):
                problems.append(
                    f"{lab.name}: cell {key}: solving changes {removed or 'lines'} "
                    "outside of the marked regions"
                )
    return problems


def leak_problems(lab: Lab, texts: Iterable[tuple[str, str]]) -> list[str]:
    """Check that no line of a solution occurs in the student's files.

    Args:
        lab: the lab.
        texts: names and texts: the student notebook's cells, the hints, a release's files.
    """
    secret = [line for line in regions.solution_lines(lab) if len(line) >= LEAK_CHARACTERS]
    problems = []
    for name, text in texts:
        lines = {line.strip() for line in text.splitlines()}
        problems += [
            f"{lab.name}: {name} contains the line {line!r}"
            for line in dict.fromkeys(secret)
            if line in lines
        ]
    return problems
