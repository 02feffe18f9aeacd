"""What students hand in, made by tests: notebooks, their cells, zips."""

from __future__ import annotations

import io
import zipfile

import nbformat
from nbformat.v4 import new_code_cell

from support.course import class_of_students as students
from vklab_course.grade.assignment.intake import read_submissions
from vklab_course.grade.batch import plan


def planned(release, folder, **options):
    """Return what is planned for each submission of a folder, by student."""
    batch = students.batch(release, folder.parent / "results", **options)
    return {one.submission.student: one for one in plan(batch, read_submissions(folder))}


def zipped(*members, mode="w") -> bytes:
    """Return a zip with members: names (or their zip entries) and bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, mode, zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            info = name if isinstance(name, zipfile.ZipInfo) else zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return out.getvalue()


def book(release) -> bytes:
    """Return the notebook of a release as it is handed in."""
    return nbformat.writes(students.notebook(release), version=4).encode()


def cell(source, role="", identifier="", number=0):
    """Return a code cell with the metadata of a lab's cell."""
    about = {"vklab": {"role": role, "id": identifier}} if role else {}
    return new_code_cell(source, id=f"c{number}", metadata=about)


def nested(levels):
    """Return a text whose code doubles with each level: CPython copies what `finally` holds."""
    lines = [" " * n + line for n in range(levels) for line in ("try: a", "finally:")]
    return "\n".join([*lines, " " * levels + "pass"])


def beside(release, folder):
    """Write two honest submissions, of 4 and of 1 point."""
    right = {"l91-1": students.right(release)}
    students.hand_in(folder / "ada.ipynb", students.notebook(release, right))
    fewer = {"l91-1": students.WRONG, "l91-2": "workgroups = 16"}
    students.hand_in(folder / "zoe.ipynb", students.notebook(release, fewer))
    return folder


def same(records, honest):
    """Check the honest marks; return the records of the others."""
    mine = {r.submission.student: r for r in records.values()}
    for name, exercises in honest.items():
        new = mine.pop(name).exercises
        assert {k: (r.status, r.points, r.parts) for k, r in new.items()} == {
            k: (r.status, r.points, r.parts) for k, r in exercises.items()
        }, name
    return list(mine.values())
