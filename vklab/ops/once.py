"""Compute once from lists and arrays that are told apart by identity, so that none is read again.

A plan for another size asks each operator again, with the same attributes. Visited by lab 09.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any, TypeVar

import numpy as np

# Lists of attributes up to this length are compared by their elements, longer ones by identity.
LONG = 64
KEPT = 16  # answers of each function; they keep the lists and arrays alive
BY_IDENTITY = (tuple, np.ndarray, float)  # floats, because 0.0 and -0.0 are equal
Made = TypeVar("Made")


def same(value: Any) -> MethodType:
    """Return a key that is equal for one object only, whatever its elements are.

    A bound method is compared by the identity of its object, and keeps the object alive.
    """
    return MethodType(id, value)


def once(function: Callable[..., Made]) -> Callable[..., Made]:
    """Return a function that keeps its latest answers, for the same lists, arrays and floats."""
    answer = functools.lru_cache(KEPT)(
        lambda *keys: function(*(k.__self__ if isinstance(k, MethodType) else k for k in keys))
    )
    return lambda *given: answer(*(same(x) if isinstance(x, BY_IDENTITY) else x for x in given))


@once
def flat_array(values: Any, dtype: str) -> np.ndarray:
    """Return a list or tensor of an attribute as an array of one axis: the same one each time."""
    return np.ravel(np.asarray(values, dtype))
