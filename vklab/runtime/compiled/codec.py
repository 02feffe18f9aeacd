"""Codec between frozen dataclasses and JSON with blobs, driven by the classes' fields.

An object is written once and referred to by number, so shared tensors stay shared. Values that are
read are checked against the fields' types. Nothing here depends on the content of a plan.
"""

from __future__ import annotations

import functools
import hashlib
import math
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from vklab.errors import ModelError
from vklab.runtime import upload

# Modules of the data classes. No other class is ever instantiated from a file.
_PARTS = ("vklab.types", "vklab.graph.", "vklab.ops.", "vklab.plan.", "vklab.shader.",
          "vklab.runtime.compiled.")  # fmt: skip
# Files name the classes of the second module by the first, which all others import them from.
_MOVED = {"vklab.types": "vklab.base.hardware"}
_UNEXPECTED = (AttributeError, LookupError, TypeError, ValueError, RecursionError, OverflowError)


class OutdatedError(ModelError):
    """A file whose classes have other fields than in this version of vklab."""


def _classes() -> dict[str, type]:
    return {
        f"{name}.{kind.__qualname__}": kind
        for name, module in sys.modules.copy().items()
        if name.startswith(_PARTS)
        for kind in list(vars(module).values())
        if isinstance(kind, type)
        and is_dataclass(kind)
        and kind.__module__ in (name, _MOVED.get(name))
    }


def _layout(kind: type) -> list[list[str]]:
    """Return names and types of the saved fields: a field without `compare` is only a memo."""
    return [[f.name, str(f.type)] for f in fields(kind) if f.init and f.compare]


class Encoder:
    """Encoder of one document: a list of objects, each of which refers to earlier ones only."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._names = {kind: name for name, kind in _classes().items()}
        self._layouts: dict[str, list[list[str]]] = {}
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # keeps encoded objects alive, so that their ids stay unique
        self._rows: list[list[Any]] = []

    def document(self, root: Any) -> dict[str, Any]:
        """Return a value, with all objects that it refers to, as data for JSON."""
        value = self._value(root)
        return {"classes": self._layouts, "objects": self._rows, "root": value}

    def _value(self, value: Any) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, tuple):
            return [self._value(item) for item in value]
        if isinstance(value, list):
            return {"list": [self._value(item) for item in value]}
        if isinstance(value, Mapping):
            return {"map": [[self._value(k), self._value(v)] for k, v in value.items()]}
        if isinstance(value, (set, frozenset)):
            return {"set": [self._value(item) for item in sorted(value)]}
        if isinstance(value, bytes):
            return {"bytes": self._blobs.add(memoryview(value))}
        if isinstance(value, np.ndarray):
            return self._array(value)
        if type(value) in self._names:
            return {"": self._object(value)}
        if hasattr(value, "SerializeToString"):  # an attribute that is an ONNX protobuf message
            data = memoryview(value.SerializeToString())
            return {"proto": [type(value).__name__, self._blobs.add(data)]}
        raise TypeError(f"a {type(value).__name__} cannot be saved: {value!r}")

    def _object(self, value: Any) -> int:
        if id(value) not in self._numbers:
            name = self._names[type(value)]
            layout = self._layouts.setdefault(name, _layout(type(value)))
            row = [list(self._layouts).index(name)]
            row += [self._value(getattr(value, field)) for field, _ in layout]
            self._numbers[id(value)] = len(self._rows)
            self._kept.append(value)
            self._rows.append(row)
        return self._numbers[id(value)]

    def _array(self, array: np.ndarray) -> dict[str, Any]:
        if array.dtype.kind in "OSU":
            return {"text": [list(array.shape), [str(item) for item in array.reshape(-1)]]}
        number = self._blobs.add(upload.array_bytes(array), array)
        return {"array": [number, str(array.dtype), list(array.shape)]}


class Blobs:
    """Blobs of a file, without duplicates; each is decoded to one shared array."""

    def __init__(self, views: Sequence[memoryview] = ()) -> None:
        self.views = list(views)
        self._known: dict[bytes, int] = {}
        self._numbers: dict[int, tuple[int, np.ndarray]] = {}
        self._arrays: dict[tuple[int, str, tuple[int, ...]], np.ndarray] = {}

    def add(self, data: memoryview, array: np.ndarray | None = None) -> int:
        """Add a blob, and return its number; `array` is the array that owns the bytes, if any."""
        if array is not None and id(array) in self._numbers:
            return self._numbers[id(array)][0]
        number = self._known.setdefault(hashlib.sha256(data).digest(), len(self.views))
        if number == len(self.views):
            self.views.append(data)
        if array is not None:
            self._numbers[id(array)] = number, array
        return number

    def array(self, number: int, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return a blob as an array that shares the blob's memory.

        Args:
            number: the number of the blob.
            dtype: the NumPy dtype of the array.
            shape: the shape of the array.

        Raises ValueError if the dtype is unknown, or the bytes do not fit it and the shape.
        """
        key = (number, dtype, shape)
        if key not in self._arrays:
            kind, data = np.dtype(dtype), self.views[number]
            if str(kind) != dtype or kind.hasobject or kind.kind in "SUMm" or kind.names:
                raise ValueError(f"{dtype!r} is not a dtype of tensors")
            if any(dim < 0 for dim in shape) or math.prod(shape) * kind.itemsize != len(data):
                raise ValueError(f"{len(data)} bytes do not fit {dtype}{list(shape)}")
            flat = np.frombuffer(data, kind) if len(data) else np.zeros(0, kind)
            self._arrays[key] = flat.reshape(shape)
        return self._arrays[key]


def decode(document: Any, blobs: Blobs, root: Any, label: str) -> Any:
    """Return the value of a document.

    Args:
        document: the document, as `Encoder.document` returned it.
        blobs: the blobs of the file.
        root: the type of the value.
        label: the name of the file, for errors.

    Raises OutdatedError for classes whose fields have changed, ModelError for an invalid document.
    """
    try:
        classes = _classes()
        for name, layout in document["classes"].items():
            if name not in classes or _layout(classes[name]) != layout:
                raise OutdatedError(f"{name.rpartition('.')[2]} has other fields here")
        kinds = [(classes[name], list(_checks(classes[name]))) for name in document["classes"]]
        objects: list[Any] = []
        read = functools.partial(_read, objects=objects, blobs=blobs)
        for number, *values in document["objects"]:
            if number < 0:
                raise ValueError(f"there is no class {number}")
            kind, names = kinds[number]
            objects.append(make(kind, dict(zip(names, read(values), strict=True))))
        value = read(document["root"])
    except _UNEXPECTED as error:
        raise ModelError(f"{label} contradicts itself: {type(error).__name__}: {error}") from error
    if not _check_of(root)(value):
        raise ModelError(f"{label} contradicts itself: its root is a {type(value).__name__}")
    return value


def _read(value: Any, objects: list[Any], blobs: Blobs) -> Any:
    if isinstance(value, list):  # mostly numbers and names, which need no decoding
        return tuple(
            [_read(x, objects, blobs) if x.__class__ in (list, dict) else x for x in value]
        )
    if not isinstance(value, dict):
        return value
    ((kind, given),) = value.items()
    if kind in ("", "bytes") and given < 0:
        raise ValueError(f"there is no object {given}")
    if kind == "":
        return objects[given]
    if kind == "list":
        return [_read(item, objects, blobs) for item in given]
    if kind == "map":
        return {_read(k, objects, blobs): _read(v, objects, blobs) for k, v in given}
    if kind == "set":
        return frozenset(_read(item, objects, blobs) for item in given)
    if kind == "bytes":
        return bytes(blobs.views[given])
    if kind == "array":
        return blobs.array(abs(given[0]), given[1], tuple(given[2]))
    if kind == "text":
        return np.array(given[1], object).reshape(given[0])
    if kind == "proto":
        return _proto(given[0], bytes(blobs.views[abs(given[1])]))
    raise ValueError(f"unknown kind of value {kind!r}")


def _proto(kind: str, data: bytes) -> Any:
    """Return an ONNX protobuf message; without onnx its bytes, which no kernel reads."""
    try:
        import onnx
    except ImportError:
        return data
    if kind not in ("GraphProto", "SparseTensorProto", "TypeProto"):
        raise ValueError(f"a {kind} is not an attribute type")
    try:
        return getattr(onnx, kind).FromString(data)
    except Exception as error:  # DecodeError is protobuf's own
        raise ValueError(f"a {kind} cannot be read: {error}") from error


@functools.cache
def _checks(kind: type) -> dict[str, Callable[[Any], bool]]:
    hints = typing.get_type_hints(kind)
    return {name: _check_of(hints[name]) for name, _ in _layout(kind)}


def make(kind: type, values: Mapping[str, Any]) -> Any:
    """Return a new object of a class; raise TypeError for a value of the wrong type."""
    checks = _checks(kind)
    for name, value in values.items():
        if not checks[name](value):
            raise TypeError(f"{kind.__name__}.{name} cannot be {str(value)[:60]!r}")
    return kind(**values)


@functools.cache
def _check_of(hint: Any) -> Callable[[Any], bool]:
    """Return a predicate that tells whether a value is of a type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return lambda value: True
    if origin in (types.UnionType, typing.Union):
        checks = tuple(map(_check_of, arguments))
        return lambda value: any(check(value) for check in checks)
    if origin is tuple and arguments[-1] is not ...:
        each = tuple(map(_check_of, arguments))
        return lambda value: (
            type(value) is tuple
            and len(value) == len(each)
            and all(check(item) for check, item in zip(each, value, strict=True))
        )
    if origin in (tuple, list, frozenset, set, Sequence):
        item_check, kinds = _check_of(arguments[0]), (list, tuple) if origin is Sequence else origin
        return lambda value: isinstance(value, kinds) and all(map(item_check, value))
    if origin in (dict, Mapping):
        key, item = map(_check_of, arguments)
        return lambda value: (
            type(value) is dict and all(key(k) and item(v) for k, v in value.items())
        )
    if hint is float:
        return lambda value: type(value) in (int, float)
    return lambda value: isinstance(value, hint)
