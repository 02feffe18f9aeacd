"""Dispatch selections by value: the k largest, the nonzero, the unique elements.

The number of nonzero or unique elements is known only after the run; outputs have room for all.
Sorting is bitonic. Visited by lab 09.
Source: Batcher, "Sorting Networks and Their Applications", 1968.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.dtypes import ELEMENTS, MOVABLE, Defines, table, type_defines
from vklab.ops.indexing import chosen, index_defines
from vklab.ops.inputs import known_integers, normal_axis, require
from vklab.ops.registry import WORKGROUP, Result, grid, operator, output
from vklab.ops.shape import view
from vklab.types import Dispatch, Operands, TensorInfo, dense_strides

BLOCK = 1024  # elements that a workgroup sorts: SIZE of shaders/ops/top_k.slang
EACH = 4  # elements of an invocation: EACH of shaders/ops/compact.slang


@operator("TopK", since=10)
def top_k(
    X: TensorInfo, K: TensorInfo, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> Result:
    """Find the k largest or smallest along an axis, with indices. Source: ONNX TopK-24."""
    return _top_k(X, known_integers(K, "K"), axis, bool(largest))


@operator("TopK", since=1)
def top_k_by_attribute(X: TensorInfo, *, k: int, axis: int = -1) -> Result:
    """Find the k largest elements along an axis, with indices. Source: ONNX TopK-1."""
    return _top_k(X, (k,), axis, largest=True)


def _top_k(X: TensorInfo, count: tuple[int, ...], axis: int, largest: bool) -> Result:
    require(frozenset(ELEMENTS), X)
    axis = normal_axis(axis, X.rank)
    if len(count) != 1 or not 0 <= count[0] <= X.dims[axis]:
        raise ModelError(
            f"k={count} must be one number from 0 to {X.dims[axis]}, the size of axis {axis}"
        )
    shape = (*X.dims[:axis], *count, *X.dims[axis + 1 :])
    values, indices = output(X.dtype, shape), output("int64", shape)
    return _sort(X, axis, largest, values, indices)


def _sort(
    X: TensorInfo, axis: int, largest: bool, values: TensorInfo, indices: TensorInfo
) -> Result:
    """Sort rows of X; write as many values and indices as the outputs hold."""
    if values.count == 0:
        return Result((values, indices))
    columns, k = X.dims[axis], values.dims[axis]
    rows, inner = X.count // columns, math.prod(X.dims[axis + 1 :])
    padded = 1 << (columns - 1).bit_length()
    block = min(BLOCK, padded)
    typed = (
        *key_defines("X", X.dtype),
        *index_defines("J", indices.dtype)[::2],
        ("FLIP", str(int(largest))),
    )
    sizes = (("columns", columns), ("inner", inner), ("padded", padded), ("k", k))
    orders = [output("int32", (rows, padded)) for _ in range(2)]
    dispatches: list[Dispatch] = []

    def stage(name: str, first: int, last: int) -> None:
        finish, count = last == padded and name == "BLOCK", rows * padded // 2
        if name == "BLOCK":
            count = rows * padded // block
        before, after = orders[(len(dispatches) + 1) % 2], orders[len(dispatches) % 2]
        results = (("y_buffer", values), ("j_buffer", indices))
        dispatches.append(
            Dispatch(
                kernel="top_k",
                reads=(("x_buffer", X), *((("s_buffer", before),) if dispatches else ())),
                writes=results if finish else (("t_buffer", after),),
                workgroups=grid(count if name == "BLOCK" else -(-count // WORKGROUP)),
                push=(("count", count), *sizes, ("first", first), ("last", last)),
                defines=(
                    ("STAGE", name),
                    ("START", str(int(not dispatches))),
                    ("FINISH", str(int(finish))),
                    *typed,
                ),
            )
        )

    stage("BLOCK", 2, block)
    reach = 2 * block
    while reach <= padded:
        apart = reach // 2
        while apart >= block:
            stage("STEP", reach, apart)
            apart //= 2
        stage("BLOCK", reach, reach)
        reach *= 2
    return Result((values, indices), tuple(dispatches), tuple(orders[: len(dispatches) - 1]))


def key_defines(name: str, dtype: str) -> Defines:
    """Return the defines by which lib/sort.slang makes keys of a dtype, with a name as prefix."""
    if np.dtype(dtype).itemsize == 8:  # by words: devices may lack 64-bit arithmetic
        return ((name, "uint2"), (f"{name}_LOAD", f"key_{dtype}"))
    return type_defines(name, dtype)[:2]


def compact(
    flags: TensorInfo, result: TensorInfo, shape: tuple[int, ...]
) -> tuple[tuple[Dispatch, ...], tuple[TensorInfo, ...]]:
    """Return dispatches that write the coordinates of all set flags, and their scratch.

    The last scratch tensor, int32 [1], will hold the number of set flags.

    Args:
        flags: the tensor whose nonzero elements are set.
        result: the tensor of coordinates that is written, [rank, count] or [count].
        shape: the shape by which an element's number becomes coordinates.

    Source: Blelloch, "Prefix Sums and Their Applications", 1990.
    """
    count = math.prod(shape)
    blocks = -(-count // (WORKGROUP * EACH))
    sums, offsets = output("int32", (blocks,)), output("int32", (blocks,))
    total = output("int32", (1,))
    words = np.dtype(flags.dtype).itemsize == 8 and flags.dtype != "float64"
    typed = (("X", "uint2"), ("X_LOAD", "uint2")) if words else type_defines("X", flags.dtype)[:2]
    walk = table([*zip(shape, dense_strides(shape), strict=True)], "uint32")
    source = ("x_buffer", flags)
    operands: dict[str, tuple[Operands, Operands]] = {
        "COUNT": ((source,), (("t_buffer", sums),)),
        "OFFSET": ((("s_buffer", sums),), (("t_buffer", offsets), ("total_buffer", total))),
        "PLACE": ((source, ("s_buffer", offsets), ("walk_buffer", walk)), (("y_buffer", result),)),
    }
    dispatches = [
        Dispatch(
            kernel="compact",
            reads=reads,
            writes=writes,
            workgroups=grid(1 if name == "OFFSET" else blocks),
            push=(
                ("count", blocks if name == "OFFSET" else count),
                ("blocks", 1 if name == "OFFSET" else blocks),
                ("rank", len(shape)),
            ),
            defines=(("STAGE", name), *typed, *index_defines("Y", result.dtype)[::2]),
            iterations=(blocks // WORKGROUP + 1) * 9 if name == "OFFSET" else 64,
        )
        for name, (reads, writes) in operands.items()
    ]
    return tuple(dispatches), (sums, offsets, total)


@operator("NonZero", since=9)
def non_zero(X: TensorInfo) -> Result:
    """List the coordinates of the elements that are not zero. Source: ONNX NonZero-13."""
    require(frozenset(ELEMENTS), X)
    if X.rank == 0:
        raise UnsupportedOperatorError("a scalar has no coordinates")
    result = output("int64", (X.rank, X.count))
    if result.count == 0:
        return Result((result,))
    dispatches, scratch = compact(X, result, X.dims)
    return Result((result,), dispatches, scratch, trims=((0, 1, scratch[-1]),))


@operator("Compress", since=9)
def compress(input: TensorInfo, condition: TensorInfo, *, axis: int | None = None) -> Result:
    """Keep the slices or elements where a condition is true. Source: ONNX Compress-11."""
    require(MOVABLE, input)
    require(frozenset({"bool"}), condition)
    whole = view(input, (input.count,)).outputs[0] if axis is None else input
    axis = normal_axis(axis or 0, whole.rank)
    size = min(condition.count, whole.dims[axis])
    result = output(input.dtype, (*whole.dims[:axis], size, *whole.dims[axis + 1 :]))
    if condition.rank != 1:
        raise ModelError(f"the condition has shape {condition.shape}; it must have rank 1")
    if result.count == 0:
        raise UnsupportedOperatorError(f"input {input.shape} or the condition is empty")
    order, dense = output("int32", (size,)), dense_strides(whole.dims)
    dispatches, scratch = compact(condition, order, (size,))
    strides = (
        (*dense[:axis], 0, *dense[axis + 1 :]),
        (*[0] * axis, 1, *[0] * (whole.rank - axis - 1)),
    )
    kept = chosen(input, order, result, strides, whole.dims[axis : axis + 1], dense[axis])
    trims = ((0, axis, scratch[-1]),)
    return Result((result,), (*dispatches, *kept), (order, *scratch), trims=trims)


@operator("Unique", since=11)
def unique(X: TensorInfo, *, axis: int | None = None, sorted: int = 1) -> Result:
    """List unique values, first indices, inverse indices and counts. Source: ONNX Unique-11."""
    require(frozenset(ELEMENTS), X)
    if not sorted or X.rank != 1 and axis is not None or X.count == 0:
        raise UnsupportedOperatorError(f"axis={axis}, sorted={sorted}: kernels sort single values")
    flat, size = view(X, (X.count,)).outputs[0], (X.count,)
    values, order = output(X.dtype, size), output("int32", size)
    source = replace(flat, name=X.name)
    sorting = _sort(source, 0, False, values, order)
    marks, starts = output("int32", size), output("int32", size)
    compacted, scratch = compact(marks, starts, size)
    outputs = (output(X.dtype, size), *(output("int64", size) for _ in range(3)))
    names = ("y_buffer", "indices_buffer", "inverse_buffer", "counts_buffer")
    read = (
        ("v_buffer", values),
        ("order_buffer", order),
        ("starts_buffer", starts),
        ("total_buffer", scratch[-1]),
    )
    mark, group = (
        Dispatch(
            kernel="unique",
            reads=reads,
            writes=writes,
            workgroups=grid(-(-X.count // WORKGROUP)),
            push=(("count", X.count),),
            defines=(
                ("STAGE", stage),
                *key_defines("V", X.dtype),
                *index_defines("K", "int64")[::2],
            ),
        )
        for stage, reads, writes in (
            ("MARK", read[:1], (("mark_buffer", marks),)),
            ("GROUP", read, tuple(zip(names, outputs, strict=True))),
        )
    )
    return Result(
        outputs,
        (*sorting.dispatches, mark, *compacted, group),
        (values, order, marks, starts, *sorting.scratch, *scratch),
        trims=tuple((number, 0, scratch[-1]) for number in (0, 1, 3)),
    )
