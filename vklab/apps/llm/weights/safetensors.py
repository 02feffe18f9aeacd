"""Read SafeTensors files: a header in JSON, and tensors whose bytes stay in the mapped file.

The header is checked as a whole before a tensor is made.
Source: Hugging Face, safetensors, README.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vklab.apps.llm.weights.stored import StoredTensor, mapped, require_apart, table_html
from vklab.errors import ModelError

MOST_HEADER_BYTES = 100_000_000
# The formats with kernels here; other types are refused by name.
FORMAT_OF = {"F32": ("F32", 4), "F16": ("F16", 2), "BF16": ("BF16", 2)}
METADATA = "__metadata__"


@dataclass(frozen=True, eq=False)
class SafetensorsFile:
    """A SafeTensors file: strings of metadata by key, and tensors by name."""

    name: str
    metadata: Mapping[str, str]
    tensors: Mapping[str, StoredTensor] = field(repr=False)

    def __str__(self) -> str:
        size = sum(tensor.size_bytes for tensor in self.tensors.values())
        return f"{self.name}: SafeTensors, {len(self.tensors)} tensors of {size:,} bytes"

    def _repr_html_(self) -> str:
        return table_html(str(self), list(self.tensors.values()))


def read_safetensors(path: str | os.PathLike[str]) -> SafetensorsFile:
    """Return the tensors of a SafeTensors file; their bytes are mapped, not read.

    Do not change the file while it is in use.

    Raises FileNotFoundError, and ModelError for a damaged file.
    """
    return parse_safetensors(mapped(path), Path(path).name)


def parse_safetensors(data: np.ndarray | bytes, name: str = "the given bytes") -> SafetensorsFile:
    """Return the tensors of a SafeTensors file's bytes.

    Args:
        data: the whole file; tensors are views of it.
        name: the file's name, for errors.

    Raises ModelError for a damaged file.
    """
    array = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
    length = int.from_bytes(array[:8].tobytes(), "little")
    if len(array) < 8 or length > min(len(array) - 8, MOST_HEADER_BYTES):
        raise ModelError(
            f"{name} has {len(array)} bytes and promises a header of {length}; a "
            f"header has {MOST_HEADER_BYTES} at most"
        )
    header = _header(array[8 : 8 + length].tobytes(), name)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ModelError(f"{name}: {METADATA} must hold strings only")
    body = array[8 + length :]
    entries = {key: _entry(key, value, len(body), name) for key, value in header.items()}
    require_apart([(start, end, key) for key, (_, _, start, end) in entries.items()], name)
    tensors = {
        key: StoredTensor(key, kind, shape, body[start:end].reshape(*shape[:-1], -1))
        for key, (kind, shape, start, end) in entries.items()
    }
    return SafetensorsFile(name, metadata, tensors)


def _header(text: bytes, name: str) -> dict[str, Any]:
    """Return the header as a dict; ModelError for anything else, and for a key given twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) < len(pairs):
            raise ValueError("a key stands twice in one object")
        return dict(pairs)

    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{name}: the header is no JSON: {error!s:.120}") from error
    if not isinstance(header, dict):
        raise ModelError(f"{name}: the header is no JSON object, but {type(header).__name__}")
    return header


def _entry(key: str, value: Any, most: int, name: str) -> tuple[str, tuple[int, ...], int, int]:
    """Return a tensor's format, shape, first byte and byte after the last."""
    owner = f"{name}: tensor {key!r:.80}"
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise ModelError(f"{owner} must have dtype, shape and data_offsets, not {value!r:.80}")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in FORMAT_OF:
        raise ModelError(f"{owner} is {dtype!r:.40}; kernels exist for {', '.join(FORMAT_OF)}")
    for numbers, what in ((shape, "shape"), (offsets, "data_offsets")):
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise ModelError(f"{owner} has {what}={numbers!r:.80}, not a list of sizes")
    kind, item_bytes = FORMAT_OF[dtype]
    dims = tuple(shape) or (1,)  # a scalar is a row of one element
    if min(dims) < 1:
        raise ModelError(f"{owner} of shape {shape} has no elements")
    wanted = math.prod(dims) * item_bytes
    if len(offsets) != 2 or offsets[1] - offsets[0] != wanted or offsets[1] > most:
        raise ModelError(
            f"{owner} of shape {shape!s:.80} as {dtype} needs {wanted} bytes; "
            f"data_offsets={offsets!r:.80} of {most} do not fit"
        )
    return kind, dims, offsets[0], offsets[1]
