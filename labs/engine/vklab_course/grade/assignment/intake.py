"""Intake of submissions: the files of a folder, or of the zip of a learning management system.

Only names are looked at here; `reading` opens the files, each student's in a process of its own.
What cannot be handed in becomes an entry with its cause, beside the others. Names follow what
Canvas and Moodle write into their downloads, if every name does, but for a few that were added by
hand: those are named in a note, and have no number of the LMS. Everything else is a plain folder
with a notebook, zip or folder a student, where a name that looks like an LMS's is the choice of the
one who handed it in; each student chooses one such name, so a few of them make no plain folder an
LMS's.
"""

from __future__ import annotations

import os
import stat
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from vklab_course.grade import bounds
from vklab_course.grade.assignment import names, zips
from vklab_course.grade.assignment.submission import BadSubmission
from vklab_course.grade.results.schema import GradeError, Submission

__all__ = ["Entry", "by_student", "read_submissions"]

# Of many files' causes.
HAND_IN = "hand in the notebook alone"


@dataclass(frozen=True)
class Entry:
    """One file that was handed in: whose it is and where it is, or the cause why it is not read.

    Attributes:
        source: the file, or the zip of the class.
        member: its number in the zip of the class; None if it is a file.
        modified: orders the attempts of a student.
        note: a warning about its name, or "".
    """

    submission: Submission
    source: Path = Path()
    member: int | None = None
    cause: str = ""
    modified: float = 0.0
    note: str = ""

    @property
    def order(self) -> tuple[int, float, str]:
        """Return what orders the attempts of one student, older ones first."""
        return self.submission.attempt, self.modified, self.submission.file


def read_submissions(source: Path, numbers: Collection[str] = ()) -> list[Entry]:
    """Return every file of a folder or zip, by student, older attempts first.

    Args:
        source: the folder or zip.
        numbers: numbers of the LMS that the roster has; they decide what a name means.

    Raises GradeError if the folder or zip itself cannot be read.
    """
    where = source.absolute()  # a process that reads may have another folder to start from
    if source.is_dir():
        entries = list(_folder(where, numbers))
    elif source.is_file():
        entries = list(_archive(where, numbers))
    else:
        raise GradeError(
            f"{source} is no folder and no zip file; give the folder with the "
            "submissions, or the zip that the LMS made"
        )
    if not entries:
        raise GradeError(f"there is no notebook (.ipynb) and no zip file in {source}")
    return sorted(_noted(entries), key=lambda e: (e.submission.student, *e.order))


def _noted(entries: list[Entry]) -> list[Entry]:
    """Add a note to entries whose names are not the LMS's, among others whose are."""
    lms = next((e.submission.lms for e in entries if e.submission.lms != "plain"), "")
    if not lms:
        return entries
    noted = []
    for entry in entries:
        who = entry.submission
        odd = not names.CANVAS_LIKE.fullmatch(names.first_part(who.file))
        if who.lms == "plain" and odd and not entry.cause:
            said = (
                f"the name {who.file!r} is none of {lms.capitalize()}'s, as the others are: it "
                f"counts as the work of {who.student!r}, without a number of the LMS"
            )
            entry = replace(entry, note=said)
        noted.append(entry)
    return noted


def _entry(name: str, lms: str, numbers: Collection[str], **facts: object) -> Entry:
    """Return the entry of a file by its name, as nobody's if two students could have made it.

    Args:
        name: its path, without a folder around the class.
        lms: whose names the files have.
        numbers: numbers of the roster.
        facts: the other attributes of the entry.
    """
    try:
        who = names.identify(name, lms, numbers)
    except names.Ambiguous as error:
        who, facts = error.who, {**facts, "cause": str(error)}
    file = bounds.short(names.clean(str(facts.pop("file", name))), bounds.FILE)
    return Entry(who.model_copy(update={"file": file}), **facts)  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------- folders


def _folder(root: Path, numbers: Collection[str]) -> Iterator[Entry]:
    units = _units(root)
    found: dict[str, str] = {}  # names of files, and of students' folders with their causes
    for unit in units:
        try:
            found |= dict.fromkeys(_files(root, unit), "")
        except BadSubmission as error:
            found[f"{unit}/"] = str(error)
        except OSError as error:
            found[f"{unit}/"] = f"it cannot be read: {error.strerror or error}"
    every = [name + "?" if name.endswith("/") else name for name in found]
    wrapper = names.around(every)
    lms = names.lms_of(name.removeprefix(wrapper) for name in every)
    if lms != "moodle":  # one folder around a class is taken off in a zip only
        wrapper, lms = "", names.lms_of(every)
    for name, inside in zip(found, every, strict=True):
        path, cause, modified = root / name, found[name], 0.0
        if not cause:
            cause, modified = _problem(path)
        yield _entry(
            inside.removeprefix(wrapper),
            lms,
            numbers,
            source=path,
            cause=cause,
            modified=modified,
            file=name,
        )


def _units(root: Path) -> list[str]:
    """Return what is limited as one student's: all in the folder, or in the one folder there."""
    try:
        tops = [one for one in os.scandir(root) if names.wanted(f"{one.name}/x.zip")]
        units = sorted(one.name for one in tops)
        if len(tops) == 1 and tops[0].is_dir(follow_symlinks=False):
            inside = [
                one.name for one in os.scandir(tops[0].path) if names.wanted(f"{one.name}/x.zip")
            ]
            units = sorted(f"{tops[0].name}/{name}" for name in inside)
    except OSError as error:
        raise GradeError(f"{root} cannot be read: {error.strerror or error}") from error
    if len(units) > bounds.MAX_STUDENTS:
        raise GradeError(
            f"{root} has {len(units):,} files and folders, the limit is "
            f"{bounds.MAX_STUDENTS:,}; is it the right folder?"
        )
    return units


def _files(root: Path, unit: str) -> list[str]:
    """Return the notebooks and zips of a unit. Raises BadSubmission above the bounds."""
    files: list[str] = []
    folders, seen = [(unit, 0)], 0
    if not (root / unit).is_dir() or (root / unit).is_symlink():
        return [unit] if names.wanted(unit) else []
    while folders:
        folder, depth = folders.pop()
        if depth >= bounds.MAX_DEPTH:
            raise BadSubmission(f"its folders are nested deeper than {bounds.MAX_DEPTH}; {HAND_IN}")
        with os.scandir(root / folder) as entries:
            for one in entries:
                seen += 1
                name = f"{folder}/{one.name}"
                if one.is_dir(follow_symlinks=False):
                    folders += [(name, depth + 1)] if names.wanted(f"{name}/x.zip") else []
                elif names.wanted(name):
                    files.append(name)
                if seen > bounds.MAX_ENTRIES or len(files) > bounds.MAX_FILES:
                    raise _too_many()
    return files


def _too_many() -> BadSubmission:
    return BadSubmission(
        f"its folder has more than {bounds.MAX_FILES} notebooks and zips, or more "
        f"than {bounds.MAX_ENTRIES:,} files; {HAND_IN}"
    )


def _problem(path: Path) -> tuple[str, float]:
    """Return why a file is not opened, or "", and when it was changed."""
    try:
        facts = path.lstat()
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}", 0.0
    if stat.S_ISLNK(facts.st_mode):
        return "it is a symbolic link, which is not followed; hand in the file", 0.0
    if not stat.S_ISREG(facts.st_mode):
        return "it is no regular file", 0.0
    return "", facts.st_mtime


# -------------------------------------------------------------------------------------- zips


def _archive(path: Path, numbers: Collection[str]) -> Iterator[Entry]:
    """List the zip of an LMS: notebooks, and zips inside."""
    try:
        archive, every = zips.opened(path)
    except BadSubmission as error:
        raise GradeError(
            f"{path} is no folder and no zip file that can be read ({error}); give "
            "the folder with the submissions, or the zip that the LMS made"
        ) from None
    archive.close()
    infos = {n: info for n, info in enumerate(every) if names.wanted(info.filename)}
    wrapper = names.around(info.filename for info in infos.values())
    inside = {n: info.filename.removeprefix(wrapper) for n, info in infos.items()}
    lms = names.lms_of(inside.values())
    count = Counter(map(_owner, inside.values()))
    if len(every) > bounds.MAX_ZIP_MEMBERS or len(count) > bounds.MAX_STUDENTS:
        most = "; ".join(f"{name[:80]!r} {number:,}" for name, number in count.most_common(3))
        raise GradeError(
            f"{path} has {len(every):,} files of {len(count):,} students, the limits "
            f"are {bounds.MAX_ZIP_MEMBERS:,} and {bounds.MAX_STUDENTS:,}; most "
            f"notebooks are of {most}"
        )
    full = {owner for owner, number in count.items() if number > bounds.MAX_FILES}
    for owner in full:
        yield _entry(f"{owner}/?", lms, numbers, cause=str(_too_many()), file=f"{owner}/")
    for n, name in inside.items():
        if _owner(name) not in full:
            yield _entry(
                name,
                lms,
                numbers,
                source=path,
                member=n,
                modified=_time(infos[n]),
                cause=_refusal(infos[n]),
            )


def _owner(name: str) -> str:
    return names.first_part(name) or name


def _refusal(info: zipfile.ZipInfo) -> str:
    try:
        zips.check_name(info)
    except BadSubmission as error:
        return str(error)
    return ""


def _time(info: zipfile.ZipInfo) -> float:
    year, month, day, hour, minute, second = info.date_time
    return (((year * 12 + month) * 31 + day) * 24 + hour) * 3600.0 + minute * 60 + second


def by_student(entries: Iterable[Entry]) -> dict[tuple[str, str], list[Entry]]:
    """Return the entries of each student, newest attempt first, by LMS and key."""
    found: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        found.setdefault((entry.submission.lms, entry.submission.student), []).append(entry)
    return {
        key: sorted(mine, key=lambda e: e.order, reverse=True)
        for key, mine in sorted(found.items(), key=lambda item: item[0][::-1])
    }
