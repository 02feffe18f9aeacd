"""Intake of submissions: a folder, or the zip of a learning management system, read as data.

Nothing is extracted: names of files are labels, never paths to write to. A file that cannot be read
becomes an entry with its cause, beside the others. Names follow what Canvas and Moodle write into
their downloads, if every name does, but for a few that were added by hand: those are named in a
note, and have no number of the LMS. Everything else is a plain folder with a notebook, zip or
folder a student, where a name that looks like an LMS's is the choice of the one who handed it in;
each student chooses one such name, so a few of them make no plain folder an LMS's.

Source: Moodle mod/assign (download all submissions); Canvas assignment downloads
"""

from __future__ import annotations

import re
import stat
import unicodedata
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO

from vklab_course.grade.assignment.submission import (
    MAX_BYTES,
    BadSubmission,
    Notebook,
    read_notebook,
    too_big,
)
from vklab_course.grade.results.schema import GradeError, Submission

__all__ = ["Entry", "identify", "read_submissions"]

MAX_FILES = 20_000
# What all notebooks of one archive may take in memory, whatever its headers say.
MAX_ZIP_BYTES = 4 * 2**30
MAX_STUDENT_ZIP_BYTES = 200 * 2**20
CANVAS = re.compile(r"(?P<name>[^_]+)_(?:LATE_)?(?P<id>\d+|anon)_(?P<file>\d+)_(?P<rest>.+)",
                    re.DOTALL)  # fmt: skip
MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)_(?P<rest>.*)",
                    re.DOTALL)  # fmt: skip
# What every file of a Canvas download has, also of a group whose name has underscores.
CANVAS_LIKE = re.compile(r".+_(?:\d+|anon)_\d+_.+", re.DOTALL)
# Names of the LMS to one that is not, in its folder; fewer make a plain folder.
AGAINST_ODD = 4
AGAIN = re.compile(r"-(\d{1,3})$")
ATTEMPT = re.compile(r"(?i)\battempt[ _-]?(\d{1,3})\b")
IGNORED = re.compile(r"(^|/)(\.(?!\.)|__MACOSX/|Thumbs\.db$|desktop\.ini$)")


@dataclass(frozen=True)
class Entry:
    """One file of the intake: whose it is, its notebook, or the cause why there is none.

    `note` is a warning about its name, or "".
    """

    submission: Submission
    notebook: Notebook | None = None
    cause: str = ""
    modified: float = 0.0
    note: str = ""


def read_submissions(source: Path) -> list[Entry]:
    """Return every submission of a folder or zip, by student, older attempts first.

    Raises GradeError if the folder or zip itself cannot be read.
    """
    if source.is_dir():
        entries = list(_folder(source))
    elif source.is_file():
        entries = list(_archive(source))
    else:
        raise GradeError(f"{source} is no folder and no zip file; give the folder with the "
                         "submissions, or the zip that the LMS made")  # fmt: skip
    if not entries:
        raise GradeError(f"there is no notebook (.ipynb) and no zip file in {source}")
    return _numbered(_noted(entries))


def _noted(entries: list[Entry]) -> list[Entry]:
    """Add a note to entries whose names are not the LMS's, among others whose are."""
    lms = next((e.submission.lms for e in entries if e.submission.lms != "plain"), "")
    if not lms:
        return entries
    noted = []
    for entry in entries:
        who = entry.submission
        if who.lms == "plain" and not CANVAS_LIKE.fullmatch(_parts(who.file)[0]):
            said = (f"the name {who.file!r} is none of {lms.capitalize()}'s, as the others are: it "
                    f"counts as the work of {who.student!r}, without a number of the LMS")
            entry = replace(entry, note=said)
        noted.append(entry)
    return noted


def _numbered(entries: list[Entry]) -> list[Entry]:
    """Number the attempts of each student in order of attempt, time and name."""
    entries.sort(key=lambda e: (e.submission.student, e.submission.attempt, e.modified,
                                e.submission.file))  # fmt: skip
    count: dict[str, int] = {}
    numbered = []
    for entry in entries:
        student = entry.submission.student
        count[student] = count.get(student, 0) + 1
        numbered.append(replace(entry, submission=entry.submission.model_copy(
            update={"attempt": count[student]})))  # fmt: skip
    return numbered


def identify(name: str, lms: str | None = None) -> Submission:
    """Return who handed in a file, by its path inside the folder or zip.

    Args:
        name: the path.
        lms: moodle, canvas or plain: whose names all files there have; None: by this name alone,
            which may have one folder around that of Moodle.
    """
    parts = _parts(name)
    if lms is None:
        lms = _lms([name])
        if lms == "plain" and len(parts) > 2 and MOODLE.fullmatch(parts[1]):
            lms, parts = "moodle", parts[1:]
    asked = ATTEMPT.search(name)
    attempt = int(asked[1]) if asked else 1
    moodle = MOODLE.fullmatch(parts[0]) if lms == "moodle" else None
    if moodle:
        return Submission(student=f"moodle-{moodle['id']}", name=_clean(moodle["name"]),
                          lms="moodle", lms_id=moodle["id"], file=name, attempt=attempt)
    canvas = CANVAS.fullmatch(parts[0]) if lms == "canvas" and len(parts) == 1 else None
    if canvas:
        again = AGAIN.search(PurePosixPath(canvas["rest"]).stem)
        student = canvas["id"] if canvas["id"] != "anon" else f"anon-{canvas['file']}"
        return Submission(student=f"canvas-{student}", name=_clean(canvas["name"]), lms="canvas",
                          lms_id=student, file=name,
                          attempt=int(again[1]) + 1 if again else attempt)  # fmt: skip
    student = _clean(parts[0] if len(parts) > 1 else _stem(parts[0])) if parts else ""
    return Submission(student=student or "(no name)", name=student, file=name, attempt=attempt)


def _parts(name: str) -> tuple[str, ...]:
    return PurePosixPath(name.replace("\\", "/")).parts


def _lms(names: list[str]) -> str:
    """Return whose names these are: the LMS's that nearly all fit in their first part, or plain.

    Args:
        names: the path of every file of the folder or zip.
    """
    firsts = {parts[0] if (parts := _parts(name)) else "" for name in names}
    for lms, pattern in (("moodle", MOODLE), ("canvas", CANVAS_LIKE)):
        fitting = sum(pattern.fullmatch(first) is not None for first in firsts)
        if fitting and fitting >= AGAINST_ODD * (len(firsts) - fitting):
            return lms
    return "plain"


def _stem(name: str) -> str:
    return re.sub(r"(?i)\.(ipynb|zip)$", "", name)


def _clean(text: str) -> str:
    """Return a name in one Unicode form, without halves of characters."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return unicodedata.normalize("NFC", whole).strip()


def _wanted(name: str) -> bool:
    return not IGNORED.search(name) and name.lower().endswith((".ipynb", ".zip"))


def _folder(root: Path) -> Iterator[Entry]:
    files: dict[str, Path] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if not _wanted(name) or (path.is_dir() and not path.is_symlink()):
            continue
        files[name] = path
        if len(files) > MAX_FILES:
            raise GradeError(f"{root} has more than {MAX_FILES:,} files; is it the right folder?")
    wrapper = _wrapper(list(files))
    lms = _lms([name.removeprefix(wrapper) for name in files])
    if lms != "moodle":  # one folder around a class is taken off in a zip only
        wrapper, lms = "", _lms(list(files))
    for name, path in files.items():
        who = identify(name.removeprefix(wrapper), lms)
        yield from _file(path, name, who.model_copy(update={"file": _clean(name)}))


def _file(path: Path, name: str, who: Submission) -> Iterator[Entry]:
    try:
        facts = path.lstat()
        if stat.S_ISLNK(facts.st_mode):
            raise BadSubmission("it is a symbolic link, which is not followed; hand in the file")
        if not stat.S_ISREG(facts.st_mode):
            raise BadSubmission("it is no regular file")
        if name.lower().endswith(".zip"):
            with path.open("rb") as file:
                yield from _student_zip(file, who, facts.st_mtime)
            return
        data = _limited(path.stat().st_size, path)
        yield _entry(who, data, facts.st_mtime)
    except BadSubmission as error:
        yield Entry(who, cause=str(error))
    except OSError as error:
        yield Entry(who, cause=f"it cannot be read: {error.strerror or error}")


def _limited(size: int, path: Path) -> bytes:
    if size > MAX_BYTES:
        raise too_big(size)
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _entry(who: Submission, data: bytes, modified: float) -> Entry:
    try:
        notebook = read_notebook(data)
    except BadSubmission as error:
        return Entry(who, None, str(error), modified)
    return Entry(who.model_copy(update={"hash": notebook.hash}), notebook, "", modified)


def _archive(path: Path) -> Iterator[Entry]:
    """Read the zip of an LMS: notebooks, and one level of zips inside."""
    total = 0
    try:
        archive, every = _opened(path)
    except BadSubmission as error:
        raise GradeError(f"{path} is no folder and no zip file that can be read ({error}); give "
                         "the folder with the submissions, or the zip that the LMS made"
                         ) from None  # fmt: skip
    with archive:
        infos = [info for info in every if _wanted(info.filename)]
        wrapper = _wrapper([info.filename for info in infos])
        lms = _lms([info.filename.removeprefix(wrapper) for info in infos])
        if len(infos) > MAX_FILES:
            raise GradeError(f"{path} has {len(infos):,} files, the limit is {MAX_FILES:,}")
        for info in infos:
            inner = info.filename.removeprefix(wrapper)
            who = identify(inner, lms).model_copy(update={"file": _clean(inner)})
            try:
                nested = info.filename.lower().endswith(".zip")
                limit = MAX_STUDENT_ZIP_BYTES if nested else MAX_BYTES
                data = _member(archive, info, limit)
                total += len(data)
                if total > MAX_ZIP_BYTES:
                    raise GradeError(f"{path} unpacks to more than {MAX_ZIP_BYTES >> 30} GiB")
                if nested:
                    yield from _student_zip(BytesIO(data), who, _time(info))
                else:
                    yield _entry(who, data, _time(info))
            except BadSubmission as error:
                yield Entry(who, cause=str(error))


def _wrapper(names: list[str]) -> str:
    """Return the one folder around all students, as `zip -r class.zip class` makes it, or ""."""
    tops = {name.partition("/")[0] for name in names}
    inside = {name.partition("/")[2].partition("/")[0] for name in names}
    around = len(tops) == 1 and len(inside) > 1 and all("/" in name for name in names)
    if not around or ".." in tops or any(ATTEMPT.search(name) for name in inside):
        return ""
    return f"{tops.pop()}/"


def _student_zip(file: IO[bytes], who: Submission, modified: float) -> Iterator[Entry]:
    """Read the one notebook of a student's zip; several of one student are several attempts."""
    archive, every = _opened(file)
    with archive:
        if len(every) > MAX_FILES:
            raise BadSubmission(f"the zip has {len(every):,} files")
        for info in every:
            _check_name(info)
        books = [info for info in every if _wanted(info.filename)]
        if not books:
            raise BadSubmission("the zip has no notebook (.ipynb)")
        if len(books) > 20:
            raise BadSubmission(f"the zip has {len(books)} notebooks; hand in the lab's only")
        for info in books:
            if info.filename.lower().endswith(".zip"):
                raise BadSubmission("the zip has a zip inside; hand in the notebook itself")
            inner = who.model_copy(update={"file": f"{who.file}/{_clean(info.filename)}"})
            yield _entry(inner, _member(archive, info, MAX_BYTES), modified)


def _opened(file: Path | IO[bytes]) -> tuple[zipfile.ZipFile, list[zipfile.ZipInfo]]:
    """Return a zip and what its directory lists.

    Raises BadSubmission for whatever is wrong with it: on a damaged directory, zipfile raises
    errors with no common base class, such as UnicodeDecodeError and struct.error.
    """
    try:
        archive = zipfile.ZipFile(file)
        return archive, archive.infolist()
    except Exception as error:
        raise _damaged(error) from None


def _damaged(error: Exception) -> BadSubmission:
    return BadSubmission(f"the zip is damaged: {str(error) or type(error).__name__}")


def _time(info: zipfile.ZipInfo) -> float:
    year, month, day, hour, minute, second = info.date_time
    return (((year * 12 + month) * 31 + day) * 24 + hour) * 3600.0 + minute * 60 + second


def _check_name(info: zipfile.ZipInfo) -> None:
    """Refuse a name that leaves the archive's folder, and a link, as what they are: an attack."""
    name = info.filename.replace("\\", "/")
    if name.startswith("/") or re.match(r"^[A-Za-z]:", name) or ".." in name.split("/"):
        raise BadSubmission(f"the zip has a file outside of its folder: {info.filename[:80]!r}")
    if stat.S_ISLNK(info.external_attr >> 16):
        raise BadSubmission(f"the zip has a symbolic link: {info.filename[:80]!r}")


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int) -> bytes:
    """Return the bytes of a member, read no further than the limit whatever its header says."""
    _check_name(info)
    if info.flag_bits & 1:
        raise BadSubmission("the zip has a password; hand in a zip without one")
    if info.file_size > limit:
        raise too_big(info.file_size)
    try:
        with archive.open(info) as file:
            data = file.read(limit + 1)
    except Exception as error:  # zlib.error, LZMAError: of the codec, with no common base class
        raise _damaged(error) from None
    if len(data) > limit:
        raise too_big(len(data))
    return data
