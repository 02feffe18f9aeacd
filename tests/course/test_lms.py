"""Names and archives of learning management systems: who handed in what."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from support.course import class_of_students as students
from support.course.hand_ins import book, planned, zipped
from vklab_course.cli.course import course
from vklab_course.grade.assignment.intake import read_submissions
from vklab_course.grade.assignment.names import identify

pytestmark = pytest.mark.usefixtures("class_labs")
PLAIN = {
    "a folder inside": ["ada/04.ipynb", "bob/Alice_42_assignsubmission_file_/x.ipynb"],
    "of one student": ["bob/Alice_42_assignsubmission_file_/x.ipynb"],
    "a file": ["ada.ipynb", "eve_42_7_a.ipynb"],
    "a folder beside": ["ada/04.ipynb", "Alice_42_assignsubmission_file_/x.ipynb"],
    "two patterns": ["eve_42_7_a.ipynb", "Alice_42_assignsubmission_file_/x.ipynb"],
}


@pytest.mark.parametrize(("name", "student", "lms", "shown", "attempt"), [
    ("doejane_4711_99_04_first_dispatch.ipynb", "canvas-4711", "canvas", "doejane", 1),
    ("doejane_LATE_4711_99_04_first_dispatch.ipynb", "canvas-4711", "canvas", "doejane", 1),
    ("doejane_4711_100_04_first_dispatch-1.ipynb", "canvas-4711", "canvas", "doejane", 2),
    ("doejane_4711_101_04_first_dispatch-2.ipynb", "canvas-4711", "canvas", "doejane", 3),
    ("anon_anon_77_04.ipynb", "canvas-anon-77", "canvas", "anon", 1),
    ("Jane Doe_123456_assignsubmission_file_/04.ipynb", "moodle-123456", "moodle", "Jane Doe", 1),
    ("Jane O_Doe_12_assignsubmission_file_04.ipynb", "moodle-12", "moodle", "Jane O_Doe", 1),
    ("Course/Jane_7_assignsubmission_file_/a/04.ipynb", "moodle-7", "moodle", "Jane", 1),
    ("Jane Doe.ipynb", "Jane Doe", "plain", "Jane Doe", 1),
    ("Jane Doe/attempt 3/04.ipynb", "Jane Doe", "plain", "Jane Doe", 3),
    ("group 7.zip", "group 7", "plain", "group 7", 1),
])  # fmt: skip
def test_names_of_an_lms(name, student, lms, shown, attempt):
    who = identify(name)
    assert (who.student, who.lms, who.name, who.attempt) == (student, lms, shown, attempt)


@pytest.mark.parametrize("names", PLAIN.values(), ids=PLAIN)
@pytest.mark.parametrize("is_zip", [False, True])
def test_a_student_chooses_no_name_of_an_lms(tmp_path, names, is_zip):
    for name in names:
        students.hand_in(tmp_path / "in" / name, b"{}")
    path = tmp_path / "in"
    if is_zip:
        path = students.hand_in(tmp_path / "in.zip", zipped(*((name, b"{}") for name in names)))
    found = [one.submission for one in read_submissions(path)]
    assert {one.lms for one in found} == {"plain"} and not any(one.lms_id for one in found)
    wanted = {name.partition("/")[0].removesuffix(".ipynb") for name in names}
    assert {one.student for one in found} == wanted


LMS = {
    "moodle": [
        f"{name}_{number}_assignsubmission_file_/04.ipynb"
        for number, name in enumerate(("Ada", "Bo", "Cy", "Di"), 7)
    ],
    "canvas": [
        f"{name}_{number}_9{number}_04.ipynb"
        for number, name in enumerate(("ada", "bo", "cy", "di"), 7)
    ],
}


def read(tmp_path, names, is_zip):
    for name in names:
        students.hand_in(tmp_path / "in" / name, b"{}")
    path = tmp_path / "in"
    if is_zip:
        path = students.hand_in(tmp_path / "in.zip", zipped(*((name, b"{}") for name in names)))
    return read_submissions(path)


@pytest.mark.parametrize("is_zip", [False, True])
@pytest.mark.parametrize("odd", ["Jane Doe.ipynb", "late/Jane Doe.ipynb"])
@pytest.mark.parametrize("lms", LMS)
def test_a_file_added_by_hand_is_named_and_the_others_stay_the_lms_s(tmp_path, lms, odd, is_zip):
    entries = read(tmp_path, [*LMS[lms], odd], is_zip)
    named = {one.submission.student for one in entries if one.submission.lms == lms}
    assert named == {f"{lms}-{number}" for number in (7, 8, 9, 10)}
    (one,) = [entry for entry in entries if entry.note]
    assert one.submission.file == odd and one.submission.lms_id == ""
    assert repr(odd) in one.note and f"none of {lms.capitalize()}'s" in one.note
    assert one.submission.student == odd.partition("/")[0].removesuffix(".ipynb")


@pytest.mark.parametrize("is_zip", [False, True])
@pytest.mark.parametrize("lms", LMS)
def test_a_few_names_of_an_lms_in_a_plain_class_are_nobodys_number(tmp_path, lms, is_zip):
    """Each student of a plain class chooses one name; three of four choose an LMS's."""
    entries = read(tmp_path, [*LMS[lms][:3], "ada.ipynb"], is_zip)
    assert {one.submission.lms for one in entries} == {"plain"}
    assert not any(one.submission.lms_id or one.note for one in entries)


def test_many_files_of_one_student_are_one_name(tmp_path):
    """One folder with an LMS's name has many notebooks; its owner chose one name."""
    mine = [f"Ada_42_assignsubmission_file_/{number}.ipynb" for number in range(9)]
    entries = read(tmp_path, [*mine, "bob/04.ipynb", "cy/04.ipynb"], False)
    assert {one.submission.lms for one in entries} == {"plain"}


def test_the_note_is_in_the_record_and_on_the_console(release, tmp_path):
    for name in LMS["canvas"]:
        students.hand_in(tmp_path / "in" / name, book(release))
    students.hand_in(tmp_path / "in" / "Jane Doe.ipynb", book(release))
    done = planned(release, tmp_path / "in")
    assert set(done) == {"canvas-7", "canvas-8", "canvas-9", "canvas-10", "Jane Doe"}
    assert "none of Canvas's" in done["Jane Doe"].notes[0] and not done["canvas-7"].notes
    words = [
        "grade",
        str(tmp_path / "in"),
        "--release",
        str(release.folder),
        "--out",
        str(tmp_path / "out"),
        "--unsafe-no-sandbox",
    ]
    said = CliRunner().invoke(course, words)
    assert said.exit_code == 0, (said.output, said.exception)
    assert "the name 'Jane Doe.ipynb' is none of Canvas's" in " ".join(said.output.split())


def test_a_class_of_an_lms_may_have_a_folder_around_it(tmp_path):
    moodle = [f"{name}_{n}_assignsubmission_file_/04.ipynb" for n, name in ((7, "Jane"), (8, "Jo"))]
    for around in ("", "Course/"):
        for name in moodle:
            students.hand_in(tmp_path / f"in{around}" / (around + name), b"{}")
        found = [one.submission for one in read_submissions(tmp_path / f"in{around}")]
        assert [(s.student, s.name) for s in found] == [("moodle-7", "Jane"), ("moodle-8", "Jo")]
        assert [s.file for s in found] == [around + name for name in moodle]
    for name in ("doejane_4711_99_04.ipynb", "red_group_4712_100_04.ipynb"):
        students.hand_in(tmp_path / "canvas" / name, b"{}")
    found = {one.submission.student for one in read_submissions(tmp_path / "canvas")}
    assert found == {"canvas-4711", "red_group_4712_100_04"}


def test_the_zip_of_an_lms_is_read_without_unpacking(release, tmp_path):
    data = zipped(
        ("doejane_1_9_04.ipynb", b"{}"),
        ("doejane_1_10_04-1.ipynb", book(release)),
        ("Zoë_2_11_04.ipynb", book(release)),
        ("bad_3_12_../../04.ipynb", book(release)),
        ("__MACOSX/._doejane_1_9_04.ipynb", b"x"),
        ("zipper_4_13_04.zip", zipped(("04.ipynb", book(release)))),
    )
    path = students.hand_in(tmp_path / "in.zip", data)
    done = planned(release, path)
    assert {s for s, one in done.items() if one.rebuilt} == {"canvas-1", "canvas-2", "canvas-4"}
    assert any("outside of its folder" in one.cause for one in done.values())
    assert "not graded: doejane_1_9_04.ipynb: it is JSON and no" in done["canvas-1"].notes[0]
    assert sorted(tmp_path.iterdir()) == [path]


def test_one_folder_around_a_class_is_no_student(release, tmp_path):
    members = [(f"class/{name}.ipynb", book(release)) for name in ("ada", "bob")]
    path = students.hand_in(tmp_path / "in.zip", zipped(*members))
    assert set(planned(release, path)) == {"ada", "bob"}
    attempts = [(f"ada/attempt {n}/04.ipynb", book(release)) for n in (1, 2)]
    path = students.hand_in(tmp_path / "one.zip", zipped(*attempts))
    assert set(planned(release, path)) == {"ada"}
