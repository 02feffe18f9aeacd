"""Read an ONNX file without its large weights, which are mapped from the file instead.

Each becomes external data in the model's own file, so `onnx_tensors` needs no second code path.
Visited by lab 09.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from onnx import StringStringEntryProto, TensorProto

from vklab.base import catalogue

no_onnx = catalogue.step("no model")

# Smaller tensors are read: a mapped model must not be overwritten while it is in use.
MAPPED_BYTES = 1 << 20
MOST_BYTES = 1 << 31
MOST_FIELDS = 1 << 22
# Field numbers of onnx.proto.
GRAPH, INITIALIZER = 7, 5
DATA_TYPE, RAW_DATA = 2, 9
LENGTH_DELIMITED = 2
# Value size by protobuf wire type; types 0 (varint) and 2 (length and bytes) vary.
FIXED = {1: 8, 5: 4}
Field = tuple[int, int, int, int]
UNPACKED = frozenset(range(1, 17)) - {TensorProto.STRING}


def read(path: Path) -> bytes:
    """Return a file's protobuf with large initializers as external data of the same file.

    Source: Protocol Buffers documentation, "Encoding"
    """
    size = path.stat().st_size
    if size < MAPPED_BYTES:
        return path.read_bytes()
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as data,
    ):
        try:
            return _model(data, path.name)
        except (IndexError, ValueError):  # damaged: protobuf reports how
            require_parsable(size, str(path), bytes(data[:64]))
            return bytes(data)


def require_parsable(size: int, label: str, data: bytes) -> None:
    """Raise ModelError for more bytes than protobuf can parse.

    Args:
        size: the number of bytes.
        label: the file or bytes, for the message.
        data: the first bytes or all, which tell other formats.
    """
    if size >= MOST_BYTES:
        raise no_onnx(
            label,
            data,
            f"{size} bytes, but protobuf reads less than {MOST_BYTES}; "
            "save it with onnx.save(..., save_as_external_data=True)",
        )


def _model(data: memoryview, location: str) -> bytes:
    pieces: list[bytes] = []
    for number, head, start, stop in fields(data, 0, len(data)):
        if number != GRAPH or start == stop:
            pieces.append(bytes(data[head:stop]))
            continue
        graph = b"".join(
            _message(INITIALIZER, _tensor(data, inner, location))
            if inner[0] == INITIALIZER and inner[3] - inner[2] >= MAPPED_BYTES
            else bytes(data[inner[1] : inner[3]])
            for inner in fields(data, start, stop)
        )
        pieces.append(_message(GRAPH, graph))
    return b"".join(pieces)


def _tensor(data: memoryview, field: Field, location: str) -> bytes:
    """Return a TensorProto whose large raw data is external; a small one unchanged."""
    _, _, start, stop = field
    parts = list(fields(data, start, stop))
    raw = [
        (first, last)
        for number, _, first, last in parts
        if number == RAW_DATA and last - first >= MAPPED_BYTES
    ]
    kinds = [data[first] for number, _, first, _ in parts if number == DATA_TYPE]
    if len(raw) != 1 or len(kinds) != 1 or kinds[0] not in UNPACKED:
        return bytes(data[start:stop])
    kept = [bytes(data[head:last]) for number, head, _, last in parts if number != RAW_DATA]
    entries = {"location": location, "offset": raw[0][0], "length": raw[0][1] - raw[0][0]}
    named = TensorProto(
        data_location=TensorProto.EXTERNAL,
        external_data=[StringStringEntryProto(key=k, value=str(v)) for k, v in entries.items()],
    )
    return b"".join((*kept, named.SerializeToString()))


def fields(data: bytes | memoryview, start: int, stop: int) -> Iterator[Field]:
    """Yield each field of a message: number, start of its tag, start and stop of its value.

    Args:
        data: the bytes of the file.
        start: where the message begins.
        stop: where it ends.

    Raises IndexError or ValueError for a damaged message.
    """
    for _ in range(MOST_FIELDS):
        if start == stop:
            return
        tag, first = _varint(data, start)
        kind = tag & 7
        if kind == 0:
            _, last = _varint(data, first)
        elif kind == LENGTH_DELIMITED:
            length, first = _varint(data, first)
            last = first + length
        else:
            last = first + FIXED.get(kind, stop)
        if last > stop or tag < 8:
            raise ValueError(f"field {tag >> 3} ends at {last}, its message at {stop}")
        yield tag >> 3, start, first, last
        start = last
    raise ValueError(f"more than {MOST_FIELDS} fields in a message")


def _varint(data: bytes | memoryview, start: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = data[start]
        value |= (byte & 127) << shift
        start, shift = start + 1, shift + 7
        if byte < 128:
            return value, start
    raise ValueError(f"the number that ends at byte {start} has more than 64 bits")


def _message(number: int, body: bytes) -> bytes:
    head, length = bytearray([number << 3 | LENGTH_DELIMITED]), len(body)
    while length > 127:
        head.append(length & 127 | 128)
        length >>= 7
    return bytes(head) + bytes([length]) + body
