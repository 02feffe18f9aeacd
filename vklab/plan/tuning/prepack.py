"""Prepack weights: matrices transposed, filters in the order in which a kernel reads them.

Rules of `variants` ask for a layout with `turned`, which returns a tensor of that layout without
value; `fill` computes the values that a finished plan reads, once for all plans. Visited by lab 08.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vklab import settings
from vklab.base.names import internal
from vklab.graph import constant_cache
from vklab.types import DeviceInfo, Dispatch, TensorInfo

# Terms, and columns on a CPU, from which on a matrix stored dense along k is read faster.
FEWEST_TERMS, FEWEST_COLUMNS = 64, 512
# A CPU gains from this many rows on; a GPU gains with one row and loses with eight.
FEWEST_ROWS = 8
# Elements of a matrix from which on a product with one row on a GPU gains by it.
FEWEST_ELEMENTS = 32768
# Rows from which on products are multiplied in tiles.
FEWEST_TILED = 16
# Channels that conv_packed and conv_cooperative take at one tap of a window.
CHUNK = 16
FEWEST_AT_ONCE = {"conv_packed": CHUNK, "conv_cooperative": CHUNK, "matmul_rows": 4,
                  "matmul_registers": 32}  # fmt: skip
# Columns from which on a GPU reads one matrix for one row by fours of columns, by the bytes of an
# element; and for elements of two bytes whose columns are whole loads of sixteen bytes.
FEWEST_FOURS = {2: 4096, 4: 32768}
FEWEST_WHOLE, WHOLE_TERMS = 32768, 8


@dataclass(frozen=True)
class Turned:
    """Weights [groups, rows, depth, taps] as [groups, depth / chunk, taps, chunk, rows].

    Depth is padded with zeros to a multiple of `chunk`, rows to one of `width`. Without padding the
    value is a view of the weight, so that the host stores no second copy.
    """

    weight: str
    sizes: tuple[int, int, int, int]
    chunk: int = 1
    width: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the tensor."""
        groups, rows, depth, taps = self.sizes
        wide = -(-rows // self.width) * self.width
        return (groups, -(-depth // self.chunk), taps, self.chunk, wide)

    def lay_out(self, values: np.ndarray) -> np.ndarray:
        """Return the values in this order. Source: Goto and van de Geijn 2008, packing."""
        groups, rows, depth, taps = self.sizes
        given = values.reshape(self.sizes)
        deep, wide = self.shape[1] * self.chunk, self.shape[-1]
        if (wide, deep) != (rows, depth):
            padded = np.zeros((groups, wide, deep, taps), values.dtype)
            padded[:, :rows, :depth] = given
            given = padded
        return given.reshape(groups, wide, -1, self.chunk, taps).transpose(0, 2, 4, 3, 1)


@dataclass(frozen=True)
class ByLane:
    """A matrix [k, n], dense along n or along k, in the order of `in_lanes`."""

    weight: str
    k: int
    n: int
    along_n: bool

    def matrix(self, values: np.ndarray) -> np.ndarray:
        """Return the values as a matrix [k, n]."""
        return values.reshape(self.k, self.n) if self.along_n else values.reshape(self.n, self.k).T

    def lay_out(self, values: np.ndarray) -> np.ndarray:
        """Return the values in this order."""
        return in_lanes(self.matrix(values))


@dataclass(frozen=True)
class ByFilter:
    """Weights in words [rows, taps, span, 4] as [pieces, filters, 4]: four words a filter."""

    weight: str

    def lay_out(self, values: np.ndarray) -> np.ndarray:
        """Return the values in this order; the last piece is padded with zeros."""
        rows, taps, span, each = values.shape
        words = values.reshape(rows, taps * span, each)
        padded = np.pad(words, ((0, 0), (0, -words.shape[1] % 4), (0, 0)))
        pieces = padded.reshape(rows, -1, 4, each).transpose(1, 0, 3, 2)
        return np.ascontiguousarray(pieces.reshape(-1, rows * each, 4))


def turned(
    weight: TensorInfo, sizes: tuple[int, int, int, int], chunk: int = 1, width: int = 1
) -> TensorInfo | None:
    """Return weights [groups, rows, depth, taps] as [groups, depth / chunk, taps, chunk, rows].

    Args:
        weight: a tensor with a constant value.
        sizes: groups, rows, depth and taps.
        chunk: depth is padded with zeros to a multiple of it.
        width: rows are padded with zeros to a multiple of it.

    Returns a tensor without value; None for a weight unknown before the run, or DISABLE_PREPACK.
    """
    if weight.constant is None or settings.get("DISABLE_PREPACK"):
        return None
    groups, rows, depth, taps = map(int, sizes)  # a layout is of numbers
    if not weight.count or weight.count != groups * rows * depth * taps:
        return None
    layout = Turned(weight.name, (groups, rows, depth, taps), chunk, width)
    name = internal(weight.name, f"turned{groups}x{rows}x{depth}x{taps}/{chunk}x{width}")
    return TensorInfo(name, weight.dtype, layout.shape, layout=layout)


def fill(read: TensorInfo, constants: Mapping[str, TensorInfo]) -> TensorInfo | None:
    """Return a tensor that has a layout with its value; None for any other tensor.

    Args:
        read: a tensor without value, of any layout.
        constants: the weights by name.
    """
    layout = read.layout
    if layout is None or read.constant is not None or layout.weight not in constants:
        return None
    source = constants[layout.weight].constant
    assert source is not None, f"{layout.weight} is a weight"
    return replace(read, constant=constant_cache.derive(layout, layout.lay_out, source))


def in_lanes(matrix: np.ndarray) -> np.ndarray:
    """Return a matrix [k, n] in the layout of `ByLane`, padded with zeros."""
    k, n = matrix.shape
    padded = np.pad(matrix, ((0, -k % 32), (0, -n % 8)))
    pieces = padded.reshape(-(-k // 32), 4, 8, -(-n // 8), 8)
    return np.ascontiguousarray(pieces.transpose(0, 3, 4, 1, 2))


def as_given(dispatch: Dispatch) -> Dispatch:
    """Return a dispatch without weight values, so that no rule prepacks them."""
    reads = ((name, TensorInfo(i.name, i.dtype, i.shape)) for name, i in dispatch.reads)
    return replace(dispatch, reads=tuple(reads))


def along_k(
    dispatch: Dispatch, sizes: tuple[int, int, int], info: DeviceInfo, resident: Collection[str],
    always: bool = False,
) -> Dispatch:  # fmt: skip
    """Store B dense along k where every invocation of a product reads a column of it.

    Args:
        dispatch: the product; all others are returned unchanged.
        sizes: m, n and k.
        info: the device.
        resident: names of weights already on the device for plans of other shapes; a weight that
            is there in either layout is read in that layout.
        always: also a matrix of few elements or terms.
    """
    m, n, k = sizes
    push = dispatch.push_values
    if dispatch.kernel != "matmul" or (push["b_row"], push["b_column"]) != (n, 1):
        return dispatch
    weight = dict(dispatch.reads)["b_buffer"]
    laid_out = turned(weight, (weight.count // max(k * n, 1), k, n, 1))
    if laid_out is None or any(step % (k * n) for step in push["b_batch"]):
        return dispatch
    one = m == 1 and k * n >= FEWEST_ELEMENTS and not by_fours(dispatch, n)
    wanted = m >= FEWEST_ROWS and n >= FEWEST_COLUMNS if info.is_cpu else one
    wanted = (wanted or always) and weight.name not in resident
    if (k < FEWEST_TERMS and not always) or not (wanted or laid_out.name in resident):
        return dispatch
    return with_weight(dispatch, "b_buffer", laid_out, b_row=1, b_column=k)


def in_wide_rows(
    dispatch: Dispatch, sizes: tuple[int, int, int], info: DeviceInfo, resident: Collection[str]
) -> Dispatch:
    """Pad the rows of B to whole loads of 16 bytes, where a GPU multiplies in tiles.

    Args:
        dispatch: the product; all others are returned unchanged.
        sizes: m, n and k.
        info: the device.
        resident: names of weights already on the device for plans of other shapes.
    """
    m, n, k = sizes
    push = dispatch.push_values
    weight = dict(dispatch.reads).get("b_buffer")
    if weight is None or weight.constant is None or info.is_cpu:
        return dispatch
    width = 16 // np.dtype(weight.dtype).itemsize
    if (push["b_row"], push["b_column"]) != (n, 1) or not n % width or k * n < FEWEST_ELEMENTS:
        return dispatch
    if m < FEWEST_TILED:
        return dispatch
    count = weight.count // (k * n)
    padded = turned(weight, (count * k, n, 1, 1), 1, width)
    if padded is None or weight.name in resident or any(s % (k * n) for s in push["b_batch"]):
        return dispatch
    step = padded.dims[-1]
    batch = tuple(s // n * step for s in push["b_batch"])
    return with_weight(dispatch, "b_buffer", padded, b_row=step, b_batch=batch)


def by_fours(dispatch: Dispatch, n: int) -> bool:
    """Tell whether one row can read B four columns at a time, and B is wide enough to gain."""
    weight, push = dict(dispatch.reads)["b_buffer"], dispatch.push_values
    size = np.dtype(weight.dtype).itemsize
    fewest = FEWEST_FOURS.get(size, n + 1)
    if size == 2 and push["k"] % WHOLE_TERMS == 0:
        fewest = FEWEST_WHOLE
    dense = (push["b_row"], push["b_column"]) == (n, 1)
    return weight.constant is not None and n >= fewest and n % 4 == 0 and dense


def chunk(dispatch: Dispatch) -> int:
    """Return the terms or channels that a dispatch reads at a time; split sums are multiples."""
    if dispatch.kernel in (
        "matmul_tiled",
        "matmul_cooperative",
        "conv_last_tiled",
        "conv_last_cooperative",
        "conv_last_sliced",
    ):
        return int(dispatch.define_values["TILE_K"])
    if dispatch.kernel == "matvec" and ("FOURS", "2") in dispatch.defines:
        return 4
    return FEWEST_AT_ONCE.get(dispatch.kernel, 1)


def with_weight(dispatch: Dispatch, binding: str, weight: TensorInfo, **steps: Any) -> Dispatch:
    """Return a dispatch that reads other weights.

    Args:
        dispatch: the dispatch.
        binding: the name of the buffer.
        weight: the weights to read there.
        steps: push constants that change with them.
    """
    reads = ((name, weight if name == binding else info) for name, info in dispatch.reads)
    push = tuple((name, steps.get(name, value)) for name, value in dispatch.push)
    return replace(dispatch, reads=tuple(reads), push=push)
