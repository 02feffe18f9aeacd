"""Layout of a lab: minutes, links, headings, ids, and the cells that every lab has.

Each function takes a lab and returns problems, as the gates do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vklab_course.author.lab import Cell, Lab, all_labs
from vklab_course.definition.exercise import exercises_of, number_of

__all__ = ["LINK", "Section", "layout_problems", "minutes_estimate", "minutes_without", "sections"]

# Fitted to five labs, most of them sums of what readers with a clock needed for each section. Each
# estimate was within 14 %.
WORDS_A_MINUTE, MINUTES_A_LINE_READ = 110, 0.2
MINUTES_AN_EXERCISE, MINUTES_A_LINE_WRITTEN = 9.0, 0.5
TOLERANCE, WORDS = 0.2, 2200  # words at most, without extra exercises
# The student writes something of their own within this share of the cells.
FIRST_ANSWER, SHORT = 1 / 3, 12  # a lab with SHORT cells before it is short enough
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)\s]+)\)")


@dataclass(frozen=True)
class Section:
    """A numbered section of a lab: its cells, from that with the heading to the next heading's."""

    number: int
    title: str
    cells: tuple[Cell, ...]


def sections(lab: Lab) -> dict[str, Section]:
    """Return the numbered sections of a lab by the id of the cell with their heading."""
    found = [(c, line) for c, line in _heading_lines(lab) if line.startswith("## ")]
    starts = [lab.cells.index(cell) for cell, _ in found] + [len(lab.cells)]
    made = {}
    for (cell, line), start in zip(found, starts, strict=False):
        numbered = re.match(r"## (\d+) · (.*)", line)
        if numbered:  # (one cell may have two headings)
            stop = next(other for other in starts if other > start)
            made[cell.id] = Section(int(numbered[1]), numbered[2], lab.cells[start:stop])
    return made


def minutes_without(lab: Lab, left_out: tuple[Section, ...]) -> int:
    """Return the minutes of a notebook without some sections, by their share of the estimate."""
    skipped = [cell for section in left_out for cell in section.cells]
    share = _estimate(skipped) / (_estimate(lab.cells) or 1)
    return round(lab.minutes * (1 - share))


def minutes_estimate(lab: Lab) -> float:
    """Return the estimated minutes of a lab: words and code to read, lines to write.

    Cells of an extra exercise are left out.
    """
    return _estimate(_required(lab))


def _required(lab: Lab) -> list[Cell]:
    known = exercises_of(lab.number)
    extras = {key for key, exercise in known.items() if exercise.extra}
    return [cell for cell in lab.cells if cell.exercise not in extras]


def _words(cells: Iterable[Cell]) -> int:
    texts = [c.text for c in cells if c.kind == "markdown" and not c.meta.get("extra")]
    return sum(len(re.findall(r"\w+", text)) for text in texts)


def _estimate(given: Iterable[Cell]) -> float:
    cells = [cell for cell in given if not cell.meta.get("extra")]
    words = _words(cells)
    demos = [cell for cell in cells if cell.kind == "code" and cell.role == "demo"]
    read = sum(len(cell.text.splitlines()) for cell in demos)
    exercises = [cell for cell in cells if cell.role == "exercise"]
    written = sum(float(cell.meta.get("lines", 0)) for cell in exercises)
    return (
        words / WORDS_A_MINUTE
        + MINUTES_A_LINE_READ * read
        + MINUTES_AN_EXERCISE * len(exercises)
        + MINUTES_A_LINE_WRITTEN * written
    )


def layout_problems(lab: Lab) -> list[str]:
    """Check minutes, words, links, ids, headings, and the order of the cells of each exercise."""
    problems = [
        *_minutes(lab),
        *_needs(lab),
        *_links(lab),
        *_ids(lab),
        *_headings(lab),
        *_exercises(lab),
        *_hints(lab),
    ]
    return [f"{lab.name}: {problem}" for problem in problems]


def _minutes(lab: Lab) -> Iterator[str]:
    estimate = minutes_estimate(lab)
    if abs(lab.minutes - estimate) > TOLERANCE * estimate:
        yield (
            f"{lab.minutes} minutes are stated; words, code and exercises make about {estimate:.0f}"
        )
    stated = f"{lab.minutes} minutes"
    if stated not in lab.cells[0].text:
        yield f"the first cell does not say {stated!r}, as the header does"
    words = _words(_required(lab))
    if words > WORDS:
        yield f"{words:,} words, at most {WORDS:,}: say each thing once, or mark what is extra"


def _needs(lab: Lab) -> Iterator[str]:
    first, there = lab.cells[0].text, {number_of(path.stem) for path in all_labs(_root(lab))}
    for number in lab.before:
        if number == lab.number or number not in there:
            yield f"it needs lab {number} before it, which is no other lab of this folder"
        if not re.search(rf"\b{number}\b", first):
            yield f"the first cell does not name lab {number}, which the header has in `before`"
    for words in lab.know:
        if words not in first:
            yield f"the first cell does not say {words!r}, which the header has in `know`"


def _root(lab: Lab) -> Path:
    return lab.path.parent.parent


def _links(lab: Lab) -> Iterator[str]:
    for cell in lab.cells:
        for target in LINK.findall(cell.text) if cell.kind == "markdown" else ():
            if not (_root(lab) / target.partition("#")[0]).exists():
                yield f"cell {cell.id}: links to {target}, which does not exist"


def _ids(lab: Lab) -> Iterator[str]:
    # A cell keeps its id where its exercise moves to another lab.
    homes = {lab.number, *(number_of(cell.exercise) for cell in lab.cells)} - {""}
    for cell in lab.cells:
        if not cell.id.startswith(tuple(f"l{number}-" for number in homes)):
            yield f"cell {cell.id}: ids of this lab start with l{lab.number}-"


def _headings(lab: Lab) -> Iterator[str]:
    number, level, exercise = 0, 1, 0
    known = exercises_of(lab.number)
    for cell, line in _heading_lines(lab):
        depth = len(line) - len(line.lstrip("#"))
        if depth > level + 1:
            yield f"cell {cell.id}: {line!r} follows a heading of level {level}"
        level = depth
        numbered = re.match(r"## (\d+) · ", line)
        if numbered:
            number += 1
            if int(numbered[1]) != number:
                yield f"cell {cell.id}: section {numbered[1]} is the {number}. one"
        if re.match(r"#+ Exercise\b", line):
            exercise += 1
            if not line.startswith(f"### Exercise {exercise} · "):
                yield f"cell {cell.id}: write '### Exercise {exercise} · ...', not {line!r}"
            own = known.get(f"{lab.number}-{exercise}")
            if own and own.extra != line.endswith("extra)"):
                yield f"cell {cell.id}: 'extra)' ends the headings of extra exercises only"


def _heading_lines(lab: Lab) -> Iterator[tuple[Cell, str]]:
    for cell in lab.cells:
        fenced = False
        for line in cell.text.splitlines() if cell.kind == "markdown" else ():
            fenced ^= line.startswith("```")
            if re.match(r"#+ ", line) and not fenced:
                yield cell, line


def _exercises(lab: Lab) -> Iterator[str]:
    own = [cell for cell in lab.cells if cell.role == "own"]
    if len(own) != 1:
        yield f"{len(own)} cells have the role 'own': write one, for the student's helpers"
    order = {cell.id: place for place, cell in enumerate(lab.cells)}
    exercises, checks = lab.named("exercise"), lab.named("check")
    for key in exercises.keys() & checks.keys():
        if order[exercises[key].id] > order[checks[key].id]:
            yield f"{key}: the check stands before the exercise"
    first = min((order[cell.id] for cell in exercises.values()), default=0)
    if first > max(SHORT, FIRST_ANSWER * len(lab.cells)):
        yield (
            f"the first exercise is cell {first + 1} of {len(lab.cells)}: students write "
            "something of their own within the first third"
        )


def _hints(lab: Lab) -> Iterator[str]:
    for cell in lab.cells:
        if cell.kind == "code" and re.search(r"^\s*hint\(", cell.text, re.M):
            yield f"cell {cell.id}: comment the hint out, or Shift+Enter spends it"
        if cell.kind == "markdown" and re.search(r"\*\*Predict", cell.text):
            yield f"cell {cell.id}: a prediction in text; write a cell with predict(...)"
