"""Commands `vklab course ...`: build and check labs, update the student's copies, show progress."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vklab.apps.cli import console
from vklab.errors import VklabError
from vklab_course.cli.course_parts import Work, named_work, part
from vklab_course.cli.grading import grading
from vklab_course.cli.handing import handing
from vklab_course.cli.mine import mine

__all__ = ["build", "course", "lint", "new", "progress", "showcase", "update"]

course = typer.Typer(no_args_is_help=True, help="Build, check and update the labs.")
Numbers = Annotated[
    list[str] | None, typer.Argument(metavar="[NN]...", help="Labs by number; default: all.")
]


def _chosen(numbers: list[str] | None) -> list[Any]:
    sources = part("author.lab")
    if numbers:
        return [sources.find_lab(number) for number in numbers]
    return [sources.read_lab(path) for path in sources.all_labs()]


course.add_typer(handing)
course.add_typer(grading)
course.add_typer(mine, name="mine")


@course.command("build")
def build(
    numbers: Numbers = None,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Do not execute the solution notebook.")
    ] = False,
) -> None:
    """Build the student notebook and the executed solution notebook of each lab."""
    builds = part("author.build")
    for lab in _chosen(numbers):
        console.say(f"{lab.name}: {builds.write_student(lab)}")
        if not no_run:
            console.say(f"{lab.name}: {builds.write_solution(lab)}")


@course.command("new")
def new(
    number: Annotated[str, typer.Argument(metavar="NN")],
    slug: Annotated[str, typer.Argument(metavar="SLUG", help="Small letters, digits and _.")],
) -> None:
    """Create the three files of a new lab."""
    for path in part("author.new").new_lab(number, slug):
        console.say(str(path))


@course.command("lint")
def lint(
    numbers: Numbers = None,
    no_mutants: Annotated[
        bool, typer.Option("--no-mutants", help="Do not try mutants of the solutions.")
    ] = False,
) -> None:
    """Check labs, and all paths, by gates that execute no notebook; exit 1 if one fails."""
    wrong = [] if numbers else _path_problems()
    for problem in wrong:
        console.say(problem, "red")
    failed = bool(wrong)
    for lab in _chosen(numbers):
        problems = _problems(lab, not no_mutants)
        failed |= bool(problems)
        for problem in problems:
            console.say(problem, "red")
        if not problems:
            console.say(f"{lab.name}: fine", "green")
    raise typer.Exit(1 if failed else 0)


def _path_problems() -> list[str]:
    paths = part("student.paths")
    course = paths.Course(part("places").labs_folder())
    try:
        named = [course.path(name) for name in course.names if name != paths.EVERYTHING]
    except VklabError as error:
        return [str(error)]
    return [gap for path in named for gap in path.gaps()]


def _problems(lab: Any, mutants: bool) -> list[str]:
    trials = part("author.trials")
    try:
        problems: list[str] = part("author.gates").static_problems(lab)
        answers = part("author.answers").answers_of(lab)
        problems += trials.answer_problems(lab, answers)
        for report, wrong in trials.reject_mutants(lab, answers) if mutants else ():
            console.say(f"{lab.name}: {report}")
            problems += wrong
    except VklabError as error:
        return [str(error)]
    return problems


@course.command("update")
def update(work: Work = None) -> None:
    """Update the student's copies of changed labs, cell by cell; keep everything they wrote."""
    folder = named_work(work, True)
    outcomes = part("student.work").update(part("places").labs_folder(), folder)
    changed = [done for done in outcomes if done.status != "unchanged"]
    for done in changed:
        detail = f" ({done.detail})" if done.detail else ""
        console.say(f"{done.name}: {done.status}{detail}")
    rest = len(outcomes) - len(changed)
    console.say(f"{rest} of {len(outcomes)} copies were up to date")


@course.command("progress")
def progress(
    work: Work = None,
    path: Annotated[
        str, typer.Option(metavar="NAME", help="A path through the course; default: all labs.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help=console.JSON_HELP)] = False,
) -> None:
    """Show which exercises are solved in the saved notebooks, what is next, and how long it is."""
    paths, mine = part("student.paths"), named_work(work, False)
    chosen = paths.Course(part("places").labs_folder()).path(path or paths.EVERYTHING)
    entries = part("student.work").progress(chosen, mine)
    if not any((mine / f"{entry.name}.ipynb").exists() for entry in entries):
        console.warn(f"{mine} has no copies of these labs yet; `vklab lab` makes them")
    after = next((entry.name for entry in entries if not entry.is_done), None)
    left = sum(entry.minutes_left for entry in entries)
    done = sum(entry.is_done for entry in entries)
    if not path:
        entries.sort(key=lambda entry: entry.name)
    if as_json:
        facts = {"path": chosen.name, "done": done, "minutes": chosen.minutes, "minutes_left": left}
        labs = [{**vars(entry), "minutes_left": entry.minutes_left} for entry in entries]
        console.emit({"labs": labs, **facts, "next": after})
        return
    known = part("definition.verdict").STATUSES
    rows = [
        (
            entry.name,
            f"{entry.solved} of {entry.exercises}",
            f"{entry.points:g} of {entry.of:g}",
            f"{entry.minutes_left} of {entry.minutes}",
            " ".join(
                f"{known.get(status, '?')[0]} {key}" for key, status in entry.statuses.items()
            ),
        )
        for entry in entries
    ]
    console.table("", ("lab", "solved", "points", "minutes left", "exercises"), rows)
    console.say(
        f"{chosen.title}: {done} of {len(entries)} labs are done; about {paths.hours(left)} of "
        f"{paths.hours(chosen.minutes)} are left; next: {after or 'nothing'}"
    )


@course.command("showcase")
def showcase(
    model: Annotated[
        Path | None, typer.Argument(metavar="[MODEL.onnx]", help="Default: the course's models.")
    ] = None,
    work: Work = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Default: showcase.html in work/.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help=console.JSON_HELP)] = False,
) -> None:
    """Run models with all kept answers inside the runtime, and write one page about it."""
    pages, folder = part("student.showcase"), named_work(work, False)
    done = pages.showcase(folder, part("check").judged_text, model, console.warn)
    path = out or folder / "showcase.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(pages.html(done), encoding="utf-8")
    if as_json:
        shown = {each.target.name: each.rows for each in done.shown}
        functions = [vars(function) for function in done.functions]
        console.emit({"page": str(path), "functions": functions, "models": shown})
        return
    for each in done.shown:
        console.table(each.target.name, ("", "naive", "yours", "vklab"), each.rows)
    for function in done.functions:
        if not function.mine and function.said != "no answer is kept":
            console.say(f"{function.id} is vklab's own: {function.said}", "yellow")
    mine = sum(function.mine for function in done.functions)
    console.say(f"{mine} of {len(done.functions)} functions are yours: {path}", "bold")
