"""Weight file of an ML Program: typed arrays at given offsets, each behind a record of 64 bytes.

Every offset, size and dtype is checked against the file and the program.

Source: MILBlob/Blob/StorageFormat.hpp of coremltools 9
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vklab.errors import ModelError

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
            raise ModelError(f"weight file {name!r} has {size} bytes; its header alone takes "
                             f"{ALIGNMENT}")  # fmt: skip
        data = np.memmap(path, np.uint8, "r")
        count, version = struct.unpack("<II", data[:8].tobytes())
        if version != VERSION:
            raise ModelError(f"weight file {name!r} has format version {version}; {VERSION} is "
                             "supported")  # fmt: skip
        if count > size // ALIGNMENT:
            raise ModelError(f"weight file {name!r} counts {count} arrays in {size} bytes, in "
                             f"which at most {size // ALIGNMENT} fit")  # fmt: skip
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
            raise ModelError(f"{where}: a record begins at a multiple of {ALIGNMENT}, after the "
                             f"header and before the end, byte {size}")  # fmt: skip
        sentinel, code, length, start, padding = RECORD.unpack(
            self.data[offset : offset + RECORD.size].tobytes())  # fmt: skip
        if sentinel != SENTINEL:
            raise ModelError(f"{where} begins with {sentinel:#010x}, not {SENTINEL:#010x}")
        stored = DTYPES.get(code)
        if stored != dtype:
            raise ModelError(f"{where} holds {stored or f'unknown type {code}'}, the program "
                             f"declares {dtype}")  # fmt: skip
        if start % ALIGNMENT or start < ALIGNMENT or start + length > size:
            raise ModelError(f"{where} points to bytes {start} to {start + length}; they must "
                             f"begin at a multiple of {ALIGNMENT} and end by {size}")  # fmt: skip
        bits = BITS.get(dtype) or 8 * np.dtype(PLAIN[dtype]).itemsize
        wanted = math.prod(shape) * bits
        if length * 8 - (padding if dtype in BITS else 0) != wanted:
            raise ModelError(f"{where} holds {length} bytes with {padding} bits of padding; "
                             f"{dtype}{list(shape)} needs {wanted} bits")  # fmt: skip
        data = self.data[start : start + length]
        if dtype in BITS:
            return unpack(data, bits, math.prod(shape), dtype == "int4").reshape(shape)
        return data.view(PLAIN[dtype]).reshape(shape)
