"""Batches: self-test, jobs that crash or lose their worker, restarts, second looks, pages.

The judge of these tests is the rehearsal: real answers, no sandbox. The sandbox has its own tests.
"""

from __future__ import annotations

import json
import multiprocessing
import signal

import pytest

from support.course import class_of_students as students
from support.runs.waits import LIMIT_S
from vklab_course.grade import jobs as running
from vklab_course.grade.assignment.intake import read_submissions
from vklab_course.grade.grade import grade
from vklab_course.grade.regrade import regrade, replay
from vklab_course.grade.results.csvs import write_marks
from vklab_course.grade.results.schema import GradeError
from vklab_course.grade.selftest import self_test

CLASS = 500


pytestmark = [pytest.mark.full, pytest.mark.usefixtures("class_labs")]


def marks(records):
    """Return what must not depend on how a batch was run."""
    return {
        key: {e: (r.status, r.points, r.parts, r.messages) for e, r in record.exercises.items()}
        for key, record in records.items()
    }


def test_each_gets_what_it_earned(graded):
    batch, records, _ = graded
    assert len(records) == students.SMALL + 1
    by_name = {r.submission.student: r for r in records.values()}
    said = [
        {e: r.status for e, r in by_name[f"student {n:03}"].exercises.items()} for n in range(4)
    ]
    assert [one["91-1"] for one in said] == ["passed", "partial", "failed", "error"]
    assert by_name["student 000"].points == 4 and by_name["student 002"].exercises["91-2"].points
    assert {one["91-3"] for one in said} == {"needs_hand_marking"}
    broken = by_name["broken, =1"]
    assert "not JSON" in broken.broken and not broken.points
    assert batch.results.run().self_test["passed"] and batch.results.run().self_test["tried"] > 20
    written = "".join(p.read_text() for p in batch.results.folder.rglob("*.json"))
    assert students.SEED not in written
    assert len(list(batch.results.marks.iterdir())) == students.SMALL + 1


def test_a_restart_grades_what_is_missing_or_changed_only(graded, release):
    batch, records, folder = graded
    victims = sorted(records)[1:3]
    for key in victims:
        (batch.results.marks / f"{key}.json").unlink()
    asked = []
    judge = students.batch(release, batch.results.folder).judge

    def tell(key, record):
        asked.append(key)

    again = grade(
        students.batch(release, batch.results.folder, judge), read_submissions(folder), None, tell
    )
    assert sorted(asked) == victims and marks(again) == marks(records)
    students.hand_in(folder / "student 000.ipynb", students.notebook(release))
    asked.clear()
    later = grade(
        students.batch(release, batch.results.folder), read_submissions(folder), None, tell
    )
    assert asked == [k for k, r in records.items() if r.submission.student == "student 000"]
    assert {r.status for r in later[asked[0]].exercises.values()} == {"not_attempted"}
    students.many(release, folder, 1)
    grade(students.batch(release, batch.results.folder), read_submissions(folder))


def test_a_grader_that_is_killed_continues_where_it_was(graded, release, tmp_path):
    _, records, _ = graded
    folder, out = students.many(release, tmp_path / "in", 5), tmp_path / "out"
    process = multiprocessing.get_context("spawn").Process(
        target=students.grade_and_die, args=(release, folder, out, 2)
    )
    process.start()
    process.join(LIMIT_S)
    assert process.exitcode == -signal.SIGKILL
    done = students.batch(release, out).results.all()
    assert len(done) == 2
    asked = []
    both = grade(
        students.batch(release, out),
        read_submissions(folder),
        None,
        lambda key, record: asked.append(key),
    )
    assert len(both) == 5 and len(asked) == 3 and not set(asked) & set(done)
    expected = marks(records)
    assert marks(both) == {key: expected[key] for key in both}


def test_another_release_seed_or_sandbox_is_another_batch(graded, tmp_path):
    batch, _, folder = graded
    other = students.make_release(tmp_path / "out", "class 5")
    with pytest.raises(GradeError, match="holds marks of release"):
        students.run(other, folder, batch.results.folder)
    with pytest.raises(GradeError, match="Give another --out"):
        grade(
            students.dataclasses_replace(batch, seed="another secret seed"),
            read_submissions(folder),
        )
    with pytest.raises(GradeError, match="in the sandbox; give another"):
        students.run(batch.release, folder, batch.results.folder, unsafe=True)


@pytest.mark.parametrize(("judge", "said"), [
    (students.generous, "the unsolved notebook is passed in 91-1"),
    pytest.param(students.crashing_always, "the grader's process ended with exit code 7",
                 marks=pytest.mark.slow),
    pytest.param(students.strict, "the solution is failed in 91-2", marks=pytest.mark.slow),
])  # fmt: skip
def test_a_grader_that_fails_its_self_test_grades_nothing(release, tmp_path, judge, said):
    folder = students.many(release, tmp_path / "in", 1)
    with pytest.raises(GradeError, match=said):
        students.run(release, folder, tmp_path / "out", judge, self_test)
    assert not (tmp_path / "out" / "marks").exists()


def test_a_definition_that_accepts_a_wrong_answer(release, tmp_path, monkeypatch):
    root = tmp_path / "labs"
    students.shutil.copytree(students.LABS, root)
    path = root / "checks" / "lab_91.py"
    path.write_text(path.read_text().replace("report.equal(got, case.expected)", "pass"))
    monkeypatch.setenv("VKLAB_LABS", str(root))
    batch = students.dataclasses_replace(students.batch(release, tmp_path / "out"), labs=root)
    with pytest.raises(GradeError, match="rounds_down' is correct"):
        grade(batch, read_submissions(students.many(release, tmp_path / "in", 1)), self_test)


def test_a_crash_a_lie_and_a_hang_cost_one_submission(release, tmp_path, monkeypatch):
    folder = tmp_path / "in"
    good = {"l91-1": students.right(release)}
    students.hand_in(folder / "ada.ipynb", students.notebook(release, good))
    students.hand_in(folder / "bob.ipynb", students.notebook(release, {"l91-1": "# crash"}))
    students.hand_in(folder / "cy.ipynb", students.notebook(release, {"l91-1": "# hang"}))
    _, records = students.run(release, folder, tmp_path / "crash", students.crashing)
    by_name = {r.submission.student: r for r in records.values()}
    assert "exit code 7" in by_name["bob"].broken and not by_name["bob"].points
    assert by_name["ada"].points == 4 and not by_name["ada"].broken
    jobs = [
        running.Job(name, "91_class", text, (), {}, "s", "")
        for name, text in (("a", "hang"), ("b", "hang"))
    ]
    ended = [outcome for _, outcome in running.run_jobs(jobs, students.hanging, 2, wall_s=1.0)]
    said = "the grader's process did not end within 1 s"
    assert [outcome["broken"] for outcome in ended] == [said] * 2
    _, records = students.run(release, folder, tmp_path / "lie", students.lying)
    for record in records.values():
        assert not record.points
        assert "gives 99 points, the release 4" in record.exercises["91-1"].messages[0]
        assert "is not valid" in record.exercises["91-2"].messages[0]


def test_a_late_answer_is_tried_again_alone(release, tmp_path, monkeypatch):
    monkeypatch.setenv("VKLAB_TEST_LATE", str(students.fresh(tmp_path / "late")))
    folder = students.many(release, tmp_path / "in", 2)
    _, records = students.run(
        release, folder, tmp_path / "out", students.late_in_company, processes=2
    )
    assert {r.status for record in records.values() for r in record.exercises.values()} & {
        "timeout",
        "passed",
    } == {"passed"}


def test_last_and_best_attempts(release, tmp_path):
    folder = tmp_path / "in"
    good = students.notebook(release, {"l91-1": students.right(release)})
    students.hand_in(folder / "ada" / "attempt 1" / "a.ipynb", good)
    students.hand_in(folder / "ada" / "attempt 2" / "a.ipynb", students.notebook(release))
    students.hand_in(folder / "ada" / "attempt 3" / "a.ipynb", b"{")
    _, records = students.run(release, folder, tmp_path / "last")
    (last,) = records.values()
    assert (last.points, last.submission.attempt) == (0, 2) and "attempt 3" in last.notes[0]
    _, records = students.run(release, folder, tmp_path / "best", attempts="best")
    assert sorted(r.points for r in records.values()) == [0, 4]
    lab = release.manifest.labs[0]
    finished = {
        k: r.model_copy(update={"exercises": {"91-1": r.exercises["91-1"]}})
        for k, r in records.items()
    }
    assert write_marks(finished, lab).splitlines()[1].split(",")[6] == "4"


def test_regrade_marks_everybody_and_shows_the_differences(release, tmp_path, monkeypatch):
    folder = students.many(release, tmp_path / "in", 4)
    root = tmp_path / "labs"
    students.shutil.copytree(students.LABS, root)
    path = root / "checks" / "lab_91.py"
    path.write_text(path.read_text().replace("return 16", "return 14"))
    monkeypatch.setenv("VKLAB_LABS", str(root))
    batch = students.dataclasses_replace(students.batch(release, tmp_path / "out"), labs=root)
    before = grade(batch, read_submissions(folder))
    path.write_text(path.read_text().replace("return 14", "return 16"))
    changes = regrade(batch, ["91-2"])
    assert [(c.student, c.difference) for c in changes] == [("student 000", -1), ("student 002", 1)]
    after = batch.results.all()
    assert {k: r.exercises["91-1"] for k, r in after.items()} == {
        k: r.exercises["91-1"] for k, r in before.items()
    }
    with pytest.raises(GradeError, match="has an answer to 91-9"):
        regrade(batch, ["91-9"])
    new, differences = replay(batch, "student 002")
    assert not differences and new.points == after[batch.results.find("student 002")].points


def test_a_mark_by_hand_stays_until_the_text_changes(release, tmp_path):
    folder = tmp_path / "in"
    students.hand_in(folder / "ada.ipynb", students.notebook(release, {"l91-3": 'why = "x"'}))
    batch, records = students.run(release, folder, tmp_path / "out")
    (key,) = records
    done = (
        records[key]
        .exercises["91-3"]
        .model_copy(update={"status": "partial", "points": 2.0, "marked_by": "hand"})
    )
    batch.results.write(
        key, records[key].model_copy(update={"exercises": {**records[key].exercises, "91-3": done}})
    )
    answers = {"l91-3": 'why = "x"', "l91-2": "workgroups = 16"}
    students.hand_in(folder / "ada.ipynb", students.notebook(release, answers))
    _, records = students.run(release, folder, tmp_path / "out")
    assert records[key].points == 3 and records[key].exercises["91-3"].marked_by == "hand"
    answers["l91-3"] = "why = 1"
    students.hand_in(folder / "ada.ipynb", students.notebook(release, answers))
    _, records = students.run(release, folder, tmp_path / "out")
    assert records[key].exercises["91-3"].status == "needs_hand_marking"


# ------------------------------------------------------------------------------------------- Dask


def same_by_dask(release, tmp_path, monkeypatch, count, workers):
    """Grade a class here and on a cluster whose first worker is killed; compare everything."""
    pytest.importorskip("dask.distributed", reason="Dask is not installed")
    folder = students.many(release, tmp_path / "in", count)
    _, here = students.run(release, folder, tmp_path / "here", processes=workers)
    monkeypatch.setenv("VKLAB_TEST_KILL", str(tmp_path / "killed"))
    _, there = students.run(
        release, folder, tmp_path / "there", students.killed_once, dask="local", processes=workers
    )
    assert (tmp_path / "killed").exists()
    assert len(here) == count and marks(here) == marks(there)
    assert not [r.broken for r in (*here.values(), *there.values()) if r.broken]
    folders = [
        sorted(p.name for p in (tmp_path / name / "marks").iterdir()) for name in ("here", "there")
    ]
    assert folders[0] == folders[1]


@pytest.mark.slow
def test_a_small_class_by_dask_with_a_worker_killed(release, tmp_path, monkeypatch):
    same_by_dask(release, tmp_path, monkeypatch, students.SMALL, 2)


@pytest.mark.slow
def test_a_class_of_500_by_dask_with_a_worker_killed(release, tmp_path, monkeypatch):
    same_by_dask(release, tmp_path, monkeypatch, CLASS, 2)


def test_no_scheduler_is_no_result(release, tmp_path, monkeypatch):
    pytest.importorskip("dask.distributed", reason="Dask is not installed")
    monkeypatch.setattr(running, "START_S", 1.0)
    folder = students.many(release, tmp_path / "in", 1)
    with pytest.raises(running.SetupError, match="no Dask scheduler answers"):
        students.run(release, folder, tmp_path / "out", dask="tcp://127.0.0.1:1")
    assert json.loads((tmp_path / "out" / "run.json").read_text())["release"]
    assert not (tmp_path / "out" / "marks").exists()
