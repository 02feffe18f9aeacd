"""Convert ONNX's tensors to arrays: dtypes, raw bytes, external and sparse data, all checked.

Copies no weights: external data is mapped from its file. Visited by lab 09.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

from vklab.errors import ModelError
from vklab.ops.dtypes import ELEMENT_TYPES
from vklab.types import TensorInfo

# Bits per element of the types whose elements share bytes.
BITS = {
    ELEMENT_TYPES[name]: bits
    for bits, names in (
        (2, "int2 uint2"),
        (4, "int4 uint4 float4_e2m1fn"),
        (6, "float6_e2m3fn float6_e3m2fn"),
    )
    for name in names.split()
}
LISTS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
DENSE_LIMIT = 1 << 28
_files: weakref.WeakValueDictionary[tuple[str, int, int, int], np.memmap] = (
    weakref.WeakValueDictionary()
)


def info(name: str, values: np.ndarray) -> TensorInfo:
    """Return the TensorInfo of a constant; arrays of text have the dtype "string"."""
    dtype = "string" if values.dtype.kind in "OSU" else str(values.dtype)
    return TensorInfo(name, dtype, values.shape, values)


def sparse(tensor: SparseTensorProto, owner: str, folder: Path | None) -> np.ndarray:
    """Return a sparse tensor as a dense array.

    Args:
        tensor: values and their indices, flat or one row per value.
        owner: the initializer or node of the tensor, for error messages.
        folder: the folder of external data; None for a model that has no folder.
    """
    dims = tuple(tensor.dims)
    values, indices = array(tensor.values, owner, folder), array(tensor.indices, owner, folder)
    if math.prod(dims) > DENSE_LIMIT or any(dim < 0 for dim in dims):
        raise ModelError(
            f"{owner} of shape {dims} cannot be made dense: more than {DENSE_LIMIT} "
            "elements, or a negative dimension"
        )
    dense = np.zeros(dims, values.dtype)
    try:
        flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dims)
        dense.reshape(-1)[flat] = values
    except (ValueError, IndexError, TypeError) as error:
        raise ModelError(f"{owner} of shape {dims}: {error}") from error
    return dense


def dtype_name(element_type: int, owner: str) -> str:
    """Return the name of an ONNX element type's dtype; "string" for text."""
    if element_type == TensorProto.STRING:
        return "string"
    try:
        return str(helper.tensor_dtype_to_np_dtype(element_type))
    except KeyError as error:
        raise ModelError(f"{owner} has unknown element type {element_type}") from error


def array(tensor: TensorProto, owner: str, folder: Path | None) -> np.ndarray:
    """Return a tensor's elements as an array of its shape.

    Args:
        tensor: the tensor, with its data inside or external.
        owner: the initializer or node of the tensor, for error messages.
        folder: the folder of external data; None for a model that has no folder.

    Raises ModelError naming the owner if bytes, dtype and shape disagree.
    """
    dims = tuple(tensor.dims)
    name = dtype_name(tensor.data_type, owner)
    dtype = np.dtype(object if name == "string" else name)
    if any(dim < 0 for dim in dims):
        raise ModelError(f"{owner} has a negative dimension: {dims}")
    held = [name for name in LISTS if len(getattr(tensor, name))]
    held += ["raw_data"] if tensor.HasField("raw_data") else []
    is_external = tensor.data_location == TensorProto.EXTERNAL
    if len(held) > (0 if is_external else 1):
        raise ModelError(
            f"{owner} holds its elements in {', '.join(held)}"
            f"{' and in another file' if is_external else ''}; one of them is right"
        )
    wanted = math.prod(dims) * dtype.itemsize
    if is_external:
        if name == "string":
            raise ModelError(f"{owner} holds strings; external data holds numbers only")
        if tensor.data_type in BITS:
            bits = math.prod(dims) * BITS[tensor.data_type]
            data = _external(tensor, owner, folder, dims, -(-bits // 8))
            tensor = TensorProto(dims=dims, data_type=tensor.data_type, raw_data=data.tobytes())
            return numpy_helper.to_array(tensor)
        return _external(tensor, owner, folder, dims, wanted).view(dtype).reshape(dims)
    # Packed types have another size; to_array checks those itself.
    packed = tensor.data_type in BITS
    if tensor.HasField("raw_data") and not packed and len(tensor.raw_data) != wanted:
        raise ModelError(
            f"{owner} of shape {dims} needs {wanted} bytes, the file holds {len(tensor.raw_data)}"
        )
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ModelError(f"{owner} of shape {dims}: {error}") from error


def _external(
    tensor: TensorProto,
    owner: str,
    folder: Path | None,
    dims: tuple[int, ...],
    wanted: int,
) -> np.ndarray:
    """Return a tensor's bytes, mapped from its external file."""
    entries: Mapping[str, str] = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise ModelError(f"{owner} is stored in the file {location!r}; load the model by its path")
    if "\0" in location:
        raise ModelError(f"{owner}: external data {location!r} is no file name (NUL byte)")
    path = (folder / location).resolve()
    if not location or Path(location).is_absolute() or not path.is_relative_to(folder):
        raise ModelError(f"{owner}: external data {location!r} leaves the model's folder")
    if not path.is_file():
        raise ModelError(f"{owner}: external data file {location!r} is missing in {folder}")
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", wanted))
    except ValueError as error:
        raise ModelError(f"{owner}: external data {dict(entries)}: {error}") from error
    if length != wanted or offset < 0 or offset + length > path.stat().st_size:
        raise ModelError(
            f"{owner} of shape {dims} needs {wanted} bytes; the model asks for {length} bytes at "
            f"{offset} of {location!r}, which has {path.stat().st_size}"
        )
    return _mapped(path)[offset : offset + wanted] if wanted else np.zeros(0, np.uint8)


def _mapped(path: Path) -> np.memmap:
    """Return a whole file, mapped once for all tensors in use."""
    state = path.stat()
    key = (str(path), state.st_ino, state.st_mtime_ns, state.st_size)
    mapped = _files.get(key)
    if mapped is None:
        mapped = _files[key] = np.memmap(path, np.uint8, "r")
    return mapped
