"""Rehearsal of grading: run a rebuilt notebook in this process, and judge its answers.

It has no sandbox and protects nobody: a student runs it on their own answers, and tests run it in
place of a graded session. Call it in a process of its own (`jobs.run_jobs` does).
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import time
from collections.abc import Mapping
from typing import Any

import nbformat

from vklab_course.check import answers_for, check_answer, refusal
from vklab_course.definition import draw
from vklab_course.definition.exercise import Exercise, exercises_of, number_of
from vklab_course.definition.judge import judge
from vklab_course.definition.verdict import Verdict
from vklab_course.grade import jobs as running
from vklab_course.grade.jobs import Job, Outcome

__all__ = ["answer_expression", "rehearse", "result_of", "verdict_on"]


def rehearse(job: Job) -> Outcome:
    """Grade one job in this process; with the seed `public`, on the public cases."""
    os.environ["VKLAB_LABS"] = job.labs
    started = time.monotonic()
    notebook = nbformat.reads(job.notebook, as_version=4)
    exercises = exercises_of(number_of(job.lab), job.variant)
    names: dict[str, Any] = {"__name__": "__main__"}
    results: dict[str, Any] = {}
    failed: dict[str, str] = {}
    running.tell({})
    for cell in notebook.cells:
        about = cell.metadata.get("vklab", {})
        role, identifier = about.get("role", ""), about.get("id", "")
        if cell.cell_type != "code":
            continue
        if role == "check":
            if identifier in job.exercises:
                results[identifier] = _judged(
                    exercises[identifier], cell.source, names, failed, job
                )
                running.tell({identifier: results[identifier]})
            continue
        problem = _executed(cell.source, cell.id, names)
        if problem:
            failed[identifier if role == "exercise" else cell.id] = problem
    return {
        "exercises": results,
        "broken": "",
        "seconds": time.monotonic() - started,
        "environment": {},
        "sandbox": {"kind": "none"},
    }


def _executed(text: str, name: str, names: dict[str, Any]) -> str:
    """Run a cell; return how it failed, or ""."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(text, f"<cell {name}>", "exec"), names)
    except (Exception, SystemExit) as error:
        return f"the cell stopped with {type(error).__name__}: {error}"
    return ""


def answer_expression(text: str) -> ast.expr | None:
    """Return what a check cell passes to `check`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "check" and len(node.args) > 1:
            return node.args[1]
    return None


def _judged(
    exercise: Exercise, text: str, names: dict[str, Any], failed: Mapping[str, str], job: Job
) -> dict[str, Any]:
    expression = answer_expression(text)
    started = time.monotonic()
    try:
        if exercise.id in failed or expression is None:
            raise NameError(failed.get(exercise.id, "the check cell passes no answer"))
        answer = eval(compile(ast.Expression(expression), "<check>", "eval"), names)
    except Exception as error:
        return {
            "status": "error",
            "points": 0.0,
            "of": float(exercise.points),
            "parts": [],
            "messages": [str(error)[:2000], *failed.values()][:20],
            "seconds": time.monotonic() - started,
        }
    return result_of(verdict_on(exercise, answer, job.seed), time.monotonic() - started)


def verdict_on(exercise: Exercise, answer: Any, seed: str) -> Verdict:
    """Return the verdict on an answer of this process, on the cases of a seed.

    Args:
        exercise: the exercise.
        answer: the answer.
        seed: the secret, or `public`.
    """
    if seed == draw.PUBLIC:
        return check_answer(exercise, answer)
    refused = refusal(exercise, answer)
    if refused is not None:
        return Verdict(
            exercise.id, exercise.title, refused[0], 0, exercise.points, (), (refused[1],)
        )
    return judge(exercise, answers_for(exercise, answer), draw.draw(exercise, seed))


def result_of(verdict: Verdict, seconds: float) -> dict[str, Any]:
    """Return a verdict as the result of an exercise."""
    status = {"correct": "passed", "recorded": "needs_hand_marking"}.get(
        verdict.status, verdict.status
    )
    if status == "incorrect":
        status = "partial" if verdict.points else "failed"
    summary = verdict.summary()
    return {
        "status": status,
        "points": summary["points"],
        "of": float(verdict.of),
        "parts": summary["parts"],
        "messages": summary["messages"],
        "seconds": round(seconds, 3),
    }
