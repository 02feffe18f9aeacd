"""Protocols of plain data: the layout of weights, and the sizes and arrays of a traced plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

__all__ = ["Layout", "Size", "Values"]


class Layout(Protocol):
    """Order in which the values of a weight are stored in a tensor that is made from it."""

    @property
    def weight(self) -> str:
        """Return the name of the weight whose values these are."""

    def __hash__(self) -> int: ...

    def lay_out(self, values: np.ndarray) -> np.ndarray:
        """Return the values of the weight in this order."""


class Size:
    """Base of sizes that are no number of Python's, but compute and compare as one."""

    __slots__ = ()

    def array(self, values: Sequence[Any], dtype: str) -> Any:
        """Return sizes as an array of their own kind."""
        raise NotImplementedError


class Values:
    """Base of arrays that are no array of NumPy's, but compute as one."""
