"""Dispatch conversions to and from few bits: a scale and a zero point per tensor, axis or block.

Scales and zero points are read on the device, broadcast to their elements by strides.
ONNX: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear.
Source: Jacob et al., "Quantization and Training of Neural Networks", 2018.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.cast import BYTE_FLOATS, dtype_of
from vklab.ops.dtypes import ELEMENTS, FLOATS, type_defines
from vklab.ops.elementwise import strided
from vklab.ops.inputs import normal_axis, require
from vklab.ops.registry import WORKGROUP, Result, operator, output
from vklab.types import Dispatch, TensorInfo, dense_strides

MICROSOFT = "com.microsoft"
SMALL_FLOATS = frozenset(BYTE_FLOATS) | {"float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"}
SMALL_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (2, 4, 8, 16))
# Numbers up to which each workgroup takes the range of all, which saves a dispatch; above them, the
# numbers and the most workgroups of that dispatch. Then the results of an invocation.
MOST_DIRECT, RANGE_NUMBERS, MOST_RANGES, RESULTS, MOST_WORKGROUPS = 4096, 2048, 256, 4, 4096
SCALES = FLOATS | {"int32", "float8_e8m0fnu"}
# Slang expressions that round a quotient to the type that ONNX computes it in.
ROUNDED = {"float32": "{}", "float16": "narrow_half({})",
           "bfloat16": "load_bfloat16(store_bfloat16({}))"}  # fmt: skip


@operator("QuantizeLinear", since=10)
@operator("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(
    x: TensorInfo,
    y_scale: TensorInfo,
    y_zero_point: TensorInfo | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Result:
    """Compute round(x / scale) + zero point, saturated. Source: ONNX QuantizeLinear-25."""
    require(FLOATS | {"int32"}, x)
    require(SCALES, y_scale)
    to = dtype_of(output_dtype) if output_dtype else "uint8"
    if y_zero_point is not None:
        if output_dtype and y_zero_point.dtype != to:
            raise ModelError(f"output_dtype is {to}, but the zero point is {y_zero_point.dtype}")
        to = y_zero_point.dtype
    if to not in SMALL_FLOATS | SMALL_INTEGERS:
        names = ", ".join(sorted(SMALL_FLOATS | SMALL_INTEGERS))
        raise ModelError(f"cannot quantize to {to}; choose one of {names}")
    narrow = dtype_of(precision) if precision else y_scale.dtype
    quotient = ROUNDED.get(narrow, "{}").format("onnx::exact_div(float(a), float(b))")
    zero = "0" if y_zero_point is None else "c"
    if to in SMALL_INTEGERS:
        value = ELEMENTS[to].value
        call = f"{value}(onnx::quantize({quotient}, int({zero}), p0, p1))"
    else:
        call = f"({quotient} + {zero})"
        if to in BYTE_FLOATS and saturate:
            call = f"onnx::clip_to({call}, p0, p1)"
    return _scaled(call, x, (y_scale, y_zero_point), to, axis, block_size, _limits(to))


def _limits(dtype: str) -> tuple[float, float]:
    """Return the least and the largest number of a quantized dtype."""
    if dtype in SMALL_FLOATS:
        return -BYTE_FLOATS.get(dtype, 0.0), BYTE_FLOATS.get(dtype, 0.0)
    codes = 2 ** int(dtype.removeprefix("u").removeprefix("int"))
    return (0.0, codes - 1.0) if dtype.startswith("u") else (-codes / 2, codes / 2 - 1.0)


@operator("DequantizeLinear", since=10)
@operator("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(
    x: TensorInfo,
    x_scale: TensorInfo,
    x_zero_point: TensorInfo | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Result:
    """Compute (x - zero point) * scale. Source: ONNX DequantizeLinear-25."""
    require(SMALL_FLOATS | SMALL_INTEGERS | {"int32"}, x)
    require(SCALES, x_scale)
    if x_zero_point is not None and x_zero_point.dtype != x.dtype:
        raise ModelError(f"x is {x.dtype}, but its zero point is {x_zero_point.dtype}")
    to = dtype_of(output_dtype) if output_dtype else x_scale.dtype
    if to not in FLOATS:
        raise UnsupportedOperatorError(f"no kernel dequantizes to {to}")
    value = "float" if x.dtype in SMALL_FLOATS else "int"
    zero = "" if x_zero_point is None else f" - {value}(c)"
    call = f"float({value}(a){zero}) * float(b)"
    return _scaled(call, x, (x_scale, x_zero_point), to, axis, block_size)


def widens(node: Any, read: Sequence[TensorInfo]) -> bool:
    """Tell whether a node makes float32 of constant codes of 8 bits, in four times the memory.

    Args:
        node: a node, with `op_type` and `attributes`.
        read: its inputs.
    """
    if node.op_type != "DequantizeLinear" or node.attributes.keys() - {"axis"}:
        return False
    return read[0].dtype in ("int8", "uint8") and read[1].dtype == "float32"


def _scaled(
    call: str,
    x: TensorInfo,
    given: Sequence[TensorInfo | None],
    to: str,
    axis: int,
    block_size: int,
    limits: Sequence[float] = (),
) -> Result:
    """Return the dispatches of an expression of x, its scale and its zero point."""
    scales = [info for info in given if info is not None]
    scale = scales[0]
    if any(info.dims != scale.dims for info in scales[1:]) and scale.count != 1:
        raise ModelError(f"scale has shape {scale.shape}, but the zero point {scales[1].shape}")
    result = output(to, x.dims)
    push = tuple((f"p{i}", limit) for i, limit in enumerate(limits))
    dispatches: tuple[Dispatch, ...] = ()
    for extent, strides, start, steps, first in _parts(x, scale, axis, block_size):
        whole = extent == x.dims
        dispatches += strided(
            call,
            (x, *scales),
            (strides, *(steps for _ in scales)),
            result,
            push,
            (start, *(first for _ in scales)),
            None if whole else (extent, strides, start),
        )
    return Result((result,), dispatches)


Part = tuple[tuple[int, ...], tuple[int, ...], int, tuple[int, ...], int]


def _parts(x: TensorInfo, scale: TensorInfo, axis: int, block: int) -> list[Part]:
    """Return parts of x: extent, strides and start in x, strides and start in the scale.

    Blocks become an axis of their own; a shorter last block is a second part.
    """
    dense = dense_strides(x.dims)
    if scale.count == 1 and not block:
        return [(x.dims, dense, 0, (0,) * x.rank, 0)]
    axis = normal_axis(axis, x.rank)
    size, before, after = x.dims[axis], x.dims[:axis], x.dims[axis + 1 :]
    if not block:
        if scale.dims != (size,):
            raise ModelError(
                f"scale has shape {scale.shape}; axis {axis} of {x.shape} needs ({size},)"
            )
        return [(x.dims, dense, 0, tuple(int(i == axis) for i in range(x.rank)), 0)]
    blocks = -(-size // block) if block > 0 else 0
    if scale.dims != (*before, blocks, *after):
        raise ModelError(
            f"scale has shape {scale.shape}; blocks of {block} along axis {axis} of "
            f"{x.shape} need {(*before, blocks, *after)}"
        )
    full, rest = divmod(size, block)
    own = dense_strides(scale.dims)
    step = dense[axis]
    strides = (*dense[:axis], block * step, step, *dense[axis + 1 :])
    steps = (*own[:axis], own[axis], 0, *own[axis + 1 :])
    parts = [((*before, full, block, *after), strides, 0, steps, 0)]
    if rest:
        parts.append(
            ((*before, 1, rest, *after), strides, full * block * step, steps, full * own[axis])
        )
    return parts


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(x: TensorInfo) -> Result:
    """Quantize x to uint8 by its range of values. Source: ONNX DynamicQuantizeLinear-11."""
    return _by_range(
        x,
        {
            "y_buffer": output("uint8", x.dims),
            "scale_buffer": output("float32", ()),
            "zero_buffer": output("uint8", ()),
        },
    )


@operator("DynamicWords", domain="vklab")
def dynamic_words(X: TensorInfo, *, axis: int) -> Result:
    """Quantize X by its range, in words; the scale and the int8 zero point follow. Source: own."""
    size, after = X.dims[axis], X.dims[axis + 1 :]
    made = {"words_buffer": output("uint32", (*X.dims[:axis], -(-size // 4), *after))}
    return _by_range(X, made | {"scaling_buffer": output("float32", (2,))}, size, math.prod(after))


def _by_range(x: TensorInfo, made: dict[str, TensorInfo], size: int = 1, inner: int = 1) -> Result:
    require(frozenset({"float32"}), x)
    count = next(iter(made.values())).count
    ranges = min(-(-x.count // RANGE_NUMBERS), MOST_RANGES)
    direct = x.count <= MOST_DIRECT
    pairs = output("float32", (ranges, 2))
    first = Dispatch(
        "value_range",
        (("x_buffer", x),),
        (("pairs_buffer", pairs),),
        (ranges, 1, 1),
        (("count", x.count), ("workgroups", ranges)),
        flops=2 * x.count,
        iterations=x.count // (WORKGROUP * max(ranges, 1)) + 1,
    )
    groups = min(-(-count // (RESULTS * WORKGROUP)), MOST_WORKGROUPS) or 1
    terms = x.count if direct else ranges
    second = Dispatch(
        "dynamic_codes",
        (("x_buffer", x), *(() if direct else (("pairs_buffer", pairs),))),
        tuple(made.items()),
        (groups, 1, 1),
        tuple(
            zip(
                ("count", "workgroups", "size", "inner", "terms"),
                (count, groups, size, inner, terms),
                strict=True,
            )
        ),
        (
            ("DIRECT", str(int(direct))),
            ("WORDS", str(int("words_buffer" in made))),
            *type_defines("Y", "uint8")[::2],
        ),
        flops=3 * x.count,
        iterations=terms // WORKGROUP + count // (WORKGROUP * groups) + 2,
    )
    return Result(tuple(made.values()), *(((second,),) if direct else ((first, second), (pairs,))))
