"""Verify the offsets of an answer before the runtime uses them. Visited by labs 00 and 11."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vklab.errors import PlanError
from vklab.plan import memory
from vklab.plan.memory import Lifetime
from vklab_course.piece import Piece

__all__ = ["ONE_AFTER_THE_OTHER", "Assign", "unshared", "verified", "whole"]

Assign = Callable[..., tuple[dict[str, int], int]]
_REAL = memory.assign_offsets  # while an answer stands at the seam, the name means the answer


def whole(number: Any) -> Any:
    """Return a whole number of NumPy as an int; all else as it is."""
    return int(number) if isinstance(number, np.integer) else number


def verified(answer: Callable[..., Any]) -> Callable[..., tuple[dict[str, int], int]]:
    """Return a function with the signature of `assign_offsets` that tests what `answer` returns.

    Raises an AssertionError with a sentence before a driver sees a wrong offset.
    """

    def assign(lifetimes: Sequence[Lifetime], aliasing: bool = True) -> tuple[dict[str, int], int]:
        got = answer(lifetimes, aliasing)
        if not (isinstance(got, tuple | list) and len(got) == 2 and isinstance(got[0], dict)):
            raise AssertionError(
                "expected (offsets, size of the arena) with a dict of offsets, "
                f"got {type(got).__name__}"
            )
        offsets, size = got
        offsets = {name: whole(offset) for name, offset in offsets.items()}
        size = whole(size)
        if not isinstance(size, int) or isinstance(size, bool):
            raise AssertionError(f"the size of the arena is {size!r}, and no whole number")
        try:
            memory.check_offsets(lifetimes, offsets, size)
        except PlanError as error:
            raise AssertionError(f"your packing is wrong: {error}") from None
        return offsets, size

    return assign


def unshared(lifetimes: Sequence[Lifetime], aliasing: bool = True) -> tuple[dict[str, int], int]:
    """Return the runtime's offsets without aliasing: no two values share a byte."""
    return _REAL(lifetimes, False)


def _assigned(params: object) -> Assign:
    """Return the runtime's `assign_offsets`: exercise 00-4 has its signature."""
    return lambda lifetimes, aliasing=True: _REAL(lifetimes, aliasing)


ONE_AFTER_THE_OTHER = Piece(
    "assign_offsets",
    "vklab.plan.memory.assign_offsets",
    {"00-4": _assigned},
    lambda answer: verified(answer.value),
    unshared,
)
