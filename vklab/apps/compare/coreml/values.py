"""Types and constants of MIL: types as TensorInfos, immediate and file values as arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vklab.apps.compare.coreml.package import BITS, DTYPES, Package, unpack
from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.types import TensorInfo

# MIL's name of a data type by its number in the file.
NAMES = {1: "bool", 2: "string", 10: "fp16", 11: "fp32", 12: "fp64", 21: "int8", 22: "int16",
         23: "int32", 24: "int64", 25: "int4", 31: "uint8", 32: "uint16", 33: "uint32",
         34: "uint64", 35: "uint4", 36: "uint2", 37: "uint1", 38: "uint6", 39: "uint3"}  # fmt: skip
# vklab's dtype by MIL's name: integers of a few bits are held in 8.
STORED = {"bool": "bool", "string": "string", "fp16": "float16", "fp32": "float32",
          "fp64": "float64", **{f"int{n}": f"int{n}" for n in (8, 16, 32, 64)},
          **{f"uint{n}": f"uint{n}" for n in (8, 16, 32, 64)}, "int4": "int8",
          **dict.fromkeys(("uint1", "uint2", "uint3", "uint4", "uint6"), "uint8")}  # fmt: skip
# ONNX's number of a dtype, for Cast.
ONNX_CODES = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7,
              "bool": 9, "float16": 10, "float64": 11, "uint32": 12, "uint64": 13}  # fmt: skip
# Types of the elements in each kind of immediate value.
IMMEDIATE = {"floats": ("fp32",), "ints": ("int32",), "bools": ("bool",), "strings": ("string",),
             "longInts": ("int64",), "doubles": ("fp64",)}  # fmt: skip
MOST_RANK = 16


def type_of(kind: Any, owner: str) -> tuple[str, tuple[int | str, ...]]:
    """Return MIL's name and the shape of a tensor type; open dimensions are "?"."""
    if not kind.HasField("tensorType"):
        word = (kind.WhichOneof("kind") or "no type").removesuffix("Type")
        raise UnsupportedOperatorError(f"{owner} is a {word}; vklab reads tensors")
    tensor = kind.tensorType
    name = NAMES.get(tensor.dataType)
    if name is None:
        raise UnsupportedOperatorError(
            f"{owner} has data type {tensor.dataType}; vklab reads {', '.join(NAMES.values())}"
        )
    if tensor.rank != len(tensor.dimensions) or tensor.rank > MOST_RANK:
        raise ModelError(
            f"{owner} declares rank {tensor.rank} and {len(tensor.dimensions)} "
            f"dimensions; they must agree and be at most {MOST_RANK}"
        )
    if any(dim.unknown.variadic for dim in tensor.dimensions):
        raise UnsupportedOperatorError(f"{owner} has any number of axes; vklab reads a fixed one")
    shape: tuple[int | str, ...] = tuple(
        dim.constant.size if dim.HasField("constant") else "?" for dim in tensor.dimensions
    )
    return name, shape


def declared(named: Any, owner: str) -> TensorInfo:
    """Return the info of a NamedValueType; open dimensions are named NAME.AXIS."""
    name, shape = type_of(named.type, f"{owner}: value {named.name!r}")
    dims = tuple(f"{named.name}.{i}" if dim == "?" else dim for i, dim in enumerate(shape))
    return TensorInfo(named.name, STORED[name], dims)


def read(value: Any, package: Package, owner: str) -> np.ndarray:
    """Return a constant as an array of its declared dtype and shape.

    Args:
        value: a Value message.
        package: the package that holds the weight files.
        owner: the operation that holds the value, for error messages.
    """
    name, dims = type_of(value.type, owner)
    if "?" in dims:
        raise ModelError(f"{owner}: a constant has an open dimension")
    shape = tuple(int(dim) for dim in dims)
    where = value.WhichOneof("kind")
    if where == "blobFileValue":
        at = value.blobFileValue
        if name not in DTYPES.values():
            raise UnsupportedOperatorError(f"{owner}: vklab reads no {name} from weight files")
        return package.weights(at.fileName).read(at.offset, name, shape, owner)
    kind = value.immediateValue.WhichOneof("kind") if where else None
    if kind != "tensor":
        raise UnsupportedOperatorError(
            f"{owner}: a constant of kind {kind or where or 'none'}; vklab reads tensors"
        )
    return _immediate(value.immediateValue.tensor, name, shape, owner)


def _immediate(tensor: Any, name: str, shape: tuple[int, ...], owner: str) -> np.ndarray:
    """Return a constant that the program itself holds."""
    kind = tensor.WhichOneof("kind")
    count = math.prod(shape)
    if kind is None:  # an empty message: a tensor without elements may leave its values out
        kind, values = "no values", np.zeros(0, np.uint8)
    elif kind == "bytes":
        values = np.frombuffer(tensor.bytes.values, np.uint8)
        bits = BITS.get(name)
        if bits:
            needed = -(-count * bits // 8)
            if len(values) != needed:
                raise ModelError(
                    f"{owner}: {name}{list(shape)} needs {needed} bytes, the program "
                    f"holds {len(values)}"
                )
            return unpack(values, bits, count, name == "int4").reshape(shape)
        dtype = np.dtype(STORED[name] if name != "string" else np.uint8)
        if name in ("string", "bool") or len(values) % dtype.itemsize:
            raise ModelError(f"{owner}: {len(values)} bytes are no {name} elements")
        values = values.view(dtype)
    elif name not in IMMEDIATE[kind]:
        raise ModelError(f"{owner}: the program declares {name} and holds {kind}")
    else:
        dtype = np.dtype(object if name == "string" else STORED[name])
        values = np.array(list(getattr(tensor, kind).values), dtype)
    if len(values) != count:
        raise ModelError(
            f"{owner}: {name}{list(shape)} has {count} elements, the program holds {len(values)}"
        )
    return values.reshape(shape)
