"""Dispatch gathers, which read elements by index, and scatters, which write them.

Indices are read on the device. Visited by lab 09.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vklab.errors import ModelError
from vklab.ops.dtypes import MOVABLE, NUMBERS, Defines, raw_defines, table, type_defines
from vklab.ops.elementwise import merge_axes, move
from vklab.ops.inputs import normal_axis, require, same
from vklab.ops.registry import WORKGROUP, Result, grid, operator, output
from vklab.ops.shape import view
from vklab.types import Dispatch, TensorInfo, dense_strides

INDICES = frozenset({"int32", "int64"})
COMBINES = {"none": "REPLACE", "add": "ADD", "mul": "MUL", "max": "MAX", "min": "MIN"}
# The least invocations of a large scatter, and the most loop steps of one invocation.
SCATTERING = 8192
SCATTER_STEPS = 60_000


def index_defines(name: str, dtype: str) -> Defines:
    """Return defines for indices of a dtype, which kernels compute in 32 bits."""
    if dtype in ("int64", "uint64"):
        return ((name, "uint2"), (f"{name}_LOAD", "low_word"), (f"{name}_STORE", "long_word"))
    return type_defines(name, dtype)


def chosen(
    X: TensorInfo,
    indices: TensorInfo,
    result: TensorInfo,
    strides: Sequence[Sequence[int]],
    sizes: Sequence[int],
    step: int,
    axis: int = 0,
) -> tuple[Dispatch, ...]:
    """Return the dispatch of shaders/ops/gather.slang; none for an empty result.

    Args:
        X: the tensor that is read.
        indices: int32 or int64; a negative index counts from the end.
        result: the tensor that is written.
        strides: of X and of the indices along the axes of the result, in elements.
        sizes: of the axes of X that an index, or a tuple of neighbouring indices, selects from.
        step: elements of X between two values of the last of these indices.
        axis: the first of the axes that `sizes` is of.
    """
    require(MOVABLE, X)
    _inside(indices, X, sizes, axis)
    if result.count == 0:
        return ()
    if 0 in X.dims or indices.count == 0:
        raise ModelError(f"indices {indices.shape} select from {X.shape}: one of them is empty")
    shape, merged = merge_axes(result.dims, strides)
    walk = table([*shape, *merged[0], *merged[1], *sizes], "uint32")
    dispatch = Dispatch(
        kernel="gather",
        reads=(("x_buffer", X), ("i_buffer", indices), ("walk_buffer", walk)),
        writes=(("y_buffer", result),),
        workgroups=grid(-(-result.count // WORKGROUP)),
        push=(
            ("count", result.count),
            ("rank", len(shape)),
            ("keys", len(sizes)),
            ("step", step),
            ("first", 0),
            ("held", X.count),
        ),
        defines=(
            *raw_defines("X", X.dtype)[:2],
            *raw_defines("Y", X.dtype)[::2],
            *index_defines("K", indices.dtype)[:2],
        ),
        stores=True,
        loads=True,
    )
    return (dispatch,)


def _inside(indices: TensorInfo, X: TensorInfo, sizes: Sequence[int], axis: int) -> None:
    """Raise ModelError for a known index outside its axis; kernels cannot tell of others."""
    if indices.constant is None or not len(sizes) or indices.count == 0:
        return
    known = indices.constant.reshape(-1, len(sizes))
    for key, size in enumerate(sizes):
        low, high = known[:, key].min(), known[:, key].max()
        if low < -size or high >= size:
            raise ModelError(
                f"{indices.name} holds the index {low if low < -size else high}, but "
                f"axis {axis + key} of {X.name} {X.dims} has {size} elements"
            )


@operator("Gather")
def gather(data: TensorInfo, indices: TensorInfo, *, axis: int = 0) -> Result:
    """Select slices of an axis by index. Source: ONNX Gather-13."""
    require(INDICES, indices)
    axis = normal_axis(axis, data.rank)
    before, after = data.dims[:axis], data.dims[axis + 1 :]
    result = output(data.dtype, (*before, *indices.dims, *after))
    dense = dense_strides(data.dims)
    x_strides = (*dense[:axis], *[0] * indices.rank, *dense[axis + 1 :])
    i_strides = (*[0] * axis, *dense_strides(indices.dims), *[0] * len(after))
    return Result(
        (result,),
        chosen(
            data,
            indices,
            result,
            (x_strides, i_strides),
            data.dims[axis : axis + 1],
            dense[axis],
            axis,
        ),
    )


@operator("GatherElements", since=11)
def gather_elements(data: TensorInfo, indices: TensorInfo, *, axis: int = 0) -> Result:
    """Select one element per index along an axis. Source: ONNX GatherElements-13."""
    require(INDICES, indices)
    axis = _check_elements(data, indices, axis)
    result = output(data.dtype, indices.dims)
    dense = dense_strides(data.dims)
    x_strides = (*dense[:axis], 0, *dense[axis + 1 :])
    strides = (x_strides, dense_strides(indices.dims))
    return Result(
        (result,),
        chosen(data, indices, result, strides, data.dims[axis : axis + 1], dense[axis], axis),
    )


def _check_elements(data: TensorInfo, indices: TensorInfo, axis: int) -> int:
    axis = normal_axis(axis, data.rank)
    larger = [
        i
        for i in range(min(data.rank, indices.rank))
        if i != axis and indices.dims[i] > data.dims[i]
    ]
    if indices.rank != data.rank or larger:
        raise ModelError(f"indices {indices.shape} do not fit {data.shape} outside axis {axis}")
    return axis


@operator("GatherND", since=11)
def gather_nd(data: TensorInfo, indices: TensorInfo, *, batch_dims: int = 0) -> Result:
    """Select elements or slices by tuples of indices. Source: ONNX GatherND-13."""
    require(INDICES, indices)
    keys = _check_tuples(data, indices, batch_dims)
    if indices.dims[:batch_dims] != data.dims[:batch_dims]:
        raise ModelError(f"{indices.shape} and {data.shape} differ in {batch_dims} batch axes")
    slices = data.dims[batch_dims + keys :]
    result = output(data.dtype, (*indices.dims[:-1], *slices))
    dense, tuples = dense_strides(data.dims), indices.rank - 1
    x_strides = (*dense[:batch_dims], *[0] * (tuples - batch_dims), *dense[batch_dims + keys :])
    i_strides = (*dense_strides(indices.dims)[:-1], *[0] * len(slices))
    sizes = data.dims[batch_dims : batch_dims + keys]
    return Result(
        (result,),
        chosen(data, indices, result, (x_strides, i_strides), sizes, math.prod(slices), batch_dims),
    )


def _check_tuples(data: TensorInfo, indices: TensorInfo, batch_dims: int) -> int:
    keys = indices.dims[-1] if indices.rank else 0
    if not (0 <= batch_dims < indices.rank and 1 <= keys <= data.rank - batch_dims):
        raise ModelError(
            f"indices {indices.shape} do not fit {data.shape} with {batch_dims} batch axes"
        )
    return keys


@operator("Scatter", since=9)
@operator("ScatterElements", since=11)
def scatter_elements(
    data: TensorInfo,
    indices: TensorInfo,
    updates: TensorInfo,
    *,
    axis: int = 0,
    reduction: str = "none",
) -> Result:
    """Write one element per index along an axis. Source: ONNX ScatterElements-18."""
    axis = _check_elements(data, indices, axis)
    if indices.dims != updates.dims:
        raise ModelError(f"{updates.shape} updates for {indices.shape} indices")
    _inside(indices, data, data.dims[axis : axis + 1], axis)
    own, dense = dense_strides(indices.dims), dense_strides(data.dims)
    lines = (*indices.dims[:axis], 1, *indices.dims[axis + 1 :])
    sizes, steps = data.dims[axis : axis + 1], (own[axis], own[axis], dense[axis])
    return _scatter(
        data,
        indices,
        updates,
        reduction,
        lines,
        (own, own, dense),
        sizes,
        steps,
        indices.dims[axis],
    )


@operator("ScatterND", since=11)
def scatter_nd(
    data: TensorInfo, indices: TensorInfo, updates: TensorInfo, *, reduction: str = "none"
) -> Result:
    """Write elements or slices at tuples of indices. Source: ONNX ScatterND-18."""
    keys = _check_tuples(data, indices, 0)
    slices = data.dims[keys:]
    if updates.dims != (*indices.dims[:-1], *slices):
        raise ModelError(f"{updates.shape} updates for {indices.shape} indices of {data.shape}")
    _inside(indices, data, data.dims[:keys], 0)
    inner, dense = math.prod(slices), dense_strides(slices)
    strides = ([0] * len(slices), dense, dense)
    return _scatter(
        data,
        indices,
        updates,
        reduction,
        slices,
        strides,
        data.dims[:keys],
        (keys, inner, inner),
        math.prod(indices.dims[:-1]),
    )


def _scatter(
    X: TensorInfo,
    indices: TensorInfo,
    updates: TensorInfo,
    reduction: str,
    lines: Sequence[int],
    strides: Sequence[Sequence[int]],
    sizes: Sequence[int],
    steps: tuple[int, int, int],
    length: int,
) -> Result:
    """Copy X, then apply `length` updates along each line; see shaders/ops/scatter.slang."""
    require(INDICES, indices)
    require(MOVABLE if reduction == "none" else NUMBERS, X)
    same(X, updates)
    if reduction not in COMBINES:
        raise ModelError(f"unknown reduction={reduction!r}; choose one of {', '.join(COMBINES)}")
    if updates.count == 0:
        return view(X, X.dims)
    result = output(X.dtype, X.dims)
    if result.count == 0:
        return Result((result,))
    shape, merged = merge_axes(lines, strides)
    walk = table([*shape, *merged[0], *merged[1], *merged[2], *sizes], "uint32")
    across = math.prod(lines)
    segments = max(1, min(SCATTERING // across, math.prod(sizes), length))
    typed = raw_defines if reduction == "none" else type_defines
    each = len(sizes) + 2  # iterations of both loops per update, the final test included
    chunk = SCATTER_STEPS // each
    push = (
        ("count", across * segments),
        ("segments", segments),
        ("rank", len(shape)),
        ("keys", len(sizes)),
        ("i_step", steps[0]),
        ("u_step", steps[1]),
        ("y_step", steps[2]),
    )
    dispatches = [
        Dispatch(
            kernel="scatter",
            reads=(("i_buffer", indices), ("u_buffer", updates), ("walk_buffer", walk)),
            writes=(("y_buffer", result),),
            workgroups=grid(-(-across * segments // WORKGROUP)),
            push=(*push, ("first", first), ("last", min(first + chunk, length))),
            defines=(
                ("COMBINE", COMBINES[reduction]),
                *typed("X", X.dtype),
                *index_defines("K", indices.dtype)[:2],
            ),
            iterations=min(chunk, length) * each + len(shape) + 2,
        )
        for first in range(0, length, chunk)
    ]
    return Result((result,), (*move(X, dense_strides(X.dims), result), *dispatches))


@operator("TensorScatter", since=24)
def tensor_scatter(
    past_cache: TensorInfo,
    update: TensorInfo,
    write_indices: TensorInfo | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Result:
    """Write an update into a cache at each batch's position. Source: ONNX TensorScatter-24."""
    dims, axis = past_cache.dims, normal_axis(axis, past_cache.rank)
    require(MOVABLE, past_cache)
    starts = write_indices or table([0] * dims[0])
    require(INDICES, starts)
    wanted = (*dims[:axis], min(dims[axis], update.dims[axis]), *dims[axis + 1 :])
    same(past_cache, update)
    if axis == 0 or update.dims != wanted or starts.dims != dims[:1]:
        raise ModelError(f"update {update.shape} and starts {starts.shape} do not fit {dims}")
    if mode not in ("linear", "circular"):
        raise ModelError(f"unknown mode={mode!r}; choose 'linear' or 'circular'")
    result = output(past_cache.dtype, dims)
    if update.count == 0:
        return view(past_cache, dims)
    dispatch = Dispatch(
        kernel="tensor_scatter",
        reads=(("x_buffer", past_cache), ("u_buffer", update), ("start_buffer", starts)),
        writes=(("y_buffer", result),),
        workgroups=grid(-(-result.count // WORKGROUP)),
        push=(
            ("count", result.count),
            ("size", dims[axis]),
            ("length", update.dims[axis]),
            ("inner", math.prod(dims[axis + 1 :])),
            ("heads", math.prod(dims[1:axis])),
        ),
        defines=(
            ("CIRCULAR", str(int(mode == "circular"))),
            *raw_defines("X", past_cache.dtype),
            *index_defines("K", starts.dtype)[:2],
        ),
    )
    return Result((result,), (dispatch,))
