"""Zips that students handed in: read as data, no further than the bounds, whatever they say."""

from __future__ import annotations

import re
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from vklab_course.grade import bounds
from vklab_course.grade.assignment import names
from vklab_course.grade.assignment.submission import BadSubmission, too_big

__all__ = ["check_name", "member", "notebooks", "opened"]

QUOTED = 80


def opened(file: Path | IO[bytes]) -> tuple[zipfile.ZipFile, list[zipfile.ZipInfo]]:
    """Return a zip and what its directory lists.

    Raises BadSubmission for whatever is wrong with it: on a damaged directory, zipfile raises
    errors with no common base class, such as UnicodeDecodeError and struct.error.
    """
    try:
        archive = zipfile.ZipFile(file)
        return archive, archive.infolist()
    except Exception as error:
        raise _damaged(error) from None


def notebooks(file: Path | IO[bytes]) -> Iterator[tuple[str, bytes | BadSubmission]]:
    """Yield the name of each notebook of a student's zip, and its bytes or what is wrong with it.

    Several notebooks of one student are several attempts.
    """
    archive, every = opened(file)
    with archive:
        for info in every:
            check_name(info)
        books = [info for info in every if names.wanted(info.filename)]
        if not books:
            raise BadSubmission("the zip has no notebook (.ipynb)")
        if len(books) > bounds.MAX_ZIP_BOOKS:
            raise BadSubmission(f"the zip has {len(books)} notebooks; hand in the lab's only")
        for info in sorted(books, key=lambda info: info.filename, reverse=True):
            name = names.clean(info.filename)
            try:
                if info.filename.lower().endswith(".zip"):
                    raise BadSubmission("the zip has a zip inside; hand in the notebook itself")
                yield name, member(archive, info, bounds.MAX_BYTES)
            except BadSubmission as error:
                yield name, error


def _damaged(error: Exception) -> BadSubmission:
    return BadSubmission(f"the zip is damaged: {str(error)[:300] or type(error).__name__}")


def check_name(info: zipfile.ZipInfo) -> None:
    """Refuse a name that leaves the archive's folder, and a link, as what they are: an attack."""
    name = info.filename.replace("\\", "/")
    if name.startswith("/") or re.match(r"^[A-Za-z]:", name) or ".." in name.split("/"):
        raise BadSubmission(f"the zip has a file outside of its folder: {info.filename[:QUOTED]!r}")
    if stat.S_ISLNK(info.external_attr >> 16):
        raise BadSubmission(f"the zip has a symbolic link: {info.filename[:QUOTED]!r}")


def member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int) -> bytes:
    """Return the bytes of a member, read no further than the limit whatever its header says.

    Args:
        archive: the zip.
        info: what its directory says of the member.
        limit: most bytes.
    """
    check_name(info)
    if info.flag_bits & 1:
        raise BadSubmission("the zip has a password; hand in a zip without one")
    if info.file_size > limit:
        raise too_big(info.file_size)
    try:
        with archive.open(info) as file:
            data = file.read(limit + 1)
    except MemoryError:
        raise
    except Exception as error:  # zlib.error, LZMAError: of the codec, with no common base class
        raise _damaged(error) from None
    if len(data) > limit:
        raise too_big(len(data))
    return data
