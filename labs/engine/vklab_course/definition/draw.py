"""Cases of a draw: the public ones of a notebook, and fresh ones under a secret seed.

A release has the public cases with their results as data, and neither `cases` nor `expected`.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vklab_course.definition.case import Case
from vklab_course.definition.codec import Raised, decode, encode
from vklab_course.definition.exercise import Exercise
from vklab_course.places import labs_folder

__all__ = ["draw", "fingerprint", "freeze", "public_cases", "seed_of"]

PUBLIC = "public"


def seed_of(secret: str, exercise: str) -> int:
    """Return the seed of an exercise under a secret; nobody can compute one from another."""
    digest = hashlib.sha256(f"{secret}\n{exercise}".encode()).digest()
    return int.from_bytes(digest[:16], "little")


def fingerprint(secret: str) -> str:
    """Return a text that identifies a secret without telling it, for results."""
    return hashlib.sha256(f"fingerprint\n{secret}".encode()).hexdigest()[:16]


def draw(exercise: Exercise, secret: str) -> list[Case]:
    """Draw the cases of an exercise, with the oracle's results.

    Args:
        exercise: the exercise in its variant.
        secret: the seed's text, as in `seed_of`.
    """
    random = np.random.default_rng(seed_of(secret, exercise.id))
    return [replace(case, expected=_expected(exercise, case)) for case in exercise.cases(random)]


def _expected(exercise: Exercise, case: Case) -> object:
    try:
        return exercise.expected(copy.deepcopy(case))
    except NotImplementedError:
        raise
    except Exception as error:
        return Raised.of(error)


def public_cases(exercise: Exercise) -> list[Case]:
    """Return the cases that the notebook shows: drawn, or frozen in a release."""
    path = labs_folder() / "checks" / "frozen" / f"{exercise.id}.bin"
    if path.is_file():
        return list(decode(path.read_bytes()))
    return draw(exercise, PUBLIC)


def freeze(exercise: Exercise, cases: Sequence[Case] | None = None) -> bytes:
    """Return the public cases of an exercise as data for a release."""
    return encode(list(public_cases(exercise) if cases is None else cases))
