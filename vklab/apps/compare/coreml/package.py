"""Core ML model on disk: an .mlpackage folder with a manifest, or an .mlmodel file.

Finds the model and its weight files, typed arrays behind records; checks each offset, size and
dtype. Nothing outside of the package is read.

Source: MILBlob/Blob/StorageFormat.hpp of coremltools 9
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vklab.apps.compare.coreml import protobuf
from vklab.errors import ModelError, UnusedWarning

ALIGNMENT = 64
SENTINEL = 0xDEADBEEF
VERSION = 2
RECORD = struct.Struct("<IIQQQ")
# MIL's name of a type by the code that weight files use.
DTYPES = {1: "fp16", 2: "fp32", 3: "uint8", 4: "int8", 6: "int16", 7: "uint16", 8: "int4",
          9: "uint1", 10: "uint2", 11: "uint4", 12: "uint3", 13: "uint6", 14: "int32",
          15: "uint32"}  # fmt: skip
# Bits of the types that are packed without gaps, the lowest bits first.
BITS = {"int4": 4, "uint1": 1, "uint2": 2, "uint3": 3, "uint4": 4, "uint6": 6}
PLAIN = {"fp16": "<f2", "fp32": "<f4", "uint8": "u1", "int8": "i1", "int16": "<i2",
         "uint16": "<u2", "int32": "<i4", "uint32": "<u4"}  # fmt: skip
MOST_BYTES = 1 << 31  # of a protobuf message
PLACE = "@model_path/"


def unpack(data: np.ndarray, bits: int, count: int, is_signed: bool = False) -> np.ndarray:
    """Return `count` integers of a few bits each, as 8-bit integers.

    Args:
        data: the bytes; an integer begins at the lowest free bit and may span two bytes.
        bits: the bits of an integer, 1 to 8.
        count: the number of integers.
        is_signed: whether the highest bit is a sign.
    """
    every = np.unpackbits(data.view(np.uint8), bitorder="little")[: bits * count]
    values = np.packbits(every.reshape(count, bits), axis=1, bitorder="little").reshape(count)
    if is_signed:
        shift = 8 - bits
        return (values << shift).view(np.int8) >> shift
    return values


@dataclass(frozen=True)
class WeightFile:
    """An open weight file, mapped into memory; its name is for error messages."""

    name: str
    data: np.ndarray

    @classmethod
    def open(cls, path: Path, name: str) -> WeightFile:
        """Map a file and check its header."""
        if not path.is_file():
            raise ModelError(f"the program's weights are in {name!r}, which the package lacks")
        size = path.stat().st_size
        if size < ALIGNMENT:
            raise ModelError(
                f"weight file {name!r} has {size} bytes; its header alone takes {ALIGNMENT}"
            )
        data = np.memmap(path, np.uint8, "r")
        count, version = struct.unpack("<II", data[:8].tobytes())
        if version != VERSION:
            raise ModelError(
                f"weight file {name!r} has format version {version}; {VERSION} is supported"
            )
        if count > size // ALIGNMENT:
            raise ModelError(
                f"weight file {name!r} counts {count} arrays in {size} bytes, in "
                f"which at most {size // ALIGNMENT} fit"
            )
        return cls(name, data)

    def read(self, offset: int, dtype: str, shape: tuple[int, ...], owner: str) -> np.ndarray:
        """Return the array whose record is at `offset`; packed types come as 8-bit integers.

        Args:
            offset: the byte at which the array's record begins.
            dtype: MIL's name of the type that the program declares.
            shape: the shape that the program declares.
            owner: the operation that holds the array, for error messages.
        """
        where = f"{owner}: weight file {self.name!r}, record at byte {offset}"
        size = len(self.data)
        if offset % ALIGNMENT or not ALIGNMENT <= offset <= size - ALIGNMENT:
            raise ModelError(
                f"{where}: a record begins at a multiple of {ALIGNMENT}, after the "
                f"header and before the end, byte {size}"
            )
        sentinel, code, length, start, padding = RECORD.unpack(
            self.data[offset : offset + RECORD.size].tobytes()
        )
        if sentinel != SENTINEL:
            raise ModelError(f"{where} begins with {sentinel:#010x}, not {SENTINEL:#010x}")
        stored = DTYPES.get(code)
        if stored != dtype:
            raise ModelError(
                f"{where} holds {stored or f'unknown type {code}'}, the program declares {dtype}"
            )
        if start % ALIGNMENT or start < ALIGNMENT or start + length > size:
            raise ModelError(
                f"{where} points to bytes {start} to {start + length}; they must "
                f"begin at a multiple of {ALIGNMENT} and end by {size}"
            )
        bits = BITS.get(dtype) or 8 * np.dtype(PLAIN[dtype]).itemsize
        wanted = math.prod(shape) * bits
        if length * 8 - (padding if dtype in BITS else 0) != wanted:
            raise ModelError(
                f"{where} holds {length} bytes with {padding} bits of padding; "
                f"{dtype}{list(shape)} needs {wanted} bits"
            )
        data = self.data[start : start + length]
        if dtype in BITS:
            return unpack(data, bits, math.prod(shape), dtype == "int4").reshape(shape)
        return data.view(PLAIN[dtype]).reshape(shape)


@dataclass(frozen=True)
class Package:
    """A parsed Core ML model and the folder to which its weight files are relative."""

    path: Path
    model: Any
    folder: Path | None
    _files: dict[str, WeightFile] = field(default_factory=dict, compare=False, repr=False)

    def warn_unused(self) -> None:
        """Warn of fields of the file that nothing reads and nothing is known of."""
        if left := protobuf.unlisted(self.model):
            UnusedWarning.issue(
                f"{self.path}: nothing reads the fields {', '.join(left[:6])}"
                f"{' and more' if left[6:] else ''}; results may differ from Core "
                "ML's"
            )

    def weights(self, name: str) -> WeightFile:
        """Return a weight file by the name that the program gives it."""
        if name not in self._files:
            if self.folder is None:
                raise ModelError(
                    f"{self.path} is a single file, but its weights are in {name!r}; "
                    "use the .mlpackage"
                )
            relative = name.removeprefix(PLACE)
            path = _inside(self.folder, relative, f"{self.path}: weight file {name!r}")
            self._files[name] = WeightFile.open(path, relative)
        return self._files[name]


def open_package(path: Path | str) -> Package:
    """Return the model of an .mlpackage or .mlmodel.

    Raises FileNotFoundError, and ModelError for a damaged package.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no Core ML model {path}")
    file = _model_file(path) if path.is_dir() else path
    size = file.stat().st_size
    if size >= MOST_BYTES:
        raise ModelError(f"{file} has {size} bytes; a protobuf message has less than {MOST_BYTES}")
    model = protobuf.parse(file.read_bytes(), str(path))
    return Package(path, model, file.parent if path.is_dir() else None)


def _model_file(path: Path) -> Path:
    """Return the model file that a package's manifest names."""
    manifest = path / "Manifest.json"
    if not manifest.is_file():
        raise ModelError(f"{path} has no Manifest.json, so it is no .mlpackage")
    try:
        content = json.loads(manifest.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{manifest} is no JSON: {error}") from error
    items = content.get("itemInfoEntries") if isinstance(content, dict) else None
    root = content.get("rootModelIdentifier") if isinstance(content, dict) else None
    if not isinstance(items, dict) or not isinstance(root, str):
        raise ModelError(f"{manifest} lacks itemInfoEntries or rootModelIdentifier")
    item = items.get(root)
    relative = item.get("path") if isinstance(item, dict) else None
    if not isinstance(relative, str):
        raise ModelError(
            f"{manifest}: rootModelIdentifier {root!r} is no item with a path; items: "
            f"{sorted(items)}"
        )
    return _inside(path / "Data", relative, f"{manifest}: item {root!r}")


def _inside(folder: Path, relative: str, owner: str) -> Path:
    """Return the path of an existing file inside a folder."""
    if "\0" in relative:
        raise ModelError(f"{owner}: {relative!r} is no file name (NUL byte)")
    try:
        path = (folder / relative).resolve()
    except UnicodeEncodeError as error:  # half of a pair of surrogates, or not in the locale
        raise ModelError(f"{owner}: {relative!r} is no file name ({error.reason})") from error
    if not path.is_relative_to(folder.resolve()):
        raise ModelError(f"{owner}: {relative!r} leaves the package")
    if not path.is_file():
        raise ModelError(f"{owner}: {relative!r} is missing in the package")
    return path
