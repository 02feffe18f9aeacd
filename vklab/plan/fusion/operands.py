"""read_strided: read an operand of a product where it is, instead of a transposed or sliced copy.

A product addresses its operands by strides, so that a Transpose, Slice or broadcast before it needs
no memory. Attention reads queries, keys and values of one joint product so. Visited by lab 10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vklab.errors import UnsupportedOperatorError
from vklab.ops import linear
from vklab.plan.fusion import views
from vklab.plan.fusion.flow import Flow
from vklab.plan.fusion.text import codegen
from vklab.types import Dispatch, Pointwise, StridedView, TensorInfo

SIDES = {"a": ("m", "a_row", "k", "a_column"), "b": ("k", "b_row", "n", "b_column")}
# Elements that kernels read at once where strides allow.
VECTOR = 8


def read_strided(flow: Flow) -> None:
    """Remove copies that only one product reads, where its operand stays dense along one side.

    Source: PyTorch, strided tensors (at::Tensor::as_strided)
    """
    for number, dispatch in flow.alive():
        for side in SIDES if dispatch.kernel == "matmul" else ():
            _read(flow, number, side)


def binds(flow: Flow, value: TensorInfo) -> bool:
    """Tell whether the device can bind a whole tensor; `split_ranges` may cut a larger one."""
    most = flow.info.limit("maxStorageBufferRange")
    return flow.width(value) * value.count <= most


def _read(flow: Flow, number: int, side: str) -> None:
    read = dict(flow.at(number).reads)[f"{side}_buffer"]
    maker = flow.maker(read, number)
    work = flow.at(maker).pointwise if maker is not None else None
    if work is None or not _is_copy(work, read):
        return
    if binds(flow, work.operands[0].info):
        flow.fuse(number, maker, lambda reader, _: _strided(flow, reader, side, work))


def _is_copy(work: Pointwise, read: TensorInfo) -> bool:
    alone = len(work.operands) == 1 and work.target is None and codegen.is_move(work)
    return alone and work.operands[0].info.dtype == read.dtype and work.count == read.count


def _strided(flow: Flow, reader: Dispatch, side: str, work: Pointwise) -> Dispatch | None:
    """Return the product that reads the source of a copy; None where strides do not allow it."""
    push = reader.push_values
    rows, row, columns, column = SIDES[side]
    batch, other = push["batch_shape"], "b" if side == "a" else "a"
    shape = (*batch, push[rows], push[columns])
    view = StridedView((*push[f"{side}_batch"], push[row], push[column]))
    composed = views.compose(shape, view, work.shape, [work.operands[0].view])
    if composed is None:
        return None
    cut, (found,) = composed
    if any(len(axis) > 1 for axis in cut[-2:]) or not _is_as_dense(push, side, found):
        return None
    source = _starting_at(flow, work.operands[0].info, found.start)
    if source is None:
        return None
    beside = views.split_view(StridedView(push[f"{other}_batch"]), cut[:-2])
    strides = {side: found.strides[:-2], other: beside.strides}
    try:
        axes, count = linear.batch_axes(
            views.split_axes(batch, cut[:-2]), [strides["a"], strides["b"]]
        )
    except UnsupportedOperatorError:
        return None
    push |= {**dict(axes), row: found.strides[-2], column: found.strides[-1]}
    reads = tuple(
        (name, source if name == f"{side}_buffer" else info) for name, info in reader.reads
    )
    defines = tuple(count if name == count[0] else (name, v) for name, v in reader.defines)
    return replace(reader, reads=reads, push=tuple(push.items()), defines=defines)


def _is_as_dense(push: Mapping[str, Any], side: str, found: StridedView) -> bool:
    """Tell whether neighbours stay neighbours along the side that was dense, in whole vectors."""
    _, row, _, column = SIDES[side]
    batch = push[f"{side}_batch"]
    before, after = (*batch, push[row], push[column]), found.strides
    one = -1 if push[column] == 1 else -2
    others = (*after[:-2], after[-2] if one == -1 else after[-1])
    was_whole = not any(step % VECTOR for step in before if step != 1)
    is_whole = not any(step % VECTOR for step in others) and min(others, default=0) >= 0
    return after[one] == 1 and (is_whole or not was_whole) and min(after) >= 0


def _starting_at(flow: Flow, info: TensorInfo, start: int) -> TensorInfo | None:
    """Return the elements of a tensor from one on; None if a device cannot bind them."""
    if start == 0:
        return info
    first = flow.slices.get(info.name, 0) + start
    if first * flow.width(info) % flow.alignment:
        return None
    root = flow.roots[info.name]
    # Neither its start nor its end is in the name: a number there would fix a size.
    others = [name for name in flow.slices if name.startswith(f"{root}[from ")]
    name = next((each for each in others if flow.slices[each] == first), "")
    name = name or f"{root}[from {len(others)}]"
    flow.roots[name], flow.slices[name] = root, first
    return TensorInfo(name, info.dtype, (info.count - start,))
