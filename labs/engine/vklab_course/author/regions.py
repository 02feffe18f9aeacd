"""Regions of a lab's source: solutions, and the stubs in their place.

`### BEGIN SOLUTION` in Python, `// ### BEGIN SOLUTION` in the text of a shader.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from vklab_course.author.lab import Cell, Lab, LabError
from vklab_course.definition.exercise import LAB, find
from vklab_course.definition.kinds import Predict

__all__ = ["Line", "lines_of", "solution_lines", "solved", "stub", "unsolved"]

MARK = re.compile(r"^(\s*)(#|//)\s?###?#? (BEGIN|END) (SOLUTION)\s*$")
PYTHON_MARK = re.compile(r"^(\s*)()###\s+(BEGIN|END) (SOLUTION)\s*$")


@dataclass(frozen=True)
class Line:
    """One line of a cell: its text, and its region (mark, solution or none)."""

    text: str
    region: str = ""
    mark: str = ""


def lines_of(lab: Lab, cell: Cell) -> list[Line]:
    """Return a cell's lines with their regions. Raises LabError if marks do not pair."""
    lines: list[Line] = []
    inside = ""
    for text in lab.rendered(cell).splitlines():
        match = PYTHON_MARK.match(text) or MARK.match(text)
        if match is None:
            lines.append(Line(text, inside.lower()))
            continue
        begins, name = match[3] == "BEGIN", match[4]
        if begins == bool(inside) or (inside and inside != name):
            raise LabError(f"{lab.path.name}, cell {cell.id}: {text.strip()} does not pair")
        inside = name if begins else ""
        kind = "shader" if match[2] == "//" else "python"
        lines.append(Line(text, "mark", f"{match[3]} {name} {kind}"))
    if inside:
        raise LabError(f"{lab.path.name}, cell {cell.id}: no ### END {inside}")
    return lines


def stub(cell: Cell, mark: Line) -> str:
    """Return the line that replaces a solution in the student's notebook.

    In a function the stub raises when called; in a shader it stops the compiler; at the left
    margin, where an error would end the cell, it is a comment (the author sets the name to `...`).
    """
    lab, _, number = cell.exercise.partition("-")
    where = f"Lab {lab}, exercise {number}"
    indent = mark.text[: len(mark.text) - len(mark.text.lstrip())]
    if mark.mark.endswith("shader"):
        return f"{indent}#error {where}: replace this line by your own"
    if indent:
        return f'{indent}raise NotImplementedError("{where}: replace this line by your own")'
    return f"# {where}: your answer goes here"


def unsolved(lab: Lab, cell: Cell) -> str:
    """Return the text of a cell for students, with stubs in place of solutions."""
    kept = []
    for line in lines_of(lab, cell):
        if line.mark.startswith("BEGIN SOLUTION"):
            kept.append(stub(cell, line))
        elif not line.region:
            kept.append(line.text)
    return "\n".join(kept).rstrip()


def solved(lab: Lab, cell: Cell) -> str:
    """Return the text of a cell with its solution, without marks."""
    kept = (line for line in lines_of(lab, cell) if line.region in ("", "solution"))
    return _predicted("\n".join(line.text for line in kept).rstrip())


def _predicted(text: str) -> str:
    """Write the right values into a call of `predict`, for the solution notebook."""
    call = re.search(rf"\bpredict\(\s*[\"']({LAB}-p\d+)[\"']", text)
    if call is None:
        return text
    right = find(call[1])
    assert isinstance(right, Predict)
    values = right.answers()
    return re.sub(r"\b(\w+)=\.\.\.", lambda m: f"{m[1]}={values.get(m[1], ...)!r}", text)


def solution_lines(lab: Lab) -> list[str]:
    """Return every line of every solution, stripped."""
    return [
        line.text.strip()
        for cell in lab.cells
        for line in lines_of(lab, cell)
        if line.region == "solution" and line.text.strip()
    ]
