"""Shared by the commands of the course: import of its modules, its folder, the table of results."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from vklab.apps.cli import console
from vklab.errors import SetupError

__all__ = ["Work", "named_work", "part", "show_results"]

Work = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="The student's copies; default: work/.")
]


def part(name: str) -> Any:
    """Import a module of vklab_course, which needs the packages of an extra."""
    try:
        return importlib.import_module(f"vklab_course.{name}")
    except ModuleNotFoundError as error:
        if str(error.name).startswith("vklab"):
            raise SetupError(
                f"this installation has no {error.name}", "update vklab and vklab-course"
            ) from None
        extra = "labs,grade" if name.startswith(("grade.", "student.")) else "labs"
        text = f"{error.name} is not installed here; `vklab course` needs it"
        raise SetupError(text, f'pip install "vklab-course[{extra}]"') from None


def named_work(given: Path | None, or_empty: bool) -> Path:
    """Return the folder of the student's copies, of a release too; one that is named must be one.

    Args:
        given: the folder that a command names; None for `work/`.
        or_empty: whether an empty folder will do.
    """
    part("places").adopt_release()
    labs = Path(part("places").labs_folder())
    if given is not None:
        part("student.work").require(labs, given, or_empty)
    return given or labs.parent / "work"


def show_results(exercises: Any) -> None:
    """Print the results of exercises as a table."""
    rows = []
    for key, result in exercises.items():
        told = [part.message for part in result.parts if not part.passed and part.message]
        said = " ".join(" ".join([*told, *result.messages][:1]).split())[:200]
        row = (key, result.status, f"{result.points:g} of {result.of:g}", said)
        if result.status == "needs_hand_marking":
            row = (key, "hand", f"– of {result.of:g}", "a person marks this answer")
        rows.append(row)
    console.table("", ("exercise", "status", "points", "message"), rows)
