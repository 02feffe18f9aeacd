"""Check inputs of operators: dtypes, axes, and values that a plan must know.

An unknown value raises `ValueNeededError`; the session computes it and plans again.
Visited by lab 09.
"""

from __future__ import annotations

import math

import numpy as np

from vklab.errors import ModelError, UnsupportedOperatorError, ValueNeededError
from vklab.types import TensorInfo

# The largest constant that an operator creates; a larger size in a model is taken for a mistake.
PLANNED_BYTES = 1 << 32


def affordable(*sizes: int, item_bytes: int = 8) -> None:
    """Raise ModelError for a constant of negative or absurd size, before it is created."""
    if min(sizes, default=0) < 0 or math.prod(sizes) * item_bytes > PLANNED_BYTES:
        raise ModelError(
            f"{'x'.join(map(str, sizes))} values of {item_bytes} bytes; a constant "
            f"has {PLANNED_BYTES} bytes at most"
        )


def require(allowed: frozenset[str], *infos: TensorInfo | None) -> None:
    """Raise UnsupportedOperatorError unless kernels exist for the dtype of every input."""
    for info in infos:
        if info is not None and info.dtype not in allowed:
            names = ", ".join(sorted(allowed))
            raise UnsupportedOperatorError(
                f"{info.name or 'an input'} is {info.dtype}; kernels exist for {names}"
            )


def same(*infos: TensorInfo | None) -> str:
    """Return the dtype that all inputs share; ModelError if they differ."""
    dtypes = list(dict.fromkeys(info.dtype for info in infos if info is not None))
    if len(dtypes) != 1:
        raise ModelError(f"inputs of different dtypes: {', '.join(dtypes)}; they must be equal")
    return dtypes[0]


def known_array(info: TensorInfo, role: str) -> np.ndarray:
    """Return a tensor's value; ValueNeededError if it is not known before the run."""
    if info.constant is None:
        raise ValueNeededError(f"{role} ({info.name}) is computed while the model runs", info.name)
    return info.constant


def known_integers(info: TensorInfo, role: str) -> tuple[int, ...]:
    """Return a tensor's value as integers; ValueNeededError if it is not known before the run."""
    if info.dtype not in ("int64", "int32", "uint64", "uint32", "int8", "uint8", "int16", "uint16"):
        raise ModelError(f"{role} ({info.name}) holds {info.dtype}, not integers")
    return tuple(np.ravel(known_array(info, role)).tolist())


def normal_axis(axis: int, rank: int) -> int:
    """Return an axis counted from the front; ModelError if it is out of range."""
    if not -rank <= axis < rank:
        raise ModelError(f"axis={axis} is not an axis of a tensor of rank {rank}")
    return axis % rank


def normal_axes(axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Return axes counted from the front; ModelError if one is out of range or named twice."""
    normal = tuple(normal_axis(axis, rank) for axis in axes)
    if len(set(normal)) < len(normal):
        raise ModelError(f"axes={tuple(axes)} names one axis twice")
    return normal
