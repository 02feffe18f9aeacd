"""Test a lab's checks on its solutions, second solutions, wrong answers and mutants.

All run as functions in one process, kernels in child processes. Of the notebook only the statements
that the answers need are executed: imports, definitions, exercise cells, and their values.
"""

from __future__ import annotations

import ast
import copy
import functools
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vklab_course import slices, words
from vklab_course.author import mutants, regions
from vklab_course.author.answers import Answers, fits
from vklab_course.author.lab import Cell, Lab, LabError
from vklab_course.author.mutants import Mutant
from vklab_course.check import answers_for, check_answer
from vklab_course.definition.case import Case
from vklab_course.definition.codec import Raised
from vklab_course.definition.draw import draw, public_cases
from vklab_course.definition.exercise import Exercise, exercises_of
from vklab_course.definition.judge import judge
from vklab_course.definition.verdict import Verdict

__all__ = [
    "MutantReport", "answer_of", "answer_problems", "empty_answers", "empty_problems",
    "names_after", "reject_mutants", "seed_problems", "try_mutants",
]  # fmt: skip

# A mutant or a wrong answer may loop for ever: stop it after a multiple of the solution's time. A
# kernel keeps the limit of its check.
MUTANT_S, MUTANT_TIMES = 1.0, 5
# Of an exercise's right results as many are tried as constants; and errors that answers may raise.
CONSTANTS = 5
ERRORS = (ValueError, LookupError, KeyError, TypeError, RuntimeError, StopIteration)
# Least share of rejected mutants, and the number of survivors that is always allowed.
REJECTED, ALLOWED = 0.9, 3


def names_after(lab: Lab, identifier: str) -> dict[str, Any]:
    """Return the names that the cells up to an exercise's define, with solutions in place."""
    cell = lab.named("exercise")[identifier]
    names = _definitions(lab, cell, lab.named("check")[identifier])
    _execute(lab, cell, ast.parse(regions.solved(lab, cell)), names)
    return names


def _definitions(lab: Lab, cell: Cell, check: Cell | None = None) -> dict[str, Any]:
    """Return the names that the cells before an exercise cell define, without running demos.

    Runs a slice of the notebook, computed from the last cell upwards: imports, and the statements
    whose names the exercise, its check or a kept statement reads.
    """
    texts = [regions.solved(lab, cell), check.text if check else ""]
    needed = set().union(*(slices.globals_read(text) for text in texts))
    before = lab.cells[: lab.cells.index(cell)]
    kept: list[tuple[Cell, list[ast.stmt]]] = []
    for earlier in reversed(before):
        if earlier.kind != "code" or earlier.role == "check":
            continue
        whole = earlier.role == "exercise" or bool(earlier.meta.get("define"))
        body = ast.parse(regions.solved(lab, earlier)).body
        kept.append((earlier, slices.needed_statements(body, needed, whole)))
    names: dict[str, Any] = {"__name__": f"lab_{lab.number}"}
    for earlier, statements in reversed(kept):
        _execute(lab, earlier, ast.Module(statements, []), names)
    return names


def _execute(lab: Lab, cell: Cell, tree: ast.Module, names: dict[str, Any]) -> None:
    try:
        exec(compile(tree, f"<{lab.name}, cell {cell.id}>", "exec"), names)
    except NameError as error:
        raise LabError(
            f"{lab.name}: cell {cell.id}: {error}; no statement at the left margin of "
            "the cells before binds the name: give the cell that does "
            'vklab={"define": true}'
        ) from error


def answer_of(lab: Lab, identifier: str, text: str | None = None) -> Any:
    """Return the answer that the check cell of an exercise passes to `check`.

    Args:
        lab: the lab.
        identifier: the exercise, "03-1".
        text: text of the exercise cell; None for its solution.
    """
    exercise, check = lab.named("exercise")[identifier], lab.named("check")[identifier]
    names = _definitions(lab, exercise, check)
    solved = regions.solved(lab, exercise) if text is None else text
    _execute(lab, exercise, ast.parse(solved), names)
    for node in ast.walk(ast.parse(check.text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "check" and len(node.args) > 1:
            return eval(compile(ast.Expression(node.args[1]), check.id, "eval"), names)
    raise LabError(f"{lab.name}: cell {check.id} does not call check({identifier!r}, answer)")


def answer_problems(
    lab: Lab,
    answers: Answers,
    takes: Sequence[str] = ("function", "kernel", "value"),
    every: int = 1,
) -> list[str]:
    """Check that solutions are correct, and that each listed answer gets its verdict.

    Args:
        lab: the lab.
        answers: its wrong answers and second solutions.
        takes: kinds of exercise to check.
        every: 3 tries every third wrong answer.
    """
    known = {k: e for k, e in exercises_of(lab.number).items() if e.takes in takes}
    cases = {key: public_cases(exercise) for key, exercise in known.items()}
    limits: dict[str, float | None] = {}
    problems = []
    for key, exercise in known.items():
        solution, started = answer_of(lab, key), time.monotonic()
        verdict = check_answer(exercise, solution, cases=cases[key])
        limits[key] = _patience(exercise, time.monotonic() - started)
        problems += _expect(key, "the solution", verdict, "correct") + _points(key, verdict)
        problems += _changing(exercise, solution, cases[key])
        if not any(k == key for k, _ in answers.alternative):
            problems.append(f"{key}: no second, independent solution")
        if not any(k == key for k, *_ in answers.wrong):
            problems.append(f"{key}: no wrong answer")
    for key, answer in ((k, a) for k, a in answers.alternative if k in known):
        problems += _expect(
            key,
            f"the second solution {_name(answer)}",
            check_answer(known[key], answer, cases=cases[key]),
            "correct",
        )
    wrong = [entry for entry in answers.wrong if entry[0] in known]
    for key, answer, says, status in wrong[::every]:
        verdict = check_answer(known[key], answer, limits[key], cases[key])
        problems += _expect(key, f"the wrong answer {_name(answer)}", verdict, status)
        if says not in str(verdict):
            problems.append(
                f"{key}: the verdict on {_name(answer)} does not say {says!r}:\n{verdict}"
            )
    return [f"{lab.name}: {problem}" for problem in problems]


def _changing(exercise: Exercise, solution: Any, cases: Sequence[Case]) -> list[str]:
    """Check that a solution which changes its arguments in place is refused for that."""
    if exercise.takes != "function":
        return []
    spoiled = 0

    def changes_its_arguments(*args: Any, **named: Any) -> Any:
        nonlocal spoiled
        result = copy.deepcopy(solution(*args, **named))
        spoiled += sum(map(_spoil, (*args, *named.values())))
        return result

    verdict = check_answer(exercise, changes_its_arguments, cases=cases)
    if not spoiled or "your function changed its argument" in str(verdict):
        return []
    return [f"{exercise.id}: the solution may change its arguments in place:\n{verdict}"]


def _spoil(value: Any) -> bool:
    """Change a value in place, or what is in it; tell whether it could be changed."""
    if isinstance(value, tuple):
        return sum(map(_spoil, value)) > 0  # each one, not only the first
    if isinstance(value, list):
        value.append(None)
    elif isinstance(value, dict):
        value["changed"] = None
    elif isinstance(value, np.ndarray) and value.size and value.flags.writeable:
        value.reshape(-1).view(np.uint8)[0] ^= 1
    else:
        return False
    return True


def _patience(exercise: Exercise, solved_s: float) -> float | None:
    """Return the time limit of an answer, from the time of the solution."""
    longest = max(MUTANT_S, MUTANT_TIMES * solved_s)
    return None if exercise.takes == "kernel" else min(exercise.seconds, longest)


def _expect(key: str, answer: str, verdict: Verdict, status: str) -> list[str]:
    if fits(verdict.status, status):
        return []
    return [f"{key}: {answer} is {verdict.status}, not {status}:\n{verdict}"]


def _points(key: str, verdict: Verdict) -> list[str]:
    total = sum(part.points for part in verdict.parts)
    if verdict.status != "correct" or total == verdict.of:
        return []
    return [f"{key}: the parts add up to {total:g} points, the exercise has {verdict.of:g}"]


def _name(answer: Any) -> str:
    text = getattr(answer, "__name__", None) or str(answer).strip()
    return repr(text if len(text) <= 60 else f"...{text[-57:]}")


# ------------------------------------------------------------------ empty answers, seeds, variants


def empty_problems(lab: Lab, every: int = 1) -> list[str]:
    """Check that an empty answer earns nothing: None, [], an echo, a raise, a constant.

    Args:
        lab: the lab.
        every: 3 tries every third answer.
    """
    problems = []
    for key, exercise in exercises_of(lab.number).items():
        if exercise.takes == "text":
            continue  # a person marks it
        cases = public_cases(exercise)
        for name, answer in itertools.islice(empty_answers(exercise, cases), 0, None, every):
            verdict = check_answer(exercise, answer, cases=cases)
            problems += [
                f"{lab.name}: {key}: {name} earns {part.earned:g} in {part.name!r}"
                for part in verdict.parts
                if part.earned
            ]
    return problems


def empty_answers(exercise: Exercise, cases: Sequence[Case]) -> Iterator[tuple[str, Any]]:
    """Yield answers that say nothing, each with its name; constants come from the cases, too."""
    values: list[Any] = [None, [], {}, (), "", 0, 1, True, ([], {}), (0, 0), ({}, 0)]
    if exercise.takes == "value":
        yield from ((words.short(value), value) for value in values)
    if exercise.takes != "function":
        return
    results = [case.expected for case in cases if not isinstance(case.expected, Raised)]
    step = max(1, len(results) // CONSTANTS)
    for value in [*values, *results[::step]]:
        yield f"the constant {words.short(value)}", lambda *_, value=value, **__: value
    for kind in ERRORS:
        yield f"raise {kind.__name__}", functools.partial(_raise, kind)
    yield "an echo of the arguments", lambda *given, **_: given
    yield "the first argument", lambda *given, **_: given[0] if given else None


def _raise(kind: type[Exception], *given: Any, **named: Any) -> None:
    raise kind("no")


def seed_problems(lab: Lab, seeds: int, takes: Sequence[str] = ("function", "value")) -> list[str]:
    """Check that every variant's solution is right under many seeds, and in its variant only.

    Args:
        lab: the lab in its default variant.
        seeds: number of seeds of each variant.
        takes: kinds of exercise to check.
    """
    problems = []
    for key, exercise in exercises_of(lab.number, {}).items():
        if exercise.takes not in takes:
            continue
        default = answer_of(replace(lab, variants={**lab.variants, key: 0}), key)
        for number in range(len(exercise.variants)):
            one = type(exercise)(number)
            own = replace(lab, variants={**lab.variants, key: number})
            answer = answer_of(own, key) if number else default
            for seed in range(seeds):
                cases = draw(one, f"seed {seed}")
                if judge(one, answers_for(one, answer), cases).status != "correct":
                    problems.append(
                        f"{lab.name}: {key}: the solution of variant {number} "
                        f"fails under seed {seed}"
                    )
                    break
            if number and judge(one, answers_for(one, default), cases).status == "correct":
                problems.append(
                    f"{lab.name}: {key}: the public solution is right in variant {number}, too"
                )
    return problems


# ------------------------------------------------------------------------------------------ mutants


@dataclass(frozen=True)
class MutantReport:
    """Number of mutants of one solution, and those that the check did not reject."""

    exercise: str
    count: int
    survivors: tuple[Mutant, ...]
    skipped: bool = False

    def __str__(self) -> str:
        rejected = self.count - len(self.survivors)
        return f"{self.exercise}: {rejected} of {self.count} mutants rejected"


def try_mutants(lab: Lab, exercise: Exercise, every: int = 1) -> MutantReport:
    """Run a check on the mutants of its solution.

    Args:
        lab: the lab.
        exercise: the exercise.
        every: 3 tries every third mutant.
    """
    cell = lab.named("exercise")[exercise.id]
    cases, solution = public_cases(exercise), answer_of(lab, exercise.id)
    started = time.monotonic()
    if check_answer(exercise, solution, cases=cases).status == "skipped":
        return MutantReport(exercise.id, 0, (), skipped=True)
    limit = _patience(exercise, time.monotonic() - started)
    count, survivors = 0, []
    for mutant in itertools.islice(mutants.mutants_of(lab, cell), 0, None, every):
        count += 1
        try:
            answer = answer_of(lab, exercise.id, mutant.text)
        except Exception:
            continue  # the mutant fails before it can be checked
        if check_answer(exercise, answer, limit, cases, explain=False).status == "correct":
            survivors.append(mutant)
    return MutantReport(exercise.id, count, tuple(survivors))


def reject_mutants(
    lab: Lab,
    answers: Answers,
    takes: Sequence[str] = ("function", "kernel", "value"),
    every: int = 1,
) -> Iterator[tuple[MutantReport, list[str]]]:
    """Yield for each exercise the report on its mutants, and its problems.

    Args:
        lab: the lab.
        answers: lists the mutants that no check can reject.
        takes: kinds of exercise to check.
        every: 3 tries every third mutant.
    """
    for key, exercise in exercises_of(lab.number).items():
        if exercise.takes not in takes:
            continue
        report = try_mutants(lab, exercise, every)
        listed = {(before, after) for k, before, after in answers.equivalent if k == key}
        problems = [
            f"{lab.name}: {key}: a mutant is accepted: {m.before!r} -> {m.after!r}; reject it, or "
            f"list it: equivalent({key!r}, {m.before!r}, {m.after!r}, because=...)"
            for m in report.survivors
            if (m.before, m.after) not in listed
        ]
        if len(report.survivors) > max(ALLOWED, (1 - REJECTED) * report.count):
            problems.append(f"{lab.name}: {report}; at least {100 * REJECTED:g} % must be")
        gone = listed - {(m.before, m.after) for m in report.survivors}
        if not report.skipped and every == 1:
            problems += [
                f"{lab.name}: {key}: {before!r} -> {after!r} is listed, and rejected or no mutant"
                for before, after in sorted(gone)
            ]
        yield report, problems
