"""Commands on a batch of submissions: `vklab course grade`, `marks`, `report` and their kin."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from vklab.apps.cli import console
from vklab_course.cli.course_parts import part, show_results

__all__ = ["expire", "feedback", "grade", "grading", "judge", "marks", "regrade", "replay",
           "report", "rubric"]  # fmt: skip

grading = typer.Typer()
Results = Annotated[Path, typer.Option("--out", metavar="RESULTS", help="The results folder.")]
FromRelease = Annotated[
    Path, typer.Option("--release", metavar="RELEASE", help="The release that students got.")
]
SeedFile = Annotated[
    Path | None,
    typer.Option(
        "--seed-file",
        metavar="FILE",
        help="The secret seed; default: RESULTS/seed, made by the first run.",
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Submissions at a time, here.")]
DaskAddress = Annotated[
    str | None,
    typer.Option("--dask", metavar="ADDRESS", help="A Dask scheduler; `local` starts a cluster."),
]
Unsafe = Annotated[
    bool,
    typer.Option("--unsafe-no-sandbox", help="Run answers without a sandbox; gives no CSV."),
]
Image = Annotated[
    str,
    typer.Option("--sandbox-image", metavar="NAME@DIGEST", help="A container as the sandbox."),
]
RosterFile = Annotated[
    Path | None, typer.Option("--roster", metavar="FILE", help="The class, CSV with a header.")
]
LabNumber = Annotated[str, typer.Option("--lab", metavar="NN", help="One lab of the release.")]
AsJson = Annotated[bool, typer.Option("--json", help=console.JSON_HELP)]


def judge(unsafe: bool) -> Any:
    """Return the function that grades one job, in a sandboxed session or in plain Python."""
    return part("student.rehearsal").rehearse if unsafe else part("grade.judging").judge_one


def _batch(release: Path, out: Path, seed_file: Path | None, create: bool, **options: Any) -> Any:
    results, batch = part("grade.results.folder"), part("grade.batch")
    opened = part("grade.assignment.manifest").open_release(release)
    seed = results.read_seed(seed_file or out / "seed", create)
    if not options["unsafe"]:
        hidden = {"results": [out], "releases": [release], "labs": [part("places").labs_folder()]}
        part("grade.judging").require_sandbox(options.get("image", ""), hidden)
    return batch.Batch(
        opened,
        results.Results(out),
        part("places").labs_folder(),
        seed,
        judge(options["unsafe"]),
        batch.Options(**options),
    )


@grading.command("grade")
def grade(
    submissions: Annotated[Path, typer.Argument(metavar="SUBMISSIONS", help="Folder or LMS zip.")],
    release: FromRelease,
    out: Results,
    seed_file: SeedFile = None,
    jobs: Jobs = 1,
    dask: DaskAddress = None,
    roster: RosterFile = None,
    lab: LabNumber = "",
    attempts: Annotated[str, typer.Option(help="`last`, or `best` of all.")] = "last",
    unsafe: Unsafe = False,
    image: Image = "",
    as_json: AsJson = False,
) -> None:
    """Grade submissions: test the grader, then one sandboxed session and one record for each."""
    if attempts not in ("last", "best"):
        raise typer.BadParameter(f"--attempts {attempts}: choose last or best")
    known = part("grade.assignment.roster").read_roster(roster) if roster else None
    numbers = {student.id for student in known.students} if known else ()
    entries = part("grade.assignment.intake").read_submissions(submissions, numbers)
    batch = _batch(
        release,
        out,
        seed_file,
        True,
        lab=lab,
        attempts=attempts,
        processes=jobs,
        dask=dask,
        unsafe=unsafe,
        image=image,
    )
    new = []

    def tell(key: str, record: Any) -> None:
        new.append(key)
        said = (
            f"not graded: {record.broken}"
            if record.broken
            else (
                f"{record.points:g} of {record.of:g}"
                + (f", {record.cause}" if record.cause else "")
            )
        )
        console.warn(
            console.visible(f"{len(new)}: {record.submission.student}, {record.lab}: {said}")
        )

    records = part("grade.grade").grade(batch, entries, part("grade.selftest").self_test, tell)
    strangers = [
        r.submission.student for r in records.values() if known and known.find(r.submission) is None
    ]
    broken = {r.submission.file: r.broken for r in records.values() if r.broken}
    interrupted = {r.submission.file: r.interrupted for r in records.values() if r.interrupted}
    odd = [entry.note for entry in entries if entry.note]
    unmarked = sum(bool(record.unmarked) for record in records.values())
    facts = {
        "records": len(records),
        "new": len(new),
        "broken": broken,
        "interrupted": interrupted,
        "odd_names": odd,
        "not_in_roster": strangers,
        "unmarked": unmarked,
        "unsafe": unsafe,
        "results": str(out),
    }
    if as_json:
        console.emit(facts)
        return
    console.say(
        f"{len(records)} submissions, {len(new)} graded now, {len(broken)} not gradable"
        + (", WITHOUT A SANDBOX: no CSV" if unsafe else "")
    )
    for name, cause in broken.items():
        console.say(console.visible(f"  {name!r}: {cause}"), "yellow")
    for name, cause in interrupted.items():
        console.say(
            console.visible(f"  {name!r} was interrupted; what was judged counts: {cause}"),
            "yellow",
        )
    for note in odd:
        console.say(console.visible(f"  {note}"), "yellow")
    for name in strangers:
        console.say(f"  {name!r} is not in the roster", "yellow")
    if unmarked:
        console.say(f"  {unmarked} wait for marks by hand: vklab course rubric")


@grading.command("regrade")
def regrade(
    exercise: Annotated[list[str], typer.Option("--exercise", metavar="NN-K")],
    release: FromRelease,
    out: Results,
    seed_file: SeedFile = None,
    jobs: Jobs = 1,
    dask: DaskAddress = None,
    unsafe: Unsafe = False,
    image: Image = "",
    as_json: AsJson = False,
) -> None:
    """Mark exercises of everybody again, with today's definitions; show the differences."""
    batch = _batch(
        release, out, seed_file, False, processes=jobs, dask=dask, unsafe=unsafe, image=image
    )
    _show_changes(part("grade.regrade").regrade(batch, exercise), as_json)


@grading.command("replay")
def replay(
    student: Annotated[str, typer.Argument(metavar="ONE", help="Name, id or record.")],
    release: FromRelease,
    out: Results,
    seed_file: SeedFile = None,
    unsafe: Unsafe = False,
    image: Image = "",
    as_json: AsJson = False,
) -> None:
    """Grade one submission again on the same cases; nothing is written."""
    batch = _batch(release, out, seed_file, False, unsafe=unsafe, image=image)
    record, changes = part("grade.regrade").replay(batch, student)
    if not as_json:
        show_results(record.exercises)
    _show_changes(changes, as_json)


def _show_changes(changes: Any, as_json: bool) -> None:
    if as_json:
        console.emit(
            {
                "changes": [
                    {
                        "record": c.key,
                        "student": c.student,
                        "exercise": c.exercise,
                        "before": c.before.model_dump(),
                        "after": c.after.model_dump(),
                        "difference": c.difference,
                    }
                    for c in changes
                ]
            }
        )
        return
    rows = [
        (
            c.student,
            c.exercise,
            f"{c.before.points:g} {c.before.status}",
            f"{c.after.points:g} {c.after.status}",
            f"{c.difference:+g}",
        )
        for c in changes
    ]
    if rows:
        console.table("", ("student", "exercise", "before", "after", "difference"), rows)
    console.say(f"{len(rows)} marks differ, by {sum(c.difference for c in changes):+g} points")


@grading.command("report")
def report(release: FromRelease, out: Results) -> None:
    """Write RESULTS/report.html: distributions, statuses, messages and times."""
    results = part("grade.results.folder")
    folder = results.Results(out)
    opened = part("grade.assignment.manifest").open_release(release)
    page = part("grade.results.report").report_page(folder, opened)
    results.write_atomic(out / "report.html", page)
    console.say(str(out / "report.html"))


@grading.command("marks")
def marks(
    release: FromRelease,
    out: Results,
    form: Annotated[str, typer.Option("--format", help="generic, canvas or moodle.")] = "generic",
    lab: LabNumber = "",
    roster: RosterFile = None,
    assignment: Annotated[
        str, typer.Option(help="Canvas: the assignment, with its number: `Lab 04 (4711)`.")
    ] = "",
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE")] = None,
) -> None:
    """Write the marks as CSV for a gradebook."""
    facts = _lab(part("grade.assignment.manifest").open_release(release), lab)
    known = part("grade.assignment.roster").read_roster(roster) if roster else None
    results = part("grade.results.folder")
    text = part("grade.results.csvs").write_marks(
        results.Results(out).all(), facts, form, known, assignment
    )
    path = to or out / f"{facts.name}-{form}.csv"
    results.write_atomic(path, text)
    console.say(str(path))


def _lab(opened: Any, number: str) -> Any:
    labs = opened.manifest.labs
    if not number and len(labs) > 1:
        names = ", ".join(lab.number for lab in labs)
        raise typer.BadParameter(f"the release has labs {names}: choose one with --lab")
    return opened.lab(number) if number else labs[0]


@grading.command("feedback")
def feedback(
    release: FromRelease,
    out: Results,
    lab: LabNumber = "",
    hold_until: Annotated[
        datetime.datetime | None,
        typer.Option("--hold-until", formats=["%Y-%m-%d"], help="First day of feedback."),
    ] = None,
) -> None:
    """Write a feedback page for each student, and zips for the LMS, from a day on."""
    opened = part("grade.assignment.manifest").open_release(release)
    folder = part("grade.results.folder").Results(out)
    day = hold_until.date() if hold_until else None
    pages = part("grade.results.feedback")
    for path in pages.write_feedback(folder, opened, _lab(opened, lab), day):
        console.say(str(path))


@grading.command("rubric")
def rubric(
    out: Results,
    marked: Annotated[
        Path | None, typer.Option("--marks", metavar="FILE", help="The filled CSV, to read.")
    ] = None,
) -> None:
    """Write a CSV of the answers that people mark, or read it back with their points."""
    results, module = part("grade.results.folder"), part("grade.results.rubric")
    if marked:
        console.say(f"{module.apply_rubric(results.Results(out), marked)} marks by hand")
        return
    path = out / "rubric.csv"
    results.write_atomic(path, module.rubric_csv(results.Results(out)))
    console.say(str(path))


@grading.command("expire")
def expire(
    out: Results,
    days: Annotated[float, typer.Option(min=0, help="Keep what is younger.")] = 365.0,
) -> None:
    """Delete old answers and feedback pages of a results folder; the marks stay."""
    folder = part("grade.results.folder").Results(out)
    with folder.locked():
        console.say(f"{len(folder.expire(days))} files deleted; the marks stay in {folder.marks}")
