"""Page `start.ipynb` in the folder of the student's copies: what comes next, and every path.

It is written anew by each `vklab lab`, unless the student has changed it. Visited by lab 00.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbformat.v4 import new_markdown_cell, new_notebook

from vklab_course.author.build import KERNEL, write_notebook
from vklab_course.student.paths import EVERYTHING, Course, CoursePath, hours
from vklab_course.student.work import Progress, progress
from vklab_labs.shared.course_map import draw_map

__all__ = ["write_start"]

MARK = "start"  # in the page's metadata: its own cells, as they were written


def write_start(course: Course, path: Path) -> bool:
    """Write the page and tell whether it was written: a page that has been changed is kept.

    The student's copies lie beside it.
    """
    if path.exists() and not _is_ours(path):
        return False
    texts = _texts(course, path.parent)
    cells = [new_markdown_cell(text, id=f"start-{n}") for n, text in enumerate(texts)]
    notebook = new_notebook(cells=cells, metadata={"kernelspec": KERNEL, "vklab": {MARK: texts}})
    notebook.nbformat_minor = 5
    write_notebook(notebook, path)
    return True


def _is_ours(path: Path) -> bool:
    try:
        page = json.loads(path.read_text("utf-8"))
        texts = ["".join(cell["source"]) for cell in page["cells"]]
        return bool(texts == page["metadata"]["vklab"][MARK])
    except (OSError, ValueError, KeyError, TypeError):  # something else of this name
        return False


def _texts(course: Course, work: Path) -> list[str]:
    paths = course.whole()
    states = {path.name: progress(path, work) for path in paths}
    drawn = draw_map(course.labs, [path for path in paths if path.name != EVERYTHING])
    return [
        "# Start here\n"
        "Your copies of the labs lie in this folder. `vklab lab` writes this page anew at each "
        "start, with what you have solved in your saved notebooks. If you change the page, it "
        "stays as it is.\n\n"
        + "\n".join(f"* {_next(path, states[path.name])}" for path in paths)
        + "\n\nMinutes are estimates. Words: [glossary](GLOSSARY.md). Kernels: "
        "[Slang on one page](SLANG.md).",
        f"## What needs what\n{drawn.html}\n\n*{drawn.caption}*",
        *(_table(path, {one.name: one for one in states[path.name]}) for path in paths),
    ]


def _next(path: CoursePath, states: list[Progress]) -> str:
    after = next((state for state in states if not state.is_done), None)
    left = sum(state.minutes_left for state in states)
    if after is None:
        return f"**{path.title}**: all of it is done"
    long = hours(left) + (f" left of {hours(path.minutes)}" if left < path.minutes else "")
    (stop,) = (stop for stop in path.stops if stop.lab.name == after.name)
    return (
        f"**{path.title}** ({long}), for {path.for_whom}: "
        f"next is [{stop.lab.number} · {stop.lab.title}]({stop.lab.name}.ipynb)"
    )


def _table(path: CoursePath, states: Mapping[str, Progress]) -> str:
    rows = [f"## {path.title}", "| | lab | needs | minutes | solved |", "|---|---|---|---|---|"]
    for stop in path.stops:
        rows += [f"| | first read [{page.title}]({page.page}) | | | |" for page in stop.inserts]
        state: Any = states[stop.lab.name]
        needs = ", ".join(stop.lab.before + stop.lab.know)
        less = ", ".join(f"{section.number} ({section.title})" for section in stop.left_out)
        without = f", without section{'s' * (len(stop.left_out) > 1)} {less}" if less else ""
        rows.append(
            f"| {'✔' if state.is_done else ''} "
            f"| [{stop.lab.number} · {stop.lab.title}]({stop.lab.name}.ipynb){without} "
            f"| {needs} | {stop.minutes} | {state.solved} of {state.exercises} |"
        )
    return "\n".join(rows)
