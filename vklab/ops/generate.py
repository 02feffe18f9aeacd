"""Create tensors from shapes and numbers, and mask or reverse them: Range, OneHot, Trilu ...

A result that follows from shapes alone is a constant and costs no dispatch. Visited by lab 09.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import ndarray

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.dtypes import ELEMENTS, MOVABLE, integer_array, raw_defines
from vklab.ops.indexing import INDICES, index_defines
from vklab.ops.inputs import affordable, known_array, known_integers, normal_axis, require, same
from vklab.ops.registry import WORKGROUP, Result, grid, operator, output
from vklab.types import Dispatch, TensorInfo

# TensorProto's numbers of the dtypes, as attributes name them.
DTYPES = (
    "", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool",
    "float16", "float64", "uint32", "uint64", "complex64", "complex128", "bfloat16",
)  # fmt: skip


def _number(info: TensorInfo, role: str) -> Any:
    value = known_array(info, role)
    if value.size != 1:
        raise ModelError(f"{role} has shape {value.shape}; it must be one number")
    return value.reshape(())


def constant_result(values: np.ndarray) -> Result:
    """Return a Result whose only output is a constant."""
    return Result((output(str(values.dtype), values.shape, np.asarray(values, order="C")),))


@operator("Shape")
def shape_of(data: TensorInfo, *, start: int = 0, end: int | None = None) -> Result:
    """Return the sizes of the axes from start to end. Source: ONNX Shape-21."""
    sizes = integer_array(data.dims[slice(start, end)])
    return Result((output("int64", sizes.shape, sizes),))


@operator("Size")
def size(data: TensorInfo) -> Result:
    """Return the number of elements. Source: ONNX Size-21."""
    return Result((output("int64", (), integer_array([data.count]).reshape(())),))


@operator("ConstantOfShape", since=9)
def constant_of_shape(input: TensorInfo, *, value: ndarray | None = None) -> Result:
    """Fill a shape with one value, 0 if none is given. Source: ONNX ConstantOfShape-21."""
    shape = known_integers(input, "the shape")
    one = np.zeros(1, np.float32) if value is None else np.asarray(value)
    if one.size != 1 or min(shape, default=0) < 0:
        raise ModelError(
            f"cannot fill shape {shape} with {one.size} values; sizes must be 0 or "
            "more, and `value` one number"
        )
    affordable(*shape, item_bytes=one.itemsize)
    return constant_result(np.full(shape, one.reshape(()), one.dtype))


@operator("Range", since=11)
def range_(start: TensorInfo, limit: TensorInfo, delta: TensorInfo) -> Result:
    """Count from start to limit in steps of delta. Source: ONNX Range-11."""
    dtype = same(start, limit, delta)
    named = ((start, "start"), (limit, "limit"), (delta, "delta"))
    kind: Any = int if np.dtype(dtype).kind in "iu" else float
    first, last, step = (kind(_number(info, name)) for info, name in named)
    if step == 0 or dtype not in ELEMENTS or not np.isfinite([first, last, step]).all():
        raise ModelError(f"cannot count from {first} to {last} by {step}")
    gap = last - first
    count = max(0, -(-gap // step) if kind is int else math.ceil(gap / step))
    affordable(count)
    numbers = np.arange(count, dtype=np.int64 if kind is int else np.float64)
    return constant_result((first + numbers * step).astype(dtype))


@operator("EyeLike", since=9)
def eye_like(input: TensorInfo, *, dtype: int | None = None, k: int = 0) -> Result:
    """Put ones on a diagonal of a matrix of the input's shape. Source: ONNX EyeLike-22."""
    if input.rank != 2 or dtype is not None and not 0 < dtype < len(DTYPES):
        raise ModelError(f"shape {input.shape} is not a matrix, or dtype={dtype} is unknown")
    name = input.dtype if dtype is None else DTYPES[dtype]
    if name == "string":
        raise UnsupportedOperatorError("dtype string has no number 1")
    affordable(*input.dims)
    return constant_result(np.eye(input.dims[0], input.dims[1], k=k).astype(name))


@operator("OneHot", since=9)
def one_hot(
    indices: TensorInfo, depth: TensorInfo, values: TensorInfo, *, axis: int = -1
) -> Result:
    """Write values[1] at each index and values[0] elsewhere. Source: ONNX OneHot-11."""
    size = int(_number(depth, "depth"))
    axis = normal_axis(axis, indices.rank + 1)
    if size < 0 or values.dims != (2,):
        raise ModelError(f"depth={size} must be 0 or more, and values {values.shape} two numbers")
    require(frozenset(ELEMENTS) - {"bool"}, indices)
    require(MOVABLE, values)
    result = output(values.dtype, (*indices.dims[:axis], size, *indices.dims[axis:]))
    if result.count == 0:
        return Result((result,))
    dispatch = Dispatch(
        kernel="one_hot",
        reads=(("i_buffer", indices), ("v_buffer", values)),
        writes=(("y_buffer", result),),
        workgroups=grid(-(-result.count // WORKGROUP)),
        push=(("count", result.count), ("depth", size), ("inner", math.prod(indices.dims[axis:]))),
        defines=(*raw_defines("X", values.dtype), *index_defines("K", indices.dtype)[:2]),
    )
    return Result((result,), (dispatch,))


@operator("Trilu", since=14)
def trilu(input: TensorInfo, k: TensorInfo | None = None, *, upper: int = 1) -> Result:
    """Keep the triangle above or below a diagonal of each matrix. Source: ONNX Trilu-14."""
    require(MOVABLE, input)
    if input.rank < 2:
        raise ModelError(f"input {input.shape} must have rank 2 or more")
    result, (rows, columns) = output(input.dtype, input.dims), input.dims[-2:]
    if result.count == 0:
        return Result((result,))
    diagonal = 0 if k is None else int(_number(k, "k"))
    diagonal = max(-rows, min(columns, diagonal))
    dispatch = Dispatch(
        kernel="trilu",
        reads=(("x_buffer", input),),
        writes=(("y_buffer", result),),
        workgroups=grid(-(-result.count // WORKGROUP)),
        push=(("count", result.count), ("rows", rows), ("columns", columns), ("k", diagonal)),
        defines=(("UPPER", str(int(upper != 0))), *raw_defines("X", input.dtype)),
    )
    return Result((result,), (dispatch,))


@operator("ReverseSequence", since=10)
def reverse_sequence(
    input: TensorInfo, sequence_lens: TensorInfo, *, batch_axis: int = 1, time_axis: int = 0
) -> Result:
    """Reverse the first elements of each sequence. Source: ONNX ReverseSequence-10."""
    require(MOVABLE, input)
    require(INDICES, sequence_lens)
    if input.rank < 2 or {batch_axis, time_axis} != {0, 1}:
        raise ModelError(f"axes {batch_axis} and {time_axis} of {input.shape} must be 0 and 1")
    if sequence_lens.dims != (input.dims[batch_axis],):
        raise ModelError(f"{sequence_lens.shape} lengths for {input.dims[batch_axis]} sequences")
    result = output(input.dtype, input.dims)
    if result.count == 0:
        return Result((result,))
    dispatch = Dispatch(
        kernel="reverse_sequence",
        reads=(("x_buffer", input), ("l_buffer", sequence_lens)),
        writes=(("y_buffer", result),),
        workgroups=grid(-(-result.count // WORKGROUP)),
        push=(
            ("count", result.count),
            ("columns", input.dims[1]),
            ("inner", math.prod(input.dims[2:])),
            ("times", input.dims[time_axis]),
        ),
        defines=(
            ("TIME", str(time_axis)),
            *raw_defines("X", input.dtype),
            *index_defines("K", sequence_lens.dtype)[:2],
        ),
    )
    return Result((result,), (dispatch,))
