"""Report on a batch: one static page with the distribution, statuses and messages of each exercise.

The bars are SVG in the palette of Okabe and Ito, each with its number as text, so that nothing is
told by colour alone.
"""

from __future__ import annotations

from markupsafe import Markup, escape

from vklab_course.grade.assignment.manifest import Release
from vklab_course.grade.results.folder import Results
from vklab_course.grade.results.schema import GradeError
from vklab_course.grade.results.statistics import (
    ExerciseStatistics,
    LabStatistics,
    common_conditions,
    statistics,
)
from vklab_course.page import page

__all__ = ["bars", "histogram", "report_page"]

FILLS = ("var(--bar-good)", "var(--bar-part)", "var(--bar-bad)", "var(--bar-none)",
         "var(--bar-hand)")  # fmt: skip
# A pattern of its own for each group: stripes tell bars apart in print.
DASHES = ("none", "6 3", "2 2", "1 5", "10 2")
WIDTH, HEIGHT, LABEL = 720, 150, 144


def report_page(results: Results, release: Release) -> str:
    """Return the page for all labs of a results folder. Raises GradeError without records."""
    records = results.all()
    names = {record.lab for record in records.values()}
    labs = [statistics(records.values(), lab) for lab in release.manifest.labs if lab.name in names]
    if not labs:
        raise GradeError(f"there are no marks in {results.folder} of the labs of this release")
    known = {lab.name for lab in release.manifest.labs}
    unknown = [record for record in records.values() if record.lab not in known]
    return page(
        "report.html.j2",
        labs=labs,
        bars=bars,
        histogram=histogram,
        unknown=unknown,
        conditions=common_conditions(records),
        release=release.manifest,
        run=results.run(),
    )


def histogram(lab: LabStatistics) -> Markup:
    """Return the distribution of a lab's points as SVG, with its numbers."""
    most = max(lab.bins) or 1
    step = WIDTH / len(lab.bins)
    shapes = []
    for number, count in enumerate(lab.bins):
        height = (HEIGHT - 50) * count / most
        x, y = number * step, HEIGHT - 25 - height
        shapes.append(
            f'<rect x="{x + 3:.1f}" y="{y:.1f}" width="{step - 6:.1f}" '
            f'height="{height:.1f}" fill="{FILLS[0]}"/>'
        )
        shapes.append(_text(x + step / 2, y - 5, str(count)) if count else "")
        shapes.append(
            _text(
                x + step / 2,
                HEIGHT - 8,
                f"{100 * number // len(lab.bins)}–{100 * (number + 1) // len(lab.bins)} %",
            )
        )
    counts = ", ".join(f"{100 * n // len(lab.bins)} %: {count}" for n, count in enumerate(lab.bins))
    return _svg(shapes, HEIGHT, f"submissions by share of the points, from {counts}")


def bars(exercise: ExerciseStatistics) -> Markup:
    """Return the groups of an exercise as one bar, with its numbers."""
    total = sum(exercise.groups.values()) or 1
    x = 0.0
    shapes: list[str] = []
    said: list[str] = []
    for (name, count), fill, dash in zip(exercise.groups.items(), FILLS, DASHES, strict=True):
        width = WIDTH * count / total
        if count:
            shapes += [
                f'<rect x="{x:.1f}" y="0" width="{width:.1f}" height="24" fill="{fill}"/>',
                f'<line x1="{x:.1f}" x2="{x + width:.1f}" y1="22" y2="22" stroke="var(--text)" '
                f'stroke-width="3" stroke-dasharray="{dash}"/>',
            ]
        label = f"{name}: {count}"
        at = len(said) * LABEL
        shapes.append(f'<rect x="{at}" y="34" width="12" height="12" fill="{fill}"/>')
        shapes.append(f'<text x="{at + 18}" y="45">{escape(label)}</text>')
        said.append(label)
        x += width
    return _svg(shapes, 52, ", ".join(said))


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(text)}</text>'


def _svg(shapes: list[str], height: int, said: str) -> Markup:
    return Markup(
        f'<svg role="img" aria-label="{escape(said)}" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}">{"".join(shapes)}</svg>'
    )
