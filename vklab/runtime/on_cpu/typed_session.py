"""TypedSession: an ONNX Runtime session that takes and returns every dtype as it is.

By itself ONNX Runtime hands float8_e4m3fn out as bytes, and the other types that NumPy lacks not at
all, neither in nor out. Needs no onnx.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

from vklab.ops.dtypes import ELEMENT_TYPES

# What ONNX Runtime and NumPy both have, by the former's names.
_SHARED = frozenset(
    f"tensor({name})"
    for name in (
        "float",
        "double",
        "float16",
        "bool",
        "string",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
    )
)
_DTYPES = {number: name for name, number in ELEMENT_TYPES.items()}


class TypedSession:
    """An ONNX Runtime session whose inputs and outputs are arrays of the model's dtypes.

    Args:
        session: the InferenceSession.
        runtime: the module onnxruntime.

    Attributes:
        session: as the argument.
        outputs: the names of its outputs.
    """

    def __init__(self, session: Any, runtime: ModuleType) -> None:
        self.session = session
        self._values = runtime.OrtValue
        kinds = {each.name: each.type for each in (*session.get_inputs(), *session.get_outputs())}
        # A sequence has no OrtValue that NumPy could read, so it is none of these.
        self._added = {
            name
            for name, kind in kinds.items()
            if kind.startswith("tensor(") and kind not in _SHARED
        }
        self.outputs: tuple[str, ...] = tuple(each.name for each in session.get_outputs())

    def run(self, names: Sequence[str], fed: Mapping[str, Any]) -> Sequence[Any]:
        """Return the outputs of these names for inputs by name."""
        if not self._added:
            plain: Sequence[Any] = self.session.run(names, dict(fed))
            return plain
        given = {name: self._given(name, array) for name, array in fed.items()}
        made = self.session.run_with_ort_values(names, given)
        return [
            _array(value) if name in self._added else value.numpy()
            for name, value in zip(names, made, strict=True)
        ]

    def _given(self, name: str, array: np.ndarray) -> Any:
        if name not in self._added:
            return self._values.ortvalue_from_numpy(np.asarray(array, order="C"))
        value = self._values.ortvalue_from_shape_and_type(
            array.shape, ELEMENT_TYPES[str(array.dtype)]
        )
        packed = _pack(array)
        if value.tensor_size_in_bytes() != len(packed):
            raise TypeError(
                f"ONNX Runtime holds {name}: {array.dtype}{list(array.shape)} in "
                f"{value.tensor_size_in_bytes()} bytes, not {len(packed)}"
            )
        ctypes.memmove(value.data_ptr(), packed, len(packed))
        return value


def _bits(dtype: np.dtype) -> int:
    info = ml_dtypes.iinfo if "int" in dtype.name else ml_dtypes.finfo
    return int(info(dtype).bits)


def _pack(array: np.ndarray) -> bytes:
    """Return the elements of an array; those of 2 and 4 bits share bytes, the first one lowest."""
    bits = _bits(array.dtype)
    if bits not in (2, 4):
        return array.tobytes()
    codes = np.ravel(array).view(np.uint8) & (2**bits - 1)
    rows = np.pad(codes, (0, -len(codes) % (8 // bits))).reshape(-1, 8 // bits)
    return np.bitwise_or.reduce(rows << np.arange(0, 8, bits, dtype=np.uint8), axis=1).tobytes()


def _array(value: Any) -> np.ndarray:
    """Return an OrtValue as an array; the inverse of `_pack`."""
    dtype, shape = np.dtype(_DTYPES[value.element_type()]), tuple(value.shape())
    raw = np.frombuffer(ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes()), np.uint8)
    bits = _bits(dtype)
    if bits in (2, 4):
        raw = (raw[:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & (2**bits - 1)).ravel()
    return raw.view(dtype)[: math.prod(shape)].reshape(shape)
