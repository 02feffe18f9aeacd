"""Time of a batch: what one student can take of it, and how second runs share the machine."""

from __future__ import annotations

import json

import pytest

from support.course import class_of_students as students
from support.course.hand_ins import beside
from vklab_course.grade import bounds
from vklab_course.grade import jobs as running
from vklab_course.grade.jobs import Job, run_jobs

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("class_labs")]


@pytest.fixture
def times(tmp_path, monkeypatch):
    """Return a function that gives the times of the runs of a job: begin, end, limit."""
    place = students.fresh(tmp_path / "times")
    monkeypatch.setenv("VKLAB_TEST_SLOW", str(place))
    return lambda key="": sorted(json.loads(path.read_text()) for path in place.glob(f"{key}*"))


def job(name, text="", student=""):
    return Job(name, "91_class", text, ("91-1", "91-2"), {}, "s", "", student=student)


def test_the_attempts_of_one_student_share_a_time_and_cost_nobody_else_theirs(
    release, tmp_path, times, monkeypatch
):
    monkeypatch.setattr(bounds, "STUDENT_S", 6.0)
    monkeypatch.setattr(running, "LEAST_S", 1.0)
    folder = beside(release, tmp_path / "in")
    for n in range(1, 11):
        students.hand_in(
            folder / "mallory" / f"attempt {n}" / "x.ipynb", students.notebook(release)
        )
    _, records = students.run(
        release, folder, tmp_path / "out", students.slow, attempts="best", processes=3
    )
    of = {r.submission.attempt: r for r in records.values() if r.submission.student == "mallory"}
    assert len(records) == 12 and len(of) == 10
    ran = [n for n, record in of.items() if not record.interrupted]
    assert 1 <= len(ran) <= 6 and sorted(ran) == [*range(11 - len(ran), 11)], "the newest ones"
    for n in of.keys() - {*ran}:
        assert "a student's submissions of a lab have 6 s together" in of[n].cause
        assert {r.status for e, r in of[n].exercises.items() if e != "91-3"} == {"timeout"}
    assert all(r.points == 4 for r in records.values() if r.submission.student in ("ada", "zoe"))
    given = [limit for _, _, limit in times("mallory")]
    assert given == sorted(given, reverse=True) and given[0] <= 6.0


def test_second_runs_share_the_machine_too(times):
    jobs = [job(f"j{n}", "late") for n in range(4)]
    done = {one.key: outcome for one, outcome in run_jobs(jobs, students.slow, 4)}
    runs = [times(one.key) for one in jobs]
    assert [len(each) for each in runs] == [2] * 4
    second = sorted(each[1][:2] for each in runs)
    at_once = [sum(a <= began < b for a, b in second) for began, _ in second]
    assert max(at_once) == 2, second
    # What a second run does not reach, the first one has.
    assert all(outcome["exercises"]["91-1"]["status"] == "passed" for outcome in done.values())


def test_a_second_run_has_the_time_that_the_first_has_left(times, monkeypatch):
    monkeypatch.setattr(bounds, "STUDENT_S", 1.5)
    monkeypatch.setattr(running, "LEAST_S", 0.1)
    ((_, outcome),) = run_jobs([job("j", "late")], students.slow, 1)
    assert len(times("j")) == 1 and outcome["exercises"]["91-2"]["status"] == "timeout"


@pytest.mark.slow
def test_a_cluster_gives_a_student_the_same_time(times, monkeypatch):
    pytest.importorskip("dask.distributed", reason="Dask is not installed")
    jobs = [*(job(f"m{n}", student="mallory") for n in range(3)), job("a", student="ada")]
    done = list(run_jobs(jobs, students.slow, 2, dask="local"))
    assert len(done) == 4 and not any(outcome.get("broken") for _, outcome in done)
    (one, two, three) = (times(f"m{n}")[0] for n in range(3))
    assert one[1] <= two[0] and two[1] <= three[0] and three[2] < two[2] < one[2]


def test_a_job_that_cannot_be_started_is_its_own_failure(monkeypatch):
    def refuse(self):
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("multiprocessing.context.ForkServerProcess.start", refuse)
    ((_, outcome),) = run_jobs([job("j")], students.slow, 1)
    assert "could not be started" in outcome["broken"]
