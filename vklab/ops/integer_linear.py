"""Dispatch matrix products of 8-bit integers, exact in int32: MatMulInteger and QLinearMatMul.

Scales and zero points are read on the device: one number, or one per row of A and column of B.
Visited by lab 08.
"""

from __future__ import annotations

from vklab.errors import ModelError, UnsupportedOperatorError
from vklab.ops.dtypes import FLOATS, type_defines
from vklab.ops.inputs import require, same
from vklab.ops.linear import COLUMN_WORKGROUP, MOST_GROUPS, batch_axes, batch_starts, matrix_batches
from vklab.ops.registry import Result, operator, output
from vklab.types import Dispatch, TensorInfo

BYTES = frozenset({"int8", "uint8"})
RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int32": (0, 0)}
ROWS = 4


@operator("MatMulInteger", since=10)
def matmul_integer(
    A: TensorInfo,
    B: TensorInfo,
    a_zero_point: TensorInfo | None = None,
    b_zero_point: TensorInfo | None = None,
) -> Result:
    """Multiply 8-bit matrices less their zero points. Source: ONNX MatMulInteger-10."""
    return integer_product(A, B, a_zero_point, b_zero_point)


@operator("QLinearMatMul", since=10)
def qlinear_matmul(
    a: TensorInfo,
    a_scale: TensorInfo,
    a_zero_point: TensorInfo,
    b: TensorInfo,
    b_scale: TensorInfo,
    b_zero_point: TensorInfo,
    y_scale: TensorInfo,
    y_zero_point: TensorInfo,
) -> Result:
    """Multiply quantized matrices, quantize, ties to even. Source: ONNX QLinearMatMul-21."""
    for zero, scale in ((a_zero_point, a_scale), (b_zero_point, b_scale)):
        if zero.count != scale.count:
            raise ModelError(f"{zero} and {scale} differ in shape")
    if y_scale.count != 1 or y_zero_point.count != 1:
        raise UnsupportedOperatorError(
            f"y_scale {y_scale}, y_zero_point {y_zero_point}; kernels take one number for all of y"
        )
    require(FLOATS, a_scale, b_scale, y_scale)
    same(a_scale, b_scale, y_scale)
    return integer_product(
        a, b, a_zero_point, b_zero_point, (a_scale, b_scale, y_scale, y_zero_point)
    )


def integer_product(
    A: TensorInfo,
    B: TensorInfo,
    a_zero: TensorInfo | None,
    b_zero: TensorInfo | None,
    quantize: tuple[TensorInfo, TensorInfo, TensorInfo, TensorInfo] | None = None,
) -> Result:
    """Return the product of two 8-bit tensors, as int32 or quantized.

    Args:
        A: int8 or uint8 [...,M,K].
        B: int8 or uint8 [...,K,N].
        a_zero: the zero point of A, or one per row; None for 0.
        b_zero: the zero point of B, or one per column; None for 0.
        quantize: (a_scale, b_scale, y_scale, y_zero); None for an int32 result.
    """
    require(BYTES, A, B, a_zero, b_zero, quantize[3] if quantize else None)
    shape, (m, n, k), batch, strides = matrix_batches(A.dims, B.dims)
    result = output(quantize[3].dtype if quantize else "int32", shape)
    if result.count == 0:
        return Result((result,))
    batches, axes = batch_axes(batch, strides)
    a_row, a_unit = _steps(a_zero, m, A.count // max(m * k, 1))
    b_column, b_unit = _steps(b_zero, n, B.count // max(n * k, 1))
    reads = [("a_buffer", A), ("b_buffer", B)]
    reads += [(f"{n}_zero_buffer", zero) for n, zero in (("a", a_zero), ("b", b_zero)) if zero]
    defines = [
        ("A_ZERO", str(int(a_zero is not None))),
        ("B_ZERO", str(int(b_zero is not None))),
        ("QUANTIZE", str(int(quantize is not None))),
    ]
    for name, dtype in (("A", A.dtype), ("B", B.dtype)):
        defines += type_defines(name, dtype)[:2]
    defines += (axes, *type_defines("Y", result.dtype)[::2])
    if quantize:
        names = ("a_scale_buffer", "b_scale_buffer", "y_scale_buffer", "y_zero_buffer")
        reads += zip(names, quantize, strict=True)
        least, most = RANGES[result.dtype]
        defines += [("LEAST", str(least)), ("MOST", str(most))]
        defines += type_defines("S", quantize[0].dtype)[:2]
        defines += type_defines("Z", result.dtype)[:2]
    count = result.count // (m * n)
    return Result(
        (result,),
        tuple(
            Dispatch(
                kernel="matmul_integer",
                reads=tuple(reads),
                writes=(("y_buffer", result),),
                workgroups=(
                    -(-n // COLUMN_WORKGROUP),
                    -(-m // ROWS),
                    min(count - start, MOST_GROUPS),
                ),
                push=(
                    ("m", m),
                    ("n", n),
                    ("k", k),
                    ("start", start),
                    ("a_zero_row", a_row),
                    ("b_zero_column", b_column),
                    ("a_zero_batch", a_unit),
                    ("b_zero_batch", b_unit),
                    *batches,
                ),
                defines=tuple(defines),
                flops=2 * m * n * k * min(count - start, MOST_GROUPS),
                iterations=k,
                stores=True,
            )
            for start in batch_starts(count)
        ),
    )


def _steps(zero: TensorInfo | None, size: int, units: int) -> tuple[int, int]:
    """Return the zero point's strides along a row or column, and along its matrices."""
    if zero is None or zero.count == 1:
        return 0, 0
    if zero.count == size:
        return 1, 0
    if zero.count == size * units:
        return 1, size
    raise ModelError(f"zero point {zero} must have 1 or {size} elements")
