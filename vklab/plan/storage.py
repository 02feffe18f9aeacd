"""Choose the dtypes in which a device stores tensors whose own dtype it lacks.

Narrow types that a device cannot address take 32 bits each and are rounded on every store, so
results are equal. 64-bit integers that a device does not support can be copied, but not
computed with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from vklab import settings
from vklab.errors import PlanError
from vklab.graph import constant_cache
from vklab.ops.dtypes import ELEMENTS
from vklab.plan.lowering import Lowered
from vklab.types import DeviceInfo, Operands, TensorInfo

# Slang's narrow types by their bits, and the type that replaces each on a device without it.
_WIDE = {
    8: {"int8_t": "int", "uint8_t": "uint"},
    16: {"half": "float", "int16_t": "int", "uint16_t": "uint"},
}
_NEEDS = {
    bits: frozenset().union(*(e.needs for e in ELEMENTS.values() if e.storage in types))
    for bits, types in _WIDE.items()
}
_ARRAYS = {"float": "float32", "int": "int32", "uint": "uint32"}
_NARROW = {"half": "narrow_half", "int8_t": "narrow_int8", "uint8_t": "narrow_uint8",
           "int16_t": "narrow_int16", "uint16_t": "narrow_uint16"}  # fmt: skip
_WORDS = {"int64_t": "shaderInt64", "uint64_t": "shaderInt64", "double": "shaderFloat64"}


def _wide(info: DeviceInfo) -> dict[str, str]:
    """Return the replacement of each narrow type that a device lacks."""
    disabled = bool(settings.get("DISABLE_NARROW"))
    lacking = [b for b, needs in _NEEDS.items() if disabled or not needs <= info.features]
    return {narrow: wide for bits in lacking for narrow, wide in _WIDE[bits].items()}


def stored_dtype(dtype: str, info: DeviceInfo) -> str:
    """Return the dtype in which a device stores tensors of a dtype."""
    element = ELEMENTS.get(dtype)
    wide = _wide(info).get(element.storage) if element else None
    return _ARRAYS[wide] if wide else dtype


def encode(array: np.ndarray, stored: str) -> np.ndarray:
    """Return an array in its stored dtype: small floats by their bits, others by their value."""
    return _bits(array).astype(stored) if str(array.dtype) != stored else array


def decode(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return a stored array in its own dtype; the inverse of `encode`."""
    kind = np.dtype(dtype)
    if array.dtype == kind:
        return array
    if _is_coded(kind):
        return array.astype(f"uint{8 * kind.itemsize}").view(kind)
    return array.astype(kind)


def _bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"uint{8 * array.itemsize}") if _is_coded(array.dtype) else array


def _is_coded(dtype: np.dtype) -> bool:
    """Tell whether kernels read a dtype by its bits, for example a float8."""
    element = ELEMENTS.get(str(dtype))
    return element is not None and element.load.startswith("load_")


def adapt(lowered: Lowered, info: DeviceInfo) -> Lowered:
    """Return dispatches that use only types of the device.

    Raises PlanError for a dispatch that computes in a type without a replacement.
    """
    for dispatch in lowered.dispatches:
        for name, value in dispatch.defines:
            if value in _WORDS and _WORDS[value] not in info.features:
                raise PlanError(
                    f"{dispatch} computes in {value} ({name}), {info.name} lacks {_WORDS[value]}"
                )
    wide = _wide(info)
    if not wide:
        return lowered
    made: dict[int, TensorInfo] = {}  # one object a tensor: tensors are told apart by identity

    def operands(given: Operands) -> Operands:
        return tuple((n, made.setdefault(id(t), widen(t, info))) for n, t in given)

    dispatches = tuple(
        replace(
            d,
            reads=operands(d.reads),
            writes=operands(d.writes),
            defines=tuple(_define(name, value, wide) for name, value in d.defines),
        )
        for d in lowered.dispatches
    )
    constants = {name: widen(value, info) for name, value in lowered.constants.items()}
    return replace(lowered, dispatches=dispatches, constants=constants)


def _define(name: str, value: str, wide: Mapping[str, str]) -> tuple[str, str]:
    if name.endswith("_STORE"):
        return name, _NARROW[value] if value in wide else value
    return name, wide.get(value, value)


def widen(tensor: TensorInfo, info: DeviceInfo) -> TensorInfo:
    """Return a tensor in the dtype in which a device stores it, its value included."""
    dtype = stored_dtype(tensor.dtype, info)
    if dtype == tensor.dtype:
        return tensor
    constant = tensor.constant
    if constant is not None:  # one array for all plans, so that it is uploaded once
        constant = constant_cache.derive(("stored", dtype), lambda a: encode(a, dtype), constant)
    return replace(tensor, dtype=dtype, constant=constant)
