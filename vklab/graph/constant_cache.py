"""Constants made from constants, each once: weights cast, folded or laid out in another way.

A plan for another shape asks again and gets the same array, so devices need not be sent it anew.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable

import numpy as np

__all__ = ["derive"]

Key = tuple[Hashable, tuple[int, ...]]

_made: dict[Key, np.ndarray] = {}
# Views keep what they look at alive: kept here as well they would never go.
_views: weakref.WeakValueDictionary[Key, np.ndarray] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def derive(
    what: Hashable, function: Callable[..., np.ndarray], *sources: np.ndarray
) -> np.ndarray:
    """Return function(*sources), the same array whenever it is asked for the same sources.

    What was made goes with the first of its sources that goes.

    Args:
        what: names the function and all its other arguments.
    """
    key = (what, tuple(map(id, sources)))
    with _lock:
        found = _made.get(key, _views.get(key))
    if found is not None:
        return found
    made = function(*sources)
    shared = any(np.may_share_memory(made, source) for source in sources)
    kept = _views if shared else _made
    with _lock:
        found = kept.setdefault(key, made)
        if found is made:
            for source in sources:
                weakref.finalize(source, kept.pop, key, None)
        return found
