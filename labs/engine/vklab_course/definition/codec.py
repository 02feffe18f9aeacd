"""Codec: plain values as bytes, the only form in which arguments and results of answers travel.

The notebook and the grader use the same codec, so that an answer behaves alike in both. Nothing
live crosses: functions, iterators and unknown objects become a description.
"""

from __future__ import annotations

import builtins
import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import ml_dtypes
import msgpack
import numpy as np

from vklab_course import words

__all__ = [
    "MAX_BYTES", "MAX_DEPTH", "CodecError", "Opaque", "Raised", "decode", "encode", "register",
]  # fmt: skip

MAX_DEPTH, MAX_BYTES, MAX_ITEMS = 24, 64 << 20, 1_000_000
DTYPES = {
    name: np.dtype(name)
    for name in (
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    )
}
DTYPES["bfloat16"] = np.dtype(ml_dtypes.bfloat16)
NAMES = {dtype: name for name, dtype in DTYPES.items()}
# Python's texts may hold halves of characters, which UTF-8 has no bytes for.
WRITING: dict[str, Any] = {"use_bin_type": True, "unicode_errors": "surrogatepass"}
READING: dict[str, Any] = {"raw": False, "unicode_errors": "surrogatepass"}
# Codes of msgpack's extension types.
TUPLE, SET, BIG, ARRAY, SCALAR, RECORD, OPAQUE, COMPLEX, RAISED = range(1, 10)

# Records of the runtime and the doctor, with their modules: a graded kernel imports no definition
# that could register them.
KNOWN = {"Check": "vklab.apps.doctor.report", "Lifetime": "vklab.plan.memory",
         "Report": "vklab.apps.doctor.report"}  # fmt: skip
_records: dict[str, type] = {}
Record = TypeVar("Record", bound=type)


class CodecError(ValueError):
    """Bytes or a value that cannot be carried: too deep, too large, or not of this codec."""


@dataclasses.dataclass(frozen=True)
class Opaque:
    """Description of a value that cannot be carried: its type, and a short text."""

    type: str
    text: str

    def __repr__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class Raised:
    """An exception that an answer raised: the names of its built-in classes, and its message."""

    kinds: tuple[str, ...]
    message: str = ""
    text: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        """Describe an exception by names and texts."""
        kinds = tuple(
            c.__name__
            for c in type(error).__mro__
            if getattr(builtins, c.__name__, None) is c and c is not object
        )
        return cls(kinds, words.short_message(error), words.error_text(error))

    @property
    def kind(self) -> str:
        """Return the name of the nearest built-in class."""
        return self.kinds[0] if self.kinds else "Exception"


def register(record: Record) -> Record:
    """Let a frozen dataclass travel by its name; use as a decorator."""
    if not dataclasses.is_dataclass(record):
        raise TypeError(f"{record.__name__} is no dataclass")
    _records[record.__name__] = record
    return record


def _record(name: str) -> Any:
    if name in KNOWN and name not in _records:
        _records[name] = getattr(importlib.import_module(KNOWN[name]), name)
    return _records.get(name)


def encode(value: Any) -> bytes:
    """Return a value as bytes. Raises CodecError where it is nested too deeply or too large."""
    data: bytes = msgpack.packb(_plain(value, MAX_DEPTH, _Budget()), **WRITING)
    if len(data) > MAX_BYTES:
        raise CodecError(f"{len(data)} bytes are more than the {MAX_BYTES} that an answer may have")
    return data


def decode(data: bytes) -> Any:
    """Return the value of bytes. Raises CodecError for bytes that `encode` does not write."""
    if len(data) > MAX_BYTES:
        raise CodecError(f"{len(data)} bytes are more than the {MAX_BYTES} that an answer may have")
    try:
        return _decoded(bytes(data), MAX_DEPTH, _Budget())
    except CodecError:
        raise
    except Exception as error:
        raise CodecError(f"these bytes are no value: {type(error).__name__}: {error}") from None


@dataclasses.dataclass
class _Budget:
    """Items that a value may still have; a value that contains itself ends here."""

    items: int = MAX_ITEMS

    def take(self, count: int) -> None:
        """Count items. Raises CodecError above the bound."""
        self.items -= count
        if self.items < 0:
            raise CodecError(f"more than {MAX_ITEMS} items")


def _plain(value: Any, depth: int, budget: _Budget) -> Any:
    if depth <= 0:
        raise CodecError(f"nested more than {MAX_DEPTH} levels deep")
    if value is None or type(value) in (bool, float):
        return value
    # The base classes' own methods: a subclass may claim anything.
    if isinstance(value, int):
        number = int.__index__(value)
        fits = -(2**63) <= number < 2**64
        return number if fits else msgpack.ExtType(BIG, _big(number))
    for kind, plain in _KINDS:
        if isinstance(value, kind):
            return plain(value, depth, budget)
    if dataclasses.is_dataclass(value) and _record(type(value).__name__) is type(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return _packed(RECORD, [type(value).__name__, fields], depth, budget)
    return _opaque(value)


def _big(number: int) -> bytes:
    if number.bit_length() > 8 * 4096:
        raise CodecError(f"an integer of {number.bit_length()} bits")
    return number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)


def _packed(code: int, value: Any, depth: int, budget: _Budget) -> msgpack.ExtType:
    return msgpack.ExtType(code, msgpack.packb(_plain(value, depth - 1, budget), **WRITING))


def _listed(value: Any, depth: int, budget: _Budget) -> list[Any]:
    items = list(value)
    budget.take(len(items))
    return [_plain(item, depth - 1, budget) for item in items]


def _sorted(value: Any, depth: int, budget: _Budget) -> msgpack.ExtType:
    return _packed(
        SET, sorted(value, key=lambda item: (type(item).__name__, repr(item))), depth, budget
    )


def _mapping(value: Mapping[Any, Any], depth: int, budget: _Budget) -> Any:
    pairs = [[key, item] for key, item in value.items()]
    budget.take(len(pairs))
    if all(type(key) is str and key for key, _ in pairs):
        return {key: _plain(item, depth - 1, budget) for key, item in pairs}
    return {"": _plain(pairs, depth, budget)} if pairs else {}


def _array(value: np.ndarray, depth: int, budget: _Budget) -> Any:
    name = NAMES.get(value.dtype.newbyteorder("="))
    if name is None:
        return _opaque(value)
    plain = np.ascontiguousarray(np.asarray(value), DTYPES[name])
    head = [name, [int(n) for n in value.shape], plain.tobytes()]
    return msgpack.ExtType(ARRAY, msgpack.packb(head, **WRITING))


def _scalar(value: np.generic, depth: int, budget: _Budget) -> Any:
    array = _array(np.asarray(value), depth, budget)
    return (
        array
        if isinstance(array, dict)
        else msgpack.ExtType(SCALAR, array.data)
        if (array.code == ARRAY)
        else array
    )


def _opaque(value: Any) -> msgpack.ExtType:
    described = [type(value).__name__[:80], words.short(value)]
    return msgpack.ExtType(OPAQUE, msgpack.packb(described, **WRITING))


def _complex(value: complex, depth: int, budget: _Budget) -> msgpack.ExtType:
    return _packed(COMPLEX, [float(value.real), float(value.imag)], depth, budget)


def _raised(value: Raised, depth: int, budget: _Budget) -> msgpack.ExtType:
    return _packed(RAISED, [list(value.kinds), value.message, value.text], depth, budget)


_KINDS: tuple[tuple[Any, Callable[[Any, int, _Budget], Any]], ...] = (
    (np.ndarray, _array),
    (np.str_, lambda value, depth, budget: str.__str__(value)),
    (np.generic, _scalar),  # before float: np.float64 is both
    (float, lambda value, depth, budget: float.__add__(value, 0.0) if value == value else value),
    (complex, _complex),
    (str, lambda value, depth, budget: str.__str__(value)),
    (bytes | bytearray | memoryview, lambda value, depth, budget: bytes(value)),
    (tuple, lambda value, depth, budget: _packed(TUPLE, list(value), depth, budget)),
    (list, _listed),
    (set | frozenset, _sorted),
    (Mapping, _mapping),
    (Raised, _raised),
    (
        Opaque,
        lambda value, depth, budget: msgpack.ExtType(
            OPAQUE, msgpack.packb([value.type, value.text], **WRITING)
        ),
    ),
)


def _decoded(data: bytes, depth: int, budget: _Budget) -> Any:
    if depth <= 0:
        raise CodecError(f"nested more than {MAX_DEPTH} levels deep")

    def extension(code: int, inner: bytes) -> Any:
        budget.take(1)
        return _READERS[code](inner, depth - 1, budget)

    def counted(container: Any) -> Any:  # a byte can be an empty container of a hundred
        budget.take(1 + len(container))
        return container

    return _restored(
        msgpack.unpackb(
            data,
            **READING,
            ext_hook=extension,
            strict_map_key=True,
            list_hook=counted,
            object_hook=counted,
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_ITEMS,
        )
    )


def _restored(value: Any) -> Any:
    """Restore dictionaries whose keys are not all text."""
    if type(value) is list:
        return [_restored(item) for item in value]
    if type(value) is dict:
        if value.keys() == {""} and type(value[""]) is list:
            return {_restored(key): _restored(item) for key, item in value[""]}
        return {key: _restored(item) for key, item in value.items()}
    return value


def _read_array(data: bytes, depth: int, budget: _Budget) -> np.ndarray:
    name, shape, content = msgpack.unpackb(data, **READING)
    return np.frombuffer(content, DTYPES[name]).reshape(shape).copy()


def _read_record(data: bytes, depth: int, budget: _Budget) -> Any:
    name, fields = _decoded(data, depth, budget)
    record = _record(name)
    if record is None:
        raise CodecError(f"there is no record {name!r}")
    return record(**fields)


def _read_opaque(data: bytes, depth: int, budget: _Budget) -> Opaque:
    kind, text = msgpack.unpackb(data, **READING)
    return Opaque(words.whole(str(kind)[:80]), words.whole(str(text)[:400]))


def _read_raised(data: bytes, depth: int, budget: _Budget) -> Raised:
    kinds, message, text = _decoded(data, depth, budget)
    return Raised(
        tuple(words.whole(str(kind)[:80]) for kind in kinds),
        words.whole(str(message)[:400]),
        words.whole(str(text)[:600]),
    )


_READERS: dict[int, Callable[[bytes, int, _Budget], Any]] = {
    TUPLE: lambda data, depth, budget: tuple(_decoded(data, depth, budget)),
    SET: lambda data, depth, budget: set(_decoded(data, depth, budget)),
    BIG: lambda data, depth, budget: int.from_bytes(data, "little", signed=True),
    ARRAY: _read_array,
    SCALAR: lambda data, depth, budget: _read_array(data, depth, budget)[()],
    RECORD: _read_record,
    OPAQUE: _read_opaque,
    COMPLEX: lambda data, depth, budget: complex(*_decoded(data, depth, budget)),
    RAISED: _read_raised,
}
