"""Choose kernels for large element-wise work, and for elements that are only moved.

An invocation has several elements, so that enough loads are on their way. A transposed matrix goes
through tiles in shared memory; other moves take 16 bytes at a time where runs of elements stay
together. Visited by lab 08.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vklab.ops import elementwise, registry
from vklab.plan import storage
from vklab.types import DeviceInfo, Dispatch, Pointwise, StridedView, dense_strides

# Smaller tensors take a launch, whatever the kernel.
FEWEST_BYTES = 1 << 18
# Sides of a tile by the bytes of an element: some 128 bytes are a line of memory.
TILE = {1: 64, 2: 64, 4: 64, 8: 32, 16: 16}
SHORTEST_SIDE = 8
SECTOR = 32  # bytes of memory that are written together
PAIRED = 128  # side of a tile of 16-bit elements that are moved two at a time, where it has room
# Elements of an invocation by the bytes of one, for results of at least MANY.
EACH, MANY = {1: 8, 2: 8}, 1 << 20
OTHERS = 4
WIDEST = 16
AXES = 5
WORD = 0xFFFFFFFF
UNSIGNED = {1: "uint8_t", 2: "uint16_t", 4: "uint", 8: "uint2", 16: "uint4"}


def choose(dispatch: Dispatch, info: DeviceInfo) -> tuple[Dispatch, ...]:
    """Return the fastest kernel for element-wise work on a GPU."""
    work = dispatch.pointwise
    if work is None or dispatch.siblings:
        return (dispatch,)
    width = np.dtype(storage.stored_dtype(dispatch.writes[0][1].dtype, info)).itemsize
    moved = _moving(dispatch, work, width, info) if _is_move(work) else None
    return (moved or _many(dispatch, work, width),)


def _many(dispatch: Dispatch, work: Pointwise, width: int) -> Dispatch:
    """Return the dispatch with several elements for each invocation, if there are many."""
    if work.count < MANY or work.target is not None:
        return dispatch
    if fours := _in_fours(dispatch, work):
        return fours
    each = EACH.get(width, OTHERS)
    groups = registry.grid(-(-work.count // (each * registry.WORKGROUP)))
    return replace(dispatch, workgroups=groups, constants=(*dispatch.constants, ("EACH", each)))


def _in_fours(dispatch: Dispatch, work: Pointwise) -> Dispatch | None:
    """Return the dispatch with four neighbours at a time, so that fewer places are computed.

    None if they are not neighbours in every operand.
    """
    push, defines = dispatch.push_values, dispatch.define_values
    if dispatch.kernel != "elementwise" or defines["LAYOUT"] != "1":
        return None
    names = "abc"[: int(defines["ARITY"])]
    if not all(defines[name] in ("float", "half") for name in (*names.upper(), "Y")):
        return None
    steps = [n for name in names for n in (*push[f"{name}_stride"][:-1], push[f"{name}_start"])]
    if any(push[f"{name}_stride"][-1] != 1 for name in names) or any(
        n % 4 or n > WORD // 2 for n in (push["shape"][-1], *steps)
    ):
        return None
    push |= {"count": work.count // 4, "shape": (*push["shape"][:-1], push["shape"][-1] // 4)}
    for name in names:
        push[f"{name}_stride"] = (*(n // 4 for n in push[f"{name}_stride"][:-1]), 1)
        push[f"{name}_start"] //= 4
    groups = registry.grid(-(-work.count // (4 * OTHERS * registry.WORKGROUP)))
    return replace(
        dispatch,
        push=tuple(push.items()),
        workgroups=groups,
        constants=(*dispatch.constants, ("EACH", OTHERS)),
        defines=(*dispatch.defines, ("FOURS", "1")),
    )


def _moving(dispatch: Dispatch, work: Pointwise, width: int, info: DeviceInfo) -> Dispatch | None:
    """Return a move by tiles or by wide elements; None for one that gains by neither.

    Args:
        dispatch: the dispatch.
        work: its work.
        width: bytes of an element.
        info: the device.
    """
    if work.count * width < FEWEST_BYTES or width not in UNSIGNED:
        return None
    shape, (strides,) = elementwise.merge_axes(work.shape, [work.operands[0].view.strides])
    view = StridedView(strides, work.operands[0].view.start)
    shared = info.limit("maxComputeSharedMemorySize")
    return _transposed(dispatch, shape, view, width, shared) or _wide(dispatch, shape, view, width)


def _is_move(work: Pointwise) -> bool:
    return (
        work.target is None
        and len(work.operands) == 1
        and all(formula.text == elementwise.MOVE for formula in work.formulas)
        and {work.operands[0].dtype, work.formulas[-1].dtype} == {work.operands[0].info.dtype}
    )


def _transposed(
    dispatch: Dispatch, shape: Sequence[int], view: StridedView, width: int, shared: int
) -> Dispatch | None:
    """Return a move by tiles, if the dense axis of x is not that of y; else None.

    Args:
        dispatch: the dispatch.
        shape: shape of y, with axes merged.
        view: x as y sees it.
        width: bytes of an element.
        shared: bytes of shared memory that a workgroup may have.
    """
    last = len(shape) - 1
    dense = [axis for axis in range(last) if view.strides[axis] == 1]
    if last < 1 or last > AXES - 1 or view.strides[last] == 1 or len(dense) != 1:
        return None
    along = dense[0]
    if min(shape[last], shape[along]) < SHORTEST_SIDE or view.strides[last] < 0:
        return None
    others = [axis for axis in range(last) if axis != along]
    steps = dense_strides(tuple(shape))
    batch = [(shape[axis], view.strides[axis], steps[axis]) for axis in others]
    batch = [(1, 0, 0)] * (AXES - 2 - len(batch)) + batch
    columns = (tuple(n & WORD for n in column) for column in zip(*batch, strict=True))
    sizes, of_x, of_y = columns
    pairs = width == 2 and not any(
        n % 2
        for n in (
            shape[last],
            shape[along],
            view.start,
            view.strides[last],
            steps[along],
            *of_x,
            *of_y,
        )
    )
    tile = PAIRED if pairs and shared >= PAIRED * (2 * PAIRED + 4) else TILE[width]
    sector = 1 if pairs or steps[along] * width % SECTOR == 0 else max(1, SECTOR // width)
    if (tile + sector) * (tile + 1) * width > shared:
        sector = 1
    groups = -(-(shape[last] + sector - 1) // tile) * -(-shape[along] // tile) * math.prod(sizes)
    push = (
        ("a", shape[last]),
        ("b", shape[along]),
        ("batches", math.prod(sizes)),
        ("x_start", view.start),
        ("x_a", view.strides[last]),
        ("y_b", steps[along]),
        ("batch_shape", sizes),
        ("x_batch", of_x),
        ("y_batch", of_y),
    )
    moved = _moved(
        dispatch,
        "transpose",
        4 if pairs else width,
        push,
        registry.grid(groups),
        (("WORKGROUP", 256), ("TILE", tile)),
    )
    return replace(
        moved, defines=(*moved.defines, ("PAIRS", str(int(pairs))), ("SECTOR", str(sector)))
    )


def _wide(
    dispatch: Dispatch, shape: Sequence[int], view: StridedView, width: int
) -> Dispatch | None:
    """Return a move of several elements at a time, if runs of them stay together; else None."""
    if not shape or view.strides[-1] != 1 or len(shape) > AXES:
        return None
    size = WIDEST
    numbers = (shape[-1], view.start, *view.strides[:-1])
    while size > width and any(number * width % size for number in numbers):
        size //= 2
    if size == width:
        return None
    ratio = size // width
    sizes = (*shape[:-1], shape[-1] // ratio)
    strides = (*(stride // ratio for stride in view.strides[:-1]), 1)
    count = math.prod(sizes)
    pad = AXES - len(sizes)
    push = (
        ("count", count),
        ("p0", 0.0),
        ("p1", 0.0),
        ("shape", (1,) * pad + sizes),
        ("a_stride", tuple(n & WORD for n in (0,) * pad + strides)),
        ("a_start", view.start // ratio),
    )
    each = OTHERS if count >= MANY else 1
    groups = registry.grid(-(-count // (each * registry.WORKGROUP)))
    moved = _moved(dispatch, "elementwise", size, push, groups, (("EACH", each),))
    identity = (
        ("LAYOUT", "1"),
        ("PLACE", "0"),
        ("ARITY", "1"),
        ("EXPRESSION", "a"),
        ("A", UNSIGNED[size]),
        ("Y", UNSIGNED[size]),
        ("A_LOAD", "onnx::identity"),
        ("Y_STORE", "onnx::identity"),
    )
    return replace(moved, reads=(("a_buffer", moved.reads[0][1]),), defines=identity)


def _moved(
    dispatch: Dispatch, kernel: str, width: int, push: tuple[tuple[str, Any], ...],
    workgroups: tuple[int, int, int], constants: tuple[tuple[str, int], ...],
) -> Dispatch:  # fmt: skip
    assert dispatch.pointwise is not None
    read = dispatch.pointwise.operands[0].info
    return Dispatch(
        kernel,
        (("x_buffer", read),),
        (("y_buffer", dispatch.writes[0][1]),),
        workgroups,
        push,
        (("X", UNSIGNED[width]),),
        constants,
    )
