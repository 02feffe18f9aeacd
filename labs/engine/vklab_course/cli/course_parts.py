"""Shared by the commands of the course: import of its modules, and the table of results."""

from __future__ import annotations

import importlib
from typing import Any

from vklab.apps.cli import console
from vklab.errors import SetupError

__all__ = ["part", "show_results"]


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
