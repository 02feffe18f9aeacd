"""swap: run the real runtime with one of its functions replaced by a student's.

Decides nothing about the function itself; the name is checked, and always restored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from vklab.course import seam

__all__ = ["swap"]


@contextlib.contextmanager
def swap(path: str, replacement: Any) -> Iterator[Any]:
    """Put `replacement` where `path` names, for the `with` block; yield what was there.

    Args:
        path: a dotted path, `vklab.plan.memory.assign_offsets`.
        replacement: a function that takes what the real one takes.

    Raises LookupError if the path names nothing, TypeError if a function would be replaced by
    something that cannot be called.
    """
    holder, name, original = seam.resolve(path)
    if callable(original) and not callable(replacement):
        kind = type(replacement).__name__
        raise TypeError(f"{path} is called by the runtime; {kind} cannot be called. Give the "
                        f"function itself: swap({path!r}, mine)")  # fmt: skip
    setattr(holder, name, replacement)
    try:
        yield original
    finally:
        setattr(holder, name, original)
