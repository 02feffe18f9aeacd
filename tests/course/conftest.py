"""Every test that asks for `case` runs on each lab of the project, and on the fixture lab."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import filelock
import pytest

from stand_ins import loaded_python as forks
from support.course import class_of_students, hand_ins
from support.runs import python_server
from vklab.shader import modules, toolchain
from vklab_course.author import build
from vklab_course.author.lab import Lab, all_labs, read_lab
from vklab_course.grade import own_process
from vklab_course.grade.assignment.manifest import Release
from vklab_course.grade.batch import Batch
from vklab_course.grade.results.schema import ExerciseResult, SubmissionResult
from vklab_course.grade.selftest import self_test
from vklab_course.places import PROJECT

own_process.PRELOADED.append("support.course.class_of_students")  # a second of imports for each job

FIXTURE = Path(__file__).resolve().parent / "labs"
FIXTURE_LAB = "90_fixture"


# Of tests with processes every third case runs by default.
SAMPLED, SAMPLE_STEP = (
    (
        "test_the_report_says_what_became_of_each_cell",
        "test_counted_modules_are_valid",
        "test_optimised_and_old_modules_are_counted_alike",
        "test_swiftshader_counts_as_lavapipe_does",
        "test_a_hostile_answer_earns_nothing_and_the_next_exercise_goes_on",
        "test_a_cheat_is_named",
        "test_a_planted_fault_is_found",
        "test_a_broken_extension_leaves_jupyterlab_whole",
    ),
    3,
)
# By default every third solution is executed; the commit says which third.
ROTATING = "test_the_solution_gives_its_outputs_again["
# Long gates that run on the fixture lab by default, and on every lab with --all.
LONG_GATES = (
    "test_the_unsolved_notebook_runs_to_its_end", "test_mutants_of_kernels_are_rejected",
    "test_every_variant_of_kernels_has_one_solution_under_many_seeds",
    "test_solutions_second_solutions_and_wrong_answers_of_kernels",
)  # fmt: skip


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark long gates of all labs but the fixture, and most cases of long tests, as slow."""
    for item in items:
        if item.name.startswith(LONG_GATES) and FIXTURE_LAB not in item.name:
            item.add_marker(pytest.mark.slow)
    for name in SAMPLED:
        cases = [
            item
            for item in items
            if item.name.startswith(f"{name}[") and item.get_closest_marker("slow") is None
        ]
        for number, item in enumerate(cases):
            if number % SAMPLE_STEP:
                item.add_marker(pytest.mark.slow)
    first = number_of_commit()
    rotating = [item for item in items if item.name.startswith(ROTATING)]
    for number, item in enumerate(rotating):
        if (number + first) % SAMPLE_STEP and FIXTURE_LAB not in item.name:
            item.add_marker(pytest.mark.slow)


def number_of_commit() -> int:
    """Return a number made of the hash of the commit's tree, or 0 where there is no git."""
    words = ["git", "rev-parse", "HEAD^{tree}"]
    try:
        done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True)
    except FileNotFoundError:
        return 0
    return 0 if done.returncode else int(done.stdout[:8], 16)


@dataclass(frozen=True)
class Case:
    """One lab with the folder that its notebooks are in."""

    lab: Lab
    root: Path

    @property
    def student(self) -> Path:
        return self.root / f"{self.lab.name}.ipynb"

    @property
    def solution(self) -> Path:
        return self.root / "solutions" / f"{self.lab.name}.ipynb"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise `lab_path` by the sources that are there: no list of labs is kept by hand."""
    if "lab_path" in metafunc.fixturenames:
        paths = [*all_labs(PROJECT / "labs"), *all_labs(FIXTURE)]
        metafunc.parametrize("lab_path", paths, ids=[path.stem for path in paths])


@pytest.fixture(scope="session", autouse=True)
def compiled_modules(loaded_compiler: None) -> None:
    """Compile what kernels import before the time of a child with a kernel begins."""
    tools = toolchain.find_toolchain("slang")
    if tools:
        modules.folder(tools)


@pytest.fixture
def fresh_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start children as a student's notebook does, not as forks of a server."""
    monkeypatch.delenv(forks.PLAIN, raising=False)
    monkeypatch.delenv(forks.NOTEBOOKS, raising=False)


@pytest.fixture(scope="session")
def loaded_notebooks(
    loaded_python: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Keep a Python with JupyterLab's kernel and pytest loaded, for tests that run notebooks."""
    with python_server.running(tmp_path_factory.mktemp("n"), forks.NOTEBOOKS):
        yield


@pytest.fixture(scope="session")
def built_root(private_cache: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the fixture lab, built by the first worker that needs it."""
    built = Path(private_cache) / "fixture_lab"
    with filelock.FileLock(f"{built}.lock"):
        if not built.exists():
            made = tmp_path_factory.mktemp("course") / "labs"
            shutil.copytree(FIXTURE, made)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("VKLAB_LABS", str(made))
                lab = read_lab(made / "source" / "90_fixture.py")
                build.write_student(lab)
                build.write_solution(lab)
            shutil.copytree(made, built)
    root = tmp_path_factory.mktemp("course") / "labs"
    shutil.copytree(built, root)
    return root


@pytest.fixture
def fixture_lab(built_root: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """Return the fixture lab; its checks are found."""
    monkeypatch.setenv("VKLAB_LABS", str(built_root))
    return Case(read_lab(built_root / "source" / "90_fixture.py"), built_root)


@pytest.fixture
def case(lab_path: Path, request: pytest.FixtureRequest) -> Iterator[Case]:
    """Return one lab."""
    if lab_path.is_relative_to(FIXTURE):
        yield request.getfixturevalue("fixture_lab")
    else:
        yield Case(read_lab(lab_path), lab_path.parent.parent)


@pytest.fixture(scope="module")
def class_labs() -> Iterator[Path]:
    """Name the folder of the lab that a class hands in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VKLAB_LABS", str(class_of_students.LABS))
        yield class_of_students.LABS


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """Return a release of that lab."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VKLAB_LABS", str(class_of_students.LABS))
        return class_of_students.make_release(tmp_path_factory.mktemp("release") / "out")


@pytest.fixture(scope="module")
def graded(
    class_labs: Path, release: Release, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Batch, dict[str, SubmissionResult], Path]:
    """Grade a small class once, with the self-test: the batch, its records, the submissions."""
    root = tmp_path_factory.mktemp("graded")
    folder = class_of_students.many(release, root / "in", class_of_students.SMALL)
    class_of_students.hand_in(folder / "broken, =1.ipynb", b"{")
    return (
        *class_of_students.run(release, folder, root / "out", test=self_test, processes=2),
        folder,
    )


@pytest.fixture(scope="module")
def honest(
    release: Release, class_labs: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, ExerciseResult]]:
    """Return the marks of the two honest submissions when nobody else hands in."""
    root = tmp_path_factory.mktemp("honest")
    _, records = class_of_students.run(release, hand_ins.beside(release, root / "in"), root / "out")
    return {r.submission.student: r.exercises for r in records.values()}
