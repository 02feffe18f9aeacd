"""The gates, held on every lab that there is. None of them keeps a list of labs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from support.course import notebooks
from support.runs import tiers
from vklab_course.author import gates, trials
from vklab_course.author.answers import answers_of
from vklab_course.definition import draw
from vklab_course.definition.case import Case
from vklab_course.definition.exercise import Exercise, exercises_of

pytestmark = pytest.mark.usefixtures("loaded_notebooks")
# By default every fifth wrong answer is tried, every 40th kernel and mutant; with --all, all.
sampled = pytest.mark.parametrize("every", tiers.sample(5, 1))
rarely = pytest.mark.parametrize("every", tiers.sample(40, 1))


@pytest.fixture(scope="module", autouse=True)
def drawn_once() -> Iterator[None]:
    """Draw the public cases of an exercise once, and not again in each gate.

    A gate asks many answers about the same cases, so none may change them.
    """
    drawn: dict[tuple[type[Exercise], int], list[Case]] = {}

    def cases(exercise: Exercise) -> list[Case]:
        key = type(exercise), exercise.variant
        if key not in drawn:
            drawn[key] = draw.public_cases(exercise)
        return drawn[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials, "public_cases", cases)
        yield


def clean(problems):
    assert not problems, "\n" + "\n".join(problems)


def test_the_source_and_what_was_built_from_it(case):
    clean(gates.static_problems(case.lab))


@pytest.mark.full
@sampled
def test_solutions_second_solutions_and_wrong_answers(case, every):
    clean(trials.answer_problems(case.lab, answers_of(case.lab), ("function", "value"), every))


@pytest.mark.full
@rarely
def test_solutions_second_solutions_and_wrong_answers_of_kernels(case, every):
    clean(trials.answer_problems(case.lab, answers_of(case.lab), ("kernel",), every))


def mutants(case, takes, every):
    for report, problems in trials.reject_mutants(case.lab, answers_of(case.lab), takes, every):
        print(report)
        clean(problems)


@pytest.mark.full
@rarely
def test_mutants_of_functions_are_rejected(case, every):
    mutants(case, ("function", "value"), every)


@pytest.mark.full
@rarely
def test_mutants_of_kernels_are_rejected(case, every):
    mutants(case, ("kernel",), every)


@pytest.mark.full
def test_the_unsolved_notebook_runs_to_its_end(case, tmp_path):
    path = tmp_path / "work" / case.student.name
    path.parent.mkdir()
    shutil.copy(case.student, path)
    report, executed = notebooks.run(
        path, tmp_path / "out", "--nbval-lax", "--nbval-cell-timeout", "120"
    )
    assert report["ok"], report
    found = gates.verdicts_of(executed)
    statuses = {key: found.get(key, {}).get("status") for key in exercises_of(case.lab.number)}
    assert set(statuses.values()) <= {"not_attempted", "skipped"}, statuses
    shown = [o.data for c in executed.cells for o in c.get("outputs", ()) if "data" in o]
    notes = [data["text/plain"] for data in shown if "error" in str(data.get(gates.verdict.NOTE))]
    assert not notes


@pytest.mark.full
def test_the_solution_gives_its_outputs_again(case, tmp_path):
    report, executed = notebooks.run(
        case.solution, tmp_path, "--nbval", "--nbval-cell-timeout", "120"
    )
    assert report["ok"], report
    clean(gates.said_problems(case.lab, executed))
    found = gates.verdicts_of(executed)
    statuses = {key: found.get(key, {}).get("status") for key in exercises_of(case.lab.number)}
    assert set(statuses.values()) <= {"correct", "recorded", "skipped"}, statuses


@pytest.mark.full
@sampled
def test_an_empty_answer_earns_nothing(case, every):
    clean(trials.empty_problems(case.lab, every))


@pytest.mark.full
@pytest.mark.parametrize("seeds", tiers.sample(1, 200))
def test_every_variant_has_one_solution_under_many_seeds(case, seeds):
    clean(trials.seed_problems(case.lab, seeds))


@pytest.mark.full
@pytest.mark.parametrize("seeds", tiers.sample(1, 10))
def test_every_variant_of_kernels_has_one_solution_under_many_seeds(case, seeds):
    clean(trials.seed_problems(case.lab, seeds, ("kernel",)))
