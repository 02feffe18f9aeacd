"""swap: run the real runtime with one of its functions replaced by a student's.

Checks the name and always restores the original; the function itself is not checked.
Visited by lab 00.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from vklab_course import seam

__all__ = ["swap"]


@contextlib.contextmanager
def swap(path: str, replacement: Any) -> Iterator[Any]:
    """Replace the function at `path` for the `with` block; yield the original.

    Args:
        path: a dotted path, `vklab.plan.memory.assign_offsets`.
        replacement: a function with the real one's parameters.

    Raises LookupError for an unknown path, with functions of a like name, and TypeError for a
    replacement that cannot be called.
    """
    holder, name, original = seam.resolve(path, (FunctionType,))
    if callable(original) and not callable(replacement):
        kind = type(replacement).__name__
        raise TypeError(
            f"{path} is called by the runtime; {kind} cannot be called. Give the "
            f"function itself: swap({path!r}, mine)"
        )
    setattr(holder, name, replacement)
    try:
        yield original
    finally:
        setattr(holder, name, original)
