"""Read GGUF files: metadata, and tensors whose bytes stay in the mapped file.

Every count, length and offset is checked against the file's size before it is used, so a damaged
file is a ModelError. `gguf_writer` writes. Source: ggml, docs/gguf.md.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vklab.apps.llm.weights.noted import Noted
from vklab.apps.llm.weights.stored import StoredTensor, mapped, require_apart, table_html
from vklab.errors import ModelError
from vklab.graph import other_formats
from vklab.ops.blocks import FORMATS

Scalar = bool | int | float | str
Value = Scalar | np.ndarray | tuple[str, ...]

MAGIC, VERSIONS, ALIGNMENT = b"GGUF", (2, 3), 32
MOST_AXES, MOST_ALIGNMENT = 4, 1 << 16
LONGEST_KEY, LONGEST_NAME = 65535, 64  # bytes, of metadata and of tensors
# GGUF's numbers of the types of metadata.
DTYPES = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8",
          11: "<i8", 12: "<f8"}  # fmt: skip
BOOL, STRING, ARRAY = 7, 8, 9
# Formats of ggml without kernels here, by number.
OTHER_FORMATS = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
    19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16",
    26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
# Bytes of the shortest entry of metadata, and of the shortest description of a tensor.
LEAST_ENTRY, LEAST_TENSOR = 8 + 4 + 1, 8 + 4 + 8 + 4 + 8


@dataclass(frozen=True, eq=False)
class GgufFile:
    """A GGUF file: metadata by key, and tensors by name in the order of the file.

    Arrays of numbers are read-only NumPy arrays; arrays of strings are tuples. Both mappings note
    what is read of them, for `unused`.
    """

    name: str
    version: int
    metadata: Mapping[str, Value]
    tensors: Mapping[str, StoredTensor] = field(repr=False)

    def __post_init__(self) -> None:
        for name in ("metadata", "tensors"):
            object.__setattr__(self, name, Noted(getattr(self, name)))

    def number(self, key: str, default: int | float | None = None) -> int | float:
        """Return a number of the metadata; ModelError if it is missing or no number."""
        value = self.metadata.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ModelError(
                f"{self.name}: metadata {key!r} is "
                f"{'missing' if value is None else f'{value!r:.60}, not a number'}"
            )
        return value

    def size(self, key: str, default: int | None = None) -> int:
        """Return a positive whole number of the architecture's metadata, which all layers share.

        As in llama.cpp it may be an array of one number for each layer. Raises ModelError for
        layers that differ.
        """
        kind = self.text("general.architecture")
        value = self.metadata.get(f"{kind}.{key}", default)
        if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iu":
            layers = self.number(f"{kind}.block_count")
            if (value != value[0]).any() or len(value) != layers:
                raise ModelError(
                    f"{self.name}: metadata '{kind}.{key}' is {value.tolist()!s:.60}; "
                    f"one size for all of its {layers} layers is supported"
                )
            return self._checked_size(f"{kind}.{key}", int(value[0]))
        return self._checked_size(f"{kind}.{key}", self.number(f"{kind}.{key}", default))

    def _checked_size(self, key: str, value: int | float) -> int:
        if not isinstance(value, int) or value < 1:
            raise ModelError(f"{self.name}: metadata {key!r} is {value}, no size")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string of the metadata; ModelError if it is missing or no string."""
        value = self.metadata.get(key, default)
        if not isinstance(value, str):
            raise ModelError(
                f"{self.name}: metadata {key!r} is "
                f"{'missing' if value is None else f'{value!r:.60}, not a string'}"
            )
        return value

    def tensor(self, name: str) -> StoredTensor:
        """Return a tensor by name; ModelError with the number of tensors if there is none."""
        if name not in self.tensors:
            raise ModelError(f"{self.name} has {len(self.tensors)} tensors, but no {name!r}")
        return self.tensors[name]

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all tensors."""
        return sum(tensor.size_bytes for tensor in self.tensors.values())

    def __str__(self) -> str:
        return (
            f"{self.name}: GGUF {self.version}, {len(self.metadata)} entries of metadata, "
            f"{len(self.tensors)} tensors of {self.size_bytes:,} bytes"
        )

    def _repr_html_(self) -> str:
        return table_html(str(self), list(self.tensors.values()))


def read_gguf(path: str | os.PathLike[str]) -> GgufFile:
    """Return the metadata and the tensors of a GGUF file; the tensors' bytes are mapped, not read.

    Do not change the file while it is in use.

    Raises FileNotFoundError, and ModelError for a damaged file.
    """
    return parse(mapped(path), Path(path).name)


def parse(data: np.ndarray | bytes, name: str = "the given bytes") -> GgufFile:
    """Return the metadata and the tensors of a GGUF file's bytes.

    Args:
        data: the whole file; tensors are views of it.
        name: the file's name, for errors.

    Raises ModelError for a damaged file.
    """
    array = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
    cursor = _Cursor(array, name)
    if array[:4].tobytes() != MAGIC:
        start = array[: other_formats.START_BYTES].tobytes()
        known = other_formats.hint(start, other_formats.GGUF)
        raise cursor.error(f"begins with {array[:4].tobytes()!r}, not with {MAGIC!r}{known}")
    cursor.at = 4
    version = cursor.number("<u4", "the version")
    if version not in VERSIONS:
        order = ", in big-endian order" if version and not version & 0xFFFF else ""
        raise cursor.error(f"has GGUF version {version}{order}; versions 2 and 3 can be read")
    tensor_count = cursor.count("tensors", LEAST_TENSOR)
    entry_count = cursor.count("entries of metadata", LEAST_ENTRY)
    metadata: dict[str, Value] = {}
    for _ in range(entry_count):
        key = cursor.text("a metadata key", LONGEST_KEY)
        if key in metadata:
            raise cursor.error(f"has metadata {key!r} twice")
        metadata[key] = cursor.value(f"metadata {key!r}")
    alignment = checked_alignment(metadata, name)
    tensors = _tensors(cursor, tensor_count, alignment)
    return GgufFile(name, version, metadata, tensors)


def checked_alignment(metadata: Mapping[str, Value], owner: str) -> int:
    """Return the number of which every tensor's offset is a multiple; ModelError for a bad one."""
    value = metadata.get("general.alignment", ALIGNMENT)
    if type(value) is not int or not 1 <= value <= MOST_ALIGNMENT or value & value - 1:
        raise ModelError(
            f"{owner} has general.alignment={value!r:.60}, not a power of two up to "
            f"{MOST_ALIGNMENT}"
        )
    return value


class _Cursor:
    """A position in the bytes of a file; each step checks that the bytes are there."""

    def __init__(self, data: np.ndarray, name: str) -> None:
        self.data = data
        self.at = 0
        self.name = name
        self._bytes = data.data

    def error(self, what: str) -> ModelError:
        """Return an error that names the file."""
        return ModelError(f"{self.name} {what}")

    def take(self, size: int, what: str) -> int:
        """Skip `size` bytes and return the position of the first."""
        if size > len(self.data) - self.at:
            raise self.error(
                f"is cut off: {what} at byte {self.at} needs {size} bytes, "
                f"{len(self.data) - self.at} are left"
            )
        self.at += size
        return self.at - size

    def number(self, dtype: str, what: str) -> int:
        """Return one integer of a dtype."""
        code = {"<u4": "<I", "<u8": "<Q"}[dtype]
        start = self.take(struct.calcsize(code), what)
        return int(struct.unpack_from(code, self._bytes, start)[0])

    def count(self, what: str, least: int) -> int:
        """Return a number of items that have at least `least` bytes each."""
        count = self.number("<u8", f"the number of {what}")
        if count * least > len(self.data) - self.at:
            raise self.error(f"promises {count} {what}, but has only {len(self.data)} bytes")
        return count

    def text(self, what: str, longest: int | None = None) -> str:
        """Return a string: its length in bytes, then UTF-8."""
        length = self.number("<u8", f"the length of {what}")
        if longest is not None and length > longest:
            raise self.error(f"has {what} of {length} bytes; {longest} are allowed")
        start = self.take(length, what)
        try:
            return str(self._bytes[start : self.at], "utf-8")
        except UnicodeDecodeError as error:
            raise self.error(
                f"has {what} that is no UTF-8: {error.reason} at byte {start + error.start}"
            ) from error

    def value(self, what: str) -> Value:
        """Return a value of metadata: its type's number, then the value."""
        kind = self.number("<u4", f"the type of {what}")
        if kind == STRING:
            return self.text(what)
        if kind != ARRAY:
            scalar: Scalar = self._numbers(kind, 1, what)[0].item()
            return scalar
        kind = self.number("<u4", f"the type of the elements of {what}")
        if kind == ARRAY:
            raise self.error(f"has arrays inside {what}; only arrays of numbers and strings exist")
        least = 8 if kind == STRING else 1
        count = self.count(f"elements of {what}", least)
        if kind == STRING:
            return tuple([self.text(what) for _ in range(count)])
        return self._numbers(kind, count, what)

    def _numbers(self, kind: int, count: int, what: str) -> np.ndarray:
        if kind not in DTYPES:
            raise self.error(f"has {what} of the unknown type {kind}")
        dtype = np.dtype(DTYPES[kind])
        start = self.take(count * dtype.itemsize, what)
        raw = self.data[start : self.at]
        if kind == BOOL and (raw > 1).any():
            raise self.error(f"has {what} with a bool of {raw.max()}; 0 and 1 are allowed")
        return np.frombuffer(raw, dtype)


def _tensors(cursor: _Cursor, count: int, alignment: int) -> dict[str, StoredTensor]:
    """Return the tensors, after their descriptions have been checked as a whole."""
    described: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
    for _ in range(count):
        name = cursor.text("a tensor's name", LONGEST_NAME)
        if name in described:
            raise cursor.error(f"has the tensor {name!r} twice")
        described[name] = _description(cursor, name, alignment)
    base = -(-cursor.at // alignment) * alignment
    total = len(cursor.data)
    for name, (_, _, offset, size) in described.items():
        if base + offset + size > total:
            raise cursor.error(
                f"is cut off: tensor {name!r} takes {size} bytes from byte "
                f"{base + offset}, the file has {total}"
            )
    require_apart(
        [(offset, offset + size, name) for name, (_, _, offset, size) in described.items()],
        cursor.name,
    )
    tensors = {}
    for name, (kind, shape, offset, size) in described.items():
        raw = cursor.data[base + offset : base + offset + size]
        rows = raw.reshape(*shape[:-1], -1)
        tensors[name] = StoredTensor(name, kind, shape, rows)
    return tensors


def _description(
    cursor: _Cursor, name: str, alignment: int
) -> tuple[str, tuple[int, ...], int, int]:
    """Return a tensor's format, its shape, its offset from the first tensor, and its bytes."""
    what = f"tensor {name!r}"
    axes = cursor.number("<u4", f"the number of axes of {what}")
    if not 1 <= axes <= MOST_AXES:
        raise cursor.error(f"has {what} with {axes} axes; 1 to {MOST_AXES} are allowed")
    shape = tuple(cursor.number("<u8", f"the shape of {what}") for _ in range(axes))[::-1]
    if min(shape) < 1 or math.prod(shape) >= 1 << 63:
        raise cursor.error(f"has {what} of the impossible shape {shape}")
    number = cursor.number("<u4", f"the format of {what}")
    kind = next((block for block in FORMATS.values() if block.number == number), None)
    if kind is None:
        known = OTHER_FORMATS.get(number)
        raise cursor.error(
            f"stores {what} as {known or f'the unknown format {number}'}; kernels "
            f"exist for {', '.join(FORMATS)}"
        )
    offset = cursor.number("<u8", f"the offset of {what}")
    if offset % alignment:
        raise cursor.error(f"has {what} at offset {offset}, no multiple of {alignment}")
    try:
        size = math.prod(shape[:-1]) * kind.row_bytes(shape[-1])
    except ModelError as error:
        raise cursor.error(f"has {what}: {error}") from error
    return kind.name, shape, offset, size
