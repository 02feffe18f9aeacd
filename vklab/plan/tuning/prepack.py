"""Weights in another layout: matrices turned, filters in the order in which a kernel adds them up.

Rules of `variants` ask for a layout by what `turned` returns, whose name says all about it; what
is wanted in the end is made by `fill`, once for all plans. Visited by lab 08.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from vklab import settings
from vklab.graph import constant_cache
from vklab.types import DeviceInfo, Dispatch, TensorInfo

__all__ = ["along_k", "as_given", "by_fours", "chunk", "fill", "in_chunks", "turned"]

# Terms, and columns on a CPU, from which on a matrix that lies dense along k is read faster.
FEWEST_TERMS, FEWEST_COLUMNS = 64, 512
# On a CPU it takes some rows to be worth it; a GPU gains with one row and loses with eight.
FEWEST_ROWS = 8
# Elements of a matrix from which on one row on a GPU gains by it.
FEWEST_ELEMENTS = 32768
# Channels that shaders/ops/conv_tiled.slang takes in one step.
CHUNK = 16
# Columns from which on a GPU reads one matrix for one row by fours, by the bytes of an element.
FEWEST_FOURS = {2: 4096, 4: 32768}
# What every device can bind.
LEAST_RANGE_BYTES = 1 << 27
# Zeros that a convolution may add up for the sake of whole chunks, as a share of its channels.
MOST_PADDING = 0.25

_NAME = re.compile(r"(.*):turned(\d+)x(\d+)x(\d+)x(\d+)/(\d+)x(\d+)", re.S)


def turned(
    weight: TensorInfo, sizes: tuple[int, int, int, int], chunk: int = 1, width: int = 1
) -> TensorInfo | None:
    """Return weights [groups, rows, depth, taps] as [groups, depth / chunk, taps, chunk, rows].

    Rows are padded to a multiple of `width`, depth to one of `chunk`, with zeros. Returned without
    its value; None where the weight is not known before the run, or the switch is off.
    """
    groups, rows, depth, taps = sizes
    if weight.constant is None or settings.get("DISABLE_PREPACK"):
        return None
    if not weight.count or weight.count != groups * rows * depth * taps:
        return None
    name = f"{weight.name}:turned{groups}x{rows}x{depth}x{taps}/{chunk}x{width}"
    shape = (groups, -(-depth // chunk), taps, chunk, -(-rows // width) * width)
    return TensorInfo(name, weight.dtype, shape)


def fill(read: TensorInfo, constants: Mapping[str, TensorInfo]) -> TensorInfo | None:
    """Return what `turned` named with its value; None for all else.

    Without padding that is a view of the weight: the host does not hold it twice.
    """
    found = _NAME.fullmatch(read.name)
    source = constants[found[1]].constant if found and found[1] in constants else None
    if found is None or source is None or read.constant is not None:
        return None
    groups, rows, depth, taps, chunk, _ = sizes = tuple(map(int, found.groups()[1:]))
    deep, wide = read.dims[1] * chunk, read.dims[-1]

    def laid_out(array: np.ndarray) -> np.ndarray:
        given = array.reshape(groups, rows, depth, taps)
        if (wide, deep) != (rows, depth):
            padded = np.zeros((groups, wide, deep, taps), array.dtype)
            padded[:, :rows, :depth] = given
            given = padded
        return given.reshape(groups, wide, -1, chunk, taps).transpose(0, 2, 4, 3, 1)

    array = constant_cache.derive(("turned", sizes), laid_out, source)
    return TensorInfo(read.name, read.dtype, read.shape, array)


def as_given(dispatch: Dispatch) -> Dispatch:
    """Return a dispatch of whose weights no rule asks for another layout."""
    reads = ((name, TensorInfo(i.name, i.dtype, i.shape)) for name, i in dispatch.reads)
    return replace(dispatch, reads=tuple(reads))


def along_k(
    dispatch: Dispatch, sizes: tuple[int, int, int], info: DeviceInfo, resident: Collection[str]
) -> Dispatch:
    """Let a product read B dense along k where every invocation walks down a column of it.

    Args:
        sizes: m, n and k.
        lying: names of weights that a device holds for plans of other shapes: one that lies there
            in either layout is read in that.
    """
    m, n, k = sizes
    push: dict[str, Any] = dict(dispatch.push)
    if dispatch.kernel != "matmul" or (push["b_row"], push["b_column"]) != (n, 1):
        return dispatch
    weight = dict(dispatch.reads)["b_buffer"]
    laid_out = turned(weight, (weight.count // max(k * n, 1), k, n, 1))
    if laid_out is None or any(step % (k * n) for step in push["b_batch"]):
        return dispatch
    one = m == 1 and k * n >= FEWEST_ELEMENTS and not by_fours(dispatch, n)
    wish = m >= FEWEST_ROWS and n >= FEWEST_COLUMNS if info.is_cpu else one
    wish &= weight.name not in resident
    if k < FEWEST_TERMS or not (wish or laid_out.name in resident):
        return dispatch
    return _with(dispatch, "b_buffer", laid_out, b_row=1, b_column=k)


def by_fours(dispatch: Dispatch, n: int) -> bool:
    """Tell whether one row reads B by fours of columns: it is long, and lies where fours may."""
    weight, push = dict(dispatch.reads)["b_buffer"], dict(dispatch.push)
    fewest = FEWEST_FOURS.get(np.dtype(weight.dtype).itemsize, n + 1)
    dense = (push["b_row"], push["b_column"]) == (n, 1)
    return weight.constant is not None and n >= fewest and n % 4 == 0 and dense


def in_chunks(dispatch: Dispatch, tile: tuple[int, ...]) -> Dispatch:
    """Let conv_tiled read its weights in steps of CHUNK channels at one place of the window."""
    push: dict[str, Any] = dict(dispatch.push)
    weight = dict(dispatch.reads)["w_buffer"]
    filters, depth = push["out_channels"], push["in_channels"]
    taps = weight.count // (push["groups"] * filters * depth)
    laid_out = None
    if -depth % CHUNK <= MOST_PADDING * depth:
        laid_out = turned(weight, (push["groups"], filters, depth, taps), CHUNK, 4)
    if laid_out and laid_out.size_bytes > max(weight.size_bytes, LEAST_RANGE_BYTES):
        laid_out = None  # the padding might be what a binding has no room for
    fours = "4" if all(size % 4 == 0 for size in tile[3:]) else "1"
    changed = _with(dispatch, "w_buffer", laid_out) if laid_out else dispatch
    return replace(changed, defines=(*dispatch.defines, ("PACKED", fours if laid_out else "0")))


def chunk(dispatch: Dispatch) -> int:
    """Return of how many channels a part of a sum is a multiple: a dispatch reads whole chunks."""
    return CHUNK if dict(dispatch.defines).get("PACKED", "0") != "0" else 1


def _with(dispatch: Dispatch, binding: str, weight: TensorInfo, **steps: int) -> Dispatch:
    reads = ((name, weight if name == binding else info) for name, info in dispatch.reads)
    push = tuple((name, steps.get(name, value)) for name, value in dispatch.push)
    return replace(dispatch, reads=tuple(reads), push=push)
