"""Dispatch convolutions and products of int8 in words, requantised by the kernel that sums.

Weights are laid out by `lay_out`, their numbers a filter by `filter_table`; the pass
`fuse_quantized` calls both. Visited by lab 10.
Source: Jacob et al., "Quantization and Training of Neural Networks", 2018, section 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vklab.errors import ModelError
from vklab.ops import window, words
from vklab.ops.dtypes import type_defines
from vklab.ops.inputs import require
from vklab.ops.registry import Result, operator, output
from vklab.ops.window import Window
from vklab.types import Dispatch, TensorInfo

WORKGROUP = 64
# A sum of float32 is exact below this.
LONGEST = 1 << 24


def lay_out(weights: np.ndarray, group: int) -> np.ndarray:
    """Return integer weights [M,D,taps] as uint32 [words of M, taps, words of channels, 4].

    Weights beyond int8 take several taps, whose numbers add up to theirs. Where each filter reads
    one channel, the layout is [words of M, taps]: a word has the weights of four filters.

    Source: Goto and van de Geijn 2008, packing
    """
    filters, depth, taps = weights.shape
    wide = weights.astype(np.int32)
    fits = wide.min(initial=0) >= -128 and wide.max(initial=0) <= 127
    terms = 1 if fits else -(-int(np.abs(wide).max()) // 127)
    parts = [(wide + i) // terms for i in range(terms)]  # they add up to the weights
    whole = np.concatenate(parts, axis=2).astype(np.int8)
    rows = words.word_count(filters)
    if depth == 1 and group == filters:
        dense = np.zeros((rows * words.BYTES, whole.shape[2]), np.int8)
        dense[:filters] = whole[:, 0]
        return _joined(dense.reshape(rows, words.BYTES, -1).swapaxes(1, 2))
    each = filters // group
    starts = np.arange(rows) * words.BYTES // each * depth // words.BYTES
    last = np.minimum(np.arange(rows) * words.BYTES + words.BYTES, filters) - 1
    ends = -(-(last // each * depth + depth) // words.BYTES)
    span = int((ends - starts).max())
    dense = np.zeros((rows * words.BYTES, span * words.BYTES, whole.shape[2]), np.int8)
    for number, block in enumerate(np.split(whole, group)):  # a group's filters, a few at a time
        for row in range(number * each, number * each + each) if group > 1 else ():
            first = number * depth - int(starts[row // words.BYTES]) * words.BYTES
            dense[row, first : first + depth] = block[row - number * each]
    if group == 1:
        dense[:filters, :depth] = whole
    blocks = dense.reshape(rows, words.BYTES, span, words.BYTES, -1)
    return _joined(blocks.transpose(0, 4, 2, 1, 3))


def _joined(numbers: np.ndarray) -> np.ndarray:
    """Return int8 [..., 4] as uint32 [...]."""
    return np.ascontiguousarray(numbers).view("<u4")[..., 0]


def filter_table(
    weights: np.ndarray, x_zero: int, scales: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    """Return uint32 [filters, 4]: a sum's correction, its scale and its bias, as bits.

    Args:
        weights: integer weights [M,D,taps] less their zero points.
        x_zero: the zero point of the input, as int8.
        scales: steps of the result in one unit of each sum.
        bias: the bias in steps of the result.
    """
    filters = len(weights)
    made = np.zeros((words.word_count(filters) * words.BYTES, 4), np.uint32)
    total = weights.reshape(filters, -1).sum(axis=1, dtype=np.int64)
    made[:filters, 0] = (-x_zero * total).astype(np.int32).view(np.uint32)
    made[:filters, 1] = scales.astype(np.float32).view(np.uint32)
    made[:filters, 2] = bias.astype(np.float32).view(np.uint32)
    return made


@operator("ConvWords", domain="vklab")
def conv_words(
    X: TensorInfo, W: TensorInfo, channels: TensorInfo, scaling: TensorInfo | None = None,
    other: TensorInfo | None = None, *, filters: int, depth: int, group: int = 1,
    kernel_shape: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    pads: Sequence[int], zeros: Sequence[int], limits: Sequence[int], long: int = 0,
    codes: int = 1, sums: Sequence[float] = (),
) -> Result:  # fmt: skip
    """Convolve words [N,C/4,...]; round to words, or with codes=0 return float32. Source: own.

    `depth` is a filter's channels; `zeros` are the zero points of X and the result. `scaling` from
    DynamicWords has those of X. `other` is added, with scales, zero points and limits in `sums`.
    """
    require(words.WORD, X, W, channels)
    if X.dims[1] != words.word_count(depth * group):
        raise ModelError(f"{X} does not hold {depth * group} channels in words")
    view = window.resolve(X.dims[2:], kernel_shape, strides, dilations, pads, "NOTSET")
    size = words.word_count(filters) if codes else filters
    result = output("uint32" if codes else "float32", (X.dims[0], size, *view.output))
    ends = ((filters, group, depth, *zeros), X.dims[0], limits, sums, long, 0)
    return _product((X, W, channels, scaling, other), result, view.lifted(2), *ends)


@operator("MatMulWords", domain="vklab")
def matmul_words(
    X: TensorInfo, W: TensorInfo, channels: TensorInfo, scaling: TensorInfo | None = None,
    other: TensorInfo | None = None, *, filters: int, depth: int, zeros: Sequence[int],
    limits: Sequence[int], long: int = 0, codes: int = 1, sums: Sequence[float] = (),
) -> Result:  # fmt: skip
    """Multiply words [...,M,K/4] by a matrix; round to words, or return float32. Source: own."""
    require(words.WORD, X, W, channels)
    if X.dims[-1] != words.word_count(depth):
        raise ModelError(f"{X} does not hold {depth} terms in words")
    size = words.word_count(filters) if codes else filters
    result = output("uint32" if codes else "float32", (*X.dims[:-1], size))
    rows = math.prod(X.dims[:-1])
    view = Window((1, rows), (1, rows), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
    ends = ((filters, 1, depth, *zeros), 1, limits, sums, long, 1)
    return _product((X, W, channels, scaling, other), result, view, *ends)


def _product(
    operands: Sequence[TensorInfo | None], result: TensorInfo, view: Window, shape: Sequence[int],
    images: int, limits: Sequence[int], sums: Sequence[float], long: int, last: int,
) -> Result:  # fmt: skip
    """Return the dispatch of the kernel `conv_words`, or `depthwise_words`."""
    X, W, _, scaling, other = operands
    filters, group, depth, x_zero, y_zero = shape
    assert X is not None and W is not None
    each = depth == 1 and group == filters
    if other is not None and (each or other.dims != result.dims or result.dtype != "uint32"):
        raise ModelError(f"{other} cannot be added to {result}")
    if result.count == 0:
        return Result((result,))
    span, pixels = 1 if each else W.dims[-2], view.output[0] * view.output[1]
    more = (
        ("x_words", words.word_count(depth * group)),
        ("group_filters", filters // group),
        ("depth", depth),
        ("span", span),
    )
    bits = [number & 0xFF for number in (y_zero, *limits)]
    push = (
        ("filters", filters),
        *(() if each else more),
        *view.plane(),
        ("taps", W.dims[1]),
        ("fill", (x_zero & 0xFF) * 0x01010101),
        ("limits", bits[0] | bits[1] << 8 | bits[2] << 16),
        *(words.sum_push(sums) if other else ()),
    )
    chosen = zip(
        ("ADDED", "LAST", "LONG", "BYTES", "ALONG", "DOT", "SUBGROUP"),
        map(str, (int(bool(other)), last, long, min(words.BYTES, depth * group), 0, 0, 0)),
        strict=True,
    )
    forms = str(int(result.dtype == "uint32")), str(int(bool(scaling)))
    defines = (
        *zip(("QUANTIZE", "DYNAMIC"), forms, strict=True),
        *(() if each else chosen),
        *type_defines("Y", "float32")[::2],
    )
    dispatch = Dispatch(
        kernel="depthwise_words" if each else "conv_words",
        reads=tuple(
            (f"{name}_buffer", info)
            for name, info in zip(("x", "w", "c", "scaling", "other"), operands, strict=True)
            if info is not None
        ),
        writes=(("words_buffer" if result.dtype == "uint32" else "y_buffer", result),),
        workgroups=(-(-pixels // WORKGROUP), words.word_count(filters), images),
        push=push,
        defines=defines,
        constants=(
            ("WORKGROUP", WORKGROUP),
            ("COLUMNS", 1),
            *(() if each else (("LANES", 4), ("BLOCKS", 1))),
        ),
        flops=2 * images * filters * pixels * depth * W.dims[1],
        iterations=W.dims[1] * (span + 1),
        stores=result.dtype != "uint32",
    )
    return Result((result,), (dispatch,))
