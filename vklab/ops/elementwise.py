"""Broadcast operands by strides and dispatch the one kernel of all element-wise operators.

An operator is one function of shaders/lib/elementwise.slang and one line in `arithmetic`,
`activation`, `logical` or `cast`. Visited by labs 09 and 10.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from vklab.errors import ModelError
from vklab.ops import inputs as inputs_module
from vklab.ops.dtypes import ELEMENTS, FLOATS, MOVABLE, raw_defines, table, type_defines
from vklab.ops.registry import WORKGROUP, Result, grid, output
from vklab.types import (
    Dispatch,
    Formula,
    Operand,
    Pointwise,
    StridedView,
    TensorInfo,
    dense_strides,
)

PUSHED_AXES = 5
MOVE = "a"
SELECT = "onnx::select(a, b, c)"
OPERANDS = ("a", "b", "c")
WORD = 0xFFFFFFFF


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of NumPy-style broadcasting; ModelError for shapes that do not fit.

    Source: ONNX, docs/Broadcasting.md.
    """
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    result = []
    for dims in zip(*padded, strict=True):
        sizes = [dim for dim in dims if dim != 1]
        if any(size != sizes[0] for size in sizes):
            raise ModelError(
                f"shapes {' and '.join(str(tuple(s)) for s in shapes)} do not "
                "broadcast: sizes of an axis must be equal, or 1"
            )
        result.append(sizes[0] if sizes else 1)
    return tuple(result)


def broadcast_strides(shape: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    """Return the strides that broadcast a dense tensor to the target shape."""
    padding = len(target) - len(shape)
    dense = dense_strides(shape)
    own = [0 if dim == 1 else stride for dim, stride in zip(shape, dense, strict=True)]
    return (0,) * padding + tuple(own)


def merge_axes(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Merge neighbouring axes that are contiguous in every operand, and drop axes of size one.

    A dense [2,3,4] tensor becomes one axis of 24: fewer divisions in the kernel.
    """
    axes = [(dim, [s[i] for s in strides]) for i, dim in enumerate(shape) if dim != 1]
    merged: list[tuple[int, list[int]]] = []
    for dim, steps in axes:
        if merged and all(o == dim * s for o, s in zip(merged[-1][1], steps, strict=True)):
            merged[-1] = (merged[-1][0] * dim, steps)
        else:
            merged.append((dim, steps))
    new_shape = tuple(dim for dim, _ in merged)
    return new_shape, [tuple(steps[i] for _, steps in merged) for i in range(len(strides))]


def elementwise(
    function: str,
    *inputs: TensorInfo,
    of: frozenset[str] = FLOATS,
    to: str = "",
    **attributes: float,
) -> Result:
    """Apply a function of shaders/lib/elementwise.slang to broadcast inputs of one dtype.

    Args:
        function: the name of the Slang function.
        inputs: up to three operands.
        of: the dtypes that the function is written for.
        to: the dtype of the result; "" for the dtype of the inputs.
        attributes: the function's numbers after its operands, in this order.
    """
    inputs_module.require(of, *inputs)
    return apply_expression(function, inputs, to or inputs_module.same(*inputs), **attributes)


def apply_expression(
    function: str, inputs: Sequence[TensorInfo], to: str, **attributes: float
) -> Result:
    """Apply a function of shaders/lib/elementwise.slang to broadcast inputs of any dtypes.

    Args:
        function: the name of the Slang function.
        inputs: up to three operands.
        to: the dtype of the result.
        attributes: the function's numbers after its operands, in this order.
    """
    value = ELEMENTS[inputs[-1].dtype].value
    names = [f"p{i}" for i in range(len(attributes))]
    typed = names if value == "float" else [f"{value}({name})" for name in names]
    call = f"onnx::{function}({', '.join([*OPERANDS[: len(inputs)], *typed])})"
    return compute(call, inputs, to, *attributes.values())


def compute(
    expression: str,
    inputs: Sequence[TensorInfo],
    to: str,
    *attributes: float,
    dtypes: Sequence[str] = (),
) -> Result:
    """Compute a Slang expression of broadcast operands a, b, c and numbers p0, p1.

    Args:
        expression: the Slang expression.
        inputs: up to three operands.
        to: the dtype of the result.
        attributes: the numbers p0, p1.
        dtypes: the dtypes by which inputs and result are read and written; default their own.
    """
    shape = broadcast_shape(*(info.dims for info in inputs))
    strides = [broadcast_strides(info.dims, shape) for info in inputs]
    result = output(to, shape)
    push = tuple((f"p{i}", value) for i, value in enumerate(attributes))
    dispatches = strided(expression, inputs, strides, result, push, dtypes=dtypes)
    return Result((result,), dispatches)


def strided(
    expression: str,
    inputs: Sequence[TensorInfo],
    strides: Sequence[Sequence[int]],
    result: TensorInfo,
    push: tuple[tuple[str, float], ...] = (),
    offsets: Sequence[int] = (),
    place: tuple[Sequence[int], Sequence[int], int] | None = None,
    dtypes: Sequence[str] = (),
) -> tuple[Dispatch, ...]:
    """Return the dispatch of shaders/ops/elementwise.slang; none for an empty result.

    Args:
        expression: a Slang expression of a, b, c and p0, p1.
        inputs: up to three operands.
        strides: of each input, in elements, one per axis of the result; 0 repeats an element, a
            negative stride reads backwards.
        result: the tensor that is written.
        push: the numbers p0, p1 by name.
        offsets: the first element that is read of each input; default 0.
        place: (shape, strides, offset) of the part of the result that is written; default all.
        dtypes: the dtypes by which inputs and result are read and written; default their own.
    """
    extent = tuple(place[0]) if place else result.dims
    count = math.prod(extent)
    if count == 0:
        return ()
    all_strides = [*strides, *([place[1]] if place else [])]
    shape, merged = merge_axes(extent, all_strides)
    starts = [*offsets, *[0] * (len(inputs) - len(offsets)), *([place[2]] if place else [])]
    dense = all(s == dense_strides(shape) for s in merged) and not any(starts)
    parameters: list[tuple[str, Any]] = [("count", count), ("p0", 0.0), ("p1", 0.0)]
    parameters = [item for item in parameters if item[0] not in dict(push)] + list(push)
    reads = list(zip((f"{name}_buffer" for name in OPERANDS), inputs, strict=False))
    layout, names = 0, [*OPERANDS[: len(inputs)], *(["y"] if place else [])]
    # Push constants have room for the strides of y and one operand, or of the operands alone.
    if not dense and len(shape) <= PUSHED_AXES and not (place and len(inputs) > 1):
        layout = 1
        padding = PUSHED_AXES - len(shape)
        parameters.append(("shape", (1,) * padding + shape))
        for name, steps, start in zip(names, merged, starts, strict=True):
            parameters.append((f"{name}_stride", (0,) * padding + tuple(s & WORD for s in steps)))
            parameters.append((f"{name}_start", start))
    elif not dense:
        layout = 2
        dense_y = [] if place else [0, *dense_strides(shape)]
        numbers = [x for start, steps in zip(starts, merged, strict=True) for x in (start, *steps)]
        layout_words = [len(shape), *shape, *numbers, *dense_y]
        reads.append(("layout_buffer", table([x & WORD for x in layout_words], "uint32")))
    typing = raw_defines if expression in (MOVE, SELECT) else type_defines
    defines = [
        ("ARITY", str(len(inputs))),
        ("LAYOUT", str(layout)),
        ("EXPRESSION", expression),
        ("PLACE", "1" if place and layout == 1 else "0"),
    ]
    if "onnx::int_" in expression:
        defines.append(("INTEGERS", "1"))  # imports lib/integers
    *read, written = dtypes or [info.dtype for info in (*inputs, result)]
    for name, dtype in zip("ABC", read, strict=False):
        defines += typing(name, dtype)[:2]
    storage, _, store = typing("Y", written)
    given = zip(inputs, read, all_strides, starts, strict=False)
    constants = tuple(float(value) for _, value in push)
    meaning = Pointwise(
        extent,
        tuple(Operand(i, dtype, StridedView(tuple(w), start)) for i, dtype, w, start in given),
        (Formula(expression, tuple(range(len(inputs))), constants, written),),
        StridedView(tuple(place[1]), place[2]) if place else None,
    )
    moved = [
        any(starts[n : n + 1]) or tuple(merged[n]) != dense_strides(shape)
        for n in range(len(inputs))
    ]
    return (
        Dispatch(
            kernel="elementwise",
            reads=tuple(reads),
            writes=(("y_buffer", result),),
            workgroups=grid(-(-count // WORKGROUP)),
            push=tuple(parameters),
            defines=(*defines, storage, store),
            flops=count,
            pointwise=meaning,
            in_place=()
            if place
            else tuple(name for (name, _), away in zip(reads, moved, strict=False) if not away),
        ),
    )


def move(
    X: TensorInfo,
    strides: Sequence[int],
    result: TensorInfo,
    offset: int = 0,
    place: tuple[Sequence[int], Sequence[int], int] | None = None,
) -> tuple[Dispatch, ...]:
    """Return the dispatch that copies elements of any dtype along strides.

    Args:
        X: the tensor that is read.
        strides: of X, in elements, one per axis of the part that is written.
        result: the tensor that is written.
        offset: the first element of X that is read.
        place: (shape, strides, offset) of the part of the result that is written; default all.
    """
    inputs_module.require(MOVABLE, X)
    return strided(MOVE, (X,), (strides,), result, (), (offset,), place)
