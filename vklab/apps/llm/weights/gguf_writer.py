"""Write GGUF files of version 3, byte by byte as the package gguf does.

That package is no substitute: it refuses empty arrays, which files of others have.
Source: ggml, docs/gguf.md.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from vklab.apps.llm.weights.gguf import ARRAY, DTYPES, MAGIC, STRING, Value, checked_alignment
from vklab.errors import ModelError
from vklab.ops.blocks import FORMATS


class Writable(Protocol):
    """Tensor to write: a `StoredTensor`, or one that makes its bytes when asked."""

    @property
    def name(self) -> str:
        """Return the name."""

    @property
    def block_type(self) -> str:
        """Return the format."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape, row-major."""

    @property
    def size_bytes(self) -> int:
        """Return the bytes that `data` has."""

    @property
    def data(self) -> np.ndarray:
        """Return the bytes; asked for once, when they are written."""


def write_gguf(
    path: str | os.PathLike[str], metadata: Mapping[str, Value], tensors: Iterable[Writable]
) -> None:
    """Write a GGUF file of version 3; an existing file is replaced when the new one is complete.

    Args:
        path: the file.
        metadata: values by key. A Python int is stored in 32 bits, without sign, where it fits; a
            float as float32; arrays and numbers of NumPy keep their dtype.
        tensors: the tensors, in the order of the file.

    Raises ModelError for a value of a type that GGUF does not have, and for a name given twice.
    """
    stored = list(tensors)
    if len({tensor.name for tensor in stored}) < len(stored):
        raise ModelError(f"two of {len(stored)} tensors have one name")
    alignment = checked_alignment(metadata, str(path))
    head = [MAGIC, struct.pack("<IQQ", 3, len(stored), len(metadata))]
    for key, value in metadata.items():
        head += [_text(key), _packed(key, value)]
    offset = 0
    for tensor in stored:
        shape = tensor.shape[::-1]
        head += [
            _text(tensor.name),
            struct.pack(f"<I{len(shape)}Q", len(shape), *shape),
            struct.pack("<IQ", FORMATS[tensor.block_type].number, offset),
        ]
        offset += -(-tensor.size_bytes // alignment) * alignment
    target = Path(path)
    partial = target.with_name(f"{target.name}.part")
    with partial.open("wb") as file:
        for part in head:
            file.write(part)
        for tensor in stored:
            file.write(bytes(-file.tell() % alignment))
            file.write(np.ascontiguousarray(tensor.data).reshape(-1).data)
        file.write(bytes(-file.tell() % alignment))
    os.replace(partial, target)


def _text(text: str) -> bytes:
    raw = text.encode("utf-8")
    return struct.pack("<Q", len(raw)) + raw


def _packed(key: str, value: Value) -> bytes:
    """Return a value of metadata as bytes, its type's number first."""
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _text(value)
    if isinstance(value, (tuple, list)) and value and all(isinstance(v, str) for v in value):
        parts = [struct.pack("<IIQ", ARRAY, STRING, len(value)), *map(_text, value)]
        return b"".join(parts)
    if type(value) is int:
        fitting = (
            dtype
            for dtype in (np.uint32, np.int32, np.uint64, np.int64)
            if np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
        )
        value = np.asarray(value, next(fitting, np.object_))
    array = np.asarray(value, np.float32 if type(value) is float else None)
    kinds = {np.dtype(dtype): number for number, dtype in DTYPES.items()}
    kind = kinds.get(array.dtype.newbyteorder("<"))
    if kind is None or array.ndim > 1:
        raise ModelError(
            f"metadata {key!r} is {value!r:.60}; GGUF stores numbers, strings, and "
            "arrays of one axis"
        )
    raw = np.ascontiguousarray(array, DTYPES[kind]).tobytes()
    if array.ndim:
        return struct.pack("<IIQ", ARRAY, kind, len(array)) + raw
    return struct.pack("<I", kind) + raw
