"""Submissions as data: every bad input has a cause, and touches nobody else's result."""

from __future__ import annotations

import json
import os
import stat
import struct
import sys
import unicodedata
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.course import class_of_students as students
from support.course.hand_ins import book, planned, zipped
from support.runs import tiers
from vklab_course.grade.assignment import submission as submissions
from vklab_course.grade.assignment.intake import read_submissions
from vklab_course.grade.assignment.submission import BadSubmission, read_notebook
from vklab_course.grade.results.folder import file_key
from vklab_course.grade.results.schema import GradeError


def deep():
    return b"[" * 100_000 + b"]" * 100_000


BAD = {
    "nothing in it": (lambda r: b"  \n", "the file is empty"),
    "not JSON": (lambda r: b"def padded(count): ...", "it is not JSON"),
    "half a notebook": (lambda r: json.dumps(students.plain(r)).encode()[:500], "it is not JSON"),
    "JSON of something else": (lambda r: {"name": "me"}, "no Jupyter notebook"),
    "a list": (lambda r: [1, 2], "no Jupyter notebook"),
    "format 3": (lambda r: {"worksheets": [], "nbformat": 3}, "format 3"),
    "nested too deep": (lambda r: deep(), "nested too deep"),
    "UTF-16": (lambda r: json.dumps(students.plain(r)).encode("utf-16"), "not UTF-8"),
    "merge markers": (
        lambda r: b'{"cells": [\n<<<<<<< HEAD\n"a",\n=======\n"b"\n>>>>>>> theirs\n]}',
        r"markers of an unfinished merge \(line 2\)",
    ),
    "cells that are no cells": (lambda r: {"cells": [1]}, "cell 1 is no cell but int"),
    "a source that is a number": (lambda r: {"cells": [{"source": 7}]}, "text of cell 1"),
    "no ids": (lambda r: students.edit(r, lambda c: [x.pop("id") for x in c["cells"]]),
               "lost their ids"),
    "10,000 cells": (lambda r: students.edit(r, lambda c: c["cells"].extend([{}] * 10_000)),
                     "cells, the limit is 2,000"),
    "a cell of a megabyte": (
        lambda r: students.edit(r, lambda c: students.cell(c, "l91-1").update(source="#" * 2**20)),
        "characters, the limit is 200,000",
    ),
    "another kernel": (
        lambda r: students.edit(r, lambda c: c["metadata"].update(
            kernelspec={"display_name": "R 4", "language": "R", "name": "ir"})),
        r"its kernel is 'R 4' \(R\)",
    ),
    "another lab": (lambda r: students.edit(r, lambda c: c["metadata"]["vklab"].update(lab="04")),
                    "it is lab 04, and this batch grades lab 91"),
    "another version": (
        lambda r: students.edit(r, lambda c: c["metadata"]["vklab"].update(version="1")),
        "made from version 1 of lab 91",
    ),
    "a notebook of one's own": (
        lambda r: {"cells": [{"id": "a", "cell_type": "code", "source": "1"}]},
        "no exercise cell of lab 91",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_submission_has_its_cause_and_touches_nobody_else(release, tmp_path, name):
    content, cause = BAD[name]
    folder = tmp_path / "in"
    students.hand_in(folder / "ada.ipynb", students.notebook(release))
    students.hand_in(folder / "bad.ipynb", content(release))
    students.hand_in(folder / "zoe.ipynb", students.notebook(release))
    done = planned(release, folder)
    assert set(done) == {"ada", "bad", "zoe"}
    with pytest.raises(BadSubmission, match=cause):
        raise BadSubmission(done["bad"].cause)
    assert done["ada"].rebuilt and done["zoe"].rebuilt and not done["ada"].cause


def test_200_megabytes_are_not_read(release, tmp_path):
    path = tmp_path / "in" / "huge.ipynb"
    path.parent.mkdir()
    with path.open("wb") as file:
        file.truncate(200 * 2**20)
    done = planned(release, path.parent)["huge"]
    assert done.cause.startswith("the notebook has 200 MiB") and not done.submission.hash


def test_links_pipes_and_folders_named_like_notebooks(release, tmp_path):
    secret = tmp_path / "secret.ipynb"
    students.hand_in(secret, students.notebook(release))
    folder = tmp_path / "in"
    students.hand_in(folder / "ada.ipynb", students.notebook(release))
    (folder / "link.ipynb").symlink_to(secret)
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.ipynb")
    (folder / "folder.ipynb").mkdir()
    done = planned(release, folder)
    assert set(done) == {"ada", "link", "pipe"}
    assert "symbolic link" in done["link"].cause and "no regular file" in done["pipe"].cause


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read(release, tmp_path):
    path = students.hand_in(tmp_path / "in" / "ada.ipynb", students.notebook(release))
    path.chmod(0)
    assert "cannot be read" in planned(release, path.parent)["ada"].cause


# ------------------------------------------------------------------------------------------- zips


def a_link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("04.ipynb")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


def liar(data: bytes, size: int) -> bytes:
    """Return a zip whose directory says another size than its member has."""
    at = data.index(b"PK\x01\x02")
    return data[: at + 24] + struct.pack("<I", size) + data[at + 28 :]


ZIPS = {
    "a way out": (lambda r: zipped(("../../evil.ipynb", book(r))), "outside of its folder"),
    "an absolute path": (lambda r: zipped(("/etc/evil.ipynb", book(r))), "outside of its folder"),
    "a drive": (lambda r: zipped(("C:\\evil.ipynb", book(r))), "outside of its folder"),
    "a way out beside a notebook": (
        lambda r: zipped(("04.ipynb", book(r)), ("..\\x.txt", b"x")), "outside of its folder"),
    "a link": (lambda r: zipped((a_link(), b"/etc/passwd")), "symbolic link"),
    "a bomb": (lambda r: zipped(("04.ipynb", bytes(60 * 2**20))), "60 MiB"),
    "a bomb that lies": (lambda r: liar(zipped(("04.ipynb", bytes(60 * 2**20))), 1000),
                         "damaged|60"),
    "no notebook": (lambda r: zipped(("notes.txt", b"x")), "no notebook"),
    "a zip in a zip": (lambda r: zipped(("a.zip", zipped(("04.ipynb", book(r))))), "zip inside"),
    "half a zip": (lambda r: zipped(("04.ipynb", book(r)))[:-40], "damaged"),
    "rubbish": (lambda r: b"PK\x03\x04 rubbish", "damaged"),
    "a flipped byte": (lambda r: flipped(zipped(("04.ipynb", book(r)))), "damaged|not JSON|UTF-8"),
    "a name that is no UTF-8": (lambda r: no_utf8(book(r)), "zip is damaged: 'utf-8' codec"),
    "an empty name": (lambda r: nameless(book(r)), "zip has no notebook"),
    "100 notebooks": (lambda r: zipped(*((f"{n}.ipynb", b"{}") for n in range(100))),
                      "100 notebooks"),
}  # fmt: skip


def no_utf8(data: bytes) -> bytes:
    """Return a zip with a name that is marked as UTF-8 and is none."""
    return zipped(("é.ipynb", data)).replace("é".encode(), b"\xff\xfe")


def nameless(data: bytes) -> bytes:
    """Return a zip whose member's name starts with NUL, where zipfile cuts it off."""
    return zipped(("04.ipynb", data)).replace(b"04.ipynb", b"\x004.ipynb")


def flipped(data: bytes) -> bytes:
    return data[:80] + bytes([data[80] ^ 255]) + data[81:]


@pytest.mark.parametrize("name", ZIPS)
def test_a_bad_zip_has_its_cause_and_writes_nothing(release, tmp_path, name):
    content, cause = ZIPS[name]
    folder = tmp_path / "in"
    students.hand_in(folder / "ada.zip", zipped(("work/04.ipynb", book(release))))
    students.hand_in(folder / "bad.zip", content(release))
    before = sorted(tmp_path.rglob("*"))
    done = planned(release, folder)
    assert sorted(p for p in tmp_path.rglob("*") if "results" not in str(p)) == before
    with pytest.raises(BadSubmission, match=cause):
        raise BadSubmission(done["bad"].cause)
    assert done["ada"].rebuilt and done["bad"].lab == done["ada"].lab


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=tiers.examples(200), deadline=None)
def test_any_damage_to_a_zip_stays_with_its_student(release, tmp_path_factory, damage):
    data = bytearray(zipped(("é.ipynb", b"{}"), ("b/c.ipynb", b"[]" * 50)))
    for at, byte in damage:
        data[at % len(data)] = byte
    folder = tmp_path_factory.mktemp("damaged")
    students.hand_in(folder / "in" / "ada.ipynb", b"{}")
    students.hand_in(folder / "in" / "bad.zip", bytes(data))
    found = planned(release, folder / "in")
    assert set(found) == {"ada", "bad"} and found["bad"].cause
    try:
        read_submissions(students.hand_in(folder / "class.zip", bytes(data)))
    except GradeError as error:
        assert "class.zip" in str(error)


def test_a_damaged_zip_of_a_class_says_so(tmp_path):
    for data, cause in ((no_utf8(b"{}"), "'utf-8' codec"), (b"PK", "not a zip"), (b"", "not a")):
        path = students.hand_in(tmp_path / "class.zip", data)
        with pytest.raises(GradeError, match=f"class.zip is no folder and no zip .*{cause}"):
            read_submissions(path)


def test_a_password_is_no_crash(release, tmp_path):
    data = bytearray(zipped(("04.ipynb", book(release))))
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + at] |= 1
    students.hand_in(tmp_path / "in" / "ada.zip", bytes(data))
    assert "password" in planned(release, tmp_path / "in")["ada"].cause


def test_what_is_no_folder_of_submissions(tmp_path):
    for name in ("gone", "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(GradeError, match="no folder|no notebook"):
            read_submissions(tmp_path / name)


STRANGE = ["a,b", 'say "hi"', "new\nline", "\u202eesrever", "=1+1", "+1", "-1", "@x", "a\tb", "ß",
           "é", "e\u0301", "🦀", " ", "con", "x" * 200, "'", "<script>alert(1)</script>",
           "{{7*7}}", "%s%n", "$(id)", "`id`", "; rm -rf", "..", "a..b",
           "\\\\server\\x"]  # fmt: skip


def test_strange_names_are_names_only(release, tmp_path):
    folder = tmp_path / "in"
    code = sys.getfilesystemencoding()  # what it cannot write is no file name here
    names = [
        name
        for name in STRANGE
        if name != ".." and name.encode(code, "ignore").decode(code) == name
    ]
    for name in names:
        students.hand_in(folder / f"{name}.ipynb", students.notebook(release))
    done = [*planned(release, folder).values()]
    assert len(done) == len({unicodedata.normalize("NFC", name) for name in names}) >= 22
    assert all(one.rebuilt for one in done)
    keys = {one.key for one in done}
    assert len(keys) == len(done)
    assert all(
        k.isascii() and k.replace("-", "").replace(".", "").replace("_", "").isalnum() for k in keys
    )


WORDS = st.text(tiers.CHARACTERS, min_size=1, max_size=80)


@given(WORDS, WORDS)
@settings(max_examples=tiers.examples(60), deadline=None)
def test_keys_are_safe_and_different(one, other):
    key = file_key(one, "91_class")
    assert Path(key).name == key and len(key.encode()) < 120 and not key.startswith(".")
    assert (key == file_key(other, "91_class")) == (one == other)


@given(st.binary(max_size=300) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(tiers.CHARACTERS, max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["cells", "id", "source", "metadata", "vklab", "kernelspec", "cell_type"]),
        inner, max_size=4), max_leaves=20).map(lambda v: json.dumps(v).encode()))  # fmt: skip
@settings(max_examples=tiers.examples(100), deadline=None)
def test_any_bytes_are_a_notebook_or_have_a_cause(data):
    try:
        assert isinstance(read_notebook(data).cells, tuple)
    except BadSubmission as error:
        assert str(error)


def test_a_limit_says_its_value(release):
    data = b" " * (submissions.MAX_BYTES + 1)
    with pytest.raises(BadSubmission, match="50 MiB, the limit is 50"):
        read_notebook(data)
