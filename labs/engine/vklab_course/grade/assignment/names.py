"""Owners of files, by the path in a folder or zip: names that Canvas and Moodle write, or plain.

A name of an LMS begins with what its student may choose, and in some forms ends with it. A name
that can be read as two students' is nobody's: it has a cause, and replaces no mark.

Source: Moodle mod/assign/locallib.php download_submissions; Canvas lib/content_zipper.rb
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from vklab_course.grade import bounds
from vklab_course.grade.results.schema import Submission

__all__ = ["CANVAS_LIKE", "Ambiguous", "around", "clean", "first_part", "identify", "lms_of",
           "moodle_folder", "wanted"]  # fmt: skip

# What every file of a download has, also of a group whose name has underscores.
CANVAS_LIKE = re.compile(r".+_(?:\d+|anon)_\d+_.+", re.DOTALL)
MOODLE_LIKE = re.compile(r".+?_\d+_assignsubmission_(?:file|onlinetext)_.*", re.DOTALL)
# Each place where a name of that LMS may end and the numbers begin; the places may overlap.
CANVAS = re.compile(r"_(?=(?P<id>\d+|anon)_(?P<file>\d+)_.)", re.DOTALL)
MOODLE = re.compile(r"_(?=(?P<id>\d+)_assignsubmission_(?:file|onlinetext)_)")
# In a name of Canvas, two numbers behind the first ones are a student's and a file's only if the
# second has so many digits: `04_` begins the name of many a notebook.
FILE_DIGITS = 3
# Names of the LMS to one that is not, in its folder; fewer make a plain folder.
AGAINST_ODD = 4
AGAIN = re.compile(r"-(\d{1,3})$")
ATTEMPT = re.compile(r"(?i)\battempt[ _-]?(\d{1,3})\b")
IGNORED = re.compile(r"(^|/)(\.(?!\.)|__MACOSX/|Thumbs\.db$|desktop\.ini$)")


class Ambiguous(Exception):
    """A name that can be read as two students'.

    Attributes:
        who: the file as nobody's.
    """

    def __init__(self, who: Submission, numbers: Iterable[str]) -> None:
        said = " or of ".join(dict.fromkeys(numbers))
        super().__init__(
            f"its name can be read as the work of {said}; give a roster with the "
            "students' numbers (--roster), or rename the file"
        )
        self.who = who


class _Read(NamedTuple):
    """One reading of a name: the student's number, the file's, what is before and behind."""

    name: str
    number: str
    file: str
    rest: str


def identify(name: str, lms: str | None = None, numbers: Collection[str] = ()) -> Submission:
    """Return who handed in a file, by its path inside the folder or zip.

    Args:
        name: the path.
        lms: moodle, canvas or plain: whose names all files there have; None: by this name alone,
            which may have one folder around that of Moodle.
        numbers: numbers of the students that the roster has; none if there is no roster.

    Raises Ambiguous if the name can be read as two students'.
    """
    parts = _parts(name)
    if lms is None:
        lms = lms_of([name])
        if lms == "plain" and len(parts) > 2 and MOODLE_LIKE.fullmatch(parts[1]):
            lms, parts = "moodle", parts[1:]
    asked = ATTEMPT.search(name)
    attempt = int(asked[1]) if asked else 1
    student = clean(parts[0] if len(parts) > 1 else _stem(parts[0])) if parts else ""
    plain = _submission(name, student or "(no name)", student, attempt)
    readings = list(_readings(lms, parts))
    if readings and lms == "moodle" and len(parts) > 1:
        readings = readings[-1:]  # of a folder, Moodle writes all that is behind the number
    if len({one.number for one in readings}) > 1:
        known = [one for one in readings if one.number in numbers]
        if len({one.number for one in known}) != 1:
            raise Ambiguous(plain, (one.number for one in readings))
        readings = known
    elif readings and lms == "canvas" and "_" in readings[0].name:
        return plain  # of a group
    if not readings:
        return plain
    one = readings[0]
    if lms == "canvas":
        again = AGAIN.search(PurePosixPath(one.rest).stem)
        attempt = int(again[1]) + 1 if again else attempt
    number = one.number if one.number != "anon" else f"anon-{one.file}"
    made = _submission(name, f"{lms}-{number}", clean(one.name), attempt)
    return made.model_copy(update={"lms": lms, "lms_id": number})


def _submission(file: str, student: str, name: str, attempt: int) -> Submission:
    return Submission(
        student=bounds.short(student, bounds.NAME),
        attempt=attempt,
        name=bounds.short(name, bounds.NAME),
        file=bounds.short(file, bounds.FILE),
    )


def _readings(lms: str, parts: tuple[str, ...]) -> Iterator[_Read]:
    """Yield each way to read the name of an LMS, the one with the shortest name first."""
    if not parts:
        return
    if lms == "moodle":
        for found in MOODLE.finditer(parts[0]):
            yield _Read(parts[0][: found.start()], found["id"][:20], "", "")
    if lms != "canvas" or len(parts) != 1:
        return
    for n, found in enumerate(CANVAS.finditer(parts[0])):
        name, number, file = parts[0][: found.start()], found["id"], found["file"]
        if not name or n and (number == "anon" or len(file) < FILE_DIGITS):
            continue
        rest = parts[0][found.end() + len(number) + len(file) + 2 :]
        yield _Read(name.removesuffix("_LATE"), number[:20], file[:20], rest)


def moodle_folder(who: Submission) -> str:
    """Return the folder of a page for a student of Moodle, which splits the name at underscores."""
    return f"{who.name.replace('_', ' ')}_{who.lms_id}_assignsubmission_file_"


def lms_of(names: Iterable[str]) -> str:
    """Return whose names these are: the LMS's that nearly all fit in their first part, or plain.

    Args:
        names: the path of every file of the folder or zip.
    """
    firsts = {first_part(name) for name in names}
    for lms, pattern in (("moodle", MOODLE_LIKE), ("canvas", CANVAS_LIKE)):
        fitting = sum(pattern.fullmatch(first) is not None for first in firsts)
        if fitting and fitting >= AGAINST_ODD * (len(firsts) - fitting):
            return lms
    return "plain"


def around(names: Iterable[str]) -> str:
    """Return the one folder around all students, as `zip -r class.zip class` makes it, or ""."""
    every = list(names)
    tops = {name.partition("/")[0] for name in every}
    inside = {name.partition("/")[2].partition("/")[0] for name in every}
    is_around = len(tops) == 1 and len(inside) > 1 and all("/" in name for name in every)
    if not is_around or ".." in tops or any(ATTEMPT.search(name) for name in inside):
        return ""
    return f"{tops.pop()}/"


def _parts(name: str) -> tuple[str, ...]:
    return PurePosixPath(name.replace("\\", "/")).parts


def first_part(name: str) -> str:
    """Return the first folder of a path, or the file itself; "" if there is none."""
    parts = _parts(name)
    return parts[0] if parts else ""


def _stem(name: str) -> str:
    return re.sub(r"(?i)\.(ipynb|zip)$", "", name)


def clean(text: str) -> str:
    """Return a name in one Unicode form, without halves of characters."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return unicodedata.normalize("NFC", whole).strip()


def wanted(name: str) -> bool:
    """Tell whether a path is of a notebook or zip, in no hidden folder."""
    return not IGNORED.search(name) and name.lower().endswith((".ipynb", ".zip"))
