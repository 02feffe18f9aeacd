"""What operators share that treat every element alone: broadcasting, strides, one kernel.

An operator is one function of shaders/lib/elementwise.slang and one line in `arithmetic`,
`activation`, `logical` or `cast`. Visited by lab 10.
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

__all__ = [
    "apply_expression",
    "broadcast_shape",
    "broadcast_strides",
    "compute",
    "dense_strides",
    "elementwise",
    "merge_axes",
    "move",
    "strided",
]

PUSHED_AXES = 5
MOVE = "a"
SELECT = "onnx::select(a, b, c)"
OPERANDS = ("a", "b", "c")
WORD = 0xFFFFFFFF


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that NumPy-style broadcasting gives; ModelError if there is none."""
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    result = []
    for dims in zip(*padded, strict=True):
        sizes = {dim for dim in dims if dim != 1}
        if len(sizes) > 1:
            raise ModelError(f"shapes {' and '.join(str(tuple(s)) for s in shapes)} do not "
                             "broadcast")  # fmt: skip
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def broadcast_strides(shape: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    """Return the strides that read a dense tensor as if it had the target shape."""
    padding = len(target) - len(shape)
    dense = dense_strides(shape)
    own = [0 if dim == 1 else stride for dim, stride in zip(shape, dense, strict=True)]
    return (0,) * padding + tuple(own)


def merge_axes(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Join neighbouring axes that every operand walks evenly, and drop axes of one.

    A [2,3,4] tensor read densely becomes one axis of 24: fewer divisions in the kernel.
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
        of: dtypes that the function is written for.
        to: dtype of the result, if it is not that of the inputs.
        attributes: numbers that the function takes after its operands, in this order.
    """
    inputs_module.require(of, *inputs)
    return apply_expression(function, inputs, to or inputs_module.same(*inputs), **attributes)


def apply_expression(
    function: str, inputs: Sequence[TensorInfo], to: str, **attributes: float
) -> Result:
    """Apply a function to broadcast inputs of any dtypes; the result has dtype `to`."""
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
    """Compute a Slang expression of the operands a, b, c, broadcast, and attributes p0, p1."""
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
    """Return the dispatch of shaders/ops/elementwise.slang; none if there is nothing to write.

    Args:
        strides: in elements, one per axis of the result; 0 repeats an element, below 0 walks back.
        offsets: the element of each input at which the walk starts; default 0.
        place: (shape, strides, offset) of the part of the result that is written; default all.
        dtypes: what inputs and result are taken for; default what they are.
    """
    extent = tuple(place[0]) if place else result.dims
    count = math.prod(extent)
    if count == 0:
        return ()
    walks = [*strides, *([place[1]] if place else [])]
    shape, merged = merge_axes(extent, walks)
    starts = [*offsets, *[0] * (len(inputs) - len(offsets)), *([place[2]] if place else [])]
    dense = all(s == dense_strides(shape) for s in merged) and not any(starts)
    parameters: list[tuple[str, Any]] = [("count", count), ("p0", 0.0), ("p1", 0.0)]
    parameters = [item for item in parameters if item[0] not in dict(push)] + list(push)
    reads = list(zip((f"{name}_buffer" for name in OPERANDS), inputs, strict=False))
    layout, names = 0, [*OPERANDS[: len(inputs)], *(["y"] if place else [])]
    # y's walk is pushed beside one operand's; for more there is no room.
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
        walk = [len(shape), *shape, *numbers, *dense_y]
        reads.append(("layout_buffer", table([x & WORD for x in walk], "uint32")))
    typing = raw_defines if expression in (MOVE, SELECT) else type_defines
    defines = [("ARITY", str(len(inputs))), ("LAYOUT", str(layout)), ("EXPRESSION", expression),
               ("PLACE", "1" if place and layout == 1 else "0")]  # fmt: skip
    if "onnx::int_" in expression:
        defines.append(("INTEGERS", "1"))  # takes lib/integers along
    *read, written = dtypes or [info.dtype for info in (*inputs, result)]
    for name, dtype in zip("ABC", read, strict=False):
        defines += typing(name, dtype)[:2]
    storage, _, store = typing("Y", written)
    given = zip(inputs, read, walks, starts, strict=False)
    constants = tuple(float(value) for _, value in push)
    meaning = Pointwise(
        extent,
        tuple(Operand(i, dtype, StridedView(tuple(w), start)) for i, dtype, w, start in given),
        (Formula(expression, tuple(range(len(inputs))), constants, written),),
        StridedView(tuple(place[1]), place[2]) if place else None,
    )
    moved = [any(starts[n : n + 1]) or tuple(merged[n]) != dense_strides(shape)
             for n in range(len(inputs))]  # fmt: skip
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
            in_place=() if place else tuple(
                name for (name, _), away in zip(reads, moved, strict=False) if not away
            ),
        ),
    )


def move(
    X: TensorInfo,
    strides: Sequence[int],
    result: TensorInfo,
    offset: int = 0,
    place: tuple[Sequence[int], Sequence[int], int] | None = None,
) -> tuple[Dispatch, ...]:
    """Return the dispatch that copies elements of any dtype along strides, changing nothing."""
    inputs_module.require(MOVABLE, X)
    return strided(MOVE, (X,), (strides,), result, (), (offset,), place)
