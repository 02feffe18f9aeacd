"""Progress of a load: the bytes of weights that are on their devices, and all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

# Called with the bytes of weights that are on their devices, and with the bytes of all weights.
Loaded = Callable[[int, int], None]


@contextlib.contextmanager
def watched(weights: Any, loaded: Loaded | None, size_bytes: int) -> Iterator[None]:
    """Call `loaded` before each array that is uploaded while the `with` block runs, and at its end.

    Args:
        weights: the `SessionWeights` of the model.
        loaded: what to call; None for nothing.
        size_bytes: the bytes of all weights. An upload may pad them, or leave out what is there.
    """
    if loaded is None:
        yield
        return
    begun, before = 0, weights.taken

    def taken(array: np.ndarray) -> np.ndarray:
        nonlocal begun
        loaded(min(begun, size_bytes), size_bytes)
        begun += array.nbytes
        return array

    weights.taken = taken
    try:
        yield
    finally:
        weights.taken = before
    loaded(size_bytes, size_bytes)


def after(loaded: Loaded | None, before: int, size_bytes: int) -> Loaded | None:
    """Return the progress of one stage as a part of that of a whole model.

    Args:
        loaded: what the whole model calls.
        before: the bytes of the stages that are loaded already.
        size_bytes: the bytes of the whole model.
    """
    return loaded and (lambda done, of: loaded(before + done, size_bytes))
