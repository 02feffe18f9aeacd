"""Results folders: whole files only, one grader at a time, nothing lost by a crash."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import stat
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from support.runs import tiers
from support.runs.waits import LIMIT_S, hang
from vklab_course.grade.results import folder as folders
from vklab_course.grade.results import schema
from vklab_course.grade.results.folder import Results, file_key, read_seed, write_atomic
from vklab_course.grade.results.schema import (
    STATUSES,
    ExerciseResult,
    GradeError,
    Submission,
    SubmissionResult,
)


def record(student="ada", **fields):
    done = ExerciseResult(status="partial", points=1, of=4, messages=("no\x00body\u202e",))
    who = Submission(student=student, hash="x")
    return SubmissionResult(
        **{"submission": who, "lab": "91_class", "exercises": {"91-1": done}, **fields}
    )


def test_a_record_is_written_and_read_again(tmp_path):
    results = Results(tmp_path)
    key = file_key('Zoë, "=1"\n', "91_class")
    results.write(key, record('Zoë, "=1"\n'), "{}")
    assert results.read(key) == record('Zoë, "=1"\n') and results.notebook(key) == "{}"
    assert results.all() == {key: results.read(key)} and results.find('zoë, "=1"\n') == key
    assert results.read("nobody") is None


@pytest.mark.parametrize(("text", "said"), [
    ("", "JSON"), ('{"format": 1', "JSON"), ("{}", "submission"), ('{"format": 2}', "format"),
    (record().model_dump_json().replace('"partial"', '"excellent"'), "exercises.91-1.status"),
    (record().model_dump_json().replace('"points":1.0', '"points":9.0'), "9 of 4 points"),
    (record().model_dump_json().replace('"points":1.0', '"points":-1.0'), "points"),
    (record().model_dump_json().replace('"lab"', '"labs"'), "lab"),
])  # fmt: skip
def test_a_damaged_record_is_named_and_is_no_mark(tmp_path, text, said):
    results = Results(tmp_path)
    write_atomic(results.marks / "ada.json", text)
    with pytest.raises(GradeError, match=said) as caught:
        results.all()
    assert "ada.json" in str(caught.value)


@pytest.mark.parametrize("points", [float("nan"), float("inf"), -0.1, 5])
def test_points_that_cannot_be(points):
    with pytest.raises(ValidationError):
        ExerciseResult(status="partial", points=points, of=4)


def test_passed_means_every_point():
    with pytest.raises(ValidationError, match="passed with 3 of 4"):
        ExerciseResult(status="passed", points=3, of=4)
    assert set(STATUSES) == {
        "passed",
        "partial",
        "failed",
        "error",
        "timeout",
        "out_of_memory",
        "tampered",
        "missing",
        "not_attempted",
        "skipped",
        "needs_hand_marking",
    }


def test_a_full_disk_leaves_the_old_file_and_says_so(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_atomic(path, "old")

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(folders.os, "fsync", full)
    with pytest.raises(GradeError, match="No space left"):
        write_atomic(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def hold(folder, ready):
    with Results(folder).locked():
        ready.set()
        hang()


def test_two_graders_and_a_killed_one(tmp_path):
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    other = context.Process(target=hold, args=(tmp_path, ready))
    other.start()
    try:
        assert ready.wait(LIMIT_S)
        with pytest.raises(GradeError, match="another vklab is"), Results(tmp_path).locked():
            raise AssertionError("two at once")
    finally:
        other.kill()
        other.join()
    (tmp_path / "marks").mkdir()
    half = tmp_path / "marks" / ".ada.json.123.partial"
    half.write_text('{"half')
    with Results(tmp_path).locked() as mine:
        assert not half.exists() and mine.all() == {}


def test_the_seed_is_made_once_for_its_owner_only(tmp_path):
    path = tmp_path / "results" / "seed"
    with pytest.raises(GradeError, match="cannot be read"):
        read_seed(path)
    seed = read_seed(path, create=True)
    assert len(seed) == 64 and read_seed(path, create=True) == read_seed(path) == seed
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("short")
    with pytest.raises(GradeError, match="5 characters"):
        read_seed(path)


def test_old_work_is_deleted_and_marks_stay(tmp_path):
    results = Results(tmp_path)
    results.write("ada", record(), "{}")
    write_atomic(tmp_path / "feedback" / "ada.html", "x")
    assert results.expire(30) == []
    assert len(results.expire(30, now=time.time() + 31 * folders.DAY_S)) == 2
    assert results.read("ada") == record()
    with pytest.raises(GradeError, match="is gone"):
        results.notebook("ada")


def test_one_of_several_students_is_named_exactly(tmp_path):
    results = Results(tmp_path)
    for name in ("jane doe", "jane roe"):
        results.write(file_key(name, "91_class"), record(name))
    assert results.find("Jane Doe").startswith("jane-doe")
    with pytest.raises(GradeError, match="2 records"):
        results.find("jane")
    key = file_key("jane doe", "91_class")
    results.write(file_key(key, "91_class"), record(key))
    assert results.find(key) == key, "no student's name hides the record of another"
    with pytest.raises(GradeError, match="no record"):
        results.find("bob")
    with pytest.raises(GradeError, match="Did you mean 'jane doe'"):
        results.find("Jane Deo")


text = st.text(tiers.CHARACTERS, max_size=40)
results_strategy = st.builds(
    lambda status, of, share, message: {
        "status": "passed" if share == 1 else "failed" if status == "passed" else status,
        "of": of,
        "points": of * share,
        "messages": [message],
    },
    st.sampled_from(STATUSES),
    st.integers(0, 20),
    st.sampled_from([0, 0.5, 1]),
    text,
)


@given(text, text, st.dictionaries(st.from_regex(r"\d\d-\d", fullmatch=True), results_strategy))
@settings(max_examples=tiers.examples(60), deadline=None)
def test_any_record_survives_its_file(student, broken, exercises):
    one = SubmissionResult.model_validate(
        {
            "submission": {"student": student},
            "lab": "91_class",
            "broken": broken,
            "exercises": exercises,
        }
    )
    raw = one.model_dump_json()
    assert schema.parse(SubmissionResult, raw, "x") == one
    assert json.loads(raw)["submission"]["student"] == student
