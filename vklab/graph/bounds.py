"""Upper bounds of open dimensions, by name: what a caller may say, and the inputs at the bound.

A dimension is called what the model calls it, or INPUT.AXIS, as in "image.0". Visited by lab 11.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vklab.errors import ModelError
from vklab.types import ANY_SHAPE, TensorInfo

__all__ = ["at_bounds", "resolve", "shown"]

Bounds = Mapping[str, int]


def resolve(infos: Sequence[TensorInfo], bounds: Mapping[str, Any]) -> dict[str, int]:
    """Return the bound of each open dimension under the name that the model has for it.

    Args:
        infos: the model's inputs.
        bounds: by the model's names, or by INPUT.AXIS.

    Raises ModelError for a name that is not there or not open, for a bound that is no whole number
    from 1 on, and for two bounds of one dimension that differ.
    """
    dims: dict[str, int | str] = {
        f"{info.name}.{axis}": dim
        for info in infos if info.shape != ANY_SHAPE for axis, dim in enumerate(info.shape)
    }  # fmt: skip
    named = {dim for dim in dims.values() if isinstance(dim, str)}
    found: dict[str, int] = {}
    origins: dict[str, str] = {}
    for name, value in bounds.items():
        dim = name if name in named else dims.get(name)
        if isinstance(dim, int):
            raise ModelError(f"upper bound {name}={value!r}: the model fixes this dimension at "
                             f"{dim}; leave the bound away")  # fmt: skip
        if dim is None:
            raise ModelError(f"upper bound {name}={value!r}: no dimension has this name; open "
                             f"are {', '.join(sorted(named)) or 'none'}")  # fmt: skip
        size = _size(name, value)
        if found.setdefault(dim, size) != size:
            raise ModelError(f"upper bounds {origins[dim]}={found[dim]} and {name}={size} "
                             f"contradict each other: both are the dimension {dim!r}")  # fmt: skip
        origins[dim] = name
    return found


def _size(name: str, value: Any) -> int:
    try:
        size = operator.index(value)
    except TypeError:
        size = 0
    if size < 1 or isinstance(value, bool):
        raise ModelError(f"upper bound {name}={value!r}: a bound is a whole number from 1 on")
    return size


def at_bounds(infos: Sequence[TensorInfo], bounds: Bounds) -> tuple[TensorInfo, ...]:
    """Return the inputs with every bounded dimension at its bound; others stay open."""
    return tuple(
        replace(info, shape=tuple(bounds.get(d, d) if isinstance(d, str) else d
                                  for d in info.shape))
        for info in infos
    )  # fmt: skip


def shown(bounds: Bounds) -> str:
    """Return bounds as a caller writes them."""
    return ", ".join(f"{name}={size}" for name, size in bounds.items())
