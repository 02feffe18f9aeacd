"""given: the arguments of one case of a check, for cases that are too long to be written out."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Any

from vklab_course.definition import stub
from vklab_course.definition.codec import decode
from vklab_course.definition.draw import public_cases
from vklab_course.definition.exercise import find

__all__ = ["given"]


def given(identifier: str, number: int) -> tuple[Any, ...]:
    """Return the arguments of one case of a check, for a call in the notebook.

    Args:
        identifier: the exercise, "03-1".
        number: the case as the message of the check numbers it, from 1.

    Raises LookupError for an exercise or a number that does not exist.
    """
    exercise = find(identifier)
    cases = public_cases(exercise)
    if exercise.takes != "function" or not 1 <= number <= len(cases):
        raise LookupError(f"{identifier} has no case {number} to call a function with")
    question = decode(cases[number - 1].question)
    if not question["files"]:
        return tuple(question["args"])
    tree = Path(tempfile.mkdtemp(prefix="vklab-"))
    atexit.register(shutil.rmtree, tree, ignore_errors=True)
    stub.write_files(question["files"], tree)
    return tuple(stub.with_paths(question["args"], lambda: tree))
