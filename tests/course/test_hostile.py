"""Hostile submissions beside two honest ones, whose marks never change; a batch always ends."""

from __future__ import annotations

import io
import os
import resource
import time
import zipfile
from pathlib import Path

import pytest

from support.course import class_of_students as students
from support.course.hand_ins import beside, book, nested, planned, same, zipped
from vklab_course.grade import bounds
from vklab_course.grade.assignment import reading
from vklab_course.grade.assignment.intake import read_submissions
from vklab_course.grade.regrade import regrade
from vklab_course.grade.results.csvs import read_csv, write_csv
from vklab_course.grade.results.feedback import write_feedback
from vklab_course.grade.results.folder import Results, file_key
from vklab_course.grade.results.rubric import apply_rubric, rubric_csv
from vklab_course.grade.results.schema import GradeError, Submission, SubmissionResult

pytestmark = pytest.mark.usefixtures("class_labs")


def own(release, text):
    return students.notebook(release, {"l91-own": text})


def heavy(mib: int) -> bytes:
    """Return a notebook whose metadata takes some 28 times its bytes when it is parsed."""
    unit = '{"":0},'
    body = unit * (mib * 2**20 // len(unit))
    return (
        '{"cells":[{"id":"a","cell_type":"code","source":"","metadata":{"vklab":{"x":['
        f'{body}0]}}}}}}],"metadata":{{}}}}'
    ).encode()


LONG = "b" * 30_000 + ".ipynb"


def wrong_crc(release) -> bytes:
    data = bytearray(zipped((LONG, b'{"cells":[]}' * 9)))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(LONG, '{"cells":[]}')
    data = bytearray(out.getvalue())
    data[data.index(b'{"cells"')] ^= 1
    return bytes(data)


FILES = {
    "nested finally": ("x.ipynb", lambda r: own(r, nested(19)), ""),
    "a or a or a": ("x.ipynb", lambda r: own(r, " or ".join(["a"] * 40_000)), ""),
    "heavy metadata": ("x.zip", lambda r: zipped(*((f"{n}.ipynb", heavy(40)) for n in range(1))),
                       "takes more than 1024 MiB of memory"),
    "a long name twice": ("x.zip", lambda r: zipped(("a.ipynb", book(r)), (LONG, book(r))), ""),
    "a wrong checksum of a long name": ("x.zip", wrong_crc, "the zip is damaged: Bad CRC-32"),
    "too many answers": ("x.ipynb", lambda r: own(r, "\x01" * 199_000 + "\n" + "\x02" * 900),
                         ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_costs_nobody_else_anything(release, tmp_path, honest, name):
    file, content, cause = FILES[name]
    folder = beside(release, tmp_path / "in")
    students.hand_in(folder / file, content(release))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _, records = students.run(release, folder, tmp_path / "out")
    (other,) = same(records, honest)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + (300 << 10)
    assert cause in other.broken and bool(cause) == bool(other.broken)
    _, again = students.run(release, folder, tmp_path / "out")
    assert again == records


def deep(folder: Path) -> None:
    here = os.getcwd()
    folder.mkdir()
    os.chdir(folder)
    try:
        for _ in range(1200):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(here)


def shallow(folder: Path) -> None:
    """Take folders apart that are nested deeper than Python's functions go."""
    inner = folder / "d"
    while inner.exists():
        moved = folder.parent / "moved"
        if (inner / "d").exists():
            (inner / "d").rename(moved)
        inner.rmdir()
        if moved.exists():
            moved.rename(inner)


def many(folder: Path) -> None:
    folder.mkdir()
    for number in range(bounds.MAX_FILES + 1):
        (folder / f"{number}.ipynb").touch()


def wide(folder: Path) -> None:
    folder.mkdir()
    for number in range(bounds.MAX_ENTRIES + 1):
        (folder / f"{number}.txt").touch()


@pytest.mark.parametrize(("fill", "cause"), [
    (deep, "nested deeper than 20"), (many, "more than 200 notebooks"),
    (wide, "or more than 3,000 files"),
])  # fmt: skip
@pytest.mark.parametrize("around", ["", "class/"])
def test_a_hostile_folder_is_named_and_costs_nobody_else_anything(
    release, tmp_path, monkeypatch, fill, cause, around
):
    monkeypatch.setattr(bounds, "MAX_ENTRIES", 3_000)
    folder = beside(release, tmp_path / "in" / around)
    fill(folder / "mallory")
    try:
        done = read_submissions(tmp_path / "in")
    finally:
        shallow(folder / "mallory")
    causes = {one.submission.file: one.cause for one in done}
    assert cause in causes.pop(f"{around}mallory/")
    assert causes == {f"{around}ada.ipynb": "", f"{around}zoe.ipynb": ""}


def test_many_files_of_one_student_in_the_zip_of_a_class(release, tmp_path):
    mine = [(f"mallory/{n}.ipynb", b"{}") for n in range(bounds.MAX_FILES + 1)]
    data = zipped(("ada.ipynb", book(release)), *mine, (f"zoe/{'d/' * 300}x.ipynb", book(release)))
    done = planned(release, students.hand_in(tmp_path / "in.zip", data))
    assert "more than 200 notebooks" in done["mallory"].cause
    assert done["mallory"].lab == release.manifest.labs[0], "it is listed among the lab's marks"
    assert done["ada"].rebuilt and done["zoe"].rebuilt and len(done) == 3


def test_a_zip_of_a_class_with_too_many_files_names_who_has_them(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "MAX_ZIP_MEMBERS", 50)
    data = zipped(("ada.ipynb", b"{}"), *((f"mallory/{n}.ipynb", b"{}") for n in range(50)))
    path = students.hand_in(tmp_path / "in.zip", data)
    with pytest.raises(GradeError, match="51 files of 2 students.*most .* are of 'mallory' 50"):
        read_submissions(path)


@pytest.mark.parametrize(("text", "cause"), [
    ("loop", "did not end within 2 s"), ("crash", "ended with exit code 9"),
])  # fmt: skip
def test_a_file_that_ends_its_reader_has_that_as_its_cause(release, tmp_path, monkeypatch, text,
                                                           cause):  # fmt: skip
    monkeypatch.setattr(reading, "_read", students.reading_until_asked)
    monkeypatch.setattr(bounds, "READ_WALL_S", 2.0)
    for n, content in enumerate(("", text, "", text, text, "late"), 1):
        students.hand_in(tmp_path / "in" / "mallory" / f"attempt {n}" / "x.ipynb", content.encode())
    entries = read_submissions(tmp_path / "in")
    (mine,) = reading.read_students(reading.Task(release), entries)
    said = [attempt.cause for _, attempt in mine]
    assert said[5] == "fine" and said[2] == "fine"
    assert all(cause in said[n] for n in (1, 3, 4)) and "was not read" in said[0]


def test_a_reader_has_a_limit_of_processor_time(release, tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "READ_CPU_S", 1)
    students.hand_in(tmp_path / "in" / "mallory.ipynb", b"loop")
    (entry,) = read_submissions(tmp_path / "in")
    monkeypatch.setattr(reading, "_read", students.reading_without_end)
    (mine,) = reading.read_students(reading.Task(release), [entry])
    assert "more than 1 s of processor time" in mine[0][1].cause


# ---------------------------------------------------------------------------------- keys, names

TWINS = ("student 1", "student 2")


def test_two_students_with_one_key_have_two_records(release, tmp_path, monkeypatch, honest):
    """Names with the same 40 bits take 2.5 million tries; here the hash has none."""
    short = [key.rpartition("-") for key in (file_key(name, "91_class") for name in TWINS)]
    assert short[0][2] != short[1][2]
    monkeypatch.setattr("vklab_course.grade.batch.file_key", twin_key)
    folder = beside(release, tmp_path / "in")
    students.hand_in(folder / f"{TWINS[0]}.ipynb", students.notebook(release))
    _, first = students.run(release, folder, tmp_path / "out")
    assert len(first) == 3 and "student.91_class" in first
    students.hand_in(folder / f"{TWINS[1]}.ipynb", students.notebook(release))
    _, both = students.run(release, folder, tmp_path / "out")
    assert len(same(both, honest)) == 2 and both["student.91_class"] == first["student.91_class"]
    _, fresh = students.run(release, folder, tmp_path / "fresh")
    assert {r.submission.student for r in same(fresh, honest)} == {*TWINS}
    assert "student.91_class" not in fresh


def twin_key(student, lab, attempt=1, lms=""):
    whole = file_key(student, lab, attempt, lms)
    return "student.91_class" if student in TWINS and not lms else whole


def test_a_record_of_another_student_is_never_replaced(tmp_path):
    results = Results(tmp_path)
    one, other = (SubmissionResult(submission=Submission(student=name), lab="x") for name in "ab")
    results.write("key", one)
    with pytest.raises(GradeError, match="is the record of 'a', so that of 'b' was not written"):
        results.write("key", other)
    assert results.read("key") == one


NUMBERS = {
    "moodle": ["Vic_123_assignsubmission_file_/x.ipynb",
               "Eve_123_assignsubmission_file__456_assignsubmission_file_/x.ipynb",
               *(f"S_{n}00_assignsubmission_file_/x.ipynb" for n in range(1, 7))],
    "moodle, flat": ["Vic_123_assignsubmission_file_x.ipynb",
                     "Eve_456_assignsubmission_file_a_123_assignsubmission_file_x.ipynb",
                     *(f"S_{n}00_assignsubmission_file_x.ipynb" for n in range(1, 7))],
    "canvas": ["doejane_123_456_lab.ipynb", "doejane_123_9_777_888_lab.ipynb",
               "doejane_123_777_889_lab.ipynb",
               *(f"s{n}_{n}00_{n}_lab.ipynb" for n in range(1, 9))],
}  # fmt: skip


@pytest.mark.parametrize("is_zip", [False, True])
@pytest.mark.parametrize("lms", NUMBERS)
def test_a_name_with_another_students_number_is_not_that_student(tmp_path, lms, is_zip):
    members = [(name, b"{}") for name in NUMBERS[lms]]
    for name, data in members:
        students.hand_in(tmp_path / "in" / name, data)
    path = students.hand_in(tmp_path / "in.zip", zipped(*members)) if is_zip else tmp_path / "in"
    found = read_submissions(path)
    (victim,) = [one for one in found if one.submission.lms_id == "123"]
    assert victim.submission.file == NUMBERS[lms][0] and not victim.cause
    forged = [one for one in found if one.submission.file in NUMBERS[lms][1:2]]
    if lms == "moodle":
        assert [one.submission.lms_id for one in forged] == ["456"]
    else:
        assert all("can be read as the work of" in one.cause for one in forged)
    known = read_submissions(path, {"456", "777"})
    named = {one.submission.file: one.submission.lms_id for one in known}
    assert named[NUMBERS[lms][1]] == ("777" if lms == "canvas" else "456")
    assert not any(one.cause for one in known)


HONEST_NAMES = [
    "doejane_4711_99_04_first_dispatch.ipynb",
    "doejane_4711_9911_10_passes.ipynb",
    "doejane_LATE_4711_9912_10_passes-2.ipynb",
    "doejane_4711_9913_lab_2026_11_x.ipynb",
]


def test_numbers_in_the_name_of_a_notebook_are_no_students(tmp_path):
    for name in HONEST_NAMES:
        students.hand_in(tmp_path / name, b"{}")
    found = read_submissions(tmp_path)
    assert {one.submission.lms_id for one in found} == {"4711"}
    assert not any(one.cause for one in found)


def test_feedback_of_moodle_goes_to_the_number_that_was_graded(release, tmp_path):
    for name in NUMBERS["moodle"]:
        students.hand_in(tmp_path / "in" / name, students.notebook(release))
    batch, _ = students.run(release, tmp_path / "in", tmp_path / "out")
    (path,) = write_feedback(batch.results, release, release.manifest.labs[0])
    numbers = []
    for name in zipfile.ZipFile(path).namelist():
        numbers.append(name.split("_")[1])  # as Moodle takes it apart
    assert sorted(numbers) == sorted(["123", "456", *(f"{n}00" for n in range(1, 7))])


# ------------------------------------------------------------------------- what stops in between


def test_a_full_disk_between_two_marks_loses_none(release, tmp_path, monkeypatch, honest):
    folder = beside(release, tmp_path / "in")
    students.hand_in(folder / "x.ipynb", b"{")
    written = []
    whole = Results.write

    def full(self, key, record, notebook=""):
        if len(written) == 1:
            written.append("")
            raise GradeError("No space left on device")
        written.append(key)
        whole(self, key, record, notebook)

    monkeypatch.setattr(Results, "write", full)
    with pytest.raises(GradeError, match="No space"):
        students.run(release, folder, tmp_path / "out")
    assert len(Results(tmp_path / "out").all()) == 1
    _, records = students.run(release, folder, tmp_path / "out")
    assert len(same(records, honest)) == 1 and written.count(written[0]) == 1


def test_a_submission_that_ends_its_job_stops_no_regrade(release, tmp_path, honest):
    folder = beside(release, tmp_path / "in")
    for name in ("bob", "cy"):
        students.hand_in(folder / f"{name}.ipynb", students.notebook(release, {"l91-1": "# crash"}))
    batch, before = students.run(release, folder, tmp_path / "out")
    gone = next(key for key, record in before.items() if record.submission.student == "cy")
    (batch.results.work / f"{gone}.ipynb").unlink()
    again = students.dataclasses_replace(batch, judge=students.crashing)
    with pytest.raises(GradeError) as caught:
        regrade(again, ["91-1"])
    said = str(caught.value)
    assert "2 submissions were marked again, and 0 marks differ" in said
    assert "the marks of 2 were left" in said and "exit code 7" in said and "is gone" in said
    assert {one.submission.student for one in same(batch.results.all(), honest)} == {"bob", "cy"}
    assert all(batch.results.read(key) == before[key] for key in before if key[:2] in ("bo", "cy"))


def test_a_clock_that_jumps_costs_no_time_and_no_mark(release, tmp_path, monkeypatch, honest):
    jumps = iter([0.0, 1e9] * 10_000)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + next(jumps))
    _, records = students.run(release, beside(release, tmp_path / "in"), tmp_path / "out")
    assert same(records, honest) == []


def test_a_long_text_costs_nobody_a_mark_by_hand(release, tmp_path):
    for name, text in (("ada", "aligned"), ("mallory", '"\n,' * 40_000)):
        content = students.notebook(release, {"l91-3": f"why = {text!r}"})
        students.hand_in(tmp_path / "in" / f"{name}.ipynb", content)
    batch, _ = students.run(release, tmp_path / "in", tmp_path / "out")
    rows = read_csv(rubric_csv(batch.results))
    assert [row[1] for row in rows[1:]] == ["ada", "mallory"]
    path = tmp_path / "rubric.csv"
    path.write_text(write_csv([rows[0], *([*row[:4], "3", "", row[6]] for row in rows[1:])]))
    assert apply_rubric(batch.results, path) == 2
