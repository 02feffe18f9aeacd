"""Self-test of a grader before a batch, under its secret seed: or else nothing is graded.

The reference solutions must get every point and the unsolved notebook none, both through the
session that grades; listed wrong answers and empty ones must fail, and second solutions must pass,
both in this process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import nbformat

from vklab_course.author import build
from vklab_course.author.answers import Answers, answers_of, fits
from vklab_course.author.lab import Lab, find_lab
from vklab_course.author.trials import empty_answers
from vklab_course.definition.exercise import Exercise, exercises_of
from vklab_course.grade import jobs as running
from vklab_course.grade.assignment import rebuild as rebuilding
from vklab_course.grade.assignment.manifest import LabFacts
from vklab_course.grade.assignment.submission import read_notebook
from vklab_course.grade.batch import BY_HAND, Batch, make_job
from vklab_course.grade.results.schema import GradeError
from vklab_course.student.rehearsal import verdict_on

__all__ = ["self_test"]

COUNTED = ("passed", "skipped")


def self_test(batch: Batch, labs: Sequence[LabFacts]) -> dict[str, Any]:
    """Return the counts of what was tried. Raises GradeError with every surprise."""
    surprises: list[str] = []
    times: dict[str, float] = {}
    tried = 0
    for facts in labs:
        variants = batch.release.variant(facts)
        lab = dataclasses.replace(find_lab(facts.number, batch.labs), variants=variants)
        surprises += list(_sessions(batch, facts, lab, times))
        tried += 2
        known = exercises_of(lab.number, variants)
        graded = [known[exercise.id] for exercise in facts.exercises]
        for count, surprise in _answers(graded, answers_of(lab), batch.seed):
            tried += count
            surprises += [f"{lab.name}: {surprise}"] if surprise else []
    if surprises:
        listed = "\n".join(f"  {surprise}" for surprise in surprises[:20])
        raise GradeError(f"the self-test failed, so nothing was graded:\n{listed}")
    return {"tried": tried, "passed": True, "times": times}


def _sessions(batch: Batch, facts: LabFacts, lab: Lab, times: dict[str, float]) -> Iterator[str]:
    """Grade the solution and the unsolved notebook as submissions; note the solution's times."""
    released = batch.release.notebook(facts)
    jobs = {}
    for name, notebook, wanted in (
        ("the solution", build.solution_notebook(lab), COUNTED),
        ("the unsolved notebook", build.student_notebook(lab), ("not_attempted", "skipped")),
    ):
        given = read_notebook(nbformat.writes(notebook, version=4).encode())
        job = make_job(
            batch, f"self-test {name}", facts, rebuilding.rebuild(released, given).text()
        )
        jobs[job.key] = (name, job, wanted)
    options = batch.options
    for job, outcome in running.run_jobs(
        [job for _, job, _ in jobs.values()], batch.judge, options.processes, options.dask
    ):
        name, _, wanted = jobs[job.key]
        broken = outcome.get("broken") or outcome.get("interrupted")
        if broken:
            yield f"{facts.name}: {name}: {broken}"
        for identifier in job.exercises:
            result = outcome.get("exercises", {}).get(identifier, {})
            if wanted == COUNTED and "seconds" in result:
                times[identifier] = float(result["seconds"])
            if not broken and result.get("status") not in wanted:
                yield (
                    f"{facts.name}: {name} is {result.get('status')} in {identifier}: "
                    f"{_said(result)}"
                )


def _said(result: dict[str, Any]) -> str:
    parts = [part.get("message", "") for part in result.get("parts", ())]
    return next((text for text in [*parts, *result.get("messages", ())] if text), "")[:300]


def _answers(known: Iterable[Exercise], answers: Answers, seed: str) -> Iterator[tuple[int, str]]:
    """Judge listed and empty answers; yield 1 for each, with the surprise or ""."""
    for exercise in known:
        if exercise.takes in BY_HAND:
            continue
        for key, answer, _, status in answers.wrong:
            if key == exercise.id:
                got = verdict_on(exercise, answer, seed)
                fine = fits(got.status, status) and got.status != "correct"
                yield 1, "" if fine else f"{key}: the wrong answer {_name(answer)} is {got.status}"
        for key, answer in answers.alternative:
            # A second solution is written for the first variant.
            if key == exercise.id and not exercise.variant:
                got = verdict_on(exercise, answer, seed)
                fine = got.status in COUNTED or got.status == "correct"
                yield (
                    1,
                    ""
                    if fine
                    else (f"{key}: the second solution {_name(answer)} is {got.status}:\n{got}"),
                )
        for name, answer in empty_answers(exercise, ()):
            got = verdict_on(exercise, answer, seed)
            said = f"{exercise.id}: {name} earns {got.points:g}"
            yield 1, said if got.points else ""


def _name(answer: Any) -> str:
    text = getattr(answer, "__name__", None) or str(answer).strip()
    return repr(text if len(text) <= 60 else f"...{text[-57:]}")
