"""Upper bounds of open dimensions: check a caller's bounds, and set graph inputs to them.

A dimension is named as in the model, or INPUT.AXIS as in "image.0". Visited by lab 11.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vklab.errors import ModelError
from vklab.types import ANY_SHAPE, TensorInfo

Bounds = Mapping[str, int]


def resolve(infos: Sequence[TensorInfo], bounds: Mapping[str, Any]) -> dict[str, int]:
    """Return the upper bound of each bounded dimension by the model's name for it.

    Args:
        infos: the model's inputs.
        bounds: sizes by the model's dimension names, or by INPUT.AXIS.

    Raises ModelError for an unknown or fixed dimension, for a bound that is no integer of at least
    1, and for two different bounds of one dimension.
    """
    dims: dict[str, int | str] = {
        f"{info.name}.{axis}": dim
        for info in infos
        if info.shape != ANY_SHAPE
        for axis, dim in enumerate(info.shape)
    }
    named = {dim for dim in dims.values() if isinstance(dim, str)}
    sizes: dict[str, int] = {}
    origins: dict[str, str] = {}
    for name, value in bounds.items():
        dim = name if name in named else dims.get(name)
        if isinstance(dim, int):
            raise ModelError(
                f"upper bound {name}={value!r}: the model fixes this dimension at "
                f"{dim}; omit the bound"
            )
        if dim is None:
            raise ModelError(
                f"upper bound {name}={value!r}: unknown dimension; the open ones are "
                f"{', '.join(sorted(named)) or 'none'}"
            )
        size = _size(name, value)
        if sizes.setdefault(dim, size) != size:
            raise ModelError(
                f"upper bounds {origins[dim]}={sizes[dim]} and {name}={size} "
                f"contradict each other: both name the dimension {dim!r}"
            )
        origins[dim] = name
    return sizes


def _size(name: str, value: Any) -> int:
    try:
        size = operator.index(value)
    except TypeError:
        size = 0
    if size < 1 or isinstance(value, bool):
        raise ModelError(f"upper bound {name}={value!r}: a bound is an integer of at least 1")
    return size


def at_bounds(infos: Sequence[TensorInfo], bounds: Bounds) -> tuple[TensorInfo, ...]:
    """Return the inputs with every bounded dimension set to its bound; others stay open."""
    return tuple(
        replace(
            info, shape=tuple(bounds.get(d, d) if isinstance(d, str) else d for d in info.shape)
        )
        for info in infos
    )


def shown(bounds: Bounds) -> str:
    """Return bounds as text, in the form "NAME=SIZE, ..."."""
    return ", ".join(f"{name}={size}" for name, size in bounds.items())
