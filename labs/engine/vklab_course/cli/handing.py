"""Commands `vklab course release`, for instructors, and `vklab course submit`, for students."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from vklab.apps.cli import console
from vklab.errors import VklabError
from vklab_course.cli.course_parts import part, show_results

__all__ = ["HandingError", "handing", "release", "submit"]

handing = typer.Typer()


class HandingError(VklabError):
    """A notebook that is not handed in."""


AsJson = Annotated[bool, typer.Option("--json", help=console.JSON_HELP)]


@handing.command("release")
def release(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A new folder.")],
    numbers: Annotated[list[str] | None, typer.Argument(metavar="[NN]...")] = None,
    variant_seed: Annotated[
        str, typer.Option("--variant-seed", metavar="S", help="Draws the class's variants.")
    ] = "",
    grade_extra: Annotated[
        bool, typer.Option("--grade-extra", help="Grade extra exercises, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make what a class gets: notebooks in its variants, no solutions, no oracles."""
    lab = part("author.lab")
    labs = [lab.find_lab(number) for number in numbers or ()]
    labs = labs or [lab.read_lab(path) for path in lab.all_labs()]
    made = part("grade.assignment.release").release(labs, out, variant_seed, grade_extra)
    if as_json:
        console.emit(
            {
                "release": made.id,
                "labs": [one.model_dump() for one in made.labs],
                "variants": made.variants,
                "files": len(made.files),
            }
        )
        return
    rows = [
        (
            one.name,
            one.version,
            len(one.exercises),
            f"{one.points:g}",
            " ".join(one.not_graded),
            " ".join(
                f"{key}:{number}"
                for key, number in made.variants.items()
                if key.startswith(f"{one.number}-")
            ),
        )
        for one in made.labs
    ]
    console.table("", ("lab", "version", "graded", "points", "not graded", "variants"), rows)
    console.say(f"release {made.id} in {out}: {len(made.files)} files, no part of a solution")


@handing.command("submit")
def submit(
    number: Annotated[str, typer.Argument(metavar="NN")],
    notebook: Annotated[
        Path | None, typer.Argument(help="Your notebook; default: your copy in work/.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--to", metavar="FOLDER", help="Default: handed_in/, beside work/."),
    ] = None,
    untouched: Annotated[
        bool, typer.Option("--untouched", help="Hand in a lab with no answer without a question.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run your answers as the grader does, on the public cases, and write the file to hand in."""
    part("places").adopt_release()
    labs = part("places").labs_folder()
    facts, _ = part("student.submit").lab_facts(number)
    mine = notebook or labs.parent / "work" / f"{facts.name}.ipynb"
    if not untouched and part("student.submit").is_untouched(number, mine):
        _confirm(f"{mine} has the lab's own cells only: no answer of yours is in it.")
    done = part("student.submit").submit(number, mine, out or labs.parent / "handed_in")
    if as_json:
        console.emit(
            {
                "file": str(done.path),
                "points": done.points,
                "warnings": done.warnings,
                "interrupted": done.interrupted,
                "not_graded": done.not_graded,
                "exercises": {k: r.model_dump() for k, r in done.exercises.items()},
            }
        )
        return
    show_results(done.exercises)
    if done.interrupted:
        console.say(
            f"your notebook was stopped before its end: {done.interrupted}; the exercises "
            "judged before are above, and the grader would stop there too",
            "red",
        )
    for warning in done.warnings:
        console.say(f"warning: {warning}", "yellow")
    if done.not_graded:
        console.say(f"extra, not graded: {', '.join(done.not_graded)}")
    waiting = sum(r.of for r in done.exercises.values() if r.status == "needs_hand_marking")
    more = f", up to {waiting:g} more by hand" if waiting else ""
    console.say(f"{done.points:g} points on the public cases{more}; marks come from other cases")
    console.say(f"hand in this file: {done.path}", "bold")


def _confirm(what: str) -> None:
    """Ask whether to go on; raise HandingError if the answer is no, or if nobody can be asked."""
    if not sys.stdin.isatty():
        raise HandingError(f"{what} Save the notebook first; --untouched hands it in as it is")
    if not typer.confirm(f"{what} Hand it in all the same?"):
        raise HandingError("nothing was handed in")
