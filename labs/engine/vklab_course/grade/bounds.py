"""Bounds of what a submission may make the grader do, and keep, before and beside its answers.

Each stands here once. What its answers may use is in sandbox/limits.py, what a session may use in
session/process.py.
"""

from __future__ import annotations

import hashlib

__all__ = [
    "CAUSE", "FILE", "MAX_ATTEMPTS", "MAX_BYTES", "MAX_CELLS", "MAX_CELL_CHARACTERS", "MAX_DEPTH",
    "MAX_ENTRIES", "MAX_FILES", "MAX_STUDENTS", "MAX_ZIP_BOOKS", "MAX_ZIP_BYTES", "MAX_ZIP_MEMBERS",
    "NAME", "NOTES", "READ_BYTES", "READ_CPU_S", "READ_WALL_S", "REBUILT", "ROSTER_BYTES",
    "STUDENT_S", "short",
]  # fmt: skip

# A class: students, and the members of its zip.
MAX_STUDENTS, MAX_ZIP_MEMBERS = 20_000, 200_000
# A roster.
ROSTER_BYTES = 16 << 20
# A student: notebooks and zips; files and folders that are looked at, and how deep they are.
MAX_FILES, MAX_ENTRIES, MAX_DEPTH = 200, 200_000, 20
# Attempts of a student at one lab that are graded, where all of them are.
MAX_ATTEMPTS = 20
# A student's zip: its size, its notebooks.
MAX_ZIP_BYTES, MAX_ZIP_BOOKS = 200 << 20, 20
# A notebook. Outputs count too: pictures make honest notebooks of a few megabytes.
MAX_BYTES, MAX_CELLS, MAX_CELL_CHARACTERS = 50 << 20, 2_000, 200_000
# The process that reads everything of one student: memory, processor time, time by the clock.
READ_BYTES, READ_CPU_S, READ_WALL_S = 1 << 30, 30, 300.0
# What is kept of a notebook: characters of a student's name, of a file's, of a cause or note; the
# notes; the rebuilt notebook.
NAME, FILE, CAUSE, NOTES, REBUILT = 200, 500, 2_000, 10, 2 << 20
# Seconds by the clock for all attempts of one student at one lab together, second runs too.
STUDENT_S = 900.0


def short(text: str, limit: int) -> str:
    """Return a text, cut to a limit of characters; texts that differ stay different.

    Args:
        text: the text.
        limit: most characters.
    """
    if len(text) <= limit:
        return text
    mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{text[: limit - len(mark) - 3]}...{mark}"
