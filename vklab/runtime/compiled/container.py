"""File format of a compiled model: a header, and blobs on page boundaries, each with its SHA-256.

Little-endian: magic[8], format u32, 0 u32, header bytes u64, file bytes u64, SHA-256 of these and
the header, the header (JSON), blobs. Does not interpret the header or the blobs.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from vklab.errors import ModelError
from vklab.runtime.observe import given

FORMAT = 1
OLDEST = 1
PAGE_BYTES = 4096
SMALL_BYTES = 64  # smaller blobs need no page of their own
_START = struct.Struct("<8sIIQQ")
_DIGEST = 32
Buffer = bytes | memoryview


def write(path: Path, header: dict[str, Any], blobs: Sequence[Buffer]) -> int:
    """Write a file, whole or not at all; return its size in bytes.

    Args:
        path: the file to write, in a folder that exists.
        header: data for JSON; a list of [offset, bytes, SHA-256] is added as `blobs`.
        blobs: the bytes of each blob.
    """
    index: list[list[Any]] = []
    end = 0
    for blob in blobs:
        end = _aligned(end, len(blob))
        index.append([end, len(blob), hashlib.sha256(blob).hexdigest()])
        end += len(blob)
    text = json.dumps({**header, "blobs": index}, separators=(",", ":")).encode()
    first = _aligned(_START.size + _DIGEST + len(text), PAGE_BYTES)
    start = _START.pack(given.MAGIC, FORMAT, 0, len(text), first + end)
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(start + hashlib.sha256(start + text).digest() + text)
            for blob, (offset, _, _) in zip(blobs, index, strict=True):
                file.seek(first + offset)
                file.write(blob)
            file.truncate(first + end)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return first + end


def _aligned(offset: int, size: int) -> int:
    alignment = PAGE_BYTES if size >= PAGE_BYTES else SMALL_BYTES
    return -(-offset // alignment) * alignment


def read(model: str | os.PathLike[str] | bytes) -> tuple[dict[str, Any], list[memoryview]]:
    """Return the header and the blobs of a file (memory-mapped) or of a file's bytes.

    Raises ModelError for a damaged or newer file, FileNotFoundError.
    """
    if isinstance(model, bytes):
        return _parse(memoryview(model), "the given bytes")
    path = Path(model)
    if not path.is_file():
        raise FileNotFoundError(f"there is no model file {path}")
    with path.open("rb") as file:
        is_empty = os.fstat(file.fileno()).st_size == 0  # an empty file cannot be mapped
        mapped = b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return _parse(memoryview(mapped), str(path))


def _parse(data: memoryview, label: str) -> tuple[dict[str, Any], list[memoryview]]:
    start = _START.size + _DIGEST
    if len(data) < start:
        raise ModelError(f"{label} is cut off: it has {len(data)} bytes")
    magic, version, _, length, size = _START.unpack_from(data)
    if magic != given.MAGIC:
        raise ModelError(f"{label} is no compiled model: it does not begin with {given.MAGIC!r}")
    if not OLDEST <= version <= FORMAT:
        what = "was written by a newer vklab" if version > FORMAT else "has an unknown format"
        raise ModelError(
            f"{label} {what}: format {version}, this one reads {OLDEST} to {FORMAT}. "
            "Update vklab, or compile the model again."
        )
    if size != len(data) or length > len(data) - start:
        raise ModelError(
            f"{label} has {len(data)} bytes instead of {size}, or too few for its "
            f"header of {length}: it is cut off or damaged"
        )
    text = data[start : start + length]
    if hashlib.sha256(bytes(data[: _START.size]) + text).digest() != data[_START.size : start]:
        raise ModelError(f"{label} is damaged: the SHA-256 of its header is wrong")
    try:
        header = json.loads(bytes(text))
        index = [(int(offset), int(size), str(digest)) for offset, size, digest in header["blobs"]]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ModelError(f"{label} is damaged: its header is not readable: {error!r}") from error
    body = data[_aligned(start + length, PAGE_BYTES) :]
    for offset, size, _ in index:
        if not 0 <= offset <= offset + size <= len(body):
            raise ModelError(f"{label} is damaged: a blob of {size} bytes at {offset} ends outside")
    blobs = [body[offset : offset + size] for offset, size, _ in index]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:  # hashing releases the GIL
        digests = pool.map(lambda blob: hashlib.sha256(blob).hexdigest(), blobs)
        for (offset, _, expected), digest in zip(index, digests, strict=True):
            if digest != expected:
                raise ModelError(
                    f"{label} is damaged: the SHA-256 of the blob at {offset} is wrong"
                )
    return header, blobs
