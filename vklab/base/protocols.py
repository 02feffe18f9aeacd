"""Protocols and bases of plain data: layouts of weights, traced sizes, equality by content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Protocol

import numpy as np

__all__ = ["Content", "Layout", "Size", "Values"]


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


class Content:
    """Base of dataclasses that are equal if their content is, tensors and arrays included.

    Tensors by themselves are told apart by identity: see `types.TensorInfo`.
    """

    def __eq__(self, other: object) -> bool:
        return _equal(self, other)


def _equal(one: Any, other: Any) -> bool:
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, np.ndarray):
        values = [a.tolist() if a.dtype.hasobject else a.tobytes() for a in (one, other)]
        return (one.dtype, one.shape, values[0]) == (other.dtype, other.shape, values[1])
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_equal, one, other))
    if is_dataclass(one):
        return all(_equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    return bool(one == other)
