"""Commands `vklab course mine ...`: list, show, compare and remove kept answers."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any

import typer

from vklab.apps.cli import console
from vklab_course.cli.course_parts import Work, named_work, part

__all__ = ["difference", "listed", "mine", "remove", "text"]

mine = typer.Typer(help="Answers of yours that are kept in work/mine, and used in later labs.")
AsJson = Annotated[bool, typer.Option("--json", help=console.JSON_HELP)]
Identifier = Annotated[str, typer.Argument(metavar="ID", help="The exercise, 09-3.")]


@mine.callback(invoke_without_command=True)
def listed(context: typer.Context, work: Work = None, as_json: AsJson = False) -> None:
    """List the kept answers, and whether each can still be used."""
    context.obj = named_work(work, False)
    if context.invoked_subcommand:
        return
    kept = part("student.kept")
    rows = [_row(context.obj, identifier) for identifier in kept.stored(context.obj)]
    if as_json:
        console.emit({"kept": rows})
        return
    if not rows:
        console.say("no answer is kept yet; a correct answer to an exercise that builds a piece is")
        return
    columns = ("exercise", "answer", "builds", "lines", "state")
    console.table("", columns, [tuple(str(row[name]) for name in columns) for row in rows])


def _row(work: Path, identifier: str) -> dict[str, Any]:
    kept = part("student.kept")
    row = {"exercise": identifier, "answer": "", "builds": "", "lines": 0}
    try:
        answer, same = kept.read(work, part("definition.exercise").find(identifier))
    except (kept.KeptError, LookupError) as error:
        return {**row, "state": f"cannot be used: {error}"}
    return {
        **row,
        "answer": answer.name,
        "builds": answer.builds,
        "lines": len(answer.text.splitlines()),
        "state": "as it was judged" if same else "changed: judged again when it is used",
    }


def _read(context: typer.Context, identifier: str) -> tuple[Any, Any]:
    """Return an exercise and its kept answer. Raises KeptError with the ids that are kept."""
    kept = part("student.kept")
    known = kept.stored(context.obj)
    if identifier not in known:
        there = ", ".join(known) or "none"
        raise kept.KeptError(f"no answer to {identifier!r} is kept; there is {there}")
    exercise = part("definition.exercise").find(identifier)
    return exercise, kept.read(context.obj, exercise)[0]


@mine.command("show")
def text(context: typer.Context, identifier: Identifier) -> None:
    """Print the text of a kept answer."""
    print(_read(context, identifier)[1].text, end="")


@mine.command("diff")
def difference(context: typer.Context, identifier: Identifier) -> None:
    """Compare a kept answer with the one in the saved notebook; exit 1 if they differ."""
    exercise, answer = _read(context, identifier)
    notebook = context.obj / answer.lab
    now = part("student.keeping").answer_of(exercise, part("student.keeping").saved(notebook))
    lines = list(
        difflib.unified_diff(
            answer.text.splitlines(),
            now.text.splitlines(),
            f"kept {identifier}",
            str(notebook),
            lineterm="",
        )
    )
    print("\n".join(lines) or "the kept answer is the one in the notebook")
    raise typer.Exit(1 if lines else 0)


@mine.command("remove")
def remove(context: typer.Context, identifier: Identifier) -> None:
    """Remove a kept answer; your notebook is not changed."""
    kept = part("student.kept")
    path = kept.path_of(context.obj, identifier)
    if identifier not in kept.stored(context.obj):
        _read(context, identifier)
    path.unlink()
    console.say(f"{path} is removed; later labs use the runtime's own")
