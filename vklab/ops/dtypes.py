"""Map each ONNX dtype to its type in a buffer and the type that kernels compute in.

Kernels are written once: a define names the storage type, its _LOAD and _STORE convert an element
to the computing type and back. `plan.storage` replaces types that a device lacks.
Visited by lab 09.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 and the 8-bit floats with NumPy)
import numpy as np

from vklab.base.protocols import Size
from vklab.types import TensorInfo

Defines = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Element:
    """Name the Slang types of one dtype: buffer element, register value, and their conversions.

    `needs` are the device features that a buffer of these elements requires.
    """

    storage: str
    value: str
    load: str
    store: str
    needs: frozenset[str] = frozenset()


def _plain(storage: str, value: str = "", *needs: str) -> Element:
    return Element(storage, value or storage, value or storage, storage, frozenset(needs))


def _coded(name: str, storage: str, value: str, *needs: str) -> Element:
    return Element(storage, value, f"load_{name}", f"store_{name}", frozenset(needs))


_BYTE = ("shaderInt8", "uniformAndStorageBuffer8BitAccess")
_SHORT = ("shaderInt16", "uniformAndStorageBuffer16BitAccess")
_HALF = ("shaderFloat16", "uniformAndStorageBuffer16BitAccess")
_CODED_FLOATS = (
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn",
)  # fmt: skip

# Kernels compute narrow types in 32 bits and round once, in the store.
ELEMENTS: dict[str, Element] = {
    "float32": _plain("float"),
    "float16": _plain("half", "float", *_HALF),
    "bfloat16": _coded("bfloat16", "uint16_t", "float", *_SHORT),
    "float64": _plain("double", "", "shaderFloat64"),
    "int8": _plain("int8_t", "int", *_BYTE),
    "uint8": _plain("uint8_t", "uint", *_BYTE),
    "int16": _plain("int16_t", "int", *_SHORT),
    "uint16": _plain("uint16_t", "uint", *_SHORT),
    "int32": _plain("int"),
    "uint32": _plain("uint"),
    "int64": _plain("int64_t", "", "shaderInt64"),
    "uint64": _plain("uint64_t", "", "shaderInt64"),
    "bool": _plain("uint8_t", "bool", *_BYTE),
    **{name: _coded(name, "uint8_t", "float", *_BYTE) for name in _CODED_FLOATS},
    **{name: _coded(name, "uint8_t", "int", *_BYTE) for name in ("int4", "int2")},
    **{name: _coded(name, "uint8_t", "uint", *_BYTE) for name in ("uint4", "uint2")},
}

BOOL = frozenset({"bool"})
FLOATS = frozenset({"float32", "float16", "bfloat16"})
REALS = FLOATS | {"float64"}
INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
NUMBERS = REALS | INTEGERS
_RAW = {1: "uint8_t", 2: "uint16_t", 4: "uint", 8: "uint2", 16: "uint4"}
MOVABLE = frozenset(ELEMENTS) | {"complex64", "complex128"}
# ONNX types other than tensors, and "" for an unknown type: only the host reads such values.
OTHER_TYPES = frozenset({"", "sequence", "optional", "map", "sparse_tensor"})
# ONNX's number of each dtype (TensorProto.DataType), as in Cast's attribute `to`.
ELEMENT_TYPES = {
    name: number
    for number, name in enumerate(
        (
            "float32",
            "uint8",
            "int8",
            "uint16",
            "int16",
            "int32",
            "int64",
            "string",
            "bool",
            "float16",
            "float64",
            "uint32",
            "uint64",
            "complex64",
            "complex128",
            "bfloat16",
            "float8_e4m3fn",
            "float8_e4m3fnuz",
            "float8_e5m2",
            "float8_e5m2fnuz",
            "uint4",
            "int4",
            "float4_e2m1fn",
            "float8_e8m0fnu",
            "uint2",
            "int2",
            "float6_e2m3fn",
            "float6_e3m2fn",
        ),
        1,
    )
}


def type_defines(name: str, dtype: str) -> Defines:
    """Return the defines by which a kernel loads and stores a dtype, with a name as prefix."""
    element = ELEMENTS[dtype]
    return (
        (name, element.storage),
        (f"{name}_LOAD", element.load),
        (f"{name}_STORE", element.store),
    )


def raw_defines(name: str, dtype: str) -> Defines:
    """Return defines for a kernel that copies elements bit by bit, with a name as prefix."""
    storage = _RAW[np.dtype(dtype).itemsize]
    return (
        (name, storage),
        (f"{name}_LOAD", "onnx::identity"),
        (f"{name}_STORE", "onnx::identity"),
    )


def integer_array(values: Any, dtype: str = "int64") -> Any:
    """Return sizes as an array; those of `plan.templates` make one of their own kind."""
    size = next((value for value in values if isinstance(value, Size)), None)
    return size.array(values, dtype) if size is not None else np.asarray(values).astype(dtype)


def table(values: object, dtype: str = "int32") -> TensorInfo:
    """Return a constant tensor of numbers that do not fit into push constants."""
    array = (
        integer_array(values, dtype)
        if isinstance(values, list)
        else (np.ascontiguousarray(np.asarray(values).astype(dtype, copy=False)))
    )
    return TensorInfo("", dtype, array.shape, array)
