"""Dispatch vklab's own operators on int8 in words: four neighbouring channels in one uint32.

Only the pass `fuse_quantized` writes them into a graph; no device needs 8-bit storage for them. A
word always holds int8: codes of uint8 are stored less 128. Visited by lab 10.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from vklab.errors import ModelError
from vklab.ops import window
from vklab.ops.dtypes import ELEMENTS, FLOATS, table, type_defines
from vklab.ops.elementwise import strided
from vklab.ops.inputs import require
from vklab.ops.per_element import per_element
from vklab.ops.registry import Result, operator, output
from vklab.types import TensorInfo

BYTES = 4
# Least code of each dtype, which int8 stores as -128.
CODES = {"int8": -128, "uint8": 0}
WORD = frozenset({"uint32"})


def word_count(size: int) -> int:
    """Return the words that hold so many numbers."""
    return -(-size // BYTES)


@operator("PackWords", domain="vklab")
def pack_words(X: TensorInfo, *, axis: int) -> Result:
    """Join four codes of int8 or uint8 along an axis into one word. Source: own."""
    require(frozenset(CODES), X)
    return _pack(X, axis, (1.0, -128 - CODES[X.dtype], -128, 127), 0)


@operator("QuantizeWords", domain="vklab")
def quantize_words(X: TensorInfo, *, axis: int, scale: float, zero: int) -> Result:
    """Compute round(X / scale) + zero as int8, and join four along an axis. Source: own."""
    require(FLOATS, X)
    return _pack(X, axis, (scale, zero, -128, 127), 1)


def _pack(X: TensorInfo, axis: int, numbers: tuple[float, int, int, int], scaled: int) -> Result:
    shape = (*X.dims[:axis], word_count(X.dims[axis]), *X.dims[axis + 1 :])
    push = (
        ("size", X.dims[axis]),
        ("inner", math.prod(X.dims[axis + 1 :])),
        *zip(("scale", "zero", "low", "high"), numbers, strict=True),
    )
    return per_element(
        "pack_words",
        output("uint32", shape),
        [("x", X)],
        push,
        (("SCALED", str(scaled)), *type_defines("X", X.dtype)[:2]),
        BYTES,
        loads=True,
    )


@operator("UnpackWords", domain="vklab")
def unpack_words(X: TensorInfo, *, axis: int, size: int, dtype: str) -> Result:
    """Return the codes in words as int8 or uint8, `size` of them along an axis. Source: own."""
    require(WORD, X)
    if dtype not in CODES or X.dims[axis] != word_count(size):
        raise ModelError(f"{X} does not hold {size} codes of {dtype} along axis {axis}")
    result = output(dtype, (*X.dims[:axis], size, *X.dims[axis + 1 :]))
    if size % BYTES:
        return _unpacked(X, result, axis, 1.0, -128 - CODES[dtype])
    # Element-wise work, which fuses with what reads the codes.
    number = "int(a << (24 - b)) >> 24"
    call = f"({number})" if dtype == "int8" else f"uint(({number}) + 128)"
    inner = math.prod(X.dims[axis + 1 :])
    extent = (math.prod(X.dims[: axis + 1]), BYTES, inner)
    shifts = table([8 * place for place in range(BYTES)], "uint32")
    made = strided(call, (X, shifts), ((inner, 0, 1), (0, 1, 0)), output(dtype, extent))
    return Result((result,), tuple(replace(each, writes=(("y_buffer", result),)) for each in made))


@operator("DequantizeWords", domain="vklab")
def dequantize_words(X: TensorInfo, *, axis: int, size: int, scale: float, zero: int) -> Result:
    """Return (code - zero) * scale of int8 in words, `size` along an axis. Source: own."""
    require(WORD, X)
    if X.dims[axis] != word_count(size):
        raise ModelError(f"{X} does not hold {size} codes along axis {axis}")
    result = output("float32", (*X.dims[:axis], size, *X.dims[axis + 1 :]))
    return _unpacked(X, result, axis, scale, zero)


def _unpacked(X: TensorInfo, result: TensorInfo, axis: int, scale: float, zero: int) -> Result:
    push = (
        ("size", result.dims[axis]),
        ("inner", math.prod(X.dims[axis + 1 :])),
        ("scale", scale),
        ("zero", zero),
    )
    value = ("VALUE", ELEMENTS[result.dtype].value)
    return per_element(
        "unpack_words",
        result,
        [("x", X)],
        push,
        (value, *type_defines("Y", result.dtype)[::2]),
        2,
        stores=True,
    )


@operator("AddWords", domain="vklab")
def add_words(
    A: TensorInfo, B: TensorInfo, *, scales: Sequence[float], zeros: Sequence[int],
    limits: Sequence[int],
) -> Result:  # fmt: skip
    """Add two tensors in words: scales in steps of the result, its zero point last. Source: own."""
    require(WORD, A, B)
    if A.dims != B.dims:
        raise ModelError(f"{A} and {B} differ in shape")
    return per_element(
        "add_words",
        output("uint32", A.dims),
        [("a", A), ("b", B)],
        sum_push((*scales, *zeros, *limits)),
        (),
        3 * BYTES,
    )


def sum_push(sums: Sequence[float]) -> tuple[tuple[str, float], ...]:
    """Return push constants of kernels that add words: scales, joined zero points and limits."""
    bits = [int(number) & 0xFF for number in sums[2:]]
    joined = bits[0] | bits[1] << 8 | bits[2] << 16, bits[3] | bits[4] << 8
    names = ("own_scale", "other_scale", "sum_zeros", "sum_limits")
    return tuple(zip(names, (*sums[:2], *joined), strict=True))


@operator("MaxPoolWords", domain="vklab")
def max_pool_words(
    X: TensorInfo, *, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Sequence[int] | None = None, kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None, storage_order: int = 0,
    strides: Sequence[int] | None = None,
) -> Result:  # fmt: skip
    """Compute the maximum of each window, byte by byte. Source: own; ONNX MaxPool-22."""
    require(WORD, X)
    view = window.resolve(
        window.spatial_axes(X), kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    flat = view.lifted(2)
    return per_element(
        "pool_words",
        output("uint32", (*X.dims[:2], *view.output)),
        [("x", X)],
        flat.plane(),
        (("BYTES", str(BYTES)),),
        BYTES * math.prod(view.kernel),
        iterations=math.prod(view.kernel) + flat.kernel[0],
    )
