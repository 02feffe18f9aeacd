"""`vklab course ...`: build labs from their sources, and what else their authors need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vklab.cli import console
from vklab.course import build as builds
from vklab.course import lab as sources

__all__ = ["build", "course"]

course = typer.Typer(no_args_is_help=True, help="Build, check and update the labs.")
Numbers = Annotated[
    list[str] | None, typer.Argument(metavar="[NN]...", help="Labs by number; default: all.")
]


def _chosen(numbers: list[str] | None) -> list[sources.Lab]:
    if numbers:
        return [sources.find_lab(number) for number in numbers]
    return [sources.read_lab(path) for path in sources.all_labs()]


@course.command("build")
def build(
    numbers: Numbers = None,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Do not execute the solution notebook.")
    ] = False,
    hidden: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Write the hidden tests here as well.")
    ] = None,
) -> None:
    """Make the student notebook and the executed solution notebook of labs."""
    for lab in _chosen(numbers):
        console.say(f"{lab.name}: {builds.write_student(lab)}")
        if not no_run:
            console.say(f"{lab.name}: {builds.write_solution(lab)}")
        if hidden:
            console.say(f"{lab.name}: {builds.write_hidden(lab, hidden)}")
